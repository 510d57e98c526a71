"""Attention over prefix trees, layer by layer and batch by batch.

Keys and values of a shared prefix are computed once and attended to by every node without a mask. Inside
the tree a node attends to its ancestors only, most of which neighbours share. On a CPU in float32 the work is
done by compiled C code (``native``), elsewhere by torch (``kernels``); only one of them is imported.

Shapes as in :mod:`selfreflect.metric.engine.packing`; H query heads in KV groups of G, head dimension D, P
rows of a prefix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from selfreflect.metric.engine.arena import Arena
from selfreflect.metric.engine.packing import PackedBatch

if TYPE_CHECKING:
    from selfreflect.metric.engine.kernels import Blocks
    from selfreflect.metric.engine.native import Native
    from selfreflect.metric.engine.tiles import Tiles

KeyValue = tuple[torch.Tensor, torch.Tensor]


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


class TreeAttention:
    """Attention of all layers over consecutive batches, with the keys and values that later batches need.

    Call :meth:`begin` before each batch, then :meth:`attend` once for each layer. Layers may lie on several
    devices: what a layer needs and keeps is where its queries are.
    """

    def __init__(self, *, block: int = 64, fused: bool = True) -> None:
        self.block = block
        self.fused = fused
        self.prefixes: dict[int, dict[int, KeyValue]] = {}
        """Layer -> context -> keys and values of the shared prefix, each (KV, P, D)."""
        self.carried: dict[int, KeyValue] = {}
        """Layer -> keys and values of the path to the first node of the batch, each (C, KV, D)."""
        self.windows: set[int] = set()
        """The sliding windows that layers have asked for."""

    def begin(self, batch: PackedBatch) -> None:
        """Get ready for a batch and forget contexts that have finished."""
        contexts = {segment.context for segment in batch.segments}
        for prefixes in self.prefixes.values():
            for context in prefixes.keys() - contexts:
                del prefixes[context]
        self.batch = batch
        self._prefix_arenas = {context: Arena() for context in contexts}
        self._carry_arena = Arena()
        self._carry_keys: dict[torch.device, torch.Tensor] = {}
        # layers share these, unless they differ in their heads or devices
        self._tiles: dict[tuple[int, bool], Tiles] = {}
        self._blocks: dict[tuple[torch.device, torch.dtype, int, bool], Blocks] = {}

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
            if self.batch.positions.max() < extras.window:  # it hides nothing here
                extras = Extras(softcap=extras.softcap, sinks=extras.sinks)
        prefixes = self._with_new_prefixes(layer, key, value)
        local = self._with_carried(layer, key, value)
        if self.fused and extras.plain and query.device.type == "cpu" and query.dtype == torch.float32:
            from selfreflect.metric.engine.native import native

            compiled = native()
            if compiled and compiled.serves(query, key, value):
                return self._attend_native(compiled, query, local, prefixes, scale, last)
        return self._attend_torch(query, local, prefixes, scale, extras, last)

    def _with_new_prefixes(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> dict[int, KeyValue]:
        """The layer's prefixes by context, those of the batch included."""
        prefixes = self.prefixes.setdefault(layer, {})
        for segment in self.batch.segments:
            if segment.prefix:
                rows = slice(segment.first_row, segment.nodes_row)
                copy = self._prefix_arenas[segment.context].copy
                prefixes[segment.context] = copy(key[rows].transpose(0, 1)), copy(value[rows].transpose(0, 1))
        return prefixes

    def _with_carried(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> KeyValue:
        """Keys and values of the carried rows and then of the batch; keeps what the next batch needs."""
        carried = self.carried.pop(layer, None)
        if carried is not None:
            key, value = torch.cat([carried[0], key]), torch.cat([carried[1], value])
        if self.batch.carry.size:
            if key.device not in self._carry_keys:
                self._carry_keys[key.device] = torch.from_numpy(self.batch.carry).to(key.device)
            keys = self._carry_keys[key.device]
            self.carried[layer] = self._carry_arena.copy(key[keys]), self._carry_arena.copy(value[keys])
        return key, value

    def _attend_native(
        self,
        compiled: Native,
        query: torch.Tensor,
        local: KeyValue,
        prefixes: dict[int, KeyValue],
        scale: float,
        last: bool,
    ) -> torch.Tensor:
        from selfreflect.metric.engine.tiles import cut_tiles

        group = query.shape[1] // local[0].shape[1]
        if (group, last) not in self._tiles:
            size = compiled.lanes // group
            self._tiles[group, last] = cut_tiles(self.batch, size, group, outputs_only=last)
        tiles = self._tiles[group, last]
        return compiled.attend(
            query, local, [prefixes.get(context) for context in tiles.contexts], tiles, scale
        )

    def _attend_torch(
        self,
        query: torch.Tensor,
        local: KeyValue,
        prefixes: dict[int, KeyValue],
        scale: float,
        extras: Extras,
        last: bool,
    ) -> torch.Tensor:
        from selfreflect.metric.engine.kernels import attend_in_blocks, attend_in_prefix, cut_blocks

        out = torch.empty_like(query)
        for segment in self.batch.segments:
            if segment.prefix and not last:
                rows = slice(segment.first_row, segment.nodes_row)
                out[rows] = attend_in_prefix(query[rows], prefixes[segment.context], scale, extras)
        group = query.shape[1] // local[0].shape[1]
        kind = query.device, query.dtype, group, last
        if kind not in self._blocks:
            self._blocks[kind] = cut_blocks(self.batch, self.block, group, query, outputs_only=last)
        blocks = self._blocks[kind]
        if blocks.real.numel():
            nodes = attend_in_blocks(query, local, prefixes, blocks, scale, extras, fused=self.fused)
            out[blocks.queries.flatten()[blocks.real]] = nodes.flatten(0, 1)[blocks.real]
        return out
