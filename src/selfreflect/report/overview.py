"""From the records of one run to tables: how the strategies did, what failed, and one row for each question
and strategy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from selfreflect.records import STAGES, AnswerSet, Failure, Question, Sampled, Score, Summary
from selfreflect.render.table import Approximate, Cell, Column, Table
from selfreflect.render.text import one_line
from selfreflect.stats import Estimate, mean_interval

Key = tuple[str, str]
"""(question id, strategy)"""

SCORE = ".4f"
"""How scores are printed."""

OVERVIEW_COLUMNS = (
    Column("strategy"),
    Column("mean score", SCORE),
    Column("95% low", SCORE),
    Column("95% high", SCORE),
    Column("n", "d"),
    Column("coverage"),
    Column("median words", "g"),
    Column("failures", "d"),
)
COMMON_COLUMNS = (Column("common mean", SCORE), Column("common n", "d"))
QUESTION_COLUMNS = (
    Column("question_id"),
    Column("question"),
    Column("kind"),
    Column("strategy"),
    Column("score", SCORE),
    Column("stderr", SCORE),
    Column("token_tasks", "d"),
    Column("estimated_from"),
    Column("summary"),
    Column("summary_words", "d"),
    Column("failure"),
)
FAILURE_COLUMNS = (
    Column("stage"),
    Column("strategy"),
    Column("kind"),
    Column("count", "d"),
    Column("question"),
    Column("example"),
)

METHOD = "intervals: 95% BCa bootstrap over questions"
_EXAMPLE_LENGTH = 160


@dataclass(frozen=True)
class RunRecords:
    """What a report is made from. The questions are the population: records of any other question are left
    out of every mean."""

    label: str
    strategies: Sequence[str]
    questions: Mapping[str, Question]
    answers: Mapping[str, AnswerSet]
    summaries: Mapping[Key, Summary]
    scores: Mapping[Key, Score]
    failures: Sequence[Failure]
    """Those that still stand; one without a name concerns every strategy."""

    def values(self, strategy: str) -> dict[str, float]:
        """The strategy's score for each question that has one."""
        return {
            id_: self.scores[id_, strategy].value for id_ in self.questions if (id_, strategy) in self.scores
        }

    def estimates(self, strategy: str) -> list[Sampled]:
        """How each of its scores was estimated, for those that are not exact."""
        found = [
            self.scores[id_, strategy].estimate for id_ in self.questions if (id_, strategy) in self.scores
        ]
        return [estimate for estimate in found if estimate]

    def failure_behind(self) -> dict[Key, Failure]:
        """For each question and strategy without a score the first failure on its way, where one is
        recorded."""
        first: dict[Key, Failure] = {}
        for failure in sorted(self.failures, key=lambda failure: STAGES.index(failure.stage)):
            first.setdefault((failure.question_id, failure.name), failure)
        unscored = [
            (id_, name)
            for id_ in self.questions
            for name in self.strategies
            if (id_, name) not in self.scores
        ]
        found = {key: first.get((key[0], "")) or first.get(key) for key in unscored}
        return {key: failure for key, failure in found.items() if failure}


@dataclass(frozen=True)
class StrategyResult:
    """How one strategy did in one run."""

    strategy: str
    score: Estimate
    """Over the questions that were scored for this strategy."""
    common: Estimate | None
    """Over the questions scored for all strategies that have scores; None where that makes no difference."""
    median_words: float | None
    failures: int
    """Questions without a score for which a failure is recorded."""
    pending: int
    """Questions with neither: the run is not finished."""
    estimated: int = 0
    """Scores behind ``score`` that are estimates from a part of the masked words."""


def strategy_results(run: RunRecords) -> list[StrategyResult]:
    """One result per strategy, in the order of the run."""
    values = {name: run.values(name) for name in run.strategies}
    failed = Counter(name for _, name in run.failure_behind())
    common = _common_questions(values.values())
    total = len(run.questions)
    results = []
    for name, scored in values.items():
        shared = (
            None if common is None else mean_interval([scored[id_] for id_ in common if id_ in scored], total)
        )
        score = mean_interval(list(scored.values()), total)
        lengths = [
            len(run.summaries[id_, name].text.split())
            for id_ in run.questions
            if (id_, name) in run.summaries
        ]
        pending = total - score.n - failed[name]
        words, estimated = float(median(lengths)) if lengths else None, len(run.estimates(name))
        results.append(StrategyResult(name, score, shared, words, failed[name], pending, estimated))
    return results


def overview(run: RunRecords) -> Table:
    """One row per strategy: mean score with interval, n and coverage, length of the summaries, failures.

    Where the strategies were scored on different questions, more columns compare them on those that they
    share.
    """
    results = strategy_results(run)
    uneven = any(result.common for result in results)
    columns = OVERVIEW_COLUMNS + COMMON_COLUMNS if uneven else OVERVIEW_COLUMNS
    rows = tuple(_overview_row(result) + (_common_cells(result) if uneven else ()) for result in results)
    label = f" ({run.label})" if run.label else ""
    return Table(
        f"SelfReflect score: 0 is perfect, lower is better{label}",
        columns,
        rows,
        _overview_notes(run, results),
    )


