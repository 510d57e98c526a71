"""Attention over a prefix tree, as an attention function that transformers models call in place of their own.

Keys and values of the shared prefix are computed once and attended to by every node without a mask; inside the tree a node attends to its
ancestors only. The two parts are softmaxes over disjoint keys, so they merge exactly through their log-sum-exps.

Shapes: batch is 1; H query heads in KV groups, T nodes in this chunk, P prefix tokens, C ancestors carried over from earlier chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

NAME = "selfreflect_tree"

KeyValue = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of one layer, each of shape (1, KV, tokens, head dimension), rotary embedding applied."""


@dataclass
class TreeState:
    """What the attention layers share during the passes over one plan. ``layers[i]`` grows as the passes go through layer i."""

    windows: set[int] = field(default_factory=set)
    """The sliding windows that layers have asked for."""
    prefix: dict[int, KeyValue] = field(default_factory=dict)
    carry: dict[int, KeyValue] = field(default_factory=dict)
    fresh: dict[int, KeyValue] = field(default_factory=dict)
    """Carried and local keys of the pass under way, in the order of the mask's columns."""
    mask: torch.Tensor | None = None
    """None during the prefix pass, else True where node t may see key c: shape (T, C + T)."""
    bias: torch.Tensor | None = None
    """The same as an additive mask."""
    positions: torch.Tensor | None = None
    """Positions of the T nodes and of the C + T keys, for sliding windows: shapes (T,) and (C + T,), concatenated."""

    def advance(self, kept: torch.Tensor) -> None:
        """Carry the keys in columns ``kept`` over to the next pass: the path to its first node."""
        self.carry = {layer: (k[:, :, kept], v[:, :, kept]) for layer, (k, v) in self.fresh.items()}
        self.fresh = {}

    def set_mask(self, visible: torch.Tensor, positions: torch.Tensor) -> None:
        self.mask, self.positions = visible, positions
        self.bias = torch.zeros(visible.shape, device=visible.device).masked_fill_(~visible, float("-inf"))


def tree_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    tree: TreeState | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The signature that transformers expects of an attention function; returns (1, T, H, head dimension).

    Raises:
        TypeError: the layer wants something that would change the result and is not known here.
    """
    if tree is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)  # type: ignore[no-any-return]
    _refuse_unknown(attention_mask, kwargs)
    if sliding_window is not None:
        tree.windows.add(sliding_window)
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    layer: int = module.layer_idx
    plain = sliding_window is None and softcap is None and s_aux is None
    if tree.mask is None:
        tree.prefix[layer] = (key, value)
        if plain:
            out = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=True)
        else:
            out = _general(query, key, value, _prefix_visible(key, sliding_window), scale, softcap, s_aux)
        return out.transpose(1, 2), None
    if layer in tree.carry:
        key, value = (torch.cat([old, new], dim=2) for old, new in zip(tree.carry[layer], (key, value), strict=True))
    tree.fresh[layer] = (key, value)
    if plain and query.device.type == "cpu":
        out = _cascade(query, tree.prefix.get(layer), (key, value), tree, scale)
    else:
        out = _dense(query, tree.prefix.get(layer), (key, value), tree, scale, sliding_window, softcap, s_aux)
    return out.transpose(1, 2), None


def _refuse_unknown(attention_mask: torch.Tensor | None, kwargs: dict[str, Any]) -> None:
    """Layers add biases to the mask that they were given, or pass tensors of their own: position biases, indices of sparse attention."""
    unknown = sorted(name for name, value in kwargs.items() if isinstance(value, torch.Tensor) and name != "position_ids")
    if unknown or (attention_mask is not None and attention_mask.numel() > 1):
        raise TypeError(f"tree attention does not know what to do with {', '.join(unknown) or 'the mask'}")


def _cascade(query: torch.Tensor, prefix: KeyValue | None, local: KeyValue, tree: TreeState, scale: float) -> torch.Tensor:
    """Prefix part without mask, tree part with mask, merged by log-sum-exp. Query heads that share a key head are stacked as more rows."""
    kv = local[0].shape[1]
    group = query.shape[1] // kv
    stacked = query.reshape(1, kv, group * query.shape[2], query.shape[3])
    assert tree.bias is not None
    out, lse = _flash(stacked, *local, scale, tree.bias.repeat(group, 1)[None, None])
    if prefix is not None:
        out_prefix, lse_prefix = _flash(stacked, *prefix, scale, None)
        out = torch.lerp(out.float(), out_prefix.float(), torch.sigmoid(lse_prefix - lse).unsqueeze(-1)).to(query.dtype)
    return out.reshape(query.shape)


def _flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, bias: torch.Tensor | None) -> KeyValue:
    """Attention output and its log-sum-exp, shapes (1, KV, rows, head dimension) and (1, KV, rows)."""
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=bias, scale=scale)
    return out, lse


def _dense(
    query: torch.Tensor,
    prefix: KeyValue | None,
    local: KeyValue,
    tree: TreeState,
    scale: float,
    window: int | None,
    softcap: float | None,
    s_aux: torch.Tensor | None,
) -> torch.Tensor:
    """One masked attention over prefix and tree keys: for devices and layers that the cascade does not serve."""
    assert tree.mask is not None
    assert tree.positions is not None
    key, value = local
    rows, columns = tree.mask.shape
    length = 0
    if prefix is not None:
        length = prefix[0].shape[2]
        key, value = torch.cat([prefix[0], key], dim=2), torch.cat([prefix[1], value], dim=2)
    visible = F.pad(tree.mask, (length, 0), value=True)
    if window is not None:
        before = torch.arange(length, device=key.device)
        positions = torch.cat([before, tree.positions[rows : rows + columns]])
        visible = visible & (positions[None, :] > tree.positions[:rows, None] - window)
    if softcap is None and s_aux is None:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=visible, scale=scale, enable_gqa=True)
    return _general(query, key, value, visible, scale, softcap, s_aux)


def _general(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    visible: torch.Tensor,
    scale: float,
    softcap: float | None,
    s_aux: torch.Tensor | None,
) -> torch.Tensor:
    """Attention written out: logit soft-capping (Gemma 2) and sink logits (gpt-oss) that no fused kernel takes."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
    logits = (query @ key.transpose(2, 3)).float() * scale
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    logits = logits.masked_fill(~visible, float("-inf"))
    if s_aux is not None:
        sinks = s_aux.float().reshape(1, -1, 1, 1).expand(*logits.shape[:3], 1)
        logits = torch.cat([logits, sinks], dim=-1)
    weights = torch.softmax(logits, dim=-1)[..., : key.shape[2]]
    return weights.to(value.dtype) @ value


def _prefix_visible(key: torch.Tensor, window: int | None) -> torch.Tensor:
    """Causal visibility inside the prefix, limited to the sliding window: shape (P, P)."""
    at = torch.arange(key.shape[2], device=key.device)
    visible = at[None, :] <= at[:, None]
    return visible if window is None else visible & (at[None, :] > at[:, None] - window)


AttentionInterface.register(NAME, tree_attention)
