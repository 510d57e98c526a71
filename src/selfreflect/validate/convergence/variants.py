"""Items with fewer answers or with their answers in another order, made from items at hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from selfreflect.sources.items import Item

_TRIES = 20
"""Draws after which a further order is taken not to exist: few answers have few orders."""


@dataclass(frozen=True)
class Variant:
    """What was done to the item ``original``. ``conditioning`` is the number of conditioning answers kept,
    None where all are."""

    original: str
    item: Item
    conditioning: int | None = None
    masked_out: bool = False
    """Whether the masked-out answers rather than the conditioning ones are in another order."""


class Variants:
    """Makes variants whose ids say what they are and are neither those of ``items`` nor of one another."""

    def __init__(self, items: Sequence[Item], seed: int) -> None:
        self._taken = {item.id for item in items}
        self._seed = seed

    def shorter(self, item: Item, counts: Sequence[int]) -> Iterator[Variant]:
        """The first so many conditioning answers, for each of ``counts`` that is fewer than there are."""
        for count in counts:
            if count < len(item.conditioning):
                made = self._item(item, f"{count} conditioning", conditioning=item.conditioning[:count])
                yield Variant(item.id, made, conditioning=count)

    def reordered(self, item: Item, orders: int) -> Iterator[Variant]:
        """The conditioning answers in up to ``orders`` other orders, drawn at random; fewer where fewer
        exist."""
        rng = np.random.default_rng([self._seed, *item.id.encode("utf-8", "surrogatepass")])
        seen = {item.conditioning}
        for number in range(1, orders + 1):
            drawn = (
                tuple(item.conditioning[place] for place in rng.permutation(len(item.conditioning)))
                for _ in range(_TRIES)
            )
            order = next((order for order in drawn if order not in seen), None)
            if order is None:
                return
            seen.add(order)
            yield Variant(item.id, self._item(item, f"conditioning order {number}", conditioning=order))

    def reversed(self, item: Item) -> Iterator[Variant]:
        """The masked-out answers from last to first, where that is another order."""
        order = item.masked_out[::-1]
        if order != item.masked_out:
            yield Variant(item.id, self._item(item, "masked-out reversed", masked_out=order), masked_out=True)

    def _item(self, item: Item, done: str, **changed: tuple[str, ...]) -> Item:
        name = f"{item.id} [{done}]"
        while name in self._taken:
            name += "*"
        self._taken.add(name)
        return msgspec.structs.replace(item, id=name, **changed)
