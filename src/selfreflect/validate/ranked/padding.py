"""Filler that brings the shorter of two summaries to the length of the longer one, so that length cannot
decide between them, and what the filler does to a metric on its own."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from msgspec.structs import replace

from selfreflect.models.base import seed_for
from selfreflect.render.table import Cell, Table
from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo
from selfreflect.validate.ranked.order import Pair, Relation
from selfreflect.validate.study import ByMetric, interval, listing, make_table
from selfreflect.validate.worsening import Worsening

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

ROLES = ("worse", "better")
"""Which summary of its pair a padded text is."""

FILLER_NOTES = (
    "change: value of the padded text minus value of the unpadded text, negated where higher is better, so that "
    "above 0 is worse for every metric; mean over items, each by the mean of its padded texts",
    "padded: which text of its pair was the shorter one. If filler makes worse texts worse still, wins after "
    "padding may be owed to it",
    "intervals: 95% BCa bootstrap over items",
)


@dataclass(frozen=True)
class Padding:
    """Items with padded summaries, and how the pairs use them."""

    items: Sequence[Item]
    names: Mapping[Pair, Relation]
    """The two summaries of equal length that stand for a pair. Pairs with a text that has no words are
    missing."""
    padded: Mapping[Pair, tuple[str, str]] = field(default_factory=dict)
    """The name of a pair's shorter summary before and after, if the two differ in length."""


def pad_items(items: Sequence[Item], pairs: Sequence[Pair], seed: int) -> Padding:
    """Pad the shorter summary of each pair to the words of the longer one. The seed, the item and the name
    decide on the filler."""
    pairs_of: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        pairs_of[pair.item].append(pair)
    padded_items: list[Item] = []
    names: dict[Pair, Relation] = {}
    padded: dict[Pair, tuple[str, str]] = {}
    for item in items:
        texts = dict(item.summaries)
        words = {name: len(text.split()) for name, text in item.summaries.items()}
        for pair in pairs_of[item.id]:
            shorter, longer = sorted(pair.kind, key=words.__getitem__)
            if not words[shorter]:
                continue
            if words[shorter] == words[longer]:
                names[pair] = pair.kind
                continue
            name = f"{shorter}: padded to {words[longer]} words"
            while name in item.summaries:
                name += "*"
            rng = random.Random(seed_for(seed, item.id, shorter, "filler"))
            texts[name] = fill_up(item.summaries[shorter], words[longer], rng)
            padded[pair] = shorter, name
            names[pair] = (pair.better, name) if shorter == pair.worse else (name, pair.worse)
        padded_items.append(replace(item, summaries=texts))
    return Padding(padded_items, names, padded)


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


FillerEffects = Mapping[tuple[MetricInfo, str], Worsening]
"""By metric and role of the padded texts."""


def filler_effects(padding: Padding, metrics: Sequence[MetricInfo], values: ByMetric) -> FillerEffects:
    """How filler alone changes values: one change for each item, the mean over its padded texts of a role."""
    texts: dict[str, set[tuple[str, str, str]]] = {role: set() for role in ROLES}
    for pair, (before, after) in padding.padded.items():
        role = "better" if before == pair.better else "worse"
        texts[role].add((pair.item, before, after))
    effects: dict[tuple[MetricInfo, str], Worsening] = {}
    for metric in metrics:
        numbers = values.get(metric.name, {})
        for role in ROLES:
            changes: dict[str, list[float]] = defaultdict(list)
            for item, before, after in sorted(texts[role]):
                old, new = numbers.get((item, before)), numbers.get((item, after))
                if old is not None and new is not None:
                    changes[item].append(metric.badness(new) - metric.badness(old))
            total = len({item for item, _, _ in texts[role]})
            if total:
                effects[metric, role] = Worsening([fmean(own) for own in changes.values()], total)
    return effects


def filler_table(effects: FillerEffects) -> Table:
    rows: list[dict[str, Cell]] = []
    for (metric, role), effect in effects.items():
        mean = interval("change", effect.mean)
        counts = {"items": effect.mean.n, "of": effect.total}
        rows.append({"metric": metric.name, "padded": role, **mean, **counts})
    return make_table("What filler alone changes", rows, "+z.4f", FILLER_NOTES)


def filler_says(effects: FillerEffects) -> Iterator[str]:
    """Which way filler clearly pulls, and whether that speaks for or against wins after padding."""
    for padded in ROLES:
        for direction, change in ((1, "worse"), (-1, "better")):
            verdict = "may be owed to it" if padded == change else "are in spite of it"
            names = []
            for (metric, role), effect in effects.items():
                if role == padded and effect.direction == direction and metric.group != "control":
                    names.append(f"{metric.name} ({effect.mean.mean:+z.4f})")
            yield from listing(
                f"Filler alone makes the padded {padded} summaries clearly {change}, so that wins after padding "
                f"{verdict}, for",
                names,
            )
