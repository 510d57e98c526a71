"""What a stage would take: amounts with an expected value and an upper bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from selfreflect.records import Record, Stage


class Amount(Record, frozen=True, kw_only=True):
    """An expected value and an upper bound; None if not known."""

    expected: float | None
    most: float | None

    @classmethod
    def exactly(cls, value: float) -> Amount:
        return cls(expected=value, most=value)

    def __add__(self, other: Amount) -> Amount:
        return Amount(expected=_sum(self.expected, other.expected), most=_sum(self.most, other.most))

    def scaled(self, factor: float | None) -> Amount:
        """Both values times ``factor``; not known with an unknown factor, unless they are 0."""
        return Amount(expected=_product(self.expected, factor), most=_product(self.most, factor))

    def capped(self, limit: float) -> Amount:
        """Both values, at most ``limit``."""
        expected = None if self.expected is None else min(self.expected, limit)
        return Amount(expected=expected, most=limit if self.most is None else min(self.most, limit))


NOTHING = Amount.exactly(0)
UNKNOWN = Amount(expected=None, most=None)


class StageCost(Record, frozen=True, kw_only=True):
    """What one stage would still take."""

    stage: Stage
    model: str
    """Its name, and where it is served, without credentials."""
    to_do: int
    """Answer sets, summaries or scores."""
    calls: Amount = NOTHING
    """Conversations to send; at most one per completion, for servers that give one at a time."""
    completions: Amount = NOTHING
    prompt_tokens: Amount = NOTHING
    completion_tokens: Amount = NOTHING
    judge_tokens: Amount = NOTHING
    """Nodes of prefix trees."""
    seconds: Amount = NOTHING
    money: Amount | None = None
    """In the currency of the prices; None without prices."""


def add_up(amounts: Iterable[Amount]) -> Amount:
    return sum(amounts, NOTHING)


def total(costs: Sequence[StageCost], amount_of: Callable[[StageCost], Amount | None]) -> Amount:
    """One amount over all stages; stages without it count nothing."""
    return add_up(amount_of(cost) or NOTHING for cost in costs)


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _product(value: float | None, factor: float | None) -> float | None:
    if value == 0:
        return 0
    return None if value is None or factor is None else value * factor
