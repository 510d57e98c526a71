"""What metrics of texts share: which answers count, which summaries can be scored, and the records of what
was found."""

from __future__ import annotations

from collections.abc import Mapping

from selfreflect.sources.items import Item
from selfreflect.validate.base import Family, Undefined, Value, make_value


def answers(item: Item) -> list[str]:
    """Both halves together, without blank answers: these metrics hold nothing out."""
    return [answer for answer in (*item.masked_out, *item.conditioning) if answer.strip()]


def scorable(item: Item) -> dict[str, str]:
    """The summaries that are not blank; none where there is no answer to compare them with."""
    return {name: text for name, text in item.summaries.items() if text.strip()} if answers(item) else {}


def values(family: Family, item: Item, found: Mapping[str, Mapping[str, float | Undefined]]) -> list[Value]:
    """A record for each summary and metric. ``found`` is by summary, then by metric; what is not
    :func:`scorable` is missing from it."""
    nothing = Undefined(reason="blank", message="the summary is blank")
    if not answers(item):
        nothing = Undefined(reason="no_answers", message="every answer is blank, or there is none")
    return [
        make_value(family, info.name, item, name, found[name][info.name] if name in found else nothing)
        for name in item.summaries
        for info in family.metrics
    ]
