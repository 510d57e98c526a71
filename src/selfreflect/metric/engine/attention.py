"""Attention over prefix trees.

Keys and values of a shared prefix are computed once and attended to by every node without a mask; inside the
tree a node attends to its ancestors only, of which a block of neighbours shares most. There are three ways:
compiled code of our own on a CPU (``native``); two softmaxes by the device's fused kernel, which merge
exactly through their log-sum-exps since their keys are disjoint; plain operations for whatever neither
serves.

Shapes as in :mod:`selfreflect.metric.engine.packing`; H query heads in KV groups of G, head dimension D.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from selfreflect.metric.engine.arena import Arena
from selfreflect.metric.engine.native import KeyValue, native
from selfreflect.metric.engine.packing import Blocks, PackedBatch
from selfreflect.metric.engine.tiles import Tiles, cut

WRITTEN_OUT = 2**26
"""Logits that exist at once where no fused kernel serves, or those of one block: 256 MiB of them, and a few
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
    """:class:`Blocks` as tensors on the device."""

    queries: torch.Tensor
    real: torch.Tensor | None
    """None where no block is padded."""
    rows: torch.Tensor
    """The rows of the real queries."""
    keys: torch.Tensor
    visible: torch.Tensor
    bias: torch.Tensor
    """The same as an additive mask for G stacked query heads: shape (B, 1, R * G, K)."""
    contexts: tuple[tuple[int, int, int], ...]


