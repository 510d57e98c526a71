"""How tables say coverage, and mark what is only estimated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from selfreflect.records import Score
from selfreflect.render.table import Approximate
from selfreflect.stats import FEWEST_TESTED, Estimate

METHOD = "intervals: 95% BCa bootstrap over questions"


def coverage_text(estimate: Estimate) -> str | None:
    """Format the coverage as ``95.0% (57/60)``; None without questions."""
    if estimate.coverage is None:
        return None
    return f"{100 * estimate.coverage:.1f}% ({estimate.n}/{estimate.total})"


def no_interval(estimate: Estimate) -> str | None:
    """Say why an estimate has no interval; None if it has one."""
    if estimate.low is not None:
        return None
    if estimate.n < FEWEST_TESTED:
        return f"fewer than {FEWEST_TESTED} questions"
    return f"fewer than {FEWEST_TESTED} questions differ"


def method_note(estimates: Iterable[Estimate]) -> str:
    """Name the method of intervals, and say if some are left out."""
    if any(0 < estimate.n < FEWEST_TESTED for estimate in estimates):
        return f"{METHOD}; none from fewer than {FEWEST_TESTED} questions, it would be far too short"
    return METHOD


def approximate(value: float | None, estimated: bool) -> float | None:
    """Mark ``value`` if estimates went into it."""
    return Approximate(value) if estimated and value is not None else value


def estimate_note(scores: Sequence[Score]) -> list[str]:
    """Explain ``≈`` if some scores are estimates."""
    estimates = [score.estimate for score in scores if score.estimate]
    if not estimates:
        return []
    words = sum(estimate.words_scored for estimate in estimates)
    total = sum(estimate.words_total for estimate in estimates)
    return [
        f"≈: {len(estimates)} of {len(scores)} scores are estimates from {words} of their {total} masked "
        f"words ({words / total:.0%}), not exact scores"
    ]


def estimated_from(score: Score) -> str | None:
    """Format the sample of an estimate as ``120 of 840 words``; None for an exact score."""
    if score.estimate is None:
        return None
    return f"{score.estimate.words_scored} of {score.estimate.words_total} words"


def score_text(score: Score) -> str:
    """Format as ``0.0954 ± 0.0025``, or ``≈0.0954 ± 0.0025 (estimated from 120 of 840 words)``."""
    text = f"{score.value:.4f}"
    if score.stderr is not None:
        text += f" ± {score.stderr:.4f}"
    source = estimated_from(score)
    return f"≈{text} (estimated from {source})" if source else text
