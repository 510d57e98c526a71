"""Neutral filler that brings the shorter of two summaries to the length of the longer one, so that length
cannot decide between them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from selfreflect.models.base import seed_for
from selfreflect.sources.items import Item
from selfreflect.validate.ranked.order import Pair

FILLERS = (
    "Thank you for this question.",
    "It was good to be asked about it today.",
    "I hope that these lines are of some use to you.",
    "Please write again whenever there is something else you would like to ask.",
    "This is what I wanted to say here.",
    "Have a pleasant day, and give my best regards to everybody at home.",
    "Please take your time to read it.",
    "I am always glad to hear from you.",
)
"""Courtesies: they say nothing of any answer, nor of how sure one may be of it."""


@dataclass(frozen=True)
class Padding:
    """What padding made of items with pairs of known order."""

    items: Sequence[Item]
    """The items with padded summaries beside their own."""
    standing: Mapping[Pair, tuple[str, str]]
    """Pair -> names of the summaries of equal length that stand for the better and for the worse one. Pairs
    with a text that has no words are not here."""
    padded: Mapping[Pair, tuple[str, str]] = field(default_factory=dict)
    """Pair -> name of its shorter summary before and after, where the two differ in length."""


def pad(items: Sequence[Item], pairs: Sequence[Pair], seed: int) -> Padding:
    """For each pair the shorter summary with as many words as the longer one has. The seed, the item and the
    name decide on the filler."""
    made: list[Item] = []
    standing: dict[Pair, tuple[str, str]] = {}
    padded: dict[Pair, tuple[str, str]] = {}
    for item in items:
        texts = dict(item.summaries)
        words = {name: len(text.split()) for name, text in item.summaries.items()}
        for pair in (
            pair for pair in pairs if pair.item == item.id and words[pair.better] and words[pair.worse]
        ):
            shorter, longer = sorted((pair.better, pair.worse), key=words.__getitem__)
            if words[shorter] == words[longer]:
                standing[pair] = pair.kind
                continue
            name = f"{shorter}: padded to {words[longer]} words"
            while name in item.summaries:
                name += "*"
            rng = random.Random(seed_for(seed, item.id, shorter, "filler"))
            texts[name] = filled(item.summaries[shorter], words[longer], rng)
            padded[pair] = shorter, name
            standing[pair] = (pair.better, name) if shorter == pair.worse else (name, pair.worse)
        made.append(replace(item, summaries=texts))
    return Padding(made, standing, padded)


def filled(text: str, words: int, rng: random.Random) -> str:
    """The text continued with filler up to so many words. More words continue the same filler."""
    text = text.rstrip()
    filler: list[str] = []
    while len(filler) < words:
        filler += " ".join(rng.sample(FILLERS, len(FILLERS))).split()
    filler = filler[: words - len(text.split())]
    return " ".join([text + "." if text[-1].isalnum() else text, *filler]).rstrip(",.") + "."
