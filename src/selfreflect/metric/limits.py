"""What a user may ask for instead of scoring every masked word."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from selfreflect.errors import ConfigError, excerpt

_BUDGET = re.compile(r"(\d+(?:\.\d+)?)\s*(tokens?|s|sec|seconds?|m|min|minutes?|)", re.ASCII)
_ADVICE = "give judge tokens per question, as in 20000, or seconds or minutes per question, as in 30s or 2m"


@dataclass(frozen=True)
class Limits:
    """When to stop scoring the masked words of a question. Make one with :meth:`parse`."""

    budget: str | None = None
    """As the user wrote it."""
    tokens: int | None = None
    """Judge tokens per question, counted as nodes of all prefix trees; never exceeded. A judge without tree
    attention computes more for the same nodes."""
    seconds: float | None = None
    """Time per question, kept approximately; another run may score other words."""
    seed: int = 0
    """Decides, with the question's id, which words come first."""

    @classmethod
    def parse(cls, budget: str | int | None = None, seed: int = 0) -> Limits | None:
        """The limits, or None if every masked word is to be scored.

        Args:
            budget: judge tokens (``20000``, ``"20000 tokens"``) or time (``"30s"``, ``"2m"``).

        Raises:
            ConfigError: ``budget`` is neither tokens nor time, or out of range.
        """
        if budget is None:
            return None
        tokens, seconds = _parse_budget(str(budget))
        return cls(str(budget), tokens, seconds, seed)

    def less(self, tokens: int, seconds: float) -> Limits:
        """What is left after some work on the same question; a moment of time is always left."""
        return replace(
            self,
            tokens=None if self.tokens is None else self.tokens - tokens,
            seconds=None if self.seconds is None else max(0.01, self.seconds - seconds),
        )


def _parse_budget(text: str) -> tuple[int | None, float | None]:
    """(tokens, None) or (None, seconds)."""
    match = _BUDGET.fullmatch(text.strip().lower())
    if match is None:
        raise ConfigError(f"the budget {excerpt(text)} is not understood: {_ADVICE}")
    number, unit = float(match[1]), match[2]
    if not 0 < number < math.inf:
        raise ConfigError(f"the budget {excerpt(text)} must be above 0 and finite: {_ADVICE}")
    if unit.startswith("s"):
        return None, number
    if unit.startswith("m"):
        return None, 60 * number
    if not number.is_integer():
        raise ConfigError(f"the budget {excerpt(text)} must be a whole number of tokens: {_ADVICE}")
    return int(number), None