class TreeAttention:
    """Attention of all layers over the passes of some contexts, with the keys and values that later passes
    need.

    Call :meth:`begin` before each pass, then :meth:`attend` once for each layer. Layers may lie on several
    devices: what a layer needs, and what is kept of it, is where its queries are.
    """

    def __init__(self, *, fused: bool = True) -> None:
        self.fused = fused
        self.prefix: dict[tuple[int, int], KeyValue] = {}
        """(context, layer) -> keys and values of the shared prefix, each (KV, P, D)."""
        self.carry: dict[int, KeyValue] = {}
        """Layer -> those of the path to the first node of the pass, each (C, KV, D)."""
        self.windows: set[int] = set()
        """The sliding windows that layers have asked for."""

    def begin(self, packed: PackedBatch) -> None:
        """Get ready for a pass; contexts that have finished are forgotten."""
        open_contexts = {s.context for s in packed.segments}
        self.prefix = {key: value for key, value in self.prefix.items() if key[0] in open_contexts}
        self.packed = packed
        self._shelves: dict[int, Arena] = {s.context: Arena() for s in packed.segments if s.prefix}
        self._path = Arena()
        self._layouts: dict[tuple[bool, int, torch.dtype, torch.device], _Layout] = {}
        self._tiles: dict[tuple[bool, int], Tiles] = {}
        self._keep: dict[torch.device, torch.Tensor] = {}
        self._farthest = int(packed.positions.max())

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
            query: (T, H, D), or (W, H, D) of the wanted rows if ``last``.
            key, value: (T, KV, D), with rotary embedding applied.
            last: nothing but the wanted rows is of use, and no later layer will look at the others.

        Returns:
            The shape of ``query``. Unless ``last``, rows of prefixes see the prefix up to themselves.
        """
        if extras.window is not None:
            self.windows.add(extras.window)
            if self._farthest < extras.window:  # it hides nothing here
                extras = Extras(softcap=extras.softcap, sinks=extras.sinks)
        for s in self.packed.segments:
            if s.prefix:
                rows = slice(s.first_row, s.nodes_row)
                put = self._shelves[s.context].put
                self.prefix[s.context, layer] = (
                    put(key[rows].transpose(0, 1)),
                    put(value[rows].transpose(0, 1)),
                )
        local = (key, value)
        if (carried := self.carry.pop(layer, None)) is not None:
            local = (torch.cat([carried[0], key]), torch.cat([carried[1], value]))
        if self.packed.keep.size:
            keep = self._kept(query.device)
            self.carry[layer] = self._path.put(local[0][keep]), self._path.put(local[1][keep])
        group = query.shape[1] // key.shape[1]
        # asked first: for others nothing need be compiled
        served = query.device.type == "cpu" and query.dtype == torch.float32
        if (
            served
            and self.fused
            and extras.plain
            and (compiled := native())
            and compiled.serves(query, key, value)
        ):
            tiles = self._cut(layer, compiled.lanes // group, group, last)
            return compiled.attend(
                query, local, [self.prefix.get((context, layer)) for context in tiles.contexts], tiles, scale
            )
        layout = self._layout(last, group, query.dtype, query.device)
        out = torch.empty_like(query)
        if not last:
            self._prefix_rows(layer, query, out, scale, extras)
        if not layout.rows.numel():
            return out
        compute = (
            self._merged
            if extras.plain and self.fused and query.device.type in _PARTIAL
            else self._written_out
        )
        found = compute(layer, query, local, layout, scale, extras).flatten(0, 1)
        out[layout.rows] = found if layout.real is None else found[layout.real]
        return out

    def _prefix_rows(
        self, layer: int, query: torch.Tensor, out: torch.Tensor, scale: float, extras: Extras
    ) -> None:
        for s in self.packed.segments:
            if not s.prefix:
                continue
            rows = slice(s.first_row, s.nodes_row)
            q = query[rows].transpose(0, 1)[None]
            k, v = (part[None] for part in self.prefix[s.context, layer])
            if extras.plain:
                seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)
                out[rows] = seen[0].transpose(0, 1)
                continue
            size = max(1, WRITTEN_OUT // (query.shape[1] * s.prefix))
            for start in range(0, s.prefix, size):
                stop = min(start + size, s.prefix)
                visible = _causal(start, stop, extras.window, query.device)
                seen = _general(
                    q[:, :, start:stop], k[:, :, :stop], v[:, :, :stop], None, None, visible, scale, extras
                )
                out[rows][start:stop] = seen[0].transpose(0, 1)

    def _merged(
        self, layer: int, query: torch.Tensor, local: KeyValue, layout: _Layout, scale: float, extras: Extras
    ) -> torch.Tensor:
        """The part of the tree, blocks as a batch, and the part of the prefixes, merged: (B, R, H, D)."""
        kv, size = local[0].shape[1:]
        blocks, rows = layout.queries.shape
        group = query.shape[1] // kv
        # Heads that share a key are stacked as more rows. Key heads go first, so that all blocks of a context
        # are one stretch of rows.
        grouped = _rows(query, layout.queries).view(blocks, rows, kv, group, size)
        stacked = grouped.permute(2, 0, 1, 3, 4).reshape(kv, blocks, rows * group, size)
        k, v = (_rows(part, layout.keys).transpose(1, 2) for part in local)
        partial = _PARTIAL[query.device.type]
        out, lse = partial(stacked.transpose(0, 1), k, v, scale, layout.bias)
        for context, start, stop in layout.contexts:
            if (prefix := self.prefix.get((context, layer))) is None:
                continue
            q = stacked[:, start:stop].flatten(1, 2)  # (KV, all rows of the context, D)
            both = partial(q[None], *_batch(prefix), scale, None)
            # as out and lse: blocks first
            other, other_lse = (x[0].unflatten(1, (stop - start, -1)).transpose(0, 1) for x in both)
            weight = torch.sigmoid(other_lse - lse[start:stop]).unsqueeze(-1)
            if out.dtype == torch.float32:
                out[start:stop].lerp_(other, weight)
            else:
                out[start:stop] = torch.lerp(out[start:stop].float(), other.float(), weight).to(out.dtype)
        seen: torch.Tensor = out.unflatten(2, (rows, group)).permute(0, 2, 1, 3, 4).flatten(2, 3)
        return seen

    def _written_out(
        self, layer: int, query: torch.Tensor, local: KeyValue, layout: _Layout, scale: float, extras: Extras
    ) -> torch.Tensor:
        """The same for any device and any extras, in plain operations: (B, R, H, D)."""
        at_query, at_key = self._positions(layout, last=query.shape[0] != len(self.packed.tokens))
        _, heads, size = query.shape
        found = query.new_empty(*layout.queries.shape, heads, size)
        for context, first, end in layout.contexts:
            prefix = self.prefix.get((context, layer))
            before = 0 if prefix is None else prefix[0].shape[1]
            blocks = max(
                1, WRITTEN_OUT // (heads * layout.queries.shape[1] * (before + layout.keys.shape[1]))
            )
            for start in range(first, end, blocks):
                some = slice(start, min(start + blocks, end))
                q = query[layout.queries[some]].transpose(1, 2)
                k, v = (part[layout.keys[some]].transpose(1, 2) for part in local)
                visible = layout.visible[some]
                if extras.window is not None:
                    visible = visible & (at_key[some, None, :] > at_query[some, :, None] - extras.window)
                if prefix is None:
                    seen = _general(q, k, v, None, None, visible[:, None], scale, extras)
                else:
                    near = torch.ones_like(visible[..., :1]).expand(-1, -1, before)
                    if extras.window is not None:
                        near = (
                            torch.arange(before, device=query.device)
                            > at_query[some, :, None] - extras.window
                        )
                    seen = _general(
                        q, *_batch(prefix), k, v, torch.cat([near, visible], dim=-1)[:, None], scale, extras
                    )
                found[some] = seen.transpose(1, 2)
        return found

    def _cut(self, layer: int, size: int, group: int, last: bool) -> Tiles:
        """Tiles of the pass; layers share them."""
        if (last, group) not in self._tiles:
            held = {context: keys.shape[1] for (context, of), (keys, _) in self.prefix.items() if of == layer}
            prefixes = {s.context: held.get(s.context, 0) for s in self.packed.segments}
            self._tiles[last, group] = cut(self.packed, prefixes, size, group, last=last)
        return self._tiles[last, group]

    def _positions(self, layout: _Layout, last: bool) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.packed.positions[self.packed.wanted] if last else self.packed.positions
        at_query, at_key = (
            _tensor(each, layout.queries.device) for each in (rows, self.packed.key_positions)
        )
        return at_query[layout.queries], at_key[layout.keys]

    def _kept(self, device: torch.device) -> torch.Tensor:
        if device not in self._keep:
            self._keep[device] = _tensor(self.packed.keep, device)
        return self._keep[device]

    def _layout(self, last: bool, group: int, dtype: torch.dtype, device: torch.device) -> _Layout:
        """Layers share it; models whose layers differ in their heads or lie on several devices have
        several."""
        if (last, group, dtype, device) not in self._layouts:
            blocks: Blocks = self.packed.last if last else self.packed.nodes
            visible = torch.from_numpy(blocks.visible).to(device)
            queries = _tensor(blocks.queries, device)
            real = _tensor(blocks.real, device)
            bias = torch.zeros(visible.shape, dtype=dtype, device=device).masked_fill_(
                ~visible, float("-inf")
            )
            self._layouts[last, group, dtype, device] = _Layout(
                queries=queries,
                real=None if real.numel() == queries.numel() else real,
                rows=queries.flatten()[real],
                keys=_tensor(blocks.keys, device),
                visible=visible,
                bias=bias.repeat_interleave(group, dim=1)[:, None],
                contexts=blocks.contexts,
            )
        return self._layouts[last, group, dtype, device]


def _tensor(values: npt.NDArray[np.int64], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(device)


def _rows(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """``values[rows]``, several times faster for whole rows."""
    return values.flatten(1).index_select(0, rows.flatten()).view(*rows.shape, *values.shape[1:])


def _batch(pair: KeyValue) -> KeyValue:
    return pair[0][None], pair[1][None]


def _partial_cpu(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, bias: torch.Tensor | None
) -> KeyValue:
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, attn_mask=bias, scale=scale
    )
    return out, lse


def _partial_cuda(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, bias: torch.Tensor | None
) -> KeyValue:
    if bias is not None:
        bias = bias.expand(-1, q.shape[1], -1, -1)
    out, lse, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, bias, True, scale=scale)
    return out, lse[..., : q.shape[2]]


_PARTIAL: dict[str, Any] = {"cpu": _partial_cpu, "cuda": _partial_cuda}
"""Attention to some of the keys, (batch, KV, rows, D), and its log-sum-exp, (batch, KV, rows), by the
device's fused kernel."""


