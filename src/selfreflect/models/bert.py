"""The encoder of BERT (Devlin et al. 2019, arXiv 1810.04805), in PyTorch's operations.

Importing a library of models for it takes longer than most reports, and PyTorch's own layer computes slower.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load
from torch import Tensor
from torch.nn import functional

_EPSILON = 1e-12


class Bert:
    """An encoder in float32 on the CPU, for texts of one segment.

    Args:
        weights: the content of a safetensors file.
    """

    def __init__(self, weights: bytes, layers: int, heads: int) -> None:
        self._weights = load(weights)
        self._layers = layers
        self._heads = heads

    @property
    def width(self) -> int:
        return self._weights["embeddings.word_embeddings.weight"].shape[1]

    def mean_states(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Average the last layer's states over each text's ids: shape (texts, width)."""
        longest = max(map(len, texts))
        ids = torch.tensor([[*own, *[0] * (longest - len(own))] for own in texts])
        lengths = torch.tensor([[len(own)] for own in texts])
        inside = torch.arange(longest) < lengths
        with torch.inference_mode():
            states = self._embed(ids)
            for number in range(self._layers):
                states = self._layer(f"encoder.layer.{number}", states, inside)
            sums = states.masked_fill(~inside[:, :, None], 0).sum(dim=1)
            means: NDArray[np.float32] = (sums / lengths).numpy()
        return means

    def _embed(self, ids: Tensor) -> Tensor:
        """The first layer's input, shape (texts, longest, width)."""
        words = self._weights["embeddings.word_embeddings.weight"][ids]
        positions = self._weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        segment = self._weights["embeddings.token_type_embeddings.weight"][0]
        return self._norm("embeddings.LayerNorm", words + positions + segment)

    def _layer(self, name: str, states: Tensor, inside: Tensor) -> Tensor:
        """One layer's output. ``inside`` is False at padding, which nothing attends to."""
        query, key, value = (
            self._by_head(self._linear(f"{name}.attention.self.{part}", states))
            for part in ("query", "key", "value")
        )
        mask = inside[:, None, None]
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        attended = self._linear(f"{name}.attention.output.dense", attended.transpose(1, 2).flatten(2))
        states = self._norm(f"{name}.attention.output.LayerNorm", states + attended)
        hidden = functional.gelu(self._linear(f"{name}.intermediate.dense", states))
        return self._norm(f"{name}.output.LayerNorm", states + self._linear(f"{name}.output.dense", hidden))

    def _by_head(self, states: Tensor) -> Tensor:
        """Shape (texts, heads, longest, width of a head)."""
        return states.reshape(*states.shape[:2], self._heads, -1).transpose(1, 2)

    def _linear(self, name: str, states: Tensor) -> Tensor:
        return functional.linear(states, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _norm(self, name: str, states: Tensor) -> Tensor:
        scale, shift = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return functional.layer_norm(states, (self.width,), scale, shift, _EPSILON)
