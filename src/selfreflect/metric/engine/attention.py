"""Attention over prefix trees.

Keys and values of a shared prefix are computed once and attended to by every node without a mask. Inside the
tree a node attends to its ancestors only, most of which a block of neighbours shares. There are three ways:
compiled C code on a CPU (``native``); two softmaxes by the device's fused kernel, which merge exactly through
their log-sum-exps since their keys are disjoint; plain operations for whatever neither serves.

Shapes as in :mod:`selfreflect.metric.engine.packing`; H query heads in KV groups of G, head dimension D, P
rows of a prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from selfreflect.metric.engine.arena import Arena
from selfreflect.metric.engine.native import KeyValue, native
from selfreflect.metric.engine.packing import PackedBatch
from selfreflect.metric.engine.tiles import Tiles, cut_tiles
from selfreflect.metric.engine.tree import Ints

MAX_LOGITS = 2**26
"""Attention logits that exist at once where no fused kernel serves, or those of one block: 256 MiB, and a few
more arrays of that size."""


@dataclass(frozen=True)
class Extras:
    """What some architectures add to plain attention."""

    window: int | None = None
    """A key is seen by the ``window`` positions from its own on."""
    softcap: float | None = None
    """Logits are squeezed to softcap * tanh(logits / softcap) (Gemma 2)."""
    sinks: torch.Tensor | None = None
    """One more logit for each head, with no value behind it (gpt-oss): shape (H,)."""

    @property
    def plain(self) -> bool:
        return self.window is None and self.softcap is None and self.sinks is None


@dataclass(frozen=True)
class _Layout:
    """:class:`~selfreflect.metric.engine.packing.Blocks` as tensors on the device."""

    queries: torch.Tensor
    real: torch.Tensor | None
    """None where no block is padded."""
    rows: torch.Tensor
    """The rows of the real queries."""
    keys: torch.Tensor
    query_positions: torch.Tensor
    """Shape (B, R)."""
    key_positions: torch.Tensor
    """Shape (B, K)."""
    visible: torch.Tensor
    bias: torch.Tensor
    """``visible`` as an additive mask for G stacked query heads: shape (B, 1, R * G, K)."""
    contexts: tuple[tuple[int, int, int], ...]


class TreeAttention:
    """Attention of all layers over consecutive batches, with the keys and values that later batches need.

    Call :meth:`begin` before each batch, then :meth:`attend` once for each layer. Layers may lie on several
    devices: what a layer needs and keeps is where its queries are.
    """

    def __init__(self, *, fused: bool = True) -> None:
        self.fused = fused
        self.prefix: dict[tuple[int, int], KeyValue] = {}
        """(context, layer) -> keys and values of the shared prefix, each (KV, P, D)."""
        self.carried: dict[int, KeyValue] = {}
        """Layer -> keys and values of the path to the first node of the batch, each (C, KV, D)."""
        self.windows: set[int] = set()
        """The sliding windows that layers have asked for."""

    def begin(self, batch: PackedBatch) -> None:
        """Get ready for a batch and forget contexts that have finished."""
        contexts = {segment.context for segment in batch.segments}
        self.prefix = {key: value for key, value in self.prefix.items() if key[0] in contexts}
        self.batch = batch
        self._prefix_arenas = {segment.context: Arena() for segment in batch.segments if segment.prefix}
        self._carry_arena = Arena()
        self._layouts: dict[tuple[bool, int, torch.dtype, torch.device], _Layout] = {}
        self._tiles: dict[tuple[bool, int], Tiles] = {}
        self._carry_keys: dict[torch.device, torch.Tensor] = {}
        self._last_position = int(batch.positions.max())

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
        extras: Extras,
        *,
        last: bool = False,
    ) -> torch.Tensor:
        """What each row takes from the rows that it may see.

        Args:
            query: (T, H, D), or (W, H, D) of the output rows if ``last``.
            key, value: (T, KV, D), with rotary embedding applied.
            last: only the output rows are needed, because no later layer looks at the others.

        Returns:
            The shape of ``query``. Unless ``last``, rows of prefixes see the prefix up to themselves.
        """
        if extras.window is not None:
            self.windows.add(extras.window)
            if self._last_position < extras.window:  # it hides nothing here
                extras = Extras(softcap=extras.softcap, sinks=extras.sinks)
        self._keep_prefixes(layer, key, value)
        local = self._with_carried(layer, key, value)
        group = query.shape[1] // key.shape[1]
        # Decided before native(), so that nothing is compiled for tensors it cannot serve.
        native_type = query.device.type == "cpu" and query.dtype == torch.float32
        if native_type and self.fused and extras.plain:
            compiled = native()
            if compiled and compiled.serves(query, key, value):
                tiles = self._cut_tiles(layer, compiled.lanes // group, group, last)
                prefixes = [self.prefix.get((context, layer)) for context in tiles.contexts]
                return compiled.attend(query, local, prefixes, tiles, scale)
        out = torch.empty_like(query)
        if not last:
            self._attend_in_prefixes(layer, query, out, scale, extras)
        layout = self._layout(last, group, query.dtype, query.device)
        if layout.rows.numel():
            fused = self.fused and extras.plain and query.device.type in _FUSED_KERNELS
            attend_blocks = self._merged if fused else self._written_out
            rows = attend_blocks(layer, query, local, layout, scale, extras).flatten(0, 1)
            out[layout.rows] = rows if layout.real is None else rows[layout.real]
        return out

    def _keep_prefixes(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        for segment in self.batch.segments:
            if segment.prefix:
                rows = slice(segment.first_row, segment.nodes_row)
                copy = self._prefix_arenas[segment.context].copy
                pair = copy(key[rows].transpose(0, 1)), copy(value[rows].transpose(0, 1))
                self.prefix[segment.context, layer] = pair

    def _with_carried(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> KeyValue:
        """Keys and values of the carried rows and then of the batch; keeps those that the next batch needs."""
        carried = self.carried.pop(layer, None)
        if carried is not None:
            key, value = torch.cat([carried[0], key]), torch.cat([carried[1], value])
        if self.batch.carry.size:
            if key.device not in self._carry_keys:
                self._carry_keys[key.device] = _to_device(self.batch.carry, key.device)
            keys = self._carry_keys[key.device]
            self.carried[layer] = self._carry_arena.copy(key[keys]), self._carry_arena.copy(value[keys])
        return key, value

    def _attend_in_prefixes(
        self, layer: int, query: torch.Tensor, out: torch.Tensor, scale: float, extras: Extras
    ) -> None:
        for segment in self.batch.segments:
            if not segment.prefix:
                continue
            rows = slice(segment.first_row, segment.nodes_row)
            q = query[rows].transpose(0, 1)[None]
            k, v = _batch_of_one(self.prefix[segment.context, layer])
            if extras.plain:
                result = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)
                out[rows] = result[0].transpose(0, 1)
                continue
            size = max(1, MAX_LOGITS // (query.shape[1] * segment.prefix))
            for start in range(0, segment.prefix, size):
                stop = min(start + size, segment.prefix)
                visible = _causal(start, stop, extras.window, query.device)
                seen = [(k[:, :, :stop], v[:, :, :stop])]
                result = plain_attention(q[:, :, start:stop], seen, visible, scale, extras)
                out[rows][start:stop] = result[0].transpose(0, 1)

    def _merged(
        self, layer: int, query: torch.Tensor, local: KeyValue, layout: _Layout, scale: float, extras: Extras
    ) -> torch.Tensor:
        """Attention of blocks to the tree and to the prefixes by the fused kernel, merged: (B, R, H, D)."""
        kernel = _FUSED_KERNELS[query.device.type]
        kv, size = local[0].shape[1:]
        blocks, rows = layout.queries.shape
        group = query.shape[1] // kv
        # Heads that share a key are stacked as more rows. Key heads go first, so that all blocks of a context
        # are one stretch of rows.
        grouped = _select_rows(query, layout.queries).view(blocks, rows, kv, group, size)
        stacked = grouped.permute(2, 0, 1, 3, 4).reshape(kv, blocks, rows * group, size)
        k, v = (_select_rows(part, layout.keys).transpose(1, 2) for part in local)
        out, lse = kernel(stacked.transpose(0, 1), k, v, scale, layout.bias)
        for context, start, stop in layout.contexts:
            prefix = self.prefix.get((context, layer))
            if prefix is None:
                continue
            q = stacked[:, start:stop].flatten(1, 2)  # (KV, all rows of the context, D)
            prefix_out, prefix_lse = kernel(q[None], *_batch_of_one(prefix), scale, None)
            # back to blocks first, as out and lse are
            prefix_out = prefix_out[0].unflatten(1, (stop - start, -1)).transpose(0, 1)
            prefix_lse = prefix_lse[0].unflatten(1, (stop - start, -1)).transpose(0, 1)
            weight = torch.sigmoid(prefix_lse - lse[start:stop]).unsqueeze(-1)
            if out.dtype == torch.float32:
                out[start:stop].lerp_(prefix_out, weight)
            else:
                merged = torch.lerp(out[start:stop].float(), prefix_out.float(), weight)
                out[start:stop] = merged.to(out.dtype)
        result: torch.Tensor = out.unflatten(2, (rows, group)).permute(0, 2, 1, 3, 4).flatten(2, 3)
        return result

    def _written_out(
        self, layer: int, query: torch.Tensor, local: KeyValue, layout: _Layout, scale: float, extras: Extras
    ) -> torch.Tensor:
        """The same for any device and any extras, in plain operations: (B, R, H, D)."""
        _, heads, size = query.shape
        out = query.new_empty(*layout.queries.shape, heads, size)
        for context, first, end in layout.contexts:
            prefix = self.prefix.get((context, layer))
            length = 0 if prefix is None else prefix[0].shape[1]
            logits_per_block = heads * layout.queries.shape[1] * (length + layout.keys.shape[1])
            step = max(1, MAX_LOGITS // logits_per_block)
            for start in range(first, end, step):
                part = slice(start, min(start + step, end))
                q = query[layout.queries[part]].transpose(1, 2)
                k, v = (tensor[layout.keys[part]].transpose(1, 2) for tensor in local)
                pairs = [(k, v)] if prefix is None else [_batch_of_one(prefix), (k, v)]
                visible = _visible(layout, part, length, extras.window)[:, None]
                out[part] = plain_attention(q, pairs, visible, scale, extras).transpose(1, 2)
        return out

    def _cut_tiles(self, layer: int, size: int, group: int, last: bool) -> Tiles:
        """Tiles of the batch; layers share them."""
        if (last, group) not in self._tiles:
            lengths = {segment.context: 0 for segment in self.batch.segments}
            for context in lengths:
                if (context, layer) in self.prefix:
                    lengths[context] = self.prefix[context, layer][0].shape[1]
            self._tiles[last, group] = cut_tiles(self.batch, lengths, size, group, last=last)
        return self._tiles[last, group]

    def _layout(self, last: bool, group: int, dtype: torch.dtype, device: torch.device) -> _Layout:
        """Layers share it, unless they differ in their heads or devices."""
        key = last, group, dtype, device
        if key not in self._layouts:
            batch = self.batch
            blocks = batch.last if last else batch.nodes
            positions = batch.positions[batch.outputs] if last else batch.positions
            visible = torch.from_numpy(blocks.visible).to(device)
            bias = torch.zeros(visible.shape, dtype=dtype, device=device)
            bias.masked_fill_(~visible, float("-inf"))
            queries, keys, real = (_to_device(x, device) for x in (blocks.queries, blocks.keys, blocks.real))
            self._layouts[key] = _Layout(
                queries=queries,
                real=None if real.numel() == queries.numel() else real,
                rows=queries.flatten()[real],
                keys=keys,
                query_positions=_to_device(positions, device)[queries],
                key_positions=_to_device(batch.key_positions, device)[keys],
                visible=visible,
                bias=bias.repeat_interleave(group, dim=1)[:, None],
                contexts=blocks.contexts,
            )
        return self._layouts[key]


def plain_attention(
    query: torch.Tensor, pairs: Sequence[KeyValue], visible: torch.Tensor, scale: float, extras: Extras
) -> torch.Tensor:
    """Attention written out, with logits and weights in float32.

    Args:
        query: (batch, H, rows, D).
        pairs: keys and values, each (batch or 1, KV, keys, D), attended to as if concatenated.
        visible: broadcasts to (batch, H, rows, all keys).

    Returns:
        The shape and dtype of ``query``.
    """
    batch, heads, rows, size = query.shape
    kv = pairs[0][0].shape[1]
    grouped = query.reshape(batch, kv, -1, size)
    logits = torch.cat([grouped @ key.transpose(2, 3) for key, _ in pairs], dim=-1).float() * scale
    logits = logits.view(batch, heads, rows, -1)
    if extras.softcap is not None:
        logits = torch.tanh(logits / extras.softcap) * extras.softcap
    logits = logits.masked_fill(~visible, float("-inf"))
    if extras.sinks is not None:
        sinks = extras.sinks.float().reshape(1, -1, 1, 1).expand(batch, heads, rows, 1)
        logits = torch.cat([logits, sinks], dim=-1)
    weights = torch.softmax(logits, dim=-1)
    # summed in float32: two roundings to half precision would be one too many
    out = torch.zeros(grouped.shape, device=query.device)
    start = 0
    for key, value in pairs:
        stop = start + key.shape[2]
        out += weights[..., start:stop].reshape(batch, kv, -1, key.shape[2]) @ value.float()
        start = stop
    return out.view(batch, heads, rows, size).to(query.dtype)


def _causal(start: int, stop: int, window: int | None, device: torch.device) -> torch.Tensor:
    """Which keys up to ``stop`` the queries from ``start`` on may see: shape (stop - start, stop)."""
    keys = torch.arange(stop, device=device)
    queries = keys[start:, None]
    visible = keys <= queries
    return visible if window is None else visible & (keys > queries - window)


def _visible(layout: _Layout, blocks: slice, prefix: int, window: int | None) -> torch.Tensor:
    """Which keys each query may see: first the prefix, then the block's keys, shape (blocks, R, P + K)."""
    visible = layout.visible[blocks]
    whole_prefix = visible.new_ones(1).expand(*visible.shape[:2], prefix)
    visible = torch.cat([whole_prefix, visible], dim=-1)
    if window is None:
        return visible
    keys = layout.key_positions[blocks, None, :]
    prefix_positions = torch.arange(prefix, device=keys.device).expand(*keys.shape[:2], -1)
    positions = torch.cat([prefix_positions, keys], dim=-1)
    return visible & (positions > layout.query_positions[blocks, :, None] - window)


def _to_device(values: Ints, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(values).to(device)


def _select_rows(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """``values[rows]``, several times faster for whole rows."""
    return values.flatten(1).index_select(0, rows.flatten()).view(*rows.shape, *values.shape[1:])


def _batch_of_one(pair: KeyValue) -> KeyValue:
    return pair[0][None], pair[1][None]


def _cpu_kernel(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, bias: torch.Tensor | None
) -> KeyValue:
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, lse = attention(q, k, v, attn_mask=bias, scale=scale)
    return out, lse


def _cuda_kernel(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, bias: torch.Tensor | None
) -> KeyValue:
    attention = torch.ops.aten._scaled_dot_product_efficient_attention
    if bias is not None:
        bias = bias.expand(-1, q.shape[1], -1, -1)
    out, lse, *_ = attention(q, k, v, bias, True, scale=scale)
    return out, lse[..., : q.shape[2]]


_FUSED_KERNELS: dict[str, Any] = {"cpu": _cpu_kernel, "cuda": _cuda_kernel}
"""Attention to some of the keys, (batch, KV, rows, D), and its log-sum-exp, (batch, KV, rows)."""
