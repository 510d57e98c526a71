"""What a metric is: it turns a question, answers and a summary into a value, or says why there is none."""

from __future__ import annotations

import hashlib
import math
from typing import Literal

from selfreflect.records import FailureKind, NothingToTell, Record, dump_line
from selfreflect.sources.items import Item

Better = Literal["lower", "higher"]
Need = Literal["judge", "generator", "embedder"]
"""A judge is a local model with full logits; a generator is any model that answers, local or behind an
API."""
Group = Literal["selfreflect", "information", "ablation", "competitor", "control"]
Parts = tuple[tuple[tuple[float, ...], ...], ...]
Reason = (
    FailureKind
    | NothingToTell
    | Literal[
        "blank",  # a text that the metric needs is blank
        "unparsed",  # the model's reply does not have the requested form
        "no_claims",  # the model found nothing to check
    ]
)


class MetricInfo(Record, frozen=True, kw_only=True):
    """What a reader must know about a metric before its values mean anything."""

    name: str
    better: Better
    group: Group
    about: str
    """One line."""
    needs: tuple[Need, ...] = ()

    def wins(self, value: float, other: float) -> bool:
        """Whether ``value`` is the better one. Of two values that tie none is."""
        from selfreflect.stats import is_tie  # loads NumPy, which the catalogue does without

        return self.badness(value) < self.badness(other) and not is_tie(value, other)

    def badness(self, value: float) -> float:
        """The value, negated where higher is better, so that lower is better for every metric."""
        return value if self.better == "lower" else -value


class Undefined(Record, frozen=True, kw_only=True):
    """Why a metric has no value for a summary."""

    reason: Reason
    message: str


class Value(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One metric's value of one summary."""

    metric: str
    item: str
    summary: str
    digest: str
    """Of everything the value depends on but the model, see :func:`digest`."""
    by: str = ""
    """The model that computed it, its revision, its server, and what else matters about it, such as prompts;
    empty for a metric without a model."""
    value: float | None = None
    undefined: Undefined | None = None
    """Present exactly if there is no value."""
    parts: Parts = ()
    """What the value is the mean of, if the metric keeps it (``selfreflect`` does): for each masked-out
    answer, in order, the distances of each of its masked words, one per judge token. An answer without words
    has none."""

    def __post_init__(self) -> None:
        if (self.value is None) == (self.undefined is None):
            raise ValueError("a value is either a number or undefined for a reason")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"{self.metric} of {self.summary!r} is {self.value}, not a finite number")


def digest(item: Item, summary: str) -> str:
    """Hash the question, the answers and the text of one summary: 16 hex digits of the SHA-256."""
    line = dump_line([item.question, item.masked_out, item.conditioning, item.summaries[summary]])
    return hashlib.sha256(line.encode()).hexdigest()[:16]