def failure_table(run: RunRecords) -> Table:
    """What is missing and why: counts by stage, strategy and kind, each with the first message as an
    example."""
    groups: dict[tuple[str, str, str], list[Failure]] = {}
    for failure in run.failures:
        groups.setdefault((failure.stage, failure.name, failure.kind), []).append(failure)
    order = {name: place for place, name in enumerate(run.strategies)}
    ranked = sorted(
        groups, key=lambda key: (STAGES.index(groups[key][0].stage), order.get(key[1], len(order)), key)
    )
    rows = []
    for stage, name, kind in ranked:
        failures = groups[stage, name, kind]
        example = one_line(failures[0].message)
        shown = example if len(example) <= _EXAMPLE_LENGTH else example[: _EXAMPLE_LENGTH - 1] + "…"
        rows.append((stage, name or None, kind, len(failures), failures[0].question_id, shown))
    return Table("Failures", FAILURE_COLUMNS, tuple(rows))


def question_table(run: RunRecords) -> Table:
    """One row for each question and strategy, with whatever there is of it; ``failure`` says why there is no
    score."""
    behind = run.failure_behind()
    keys = [(id_, name) for id_ in run.questions for name in run.strategies]
    return Table(
        "Questions", QUESTION_COLUMNS, tuple(_question_row(run, key, behind.get(key)) for key in keys)
    )


def joined(tables: Mapping[str, Table]) -> Table:
    """Tables of one shape as one, with the run of each row in front."""
    first = next(iter(tables.values()))
    rows = tuple((label, *row) for label, table in tables.items() for row in table.rows)
    return Table(first.title, (Column("run"), *first.columns), rows)


def judges(scores: Iterable[Score]) -> list[str]:
    """The settings of the judge that scores depend on, in words, each once: only scores with equal settings
    are comparable."""
    return sorted({_judge(score) for score in scores})


def _judge(score: Score) -> str:
    revision = f" at {score.judge_revision}" if score.judge_revision else ""
    compat = f", compat {score.compat}" if score.compat else ""
    return f"{score.judge}{revision}, {score.judge_dtype or 'dtype unknown'}, temperature {score.temperature:g}{compat}"


def coverage_text(estimate: Estimate) -> str | None:
    """``95.0% (57/60)``; None where there are no questions."""
    return (
        None
        if estimate.coverage is None
        else f"{100 * estimate.coverage:.1f}% ({estimate.n}/{estimate.total})"
    )


def _common_questions(values: Iterable[Mapping[str, float]]) -> list[str] | None:
    """Ids scored for every strategy that has scores, or None where each has the same ones."""
    scored = [value for value in values if value]
    if all(value.keys() == scored[0].keys() for value in scored):
        return None
    return [id_ for id_ in scored[0] if all(id_ in value for value in scored)]


def _overview_row(result: StrategyResult) -> tuple[Cell, ...]:
    score = result.score
    return (
        result.strategy,
        approximate(score.mean, result.estimated),
        score.low,
        score.high,
        score.n,
        coverage_text(score),
        result.median_words,
        result.failures,
    )


def _common_cells(result: StrategyResult) -> tuple[Cell, ...]:
    return (
        (approximate(result.common.mean, result.estimated), result.common.n)
        if result.common
        else (None, None)
    )


def approximate(value: float | None, estimates: int) -> float | None:
    """``value``, marked where estimates went into it."""
    return Approximate(value) if estimates and value is not None else value


def estimate_note(estimates: Sequence[Sampled], scores: int) -> str:
    """What a reader must know of ``scores`` scores some of which are estimates."""
    scored, total = sum(one.words_scored for one in estimates), sum(one.words_total for one in estimates)
    return (
        f"≈: {len(estimates)} of {scores} scores are estimates from {scored} of their {total} masked words ({scored / total:.0%}), "
        "not exact scores"
    )


def estimated_from(score: Score) -> str | None:
    """``120 of 840 words``; None for an exact score."""
    return f"{score.estimate.words_scored} of {score.estimate.words_total} words" if score.estimate else None


def _overview_notes(run: RunRecords, results: Sequence[StrategyResult]) -> tuple[str, ...]:
    used = judges(
        score for (id_, name), score in run.scores.items() if id_ in run.questions and name in run.strategies
    )
    notes = [f"judge: {used[0]}; {METHOD}"] if len(used) == 1 else []
    if len(used) > 1:
        notes = [
            f"NOT DIRECTLY COMPARABLE: scored with different judges or settings ({'; '.join(used)})",
            METHOD,
        ]
    if estimates := [estimate for name in run.strategies for estimate in run.estimates(name)]:
        notes.append(estimate_note(estimates, sum(result.score.n for result in results)))
    common = max(
        (result.common for result in results if result.common), key=lambda estimate: estimate.n, default=None
    )
    if common:
        share = coverage_text(common)
        notes.append(
            f"the strategies were scored on different questions: compare them only by the common mean, coverage {share}"
        )
    pending = sum(result.pending for result in results)
    if pending:
        notes.append(f"the run is not finished: {pending} scores have neither been computed nor failed")
    return tuple(notes)


def _question_row(run: RunRecords, key: Key, failure: Failure | None) -> tuple[Cell, ...]:
    question, score, summary = run.questions[key[0]], run.scores.get(key), run.summaries.get(key)
    return (
        question.id,
        question.text,
        question.kind,
        key[1],
        approximate(score.value, score.estimate is not None) if score else None,
        score.stderr if score else None,
        score.token_tasks if score else None,
        estimated_from(score) if score else None,
        summary.text if summary else None,
        len(summary.text.split()) if summary else None,
        f"{failure.kind}: {failure.message}" if failure else None,
    )
