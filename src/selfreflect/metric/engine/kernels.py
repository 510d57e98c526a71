"""Tree attention in torch, with the device's fused kernel or plain operations.

A padded block of neighbours attends to its context's prefix, without a mask, and to a few keys of the tree.
These softmaxes are over disjoint keys, so they merge exactly through their log-sum-exps: ``out = tree +
sigmoid(lse_prefix - lse_tree) * (prefix - tree)``. Shapes: B blocks of R queries and K keys; H query heads in
KV groups of G; head dimension D; P rows of a prefix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from selfreflect.metric.engine.tree import PackedBatch
from selfreflect.models.local.layers import on_device

if TYPE_CHECKING:
    from selfreflect.metric.engine.attention import Extras, KeyValue

MAX_LOGITS = 2**26
"""Maximum number of attention logits held at once, unless one block has more: 256 MiB, in a few arrays."""


@dataclass(frozen=True)
class Blocks:
    """Tensors of :class:`~selfreflect.metric.engine.tree.Neighbours`, padded to one shape."""

    queries: torch.Tensor
    query_positions: torch.Tensor
    """Positions of ``queries``: shape (B, R)."""
    real: torch.Tensor
    """Indices of queries without padding, in the flattened ``queries``."""
    keys: torch.Tensor
    key_positions: torch.Tensor
    """Positions of ``keys``: shape (B, K)."""
    visible: torch.Tensor
    """Visibility of keys to queries: shape (B, R, K)."""
    bias: torch.Tensor
    """``visible`` as an additive mask for G stacked query heads: shape (B, 1, R * G, K)."""
    contexts: Mapping[int, slice]
    """The blocks of each context."""


def cut_blocks(batch: PackedBatch, size: int, group: int, like: torch.Tensor) -> Blocks:
    """Cut a batch into blocks of at most ``size`` neighbours, on the device of ``like``."""
    device = like.device
    blocks = list(batch.neighbours(size))
    longest = max(len(block.queries) for block in blocks)
    widest = max(len(block.keys) for block in blocks)
    widest = 8 * math.ceil(widest / 8)  # kernels want rows of masks that start at round addresses
    queries = np.zeros((len(blocks), longest), dtype=np.int64)
    keys = np.zeros((len(blocks), widest), dtype=np.int64)
    real = np.zeros((len(blocks), longest), dtype=np.bool_)
    visible = np.zeros((len(blocks), longest, widest), dtype=np.bool_)
    visible[:, :, :1] = True  # a softmax over nothing would be NaN, also in padding
    contexts: dict[int, slice] = {}
    for i, block in enumerate(blocks):
        rows, columns = block.visible.shape
        queries[i, :rows] = block.queries
        keys[i, :columns] = block.keys
        real[i, :rows] = True
        visible[i, :rows, :columns] = block.visible
        # blocks of one context follow each other, so a slice names them
        first = contexts[block.context].start if block.context in contexts else i
        contexts[block.context] = slice(first, i + 1)
    mask = on_device(visible, device)
    bias = torch.zeros(mask.shape, dtype=like.dtype, device=device)
    bias.masked_fill_(~mask, float("-inf"))
    return Blocks(
        queries=on_device(queries, device),
        real=on_device(np.flatnonzero(real), device),
        keys=on_device(keys, device),
        query_positions=on_device(batch.positions[queries], device),
        key_positions=on_device(batch.key_positions[keys], device),
        visible=mask,
        bias=bias.repeat_interleave(group, dim=1)[:, None],
        contexts=contexts,
    )


def attend_in_prefix(query: torch.Tensor, prefix: KeyValue, scale: float, extras: Extras) -> torch.Tensor:
    """Compute the causal self-attention of a prefix, shape (P, H, D)."""
    q = query.transpose(0, 1)[None]
    key, value = prefix[0][None], prefix[1][None]
    if extras.plain:
        out = F.scaled_dot_product_attention(q, key, value, is_causal=True, scale=scale, enable_gqa=True)
        return out[0].transpose(0, 1)
    length = len(query)
    # logits are written out here, so long prefixes go in steps of bounded memory
    step = max(1, MAX_LOGITS // (query.shape[1] * length))
    out = torch.empty_like(q)
    for start in range(0, length, step):
        stop = min(start + step, length)
        keys = torch.arange(stop, device=query.device)
        queries = keys[start:, None]
        visible = keys <= queries
        if extras.window is not None:
            visible &= keys > queries - extras.window
        # no query of this step sees a key behind its last row
        context = [(key[:, :, :stop], value[:, :, :stop])]
        out[:, :, start:stop] = plain_attention(q[:, :, start:stop], context, visible, scale, extras)
    return out[0].transpose(0, 1)


def attend_in_blocks(
    query: torch.Tensor,
    local: KeyValue,
    prefixes: Mapping[int, KeyValue],
    blocks: Blocks,
    scale: float,
    extras: Extras,
    *,
    fused: bool,
) -> torch.Tensor:
    """Compute each node's attention to its prefix and path, (B, R, H, D); padding rows are undefined.

    Args:
        query: shape (rows, H, D).
        local: keys and values that ``blocks.keys`` counts, each (keys, KV, D).
        prefixes: by context, each (KV, P, D); none where it is empty.
    """
    if fused and extras.plain and query.device.type in FUSED_KERNELS:
        return _fused(query, local, prefixes, blocks, scale)
    _, heads, size = query.shape
    out = query.new_empty(*blocks.queries.shape, heads, size)
    # contexts differ in the length of their prefix, so each has logits of its own shape
    for context, rows in blocks.contexts.items():
        prefix = prefixes.get(context)
        length = 0 if prefix is None else prefix[0].shape[1]
        logits_per_block = heads * blocks.queries.shape[1] * (length + blocks.keys.shape[1])
        step = max(1, MAX_LOGITS // logits_per_block)
        for start in range(rows.start, rows.stop, step):
            part = slice(start, min(start + step, rows.stop))
            q = query[blocks.queries[part]].transpose(1, 2)
            keys = local[0][blocks.keys[part]].transpose(1, 2)
            values = local[1][blocks.keys[part]].transpose(1, 2)
            pairs = [(keys, values)]
            if prefix is not None:
                pairs.insert(0, (prefix[0][None], prefix[1][None]))
            visible = _visible(blocks, part, length, extras.window)[:, None]
            out[part] = plain_attention(q, pairs, visible, scale, extras).transpose(1, 2)
    return out


def _visible(blocks: Blocks, part: slice, prefix: int, window: int | None) -> torch.Tensor:
    """Mask the visible keys of each query, prefix first: shape (blocks, R, P + K)."""
    visible = F.pad(blocks.visible[part], (prefix, 0), value=True)
    if window is None:
        return visible
    keys = blocks.key_positions[part, None, :]
    in_prefix = torch.arange(prefix, device=keys.device).expand(*keys.shape[:2], -1)
    positions = torch.cat([in_prefix, keys], dim=-1)
    return visible & (positions > blocks.query_positions[part, :, None] - window)


def plain_attention(
    query: torch.Tensor, pairs: Sequence[KeyValue], visible: torch.Tensor, scale: float, extras: Extras
) -> torch.Tensor:
    """Compute attention by plain operations, with logits and weights in float32.

    Args:
        query: (batch, H, rows, D).
        pairs: keys and values, each (batch or 1, KV, keys, D), attended to as if concatenated.
        visible: broadcasts to (batch, H, rows, all keys).
    """
    batch, heads, rows, size = query.shape
    kv = pairs[0][0].shape[1]
    # query heads that share a key become rows of one product, so keys are not copied for each head
    groups = query.reshape(batch, kv, -1, size)
    products = [groups @ key.transpose(2, 3) for key, _ in pairs]
    logits = torch.cat(products, dim=-1).float() * scale
    logits = logits.view(batch, heads, rows, -1)
    if extras.softcap is not None:
        logits = torch.tanh(logits / extras.softcap) * extras.softcap
    logits = logits.masked_fill(~visible, float("-inf"))
    # a sink takes its part of the softmax and adds nothing: weights behind the last key are left out below
    if extras.sinks is not None:
        sinks = extras.sinks.float().reshape(1, -1, 1, 1).expand(batch, heads, rows, 1)
        logits = torch.cat([logits, sinks], dim=-1)
    weights = torch.softmax(logits, dim=-1)
    # summed in float32: two roundings to half precision would be one too many
    out = torch.zeros(groups.shape, device=query.device)
    start = 0
    for _, value in pairs:
        count = value.shape[2]
        block = weights[..., start : start + count].reshape(batch, kv, -1, count)
        out += block @ value.float()
        start += count
    return out.view(batch, heads, rows, size).to(query.dtype)


def _fused(
    query: torch.Tensor, local: KeyValue, prefixes: Mapping[int, KeyValue], blocks: Blocks, scale: float
) -> torch.Tensor:
    kernel = FUSED_KERNELS[query.device.type]
    kv, size = local[0].shape[1:]
    count, rows = blocks.queries.shape
    group = query.shape[1] // kv
    # Heads that share a key are stacked as more rows. Key heads go first, so that all blocks of a context are
    # one stretch of rows.
    queries = query[blocks.queries].view(count, rows, kv, group, size)
    stacked = queries.permute(2, 0, 1, 3, 4).reshape(kv, count, rows * group, size)
    keys = local[0][blocks.keys].transpose(1, 2)
    values = local[1][blocks.keys].transpose(1, 2)
    # the first softmax: the block's own keys, under a mask
    out, lse = kernel(stacked.transpose(0, 1), keys, values, scale, blocks.bias)
    for context, blocks_of_context in blocks.contexts.items():
        if context not in prefixes:
            continue
        key, value = prefixes[context]
        q = stacked[:, blocks_of_context].flatten(1, 2)  # (KV, all rows of the context, D)
        # the second softmax: the prefix, which every query of the context sees whole, so no mask is needed
        prefix_out, prefix_lse = kernel(q[None], key[None], value[None], scale, None)
        # back to blocks first, as out and lse are
        prefix_out = prefix_out[0].unflatten(1, (-1, rows * group)).transpose(0, 1)
        prefix_lse = prefix_lse[0].unflatten(1, (-1, rows * group)).transpose(0, 1)
        # exp(lse) is a softmax's denominator, so this is the prefix's part of the sum of both
        weight = torch.sigmoid(prefix_lse - lse[blocks_of_context]).unsqueeze(-1)
        # half precision is merged in float32, or the result would be rounded twice
        if out.dtype == torch.float32:
            out[blocks_of_context].lerp_(prefix_out, weight)
        else:
            out[blocks_of_context] = torch.lerp(
                out[blocks_of_context].float(), prefix_out.float(), weight
            ).to(out.dtype)
    unstacked = out.unflatten(2, (rows, group)).permute(0, 2, 1, 3, 4)
    result: torch.Tensor = unstacked.flatten(2, 3)
    return result


def cpu_kernel(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, bias: torch.Tensor | None
) -> KeyValue:
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, lse = attention(q, k, v, attn_mask=bias, scale=scale)
    return out, lse


def cuda_kernel(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, bias: torch.Tensor | None
) -> KeyValue:
    attention = torch.ops.aten._scaled_dot_product_efficient_attention
    if bias is not None:
        # the efficient kernel does not broadcast a mask over heads
        bias = bias.expand(-1, q.shape[1], -1, -1)
    out, lse, *_ = attention(q, k, v, bias, True, scale=scale)
    # the kernel pads the log-sum-exps to a round number of rows
    return out, lse[..., : q.shape[2]]


FUSED_KERNELS: dict[str, Any] = {"cpu": cpu_kernel, "cuda": cuda_kernel}
"""Attention kernels by device. They return the output (batch, KV, rows, D) and log-sum-exp (batch, KV,
rows)."""
