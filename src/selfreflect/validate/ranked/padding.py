"""Filler that brings the shorter of two summaries to the length of the longer one, so that length cannot
decide between them, and what the filler does to a metric on its own."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from msgspec.structs import replace

from selfreflect.models.base import seed_for
from selfreflect.sources.items import Item
from selfreflect.stats import mean_interval
from selfreflect.validate.base import MetricInfo
from selfreflect.validate.ranked.order import Pair, Relation
from selfreflect.validate.study import Layout, Numbers, Row, interval, worsenings

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
"""Courtesies: they tell nothing about any answer, nor how sure one may be of it."""

FILLER_NOTES = (
    "change: value of the padded text minus value of the unpadded text, negated where higher is better, so "
    "that above 0 is worse for every metric; mean over items, each by the mean of its padded texts",
    "padded: which text of its pair was the shorter one. If filler makes worse texts worse still, wins after "
    "padding may be owed to it",
    "intervals: 95% BCa bootstrap over items",
)
FILLER = Layout("What filler alone changes", "+z.4f", FILLER_NOTES)


def pad_items(
    items: Sequence[Item], pairs: Sequence[Pair], seed: int
) -> tuple[list[Item], dict[Pair, Relation]]:
    """Pad the shorter summary of each pair to the words of the longer one. The seed, the item and the name
    decide on the filler.

    Returns:
        Items with padded summaries, and for each pair of texts with words the names of the two summaries of
        equal length that stand for it.
    """
    texts = {item.id: dict(item.summaries) for item in items}
    names: dict[Pair, Relation] = {}
    for pair in pairs:
        own = texts[pair.item]
        words = {name: len(own[name].split()) for name in pair.kind}
        shorter, longer = sorted(pair.kind, key=words.__getitem__)
        if words[shorter] == words[longer] > 0:
            names[pair] = pair.kind
        elif words[shorter]:
            name = f"{shorter}: padded to {words[longer]} words"
            rng = random.Random(seed_for(seed, pair.item, shorter, "filler"))
            text = fill_up(own[shorter], words[longer], rng)
            while own.get(name, text) != text:
                name += "*"
            own[name] = text
            names[pair] = (pair.better, name) if shorter == pair.worse else (name, pair.worse)
    return [replace(item, summaries=texts[item.id]) for item in items], names


def fill_up(text: str, words: int, rng: random.Random) -> str:
    """Continue a text with filler up to a number of words. More words continue the same filler."""
    text = text.rstrip()
    filler: list[str] = []
    while len(filler) < words:
        filler += " ".join(rng.sample(FILLERS, len(FILLERS))).split()
    filler = filler[: words - len(text.split())]
    if text[-1].isalnum():
        text += "."
    return " ".join([text, *filler]).rstrip(",.") + "."


def filler_rows(
    names: Mapping[Pair, Relation], metrics: Sequence[MetricInfo], values: Mapping[str, Numbers]
) -> Iterator[Row]:
    """How filler alone changes values: one change for each item, the mean over its padded texts of a role."""
    texts: dict[str, set[tuple[str, str, str]]] = {"worse": set(), "better": set()}
    for pair, (better, worse) in names.items():
        if better != pair.better:
            texts["better"].add((pair.item, pair.better, better))
        if worse != pair.worse:
            texts["worse"].add((pair.item, pair.worse, worse))
    for metric in metrics:
        for role, edits in texts.items():
            changes = worsenings(metric, values.get(metric.name, {}), sorted(edits))
            total = len({item for item, _, _ in edits})
            if total:
                change = mean_interval(list(map(fmean, changes.values())), total)
                cells = {"metric": metric.name, "padded": role, **interval("change", change)}
                yield {**cells, "items": change.n, "of": total}
