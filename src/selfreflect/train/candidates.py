"""Candidates to learn from: the summaries of a question with their values, also for each test answer."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from selfreflect.metric.measure import Measure
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import settled


@dataclass(frozen=True)
class Candidate:
    """Summary that was measured."""

    name: str
    """Its strategy."""
    text: str
    words: int
    value: float
    """As the measure is reported."""
    by_answer: tuple[float | None, ...]
    """What each test answer contributes, see :meth:`~selfreflect.metric.measure.Measure.by_answer`."""

    @property
    def merit(self) -> float:
        """A number that is higher for a better candidate."""
        return self.value if self.higher_is_better else -self.value

    higher_is_better: bool = True
    helps: bool = True
    """Whether it was measured above the empty summary."""


# Why a text is left out that nobody should learn to write
EMPTY = "recovers no more than an empty summary"


def candidates(
    run: RunRecords,
    question: str,
    measure: Measure,
    *,
    names: Collection[str] | None = None,
    max_words: int | None = None,
    drops: Counter[str] | None = None,
) -> list[Candidate]:
    """List the measured summaries of a question, in the order of the run's strategies.

    A text that several strategies wrote is one candidate, of the first.

    Args:
        names: take these strategies only; ``basic`` includes its draws ``basic#1``, ``basic#2``, ….
        max_words: leave out longer summaries.
        drops: counts the summaries that are left out, by the reason.
    """
    drops = Counter() if drops is None else drops
    by_text: dict[str, Candidate] = {}
    for name in run.strategies:
        key = (question, name)
        if key not in run.summaries or not is_named(name, names):
            continue
        summary = run.summaries[key]
        text = summary.text.strip()
        words = len(text.split())
        if not text:
            drops["blank"] += 1
        elif summary.truncated:
            drops["cut off at the limit of tokens"] += 1  # a student would learn to stop in mid-sentence
        elif max_words is not None and words > max_words:
            drops[f"longer than {max_words} words"] += 1
        elif text in by_text:
            drops["equal to another of the question"] += 1
        else:
            candidate = _measured(run, key, measure, text, words)
            if isinstance(candidate, str):
                drops[candidate] += 1
            else:
                by_text[text] = candidate
    return list(by_text.values())


def is_named(name: str, names: Collection[str] | None) -> bool:
    """Return whether a strategy is among some, itself or as the strategy that it is a draw of."""
    return names is None or name in names or name.rpartition("#")[0] in names


def _measured(
    run: RunRecords, key: tuple[str, str], measure: Measure, text: str, words: int
) -> Candidate | str:
    """Make the candidate of a summary, or say why it has no value."""
    record = run.results(measure).get(key)
    if record is None:
        return "not measured"
    measurement = measure.measurement(record)
    if measurement.value is None:
        return f"its {measure.name} is undefined ({measurement.undefined})"
    return Candidate(
        key[1],
        text,
        words,
        measurement.value,
        measure.by_answer(record),
        measure.higher_is_better,
        _helps(run, key),
    )


def _helps(run: RunRecords, key: tuple[str, str]) -> bool:
    """Return whether every measure puts a summary above the empty one."""
    controls = run.controls.get(key[0])
    for measure in run.measures:
        record = run.results(measure).get(key)
        if record is not None and not measure.beats_empty(record, controls):
            return False
    return True


def margin(better: Candidate, worse: Candidate) -> tuple[float, float] | None:
    """Estimate by how much one candidate is better: the mean difference and its standard error, paired over
    test answers. None with fewer than two answers that both were measured on."""
    differences = []
    for a, b in zip(better.by_answer, worse.by_answer, strict=False):
        if a is not None and b is not None:
            differences.append(a - b)
    if len(differences) < 2:
        return None
    stderr = statistics.stdev(differences) / math.sqrt(len(differences))
    return math.fsum(differences) / len(differences), stderr


def best(options: Sequence[Candidate]) -> Candidate:
    """Choose the best candidate; of equals the shorter one, then the first."""
    merits = settled([option.merit for option in options])
    return max(zip(merits, options, strict=True), key=lambda pair: (pair[0], -pair[1].words))[1]
