"""The schedules that this project's engine is compared with, at their best: with ideal caches, and copying
keys and values only where every row of a batch needs the shared prefix.

Both run the model's own transformers attention, project only the last position of a request, and compute
distances from float32 rows with the metric's own formula. Nothing is kept from one item to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from selfreflect.errors import JudgeError
from selfreflect.metric.distance import total_variation
from selfreflect.metric.engine.logits import ROWS_OF_LOGITS
from selfreflect.metric.engine.tree import Prompt
from selfreflect.text import common_prefix

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge

Ids = tuple[int, ...]

Distances = list[npt.NDArray[np.float64]]
"""The distance of every token task, for each summary in order."""

States = Iterator[tuple[list[int], torch.Tensor]]
"""Indices of requests, and the last hidden state of each, (requests, hidden)."""


@torch.inference_mode()
def one_by_one(judge: Judge, contexts: Sequence[Sequence[Prompt]], temperature: float) -> Distances:
    """The published algorithm: one request per target token, one after another, each for one next-token row.

    The cache is ideal. A request computes only tokens that no earlier request of the item has computed, and
    at least its last one, since a cache holds no predictions.
    """
    cache = RewindableCache(judge, 1, longest(contexts))

    def compute(sequences: Sequence[Ids]) -> States:
        # depth first, so that what the cache forgets is not needed again
        for index in sorted(range(len(sequences)), key=lambda i: sequences[i]):
            yield [index], cache.go_to(sequences[index])

    return _distances(judge, contexts, compute, temperature)


@torch.inference_mode()
def batched(judge: Judge, contexts: Sequence[Sequence[Prompt]], temperature: float, size: int) -> Distances:
    """The same requests in batches of ``size``, padded on the right; a batch has requests of similar length.

    The prefix that all requests of a context share is computed once and lies in every row of the cache; what
    contexts share is computed once as well. The rest, the text with the gap and the question about it, is
    computed for each request.
    """
    cache = RewindableCache(judge, size, longest(contexts))

    def compute(sequences: Sequence[Ids]) -> States:
        prefix = shared_prefix(sequences)
        cache.go_to(sequences[0][:prefix])
        cache.copy_to_all_rows()
        by_length = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        for start in range(0, len(by_length), size):
            batch = by_length[start : start + size]
            yield batch, cache.peek([sequences[i][prefix:] for i in batch])

    return _distances(judge, contexts, compute, temperature)


@torch.inference_mode()
def token_bytes(judge: Judge) -> int:
    """Bytes of the keys and values of one token."""
    cache = RewindableCache(judge, 1, 1)
    cache.go_to((0,))
    return sum(layer.all_keys.nbytes + layer.all_values.nbytes for layer in cache.layers)


def longest(contexts: Sequence[Sequence[Prompt]]) -> int:
    """Tokens of the longest prompt."""
    return max(len(prompt.ids) for prompts in contexts for prompt in prompts)


def requests(prompts: Sequence[Prompt]) -> list[Ids]:
    """One request for each target token, in order: everything before it."""
    sequences = []
    for prompt in prompts:
        sequences += [prompt.ids[:end] for end in range(prompt.first, len(prompt.ids))]
    return sequences


def visiting_order(contexts: Sequence[Sequence[Prompt]]) -> list[list[int]]:
    """Indices of the reference, then of the summaries in lexicographic order, so that neighbours share long
    prefixes. Equal contexts are together."""
    groups: dict[tuple[Prompt, ...], list[int]] = {}
    for index, prompts in enumerate(contexts):
        groups.setdefault(tuple(prompts), []).append(index)
    reference, *summaries = groups
    summaries.sort(key=lambda prompts: min(prompt.ids for prompt in prompts))
    return [groups[prompts] for prompts in (reference, *summaries)]


def shared_prefix(sequences: Sequence[Ids]) -> int:
    """Length of the prefix of all sequences, which leaves each at least one token."""
    shortest = min(map(len, sequences))
    return min(common_prefix(min(sequences), max(sequences)), shortest - 1)


class RewindableCache:
    """Keys and values of one sequence, in buffers of fixed size. Going back to an earlier token changes a
    length and copies nothing.

    Args:
        rows: sequences computed together.
        capacity: tokens of the longest sequence.

    Raises:
        JudgeError: some layers of the judge keep something other than keys and values of all tokens.
    """

    def __init__(self, judge: Judge, rows: int, capacity: int) -> None:
        config = judge.lm.model.config
        self.decoder = judge.decoder
        self.device = next(judge.lm.model.parameters()).device
        self.cache = DynamicCache(config=config)
        if any(type(layer) is not DynamicLayer for layer in self.cache.layers):
            raise JudgeError(
                f"judge {judge.name!r} has layers whose cache cannot go back to an earlier token (windows, "
                "states), so the published schedule cannot be timed with an ideal cache. Time the engine "
                "alone with --only c."
            )
        self.layers = [_Layer(rows, capacity) for _ in range(config.get_text_config().num_hidden_layers)]
        self.cache.layers = self.layers
        self.ids: Ids = ()
        """The sequence in the first row."""
        self.copied = 0
        """Tokens that all rows share with the first."""

    def go_to(self, ids: Ids) -> torch.Tensor:
        """Make ``ids`` the sequence of the first row, computing only tokens that are not there yet. Returns
        the last hidden state, (1, hidden)."""
        size = min(common_prefix(self.ids, ids), len(ids) - 1)
        states = self._run(size, torch.tensor([ids[size:]]))
        self.ids = ids
        self.copied = min(self.copied, size)
        return states[:, -1]

    def copy_to_all_rows(self) -> None:
        """Copy the sequence from the first row to the others."""
        for layer in self.layers:
            layer.copy_first_row(self.copied, len(self.ids))
        self.copied = len(self.ids)

    def peek(self, tails: Sequence[Ids]) -> torch.Tensor:
        """The last hidden state of each tail that continues the sequence, (tails, hidden). A tail takes one
        row; the sequence stays as it is."""
        ids = np.zeros((len(tails), max(map(len, tails))), dtype=np.int64)
        for row, tail in zip(ids, tails, strict=True):
            row[: len(tail)] = tail
        states = self._run(len(self.ids), torch.from_numpy(ids))
        last = torch.tensor([len(tail) - 1 for tail in tails], device=self.device)
        return states[torch.arange(len(tails), device=self.device), last]

    def _run(self, start: int, ids: torch.Tensor) -> torch.Tensor:
        """Compute ``ids`` after the first ``start`` tokens of the cache."""
        for layer in self.layers:
            layer.truncate(start)
        output = self.decoder(input_ids=ids.to(self.device), past_key_values=self.cache, use_cache=True)
        states: torch.Tensor = output.last_hidden_state
        return states


class _Layer(DynamicLayer):  # type: ignore[misc]
    """A cache layer with buffers of fixed size. ``keys`` and ``values`` are views of the filled part."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, rows: int, capacity: int) -> None:
        super().__init__()
        self.rows = rows
        self.capacity = capacity

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        _, heads, _, width = key_states.shape
        self.all_keys = key_states.new_empty(self.rows, heads, self.capacity, width)
        self.all_values = value_states.new_empty(self.rows, heads, self.capacity, value_states.shape[-1])
        self.truncate(0)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, _, new, _ = key_states.shape
        start = self.keys.shape[2]
        stop = start + new
        self.all_keys[:rows, :, start:stop] = key_states
        self.all_values[:rows, :, start:stop] = value_states
        self.keys = self.all_keys[:rows, :, :stop]
        self.values = self.all_values[:rows, :, :stop]
        return self.keys, self.values

    def copy_first_row(self, start: int, stop: int) -> None:
        for buffer in (self.all_keys, self.all_values):
            buffer[1:, :, start:stop] = buffer[:1, :, start:stop]

    def truncate(self, length: int) -> None:
        """Forget all but the first ``length`` tokens."""
        if self.is_initialized:
            self.keys = self.all_keys[:, :, :length]
            self.values = self.all_values[:, :, :length]


