"""Sequences in transformers' own layers and cache, for models whose steps this package does not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from selfreflect.models.local.prompts import positions


class LibrarySequences:
    """Sequences in transformers' own layers and cache, (sequences, longest), padded on the left."""

    def __init__(self, model: Any, cache: DynamicCache, mask: torch.Tensor) -> None:
        self.model = model
        self.cache = cache
        self.mask = mask

    def keep(self, unfinished: Sequence[int]) -> None:
        rows = torch.tensor(unfinished, device=self.mask.device)
        self.cache.reorder_cache(rows)  # unlike batch_select_indices it goes where each layer's keys are
        self.mask = self.mask[rows]

    def extend(self, tokens: torch.Tensor) -> torch.Tensor:
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(tokens), 1)], dim=1)
        return self.logits(tokens[:, None], positions(self.mask)[:, -1:])

    def logits(self, ids: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        """The logits after the last of some tokens more, (sequences, vocabulary)."""
        output = self.model(
            input_ids=ids,
            attention_mask=self.mask,
            position_ids=position_ids,
            past_key_values=self.cache,
            logits_to_keep=1,
        )
        logits: torch.Tensor = output.logits[:, -1]
        return logits.to(ids.device)  # a model in parts may leave them elsewhere


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


def growing_cache(model: Any) -> DynamicCache:
    """An empty cache for a model."""
    cache = DynamicCache(config=model.config)
    for index, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer:
            cache.layers[index] = _GrowingLayer()
    return cache
