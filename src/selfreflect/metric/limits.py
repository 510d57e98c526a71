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
    """When to stop scoring the masked words of a question; the first limit to be reached counts.

    Make one with :meth:`parse`. Stopping by ``standard_error`` or ``race`` favours lucky samples a little:
    such estimates are only nearly unbiased.
    """

    budget: str | None = None
    """As the user wrote it."""
    tokens: int | None = None
    """Judge tokens per question, counted as nodes of all prefix trees; never exceeded. A judge without tree
    attention computes more for the same nodes."""
    seconds: float | None = None
    """Time per question, kept approximately; another run may score other words."""
    standard_error: float | None = None
    """Stop when every summary's standard error against its exact score is at most this."""
    race: float | None = None
    """Stop scoring a summary when its order to every other one is certain at this confidence, for all pairs
    of the question together."""
    seed: int = 0
    """Decides, with the question's id, which words come first."""

    @classmethod
    def parse(
        cls,
        budget: str | int | None = None,
        standard_error: float | None = None,
        race: float | None = None,
        seed: int = 0,
    ) -> Limits | None:
        """The limits, or None if every masked word is to be scored.

        Args:
            budget: judge tokens (``20000``, ``"20000 tokens"``) or time (``"30s"``, ``"2m"``).

        Raises:
            ConfigError: a limit is out of range, or ``budget`` is neither tokens nor time.
        """
        if standard_error is not None and not 0 < standard_error < 1:
            raise ConfigError(
                f"the standard error to reach must lie between 0 and 1, as scores do, not {standard_error}"
            )
        if race is not None and not 0.5 <= race < 1:
            raise ConfigError(f"the confidence of a race must be in [0.5, 1), as in 0.95, not {race}")
        if budget is None and standard_error is None and race is None:
            return None
        if budget is None:
            return cls(standard_error=standard_error, race=race, seed=seed)
        tokens, seconds = _parse_budget(str(budget))
        return cls(str(budget), tokens, seconds, standard_error, race, seed)

    def less(self, tokens: int, seconds: float) -> Limits:
        """What is left after some work on the same question; a moment of time is always left."""
        return replace(
            self,
            tokens=None if self.tokens is None else self.tokens - tokens,
            seconds=None if self.seconds is None else max(0.01, self.seconds - seconds),
        )

    @property
    def adaptive(self) -> bool:
        """Whether words are scored in rounds, because distances or the clock decide when to stop."""
        return self.seconds is not None or self.standard_error is not None or self.race is not None


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
