"""Decode prompts in batches: left padding, cached keys and values, one stop and one random stream per
sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from selfreflect.models.base import Sampling
from selfreflect.models.local.device_map import input_device

_NUCLEUS = 512
"""Tokens among which a nucleus is looked for first."""


@dataclass
class Draw:
    """One completion to draw, and what was drawn."""

    prompt: tuple[int, ...]
    sampling: Sampling
    seed: int
    limit: int
    """Most new tokens: as requested, or fewer where the model's window ends."""
    tokens: list[int] = field(default_factory=list)
    stopped: bool = False
    """Whether it ended with a stop token, which is not kept in ``tokens``."""
    failure: str = ""
    """Why it could not be drawn."""

    def extend(self, token: int, stop_ids: frozenset[int]) -> bool:
        """Take one token; whether the draw goes on."""
        if token in stop_ids:
            self.stopped = True
            return False
        self.tokens.append(token)
        return len(self.tokens) < self.limit


class DecodeStep(NamedTuple):
    """One token for every sequence of a batch that has not ended."""

    tokens: int
    ended: list[int]
    """Which draws of the batch this token ended."""


@torch.inference_mode()
def decode(model: Any, draws: Sequence[Draw], stop_ids: frozenset[int], pad_id: int) -> Iterator[DecodeStep]:
    """Extend draws with the same sampling settings as one batch. Equal prompts are computed once."""
    device = input_device(model)
    prompts = sorted({draw.prompt for draw in draws})
    row_of = {prompt: row for row, prompt in enumerate(prompts)}
    ids, mask = _left_padded(prompts, pad_id, device)
    cache = _growing_cache(model)

    def next_logits(ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        output = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            logits_to_keep=1,
        )
        logits: torch.Tensor = output.logits[:, -1]
        return logits.to(device)  # a model in parts may leave them elsewhere

    logits = next_logits(ids, _positions(mask))
    active = list(range(len(draws)))
    rows = torch.tensor([row_of[draw.prompt] for draw in draws], device=device)
    cache.reorder_cache(rows)  # unlike batch_select_indices it goes where each layer's keys are
    logits = logits[rows]
    mask = mask[rows]
    sources = [torch.Generator(device=device).manual_seed(draw.seed) for draw in draws]
    while True:
        tokens = choose(logits, draws[0].sampling, sources)
        unfinished = []
        ended = []
        for i, token in enumerate(tokens.tolist()):
            if draws[active[i]].extend(token, stop_ids):
                unfinished.append(i)
            else:
                ended.append(active[i])
        yield DecodeStep(len(active), ended)
        if not unfinished:
            return
        if len(unfinished) < len(active):
            rows = torch.tensor(unfinished, device=device)
            cache.reorder_cache(rows)
            tokens = tokens[rows]
            mask = mask[rows]
            active = [active[i] for i in unfinished]
            sources = [sources[i] for i in unfinished]
        mask = torch.cat([mask, mask.new_ones(len(active), 1)], dim=1)
        logits = next_logits(tokens[:, None], _positions(mask)[:, -1:])


def choose(logits: torch.Tensor, sampling: Sampling, sources: Sequence[torch.Generator]) -> torch.Tensor:
    """Choose one token per row by an exponential race: argmax of p / E with E ~ Exp(1), which samples from p
    (the Gumbel-max trick). Logits are (sequences, vocabulary), ``sources`` one per sequence on their device.

    Batch sizes change logits in their last bits. The race then changes its winner with a probability of the
    order of that rounding; inverting the cumulative distribution would change it for most tokens of the tail,
    because every boundary moves.
    """
    if sampling.temperature == 0:
        return logits.argmax(dim=-1)
    probs = torch.softmax(logits.float() / sampling.temperature, dim=-1)
    if sampling.top_k or sampling.top_p < 1 or sampling.min_p > 0:
        probs = _filtered(probs, sampling)
    race = torch.empty_like(probs)
    for row, source in zip(race, sources, strict=True):
        row.exponential_(generator=source)
    return probs.div_(race).argmax(dim=-1)


def _filtered(probs: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Zero what top-k, then nucleus (top-p), then min-p exclude; the rest keeps its proportions."""
    descending, index = _largest(probs, sampling)
    keep = torch.ones_like(descending, dtype=torch.bool)
    if sampling.top_p < 1:
        total = (descending if sampling.top_k else probs).sum(dim=-1, keepdim=True)
        before = (descending.cumsum(dim=-1) - descending) / total
        keep &= before < sampling.top_p
    if sampling.min_p > 0:
        keep &= descending >= sampling.min_p * descending[:, :1]
    keep[:, 0] = True
    return torch.zeros_like(probs).scatter_(-1, index, descending * keep)


def _largest(probs: torch.Tensor, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """What top-k leaves, in descending order, with indices; what the nucleus excludes may be missing.

    On a CPU, sorting a whole vocabulary takes longer than the forward pass before it.
    """
    vocabulary = probs.shape[-1]
    few = probs.topk(min(sampling.top_k or _NUCLEUS, vocabulary), dim=-1)
    enough = sampling.top_p * probs.sum(dim=-1)
    if sampling.top_k or (sampling.top_p < 1 and bool((few.values.sum(dim=-1) >= enough).all())):
        return few.values, few.indices
    every = probs.sort(dim=-1, descending=True)
    return every.values, every.indices


def _left_padded(
    prompts: Sequence[tuple[int, ...]], pad_id: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask, each (prompts, longest)."""
    longest = max(len(prompt) for prompt in prompts)
    ids = np.full((len(prompts), longest), pad_id, dtype=np.int64)
    mask = np.zeros((len(prompts), longest), dtype=np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = prompt
        mask[row, longest - len(prompt) :] = 1
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


def _positions(mask: torch.Tensor) -> torch.Tensor:
    """Positions without the padding, so that a prompt gives the same logits however far it is padded."""
    return (mask.cumsum(dim=1) - 1).clamp_(min=0)


class _GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """A cache layer with spare room, so that appending a token does not copy all that came before."""

    keys: torch.Tensor
    values: torch.Tensor

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self.room: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        before = self.keys.shape[-2] if self.keys.numel() else 0
        after = before + key_states.shape[-2]
        room = self.room
        if room is not None and (room[0].shape[-2] < after or len(room[0]) != len(key_states)):
            room = None
        if room is None:
            room = _grown(self.keys, before, key_states), _grown(self.values, before, value_states)
        self.room = room
        keys, values = room
        keys[..., before:after, :] = key_states
        values[..., before:after, :] = value_states
        self.keys = keys[..., :after, :]
        self.values = values[..., :after, :]
        return self.keys, self.values

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        super().reorder_cache(beam_idx)
        self.room = None


def _grown(states: torch.Tensor, before: int, new: torch.Tensor) -> torch.Tensor:
    """Room for the first ``before`` states, ``new`` ones and more, with the former copied."""
    after = before + new.shape[-2]
    room = new.new_empty(*new.shape[:-2], after + max(32, after // 2), new.shape[-1])
    if before:
        room[..., :before, :] = states
    return room


def _growing_cache(model: Any) -> DynamicCache:
    cache = DynamicCache(config=model.config)
    for index, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer:
            cache.layers[index] = _GrowingLayer()
    return cache