def _distances(
    judge: Judge,
    contexts: Sequence[Sequence[Prompt]],
    compute: Callable[[Sequence[Ids]], States],
    temperature: float,
) -> Distances:
    """Distances of each summary's logits to the reference's, which are kept. Equal contexts are computed
    together, but each has its own requests."""
    _, *groups = visiting_order(contexts)
    reference = _logits(judge, compute, requests(contexts[0]))
    distances: Distances = [np.zeros(len(reference)) for _ in contexts[1:]]
    for group in groups:
        logits = _logits(judge, compute, requests(contexts[group[0]]) * len(group))
        for index, rows in zip(group, torch.split(logits, len(reference)), strict=True):
            for start in range(0, len(rows), ROWS_OF_LOGITS):
                block = slice(start, start + ROWS_OF_LOGITS)
                values = total_variation(rows[block], reference[block], temperature)
                distances[index - 1][block] = values.double().cpu().numpy()
    return distances


def _logits(
    judge: Judge, compute: Callable[[Sequence[Ids]], States], sequences: Sequence[Ids]
) -> torch.Tensor:
    """The next-token logits of every sequence, (sequences, vocabulary)."""
    logits = torch.empty(0)
    for indices, states in compute(sequences):
        rows = judge.head(states)
        if not len(logits):
            logits = rows.new_empty(len(sequences), rows.shape[1])
        logits[indices] = rows
    return logits
