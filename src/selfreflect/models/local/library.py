"""Sequences in transformers' own layers and cache, for models whose steps this package does not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache

from selfreflect.models.local.prompts import positions


class LibrarySequences:
    """Sequences in transformers' own layers and cache, (sequences, longest), padded on the left."""

    def __init__(self, model: Any, mask: torch.Tensor) -> None:
        self.model = model
        self.cache = DynamicCache(config=model.config)
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
