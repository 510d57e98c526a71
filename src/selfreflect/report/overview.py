"""Tables of one run: results by strategy, failures by kind, and one row per question and strategy."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median

from selfreflect.records import STAGES, FailureKind, NothingToTell, Score, metadata_headings
from selfreflect.render.table import Approximate, Cell, Column, Table
from selfreflect.render.text import one_line
from selfreflect.report.measures import (
    INFORMATION,
    SELFREFLECT,
    ControlValues,
    Measure,
    control_values,
    run_measures,
)
from selfreflect.report.run_records import RunRecords, SummaryOutcome
from selfreflect.report.sentences import (
    HEDGES,
    OTHER_JUDGE,
    OTHER_READER,
    answers_text,
    pasted_answers,
)
from selfreflect.stats import Estimate, clear_sign

CONTROL = "control: "
"""In front of the name of a control, where tables list it below strategies."""

QUESTION_COLUMNS = (
    Column("question_id"),
    Column("question"),
    Column("kind"),
    Column("strategy"),
    Column("score", SELFREFLECT.form),
    Column("stderr", SELFREFLECT.form),
    Column("token_tasks", "d"),
    Column("estimated_from"),
    Column("bits", ".1f"),
    Column("bits_available", ".1f"),
    Column("recovered", INFORMATION.form),
    Column("recovered_low", INFORMATION.form),
    Column("recovered_high", INFORMATION.form),
    Column("reader"),
    Column("undefined"),
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

REMEDIES: Mapping[FailureKind, str] = {
    "no_answers": "most answers are blank or refused; take another model or prompt (--prompts)",
    "blank_summary": "the model wrote nothing; take another strategy or prompt (--prompts)",
    "too_long": "use a model or judge with a larger context window, or shorter answers (--max-new-tokens)",
    "unclosed_reasoning": "in a new run (another --out), raise {tokens} or leave out --thinking",
    "cut_off": "in a new run (another --out), raise {tokens}",
    "over_budget": "raise --budget",
    "refused": "rephrase the question, or take another model",
    "content_filter": "rephrase the question, or take another server",
    "empty": "run the same command again; it tries only what failed",
    "backend": "see the message; then run the same command again, which tries only what failed",
    "strategy": "mend the strategy and run the same command again, which tries only what failed",
}
"""What a user can do about a failure."""

INCOMPLETE = ", incomplete"
"""Behind the coverage of a strategy that lacks results."""

TELLS_N = "tells n"
"""Questions that a share rests on, where that is not the number of scores."""

METHOD = "intervals: 95% BCa bootstrap over questions"

_UNDEFINED: Mapping[NothingToTell, str] = {
    "known": "the judge already knows the answers",
    "unclear": "there are too few answers to say",
    "unmeasured": "it could not be measured",
}


@dataclass(frozen=True)
class StrategyResult:
    """The result of one strategy in one run."""

    strategy: str
    score: Estimate
    """Mean over the questions scored for this strategy."""
    common: Estimate | None
    """Mean over the questions scored for all strategies with scores; None if these are the same questions."""
    recovered: Estimate
    """Share of what the conditioning answers tell: a ratio of sums over the questions where it is defined."""
    common_recovered: Estimate | None
    bits: float | None
    """Mean over the questions where a share is defined, per answer."""
    bits_available: float | None
    readers: tuple[str, ...]
    undefined: Mapping[NothingToTell, int]
    """Questions without a share, by the reason."""
    median_words: float | None
    failures: int
    """Questions with a recorded failure instead of a score."""
    pending: int
    """Questions with neither, because the run is not finished."""
    wanted: int
    """Questions that should have a result."""
    estimated: int
    """How many of the scores are estimates from some of the masked words."""

    @property
    def missing(self) -> int:
        """Questions without a result."""
        return self.failures + self.pending

    def estimate(self, measure: Measure) -> Estimate:
        return self.recovered if measure is INFORMATION else self.score

    def common_estimate(self, measure: Measure) -> Estimate | None:
        return self.common_recovered if measure is INFORMATION else self.common


def strategy_results(run: RunRecords) -> list[StrategyResult]:
    """Compute one result per strategy, in run order."""
    failed = run.failures_by_score.keys()
    scores = _estimates(run, SELFREFLECT)
    shares = _estimates(run, INFORMATION)
    results = []
    for name in run.strategies:
        measured = run.strategy_information(name)
        scored = run.strategy_scores(name)
        bits = INFORMATION.of_strategy(run, name)
        written = {id_: run.summaries[id_, name] for id_ in run.questions if (id_, name) in run.summaries}
        lengths = [len(summary.text.split()) for summary in written.values()]
        failures = {id_ for id_, strategy in failed if strategy == name}
        by_hand = written and not any(summary.model for summary in written.values())
        wanted = (written if by_hand else run.questions).keys()  # not every item has a summary of every name
        result = StrategyResult(
            strategy=name,
            score=scores[name][0],
            common=scores[name][1],
            recovered=shares[name][0],
            common_recovered=shares[name][1],
            bits=_mean(bits.values),
            bits_available=_mean(bits.scale or {}),
            readers=tuple(sorted({information.reader for information in measured.values()})),
            undefined=Counter(one.undefined for one in measured.values() if one.undefined is not None),
            median_words=float(median(lengths)) if lengths else None,
            failures=len(failures),
            wanted=len(wanted),
            pending=len(wanted - scored.keys() - measured.keys() - failures),
            estimated=sum(one.estimate is not None for one in scored.values()),
        )
        results.append(result)
    return results


def sorted_results(run: RunRecords) -> list[StrategyResult]:
    """Sort the strategies by the main measure, the best first: complete ones, incomplete ones, and at last
    those without a result."""
    results = strategy_results(run)
    measure = main_measure(run, results)

    def rank(result: StrategyResult) -> tuple[bool, bool, float]:
        mean = result.estimate(measure).mean
        if mean is None:
            return True, False, 0.0
        return False, result.missing > 0, -mean if measure.higher_is_better else mean

    return sorted(results, key=rank)


def main_measure(run: RunRecords, results: Sequence[StrategyResult]) -> Measure:
    """The first measure in which a strategy has a result."""
    measures = run_measures(run)
    for measure in measures:
        if any(result.estimate(measure).mean is not None for result in results):
            return measure
    return measures[0]


def sorted_strategies(run: RunRecords) -> RunRecords:
    """Copy the run with its strategies in the order of :func:`sorted_results`."""
    return replace(run, strategies=[result.strategy for result in sorted_results(run)])


def _estimates(run: RunRecords, measure: Measure) -> dict[str, tuple[Estimate, Estimate | None]]:
    """Estimate each strategy on its own questions, and on those of all strategies if these are not the
    same."""
    by_strategy = {name: measure.of_strategy(run, name) for name in run.strategies}
    question_sets = [set(values.values) for values in by_strategy.values() if values.values]
    common = set.intersection(*question_sets) if question_sets else set()
    uneven = any(ids != common for ids in question_sets)
    total = len(run.questions)
    return {
        name: (values.estimate(total), values.among(common).estimate(total) if uneven else None)
        for name, values in by_strategy.items()
    }


def _mean(values: Mapping[str, float]) -> float | None:
    return sum(values.values()) / len(values) if values else None


def overview(run: RunRecords) -> Table:
    """Tabulate the strategies: what they tell and their mean score, each with its interval, n, coverage,
    length of summaries, failures; and the controls below them. Where shares rest on other questions than
    scores, they have an n of their own.

    If the strategies were measured on different questions, further columns compare them on common questions.
    """
    results = sorted_results(run)
    controls = control_values(run)
    measures = run_measures(run)
    columns = [Column("strategy")]
    fewer = len(measures) > 1 and any(result.recovered.n != result.score.n for result in results)
    for measure in measures:
        columns += [Column(heading, measure.form) for heading in (measure.mean, measure.low, measure.high)]
        if fewer and measure is INFORMATION:
            columns.append(Column(TELLS_N, "d"))
    columns += [Column("n", "d"), Column("coverage"), Column("median words", "g"), Column("failures", "d")]
    different = any(result.common_estimate(one) for one in measures for result in results)
    uneven = [one for one in measures if any(_common_n(result, one) for result in results)]
    columns += [Column(measure.common, measure.form) for measure in uneven]
    if uneven:
        columns.append(Column("common n", "d"))
    rows = [_strategy_row(result, measures, uneven, fewer) for result in results]
    rows += filter(None, (_control_row(control, measures, fewer, len(columns)) for control in controls))
    title = "; ".join(measure.title for measure in measures)
    if run.label:
        title += f" ({run.label})"
    notes = _overview_notes(run, results, measures, uneven)
    if different and not uneven:
        notes.append(
            "the strategies were scored on different questions, none in common: do not compare their means"
        )
    notes += control_notes(run, controls)
    return Table(title, tuple(columns), tuple(rows), tuple(notes))


def _common_n(result: StrategyResult, measure: Measure) -> int:
    common = result.common_estimate(measure)
    return common.n if common else 0


def _strategy_row(
    result: StrategyResult, measures: Sequence[Measure], uneven: Sequence[Measure], fewer: bool
) -> tuple[Cell, ...]:
    cells: list[Cell] = [result.strategy]
    for measure in measures:
        estimate = result.estimate(measure)
        estimated = measure is SELFREFLECT and result.estimated > 0
        cells += [approximate(estimate.mean, estimated), estimate.low, estimate.high]
        if fewer and measure is INFORMATION:
            cells.append(estimate.n)
    main = result.estimate(measures[-1])
    coverage = coverage_text(main)
    if coverage and result.missing and main.n:
        coverage += INCOMPLETE
    cells += [main.n, coverage, result.median_words, result.failures]
    commons = [(measure, result.common_estimate(measure)) for measure in uneven]
    for measure, common in commons:
        estimated = measure is SELFREFLECT and result.estimated > 0
        cells.append(approximate(common.mean, estimated) if common else None)
    if uneven:
        common = commons[-1][1]
        cells.append(common.n if common else None)
    return tuple(cells)


def _control_row(
    control: ControlValues, measures: Sequence[Measure], fewer: bool, length: int
) -> tuple[Cell, ...] | None:
    """The row of a control; None if nothing of it was measured."""
    cells: list[Cell] = [CONTROL + control.name]
    n = 0
    for measure in measures:
        values = control.by_measure[measure.mean]
        estimate = values.estimate(len(control.words))
        cells += [estimate.mean, estimate.low, estimate.high]
        if fewer and measure is INFORMATION:
            cells.append(estimate.n)
        n = max(n, estimate.n)
    if n == 0:
        return None
    cells += [n, None, float(median(control.words))]
    return (*cells, *[None] * (length - len(cells)))


def _overview_notes(
    run: RunRecords, results: Sequence[StrategyResult], measures: Sequence[Measure], uneven: Sequence[Measure]
) -> list[str]:
    notes = []
    if INFORMATION in measures:
        notes += _information_notes(run, results)
    for measure in measures:
        notes += _settings_note(run, measure)
    if notes and len(measures) == 1 and notes[-1].startswith("judge: "):
        notes[-1] += f"; {METHOD}"
    elif notes:
        notes.append(METHOD)
    scores = list(chain.from_iterable(run.strategy_scores(name).values() for name in run.strategies))
    names = {score.judge for score in scores} | {one.judge for one in run.information.values()}
    if "smollm2" in names:
        notes.append(HEDGES)
    notes += estimate_note(scores)
    if uneven:
        commons = [result.common_estimate(uneven[-1]) for result in results]
        coverage = coverage_text(max(filter(None, commons), key=lambda estimate: estimate.n))
        notes.append(
            "the strategies were scored on different questions: compare them only by the common mean, "
            f"coverage {coverage}"
        )
    pending = sum(result.pending for result in results)
    if pending:
        counted = "1 score is" if pending == 1 else f"{pending} scores are"
        notes.append(
            f"the run is not finished: {counted} still missing; add with: selfreflect score --out DIR"
        )
    return notes


def _settings_note(run: RunRecords, measure: Measure) -> list[str]:
    """Name the judge and its settings, or warn that there are several."""
    by_question: dict[str, set[str]] = defaultdict(set)
    for name in run.strategies:
        for id_, text in measure.settings(run, name).items():
            by_question[id_].add(text)
    settings = sorted(set().union(*by_question.values()))
    if len(settings) < 2:
        return [f"judge: {text}" for text in settings]
    if measure is INFORMATION and all(len(texts) == 1 for texts in by_question.values()):
        counts = Counter(text for (text,) in by_question.values())
        parts = []
        for text, count in sorted(counts.items()):
            parts.append(f"{text}: {count} question{'' if count == 1 else 's'}")
        shares = "; ".join(parts)
        return [f"NOT DIRECTLY COMPARABLE from question to question, only strategy to strategy: {shares}"]
    what = "what summaries tell was measured" if measure is INFORMATION else "scored"
    return [f"NOT DIRECTLY COMPARABLE: {what} with different judges or settings ({'; '.join(settings)})"]


def _information_notes(run: RunRecords, results: Sequence[StrategyResult]) -> list[str]:
    """Explain the share, its reader, and the questions without one."""
    counts = {pasted_answers(run.controls[id_]) for id_ in run.questions if id_ in run.controls}
    answers = answers_text(counts.pop() if len(counts) == 1 else None)
    readers = {reader for result in results for reader in result.readers}
    notes = [
        f"tells: how far a summary helps the judge to predict fresh answers; 100% is what {answers} would"
    ]
    if readers == {"blind"}:
        notes[0] += "; the judge is blind: it does not see the question, so repeating it tells much, too"
    reasons: Counter[NothingToTell] = Counter()
    for result in results:
        reasons |= Counter(result.undefined)  # mostly the same questions for every strategy
    for reason, count in reasons.items():
        notes.append(f"no share on {count} of {len(run.questions)} questions: {_UNDEFINED[reason]}")
        if reason == "known":
            notes[-1] += f"; use {OTHER_JUDGE if readers == {'blind'} else OTHER_READER}"
    unmeasured = len(run.scores.keys() - run.information.keys())
    if unmeasured:
        notes.append(
            f"what {unmeasured} scored summaries tell has not been measured: run `selfreflect score`"
        )
    return notes


def control_notes(run: RunRecords, controls: Sequence[ControlValues]) -> list[str]:
    """Name every control that does better than a strategy on the same questions, and whether that is clear;
    other than raw answers."""
    notes = []
    for control in controls:
        if control.name.endswith(" pasted"):
            continue
        for measure in run_measures(run):
            behind: dict[bool, list[str]] = {True: [], False: []}
            for name in run.strategies:
                means, is_clear = _behind(measure, control, run, name)
                if means:
                    behind[is_clear].append(means)
            text = measure.higher_text if measure.higher_is_better else measure.lower_text
            for is_clear, strategies in behind.items():
                if strategies:
                    prefix = "CONTROL AHEAD" if is_clear else "control ahead, but not clearly"
                    notes.append(f"{prefix}: {control.name} {text} {', '.join(strategies)}")
    return notes


def _behind(measure: Measure, control: ControlValues, run: RunRecords, strategy: str) -> tuple[str, bool]:
    """Name a strategy that the control outdoes, with both means, else empty; and whether that is clear."""
    theirs = control.by_measure[measure.mean]
    own = measure.of_strategy(run, strategy)
    ids = theirs.values.keys() & own.values.keys()
    if measure is INFORMATION and control.name == "question repeated":
        # to a judge that does not see the question, repeating it tells much
        ids = {id_ for id_ in ids if run.controls[id_].reader == "informed"}
    mean, strategy_mean = theirs.mean(ids), own.mean(ids)
    if mean is None or strategy_mean is None:
        return "", False
    shown, strategy_shown = format(mean, measure.form), format(strategy_mean, measure.form)
    if shown == strategy_shown or (mean > strategy_mean) != measure.higher_is_better:
        return "", False
    paired = measure.pair(own, theirs, ids)
    return f"{strategy} ({shown} against {strategy_shown})", clear_sign(
        paired.difference, paired.p_value
    ) != 0


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
        asked = run.questions.get(first.question_id)
        question = first.question_id if asked is None else one_line(asked.text, 160)
        rows.append((first.stage, first.name or None, first.kind, len(failures), question, example))
    reasons = {(kind, stage == "answers"): REMEDIES[kind] for stage, _, kind, *_ in rows}
    notes = []
    for (kind, drawing), remedy in reasons.items():
        tokens = "--max-new-tokens" if drawing else "--summary-tokens"
        notes.append(f"{kind}: {remedy.format(tokens=tokens)}")
    return Table("Failures", FAILURE_COLUMNS, tuple(rows), tuple(notes))


def question_table(run: RunRecords) -> Table:
    """Tabulate every question and strategy; ``failure`` says why a score is missing. The questions' metadata
    follow in columns of their own."""
    taken = [*(column.heading for column in QUESTION_COLUMNS), "run"]  # joined tables have that, too
    headings = metadata_headings(run.questions.values(), taken)
    rows: list[tuple[Cell, ...]] = []
    for question in run.questions.values():
        cells = (question.id, question.text, question.kind)
        values = [question.metadata.get(name) for name in headings]
        rows += [(*cells, *_outcome_cells(outcome), *values) for outcome in run.outcomes(question.id)]
    columns = (*QUESTION_COLUMNS, *map(Column, headings.values()))
    return Table("Questions", columns, tuple(rows))


def _outcome_cells(outcome: SummaryOutcome) -> tuple[Cell, ...]:
    strategy, summary, score, failure, information = outcome
    score_cells: tuple[Cell, ...] = (None, None, None, None)
    if score:
        value = approximate(score.value, score.estimate is not None)
        score_cells = (value, score.stderr, score.token_tasks, estimated_from(score))
    information_cells: tuple[Cell, ...] = (None,) * 7
    if information:
        low, high = information.interval or (None, None)
        bits = (information.bits, information.bits_available, information.recovered, low, high)
        undefined = (
            f"{information.undefined}: {information.why}" if information.why else information.undefined
        )
        information_cells = (*bits, information.reader, undefined)
    summary_cells: tuple[Cell, ...] = (None, None)
    if summary:
        summary_cells = (summary.text, len(summary.text.split()))
    reason = f"{failure.kind}: {failure.message}" if failure else None
    return (strategy, *score_cells, *information_cells, *summary_cells, reason)


def joined(tables: Mapping[str, Table]) -> Table:
    """Join tables, with the run of each row in front; a column that a table lacks stays empty."""
    columns: dict[str, Column] = {}
    for table in tables.values():
        columns |= {column.heading: column for column in table.columns}
    rows: list[tuple[Cell, ...]] = []
    for label, table in tables.items():
        headings = [column.heading for column in table.columns]
        for row in table.rows:
            cells = dict(zip(headings, row, strict=True))
            rows.append((label, *(cells.get(heading) for heading in columns)))
    first = next(iter(tables.values()))
    return Table(first.title, (Column("run"), *columns.values()), tuple(rows))


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
