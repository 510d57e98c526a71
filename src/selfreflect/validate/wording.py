"""How the studies put numbers and names into sentences."""

from __future__ import annotations

from collections.abc import Sequence

from selfreflect.stats import Estimate


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def joined(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def percent(share: float) -> str:
    return f"{share:.0%}"


def with_interval(estimate: Estimate, form: str) -> str:
    """The estimate and, where there is one, its interval."""
    if estimate.mean is None:
        return "undefined"
    if estimate.low is None or estimate.high is None:
        return format(estimate.mean, form)
    return f"{estimate.mean:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"