def _causal(start: int, stop: int, window: int | None, device: torch.device) -> torch.Tensor:
    """Which of the keys up to ``stop`` the queries from ``start`` on may see: shape (stop - start, stop)."""
    keys = torch.arange(stop, device=device)
    queries = keys[start:, None]
    visible = keys <= queries
    return visible if window is None else visible & (keys > queries - window)


def _general(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key2: torch.Tensor | None,
    value2: torch.Tensor | None,
    visible: torch.Tensor,
    scale: float,
    extras: Extras,
) -> torch.Tensor:
    """Attention written out, over one set of keys or over two beside each other, each (batch or 1, KV, keys,
    D): (batch, H, rows, D)."""
    batch, heads, rows, size = query.shape
    kv = key.shape[1]
    grouped = query.reshape(batch, kv, -1, size)
    parts = [(key, value)] if key2 is None or value2 is None else [(key, value), (key2, value2)]
    logits = torch.cat([grouped @ k.transpose(2, 3) for k, _ in parts], dim=-1).float() * scale
    logits = logits.view(batch, heads, rows, -1)
    if extras.softcap is not None:
        logits = torch.tanh(logits / extras.softcap) * extras.softcap
    logits = logits.masked_fill(~visible, float("-inf"))
    if extras.sinks is not None:
        logits = torch.cat(
            [logits, extras.sinks.float().reshape(1, -1, 1, 1).expand(batch, heads, rows, 1)], dim=-1
        )
    weights = torch.softmax(logits, dim=-1)
    # two roundings to half precision would be one too many
    out = torch.zeros(grouped.shape, device=query.device)
    start = 0
    for k, v in parts:
        out += weights[..., start : start + k.shape[2]].reshape(batch, kv, -1, k.shape[2]) @ v.float()
        start += k.shape[2]
    return out.view(batch, heads, rows, size).to(query.dtype)
