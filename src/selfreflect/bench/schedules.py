"""The schedules that this project's engine is compared with, at their best: ideal caches, and copies of keys
and values only where a batch needs the shared prefix in each of its rows.

Both run the model's own transformers attention, project the last position of a request only, and compute
distances from the same float32 rows with the metric's own formula. Neither keeps anything from one item to
the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from selfreflect.bench.work import Ids, common, requests, visiting_order
from selfreflect.errors import JudgeError
from selfreflect.metric.distance import total_variation
from selfreflect.metric.engine.tree import Prompt
from selfreflect.metric.engine.tree_engine import ROWS_OF_LOGITS

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge

Distances = list[npt.NDArray[np.float64]]
"""For each summary, in order, the distance of every token task."""


@torch.inference_mode()
def one_by_one(judge: Judge, contexts: Sequence[Sequence[Prompt]], temperature: float) -> Distances:
    """The published algorithm: one request per target token, one after another, each for one next-token row.

    The cache is ideal: a request computes only those of its tokens that no earlier request of the item has
    computed, whatever their context, and at least its last one, since a cache holds no predictions.
    """
    path = Path(judge, 1, _longest(contexts))

    def rows_of(asked: list[Ids]) -> torch.Tensor:
        found: torch.Tensor | None = None
        # the tree depth first: what is left behind is not needed again
        for index in sorted(range(len(asked)), key=asked.__getitem__):
            row = judge.head(path.walk(asked[index]))
            if found is None:
                found = row.new_empty(len(asked), row.shape[1])
            found[index] = row[0]
        assert found is not None
        return found

    return _distances(contexts, rows_of, temperature)


@torch.inference_mode()
def batched(judge: Judge, contexts: Sequence[Sequence[Prompt]], temperature: float, size: int) -> Distances:
    """The same requests, ``size`` at a time, padded on the right to the longest of a batch of similar
    lengths.

    What all requests of a context share is computed once, that which contexts of the item share once for all
    of them, and it lies in the cache for every row of all batches; what follows, the text with the gap and
    the question about it, is computed for each request.
    """
    path = Path(judge, size, _longest(contexts))

    def rows_of(asked: list[Ids]) -> torch.Tensor:
        shared = shared_prefix(asked)
        path.walk(asked[0][:shared])
        path.spread()
        order = sorted(range(len(asked)), key=lambda index: len(asked[index]))
        found: torch.Tensor | None = None
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            rows = judge.head(path.fan([asked[index][shared:] for index in chosen]))
            if found is None:
                found = rows.new_empty(len(asked), rows.shape[1])
            found[chosen] = rows
        assert found is not None
        return found

    return _distances(contexts, rows_of, temperature)


@torch.inference_mode()
def token_bytes(judge: Judge) -> int:
    """What the keys and values of one token take."""
    path = Path(judge, 1, 1)
    path.walk((0,))
    return sum(buffer.nbytes for layer in path.layers for buffer in layer.buffers)


def shared_prefix(asked: Sequence[Ids]) -> int:
    """How many tokens all requests begin with, leaving each at least one of its own."""
    return min(common(min(asked), max(asked)), min(map(len, asked)) - 1)


class Path:
    """Keys and values of the sequence that was computed last, in buffers made once: going back is forgetting
    a length, not a copy.

    Args:
        rows: sequences beside each other.
        room: tokens of the longest sequence.

    Raises:
        JudgeError: some layers of the judge keep something else than keys and values of all tokens, which
            cannot be taken back.
    """

    def __init__(self, judge: Judge, rows: int, room: int) -> None:
        self.decoder = judge.decoder
        self.device = next(judge.lm.model.parameters()).device
        self.cache = DynamicCache(config=judge.lm.model.config)
        if any(type(layer) is not DynamicLayer for layer in self.cache.layers):
            raise JudgeError(
                f"judge {judge.name!r} has layers whose cache cannot go back to an earlier token (windows, states), so the published "
                "schedule cannot be timed with an ideal cache. Time the engine alone with --only c."
            )
        self.layers = [
            _Layer(rows, room) for _ in range(judge.lm.model.config.get_text_config().num_hidden_layers)
        ]
        self.cache.layers = self.layers
        self.ids: Ids = ()
        self.spread_to = 0
        """Columns that are the same in all rows."""

    def walk(self, ids: Ids) -> torch.Tensor:
        """Go to the end of ``ids`` in the first row, computing what the current path does not have; the last
        state, (1, hidden)."""
        have = min(common(self.ids, ids), len(ids) - 1)
        self._keep(have)
        states = self._run(torch.tensor([ids[have:]], device=self.device))
        self.ids, self.spread_to = ids, min(self.spread_to, have)
        return states[:, -1]

    def spread(self) -> None:
        """Write the path into all rows."""
        for layer in self.layers:
            for buffer in layer.buffers:
                buffer[1:, :, self.spread_to : len(self.ids)] = buffer[:1, :, self.spread_to : len(self.ids)]
        self.spread_to = len(self.ids)

    def fan(self, tails: Sequence[Ids]) -> torch.Tensor:
        """The last state of each tail behind the path, one in each row, (tails, hidden). The path stays where
        it is."""
        ids = np.zeros((len(tails), max(map(len, tails))), dtype=np.int64)
        for row, tail in zip(ids, tails, strict=True):
            row[: len(tail)] = tail
        self._keep(len(self.ids))
        states = self._run(torch.from_numpy(ids).to(self.device))
        last = torch.tensor([len(tail) - 1 for tail in tails], device=self.device)
        return states[torch.arange(len(tails), device=self.device), last]

    def _keep(self, length: int) -> None:
        for layer in self.layers:
            layer.keep(length)

    def _run(self, ids: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.decoder(
            input_ids=ids, past_key_values=self.cache, use_cache=True
        ).last_hidden_state
        return states


class _Layer(DynamicLayer):  # type: ignore[misc]
    """A cache layer with fixed room. ``keys`` and ``values`` are views of what is filled."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, rows: int, room: int) -> None:
        super().__init__()
        self.rows, self.room = rows, room
        self.buffers: tuple[torch.Tensor, ...] = ()

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self.buffers = tuple(
            new.new_empty(self.rows, new.shape[1], self.room, new.shape[3])
            for new in (key_states, value_states)
        )
        self.keep(0)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, stop, rows = self.keys.shape[-2], self.keys.shape[-2] + key_states.shape[-2], len(key_states)
        for buffer, new in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:rows, :, start:stop] = new
        self.keys, self.values = (buffer[:rows, :, :stop] for buffer in self.buffers)
        return self.keys, self.values

    def keep(self, length: int) -> None:
        """Forget all but the first ``length`` tokens."""
        if self.buffers:
            self.keys, self.values = (buffer[:, :, :length] for buffer in self.buffers)


def _longest(contexts: Sequence[Sequence[Prompt]]) -> int:
    return max(len(prompt.ids) for prompts in contexts for prompt in prompts)


def _distances(
    contexts: Sequence[Sequence[Prompt]], rows_of: Callable[[list[Ids]], torch.Tensor], temperature: float
) -> Distances:
    """Distances of each summary's rows to those of the reference, which are kept."""
    _, *groups = visiting_order(contexts)
    reference = rows_of(requests(contexts[0]))
    found: Distances = [np.zeros(len(reference)) for _ in contexts[1:]]
    for group in groups:
        of_group = rows_of(requests(contexts[group[0]]) * len(group))
        for index, rows in zip(group, torch.split(of_group, len(reference)), strict=True):
            for start in range(0, len(rows), ROWS_OF_LOGITS):
                block = slice(start, start + ROWS_OF_LOGITS)
                found[index - 1][block] = (
                    total_variation(rows[block], reference[block], temperature).double().cpu().numpy()
                )
    return found
