"""What any metric must beat: a property of the summary that says nothing about its faithfulness."""

from __future__ import annotations

from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo, Value, make_value

METRICS = (
    MetricInfo(
        name="length",
        better="higher",
        group="control",
        about="Words of the summary. Good summaries are longer than bad ones, so this control often wins.",
    ),
)


class Length:
    """How many words a summary has; a blank one has none."""

    metrics = METRICS
    by = ""

    def score(self, item: Item) -> list[Value]:
        """One value for each summary."""
        return [
            make_value(self, "length", item, name, float(len(text.split())))
            for name, text in item.summaries.items()
        ]
