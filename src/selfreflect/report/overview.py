"""Tables of one run: results by strategy, failures by kind, and one row per question and strategy."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from selfreflect.records import STAGES, Score
from selfreflect.render.table import Approximate, Cell, Column, Table
from selfreflect.render.text import one_line
from selfreflect.report.run_records import RunRecords, SummaryOutcome
from selfreflect.report.sentences import HEDGES
from selfreflect.stats import Estimate, mean_interval

SCORE = ".4f"
"""Display format of scores."""

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


@dataclass(frozen=True)
class StrategyResult:
    """The result of one strategy in one run."""

    strategy: str
    score: Estimate
    """Mean over the questions scored for this strategy."""
    common: Estimate | None
    """Mean over the questions scored for all strategies with scores; None if these are the same questions."""
    median_words: float | None
    failures: int
    """Questions with a recorded failure instead of a score."""
    pending: int
    """Questions with neither, because the run is not finished."""
    estimated: int
    """How many of the scores are estimates from some of the masked words."""


def strategy_results(run: RunRecords) -> list[StrategyResult]:
    """Compute one result per strategy, in run order."""
    by_strategy = {name: run.strategy_scores(name) for name in run.strategies}
    failures = Counter(name for _, name in run.failures_by_score)
    question_sets = [set(scores) for scores in by_strategy.values() if scores]
    common_ids = set.intersection(*question_sets) if question_sets else set()
    uneven = any(ids != common_ids for ids in question_sets)
    total = len(run.questions)
    results = []
    for name, scores in by_strategy.items():
        score = mean_interval([one.value for one in scores.values()], total)
        common = mean_interval([scores[id_].value for id_ in common_ids & scores.keys()], total)
        summaries = [run.summaries.get((id_, name)) for id_ in run.questions]
        lengths = [len(summary.text.split()) for summary in summaries if summary]
        result = StrategyResult(
            strategy=name,
            score=score,
            common=common if uneven else None,
            median_words=float(median(lengths)) if lengths else None,
            failures=failures[name],
            pending=total - score.n - failures[name],
            estimated=sum(one.estimate is not None for one in scores.values()),
        )
        results.append(result)
    return results


def overview(run: RunRecords) -> Table:
    """Tabulate the strategies: mean score with interval, n, coverage, length of summaries, failures.

    If the strategies were scored on different questions, further columns compare them on common questions.
    """
    results = strategy_results(run)
    columns: tuple[Column, ...] = OVERVIEW_COLUMNS
    rows: list[tuple[Cell, ...]] = []
    for result in results:
        score = result.score
        row: tuple[Cell, ...] = (
            result.strategy,
            approximate(score.mean, result.estimated > 0),
            score.low,
            score.high,
            score.n,
            coverage_text(score),
            result.median_words,
            result.failures,
        )
        if result.common:
            columns = OVERVIEW_COLUMNS + COMMON_COLUMNS
            row += (approximate(result.common.mean, result.estimated > 0), result.common.n)
        rows.append(row)
    title = "SelfReflect score: 0 is perfect, lower is better"
    if run.label:
        title += f" ({run.label})"
    return Table(title, columns, tuple(rows), tuple(_overview_notes(run, results)))


def _overview_notes(run: RunRecords, results: Sequence[StrategyResult]) -> list[str]:
    scores: list[Score] = []
    for name in run.strategies:
        scores += run.strategy_scores(name).values()
    settings = judges(scores)
    notes = []
    if len(settings) == 1:
        notes.append(f"judge: {settings[0]}; {METHOD}")
    elif settings:
        notes.append(
            f"NOT DIRECTLY COMPARABLE: scored with different judges or settings ({'; '.join(settings)})"
        )
        notes.append(METHOD)
    names = {score.judge for score in scores} | {one.judge for one in run.information.values()}
    if "smollm2" in names:
        notes.append(HEDGES)
    notes += estimate_note(scores)
    commons = [result.common for result in results if result.common]
    if commons:
        coverage = coverage_text(max(commons, key=lambda estimate: estimate.n))
        notes.append(
            "the strategies were scored on different questions: compare them only by the common mean, "
            f"coverage {coverage}"
        )
    pending = sum(result.pending for result in results)
    if pending:
        notes.append(f"the run is not finished: {pending} scores have neither been computed nor failed")
    return notes


def failure_table(run: RunRecords) -> Table:
    """Count failures by stage, strategy and kind, each with its first message as an example."""
    ranks = {name: rank for rank, name in enumerate(run.strategies)}
    groups = defaultdict(list)
    for failure in run.failures:
        rank = ranks.get(failure.name, len(ranks))
        groups[STAGES.index(failure.stage), rank, failure.name, failure.kind].append(failure)
    rows = []
    for _, failures in sorted(groups.items()):
        first = failures[0]
        example = one_line(first.message, 160)
        rows.append((first.stage, first.name or None, first.kind, len(failures), first.question_id, example))
    return Table("Failures", FAILURE_COLUMNS, tuple(rows))


def question_table(run: RunRecords) -> Table:
    """Tabulate every question and strategy; ``failure`` says why a score is missing."""
    rows: list[tuple[Cell, ...]] = []
    for question in run.questions.values():
        cells = (question.id, question.text, question.kind)
        rows += [(*cells, *_outcome_cells(outcome)) for outcome in run.outcomes(question.id)]
    return Table("Questions", QUESTION_COLUMNS, tuple(rows))


def _outcome_cells(outcome: SummaryOutcome) -> tuple[Cell, ...]:
    strategy, summary, score, failure, _ = outcome
    score_cells: tuple[Cell, ...] = (None, None, None, None)
    if score:
        value = approximate(score.value, score.estimate is not None)
        score_cells = (value, score.stderr, score.token_tasks, estimated_from(score))
    summary_cells: tuple[Cell, ...] = (None, None)
    if summary:
        summary_cells = (summary.text, len(summary.text.split()))
    reason = f"{failure.kind}: {failure.message}" if failure else None
    return (strategy, *score_cells, *summary_cells, reason)


def joined(tables: Mapping[str, Table]) -> Table:
    """Join tables with equal columns, with the run of each row in front."""
    first = next(iter(tables.values()))
    rows: list[tuple[Cell, ...]] = []
    for label, table in tables.items():
        rows += [(label, *row) for row in table.rows]
    return Table(first.title, (Column("run"), *first.columns), tuple(rows))


def judges(scores: Iterable[Score]) -> list[str]:
    """Describe each judge and its settings once; scores with different ones are not comparable."""
    descriptions = set()
    for score in scores:
        revision = f" at {score.judge_revision}" if score.judge_revision else ""
        dtype = score.judge_dtype or "dtype unknown"
        compat = f", compat {score.compat}" if score.compat else ""
        descriptions.add(f"{score.judge}{revision}, {dtype}, temperature {score.temperature:g}{compat}")
    return sorted(descriptions)


def coverage_text(estimate: Estimate) -> str | None:
    """Format the coverage as ``95.0% (57/60)``; None without questions."""
    if estimate.coverage is None:
        return None
    return f"{100 * estimate.coverage:.1f}% ({estimate.n}/{estimate.total})"


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
