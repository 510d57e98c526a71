"""Paired comparison of strategies on common questions, and the judges of a run side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations
from typing import NamedTuple

from selfreflect.errors import DataError, excerpt, nearest
from selfreflect.metric.measure import Measure
from selfreflect.records import Score
from selfreflect.report.measures import (
    any_measures,
    difference_column,
    difference_of,
    is_estimated,
    plain_measure,
    run_measures,
    settings_of,
    values_of,
)
from selfreflect.report.results import approximate, by_value, estimate_note, main_measure, strategy_results
from selfreflect.report.run_records import RunRecords, SummaryOutcome
from selfreflect.report.wording import say
from selfreflect.stats import (
    FEWEST_CORRELATED,
    FEWEST_TESTED,
    Estimate,
    PairedEstimate,
    clear_sign,
    is_tie,
    ratio_interval,
)
from selfreflect.table import Cell, Column, Table, spaced_percent
from selfreflect.text import counted, cut_apart, one_line

Numbers = Mapping[str, Mapping[str, float]]
"""A measure by strategy and question id."""


@dataclass(frozen=True)
class Contender:
    """A strategy of a run."""

    run: RunRecords
    strategy: str

    @property
    def label(self) -> str:
        return self.run.label

    @cached_property
    def scores(self) -> dict[str, Score]:
        """The SelfReflect scores by question id."""
        return self.run.by_question(self.run.scores, self.strategy)

    def name_beside(self, rival: Contender) -> str:
        """Name the strategy for readers, adding its run if the other strategy is from another run."""
        name = self.run.display_name(self.strategy)
        return name if self.label in (rival.label, name) else f"{name} ({self.label})"

    def common_questions(self, rival: Contender) -> list[str]:
        """List the questions that both runs share, with equal text and context."""
        common = []
        for id_, question in self.run.questions.items():
            match = rival.run.questions.get(id_)
            if match and (match.text, match.context) == (question.text, question.context):
                common.append(id_)
        return common


@dataclass(frozen=True)
class Comparison:
    """The difference of ``candidate`` from ``baseline`` on their common questions."""

    baseline: Contender
    candidate: Contender
    paired: PairedEstimate
    measure: Measure

    @property
    def verdict(self) -> str:
        """``"better"`` or ``"worse"`` for a clear difference from the baseline, else ``"unclear"``."""
        sign = clear_sign(self.paired.difference, self.paired.p_value)
        if sign == 0:
            return "unclear"
        return "better" if (sign > 0) == self.measure.higher_is_better else "worse"

    @property
    def is_testable(self) -> bool:
        """Whether the questions suffice for a test."""
        questions = self.paired.difference.n
        # ties on every question are a finding, too: there is no difference to test
        return questions >= FEWEST_TESTED and (self.paired.is_testable or self.paired.ties == questions)

    @property
    def sentence(self) -> str:
        """The result in words; :func:`~selfreflect.stats.clear_sign` decides which differences are clear."""
        return self._said(is_start=False)

    @property
    def opening(self) -> str:
        """The result as a separate sentence."""
        return f"{self._said(is_start=True)}."

    def _said(self, *, is_start: bool) -> str:
        estimate = self.paired.difference
        mean, low, high = estimate.mean or 0.0, estimate.low, estimate.high
        case = self._case
        number = self.measure.difference_text(mean, low, high)
        # without a sign, the ends of a negative interval change places
        if case == "clear" and low is not None and high is not None:
            ends = sorted((abs(low), abs(high)))  # the direction says the sign
            number = self.measure.difference_text(abs(mean), *ends).replace("+", "")
        return say(
            "difference",
            case=case,
            strategy=self.candidate.name_beside(self.baseline),
            baseline=self.baseline.name_beside(self.candidate),
            noun=self.measure.short,
            number=number,
            direction=self.measure.direction(mean > 0),
            questions=estimate.n,
            differing=estimate.n - self.paired.ties,
            fewest=FEWEST_TESTED,
            p_value=self.paired.p_value,
            short=estimate.side_of(0) != 0,
            is_start=is_start,
        )

    @property
    def _case(self) -> str:
        estimate = self.paired.difference
        if estimate.mean is None:
            return "none" if self.baseline.common_questions(self.candidate) else "disjoint"
        if estimate.n < FEWEST_TESTED:
            return "few"
        if estimate.low is None:
            return "equal" if estimate.n == self.paired.ties else "few_differ"
        return "clear" if clear_sign(estimate, self.paired.p_value) else "unclear"


def contenders(runs: Sequence[RunRecords], baseline: str | None) -> list[Contender]:
    """List all strategies of all runs, the baseline (by default the first strategy) first.

    A run directory has them in the order of ``--strategies``.

    Raises:
        DataError: the first run has no such strategy.
    """
    sides = [Contender(run, name) for run in runs for name in run.strategies]
    if baseline is None:
        return sides if runs[0].strategies else []
    names = list(runs[0].strategies)
    if baseline not in names:
        raise DataError(
            f"run {excerpt(runs[0].label)} has no strategy {excerpt(baseline)}, only {', '.join(names)}."
            f"{nearest(baseline, names)}",
            code="strategy",
            strategies=names,
        )
    first = sides.pop(names.index(baseline))
    return [first, *sides]


def version_pairs(old: RunRecords, new: RunRecords) -> list[tuple[Contender, Contender]]:
    """Pair the systems of two versions by name, or the only two, old one first.

    Raises:
        DataError: no system of the new version has a match.
    """
    if len(old.strategies) == len(new.strategies) == 1:
        return [(Contender(old, old.strategies[0]), Contender(new, new.strategies[0]))]
    names = [name for name in new.strategies if name in old.strategies]
    if not names:
        raise DataError(
            f"{excerpt(new.label)} has replies of {', '.join(map(excerpt, new.strategies)) or 'nobody'}, and "
            f"{excerpt(old.label)} of {', '.join(map(excerpt, old.strategies)) or 'nobody'}: no name is in "
            "both files",
            code="no_pair",
        )
    return [(Contender(old, name), Contender(new, name)) for name in names]


def compare(baseline: Contender, candidate: Contender, measure: Measure) -> Comparison:
    """Compute the paired difference ``candidate - baseline`` on common questions."""
    common = baseline.common_questions(candidate)
    a = values_of(measure, baseline.run, baseline.strategy)
    b = values_of(measure, candidate.run, candidate.strategy)
    return Comparison(baseline, candidate, difference_of(measure, a, b, common), measure)


def common_measures(baseline: Contender, candidates: Sequence[Contender]) -> list[Measure]:
    """List the measures common to all runs, or else the plain one."""
    common = run_measures(baseline.run)
    for candidate in candidates:
        common = [measure for measure in common if measure in run_measures(candidate.run)]
    return common or [plain_measure()]


def comparisons(baseline: Contender, candidates: Sequence[Contender]) -> list[tuple[Table, Measure]]:
    """Tabulate the differences in each common measure."""
    measures = common_measures(baseline, candidates)
    return [(comparison(baseline, candidates, measure), measure) for measure in measures]


def comparison(baseline: Contender, candidates: Sequence[Contender], measure: Measure) -> Table:
    """Tabulate the differences of ``candidates`` from ``baseline``, with findings and warnings as notes."""
    rows = []
    notes = []
    sides = [baseline, *candidates]
    for candidate in candidates:
        result = compare(baseline, candidate, measure)
        paired = result.paired
        difference = paired.difference
        estimated = any(is_estimated(measure, side.run, side.strategy) for side in (baseline, candidate))
        mean = approximate(difference.mean, estimated)
        cells = (mean, difference.low, difference.high, difference.n, difference.coverage)
        counts = (paired.wins, paired.ties, paired.losses, paired.p_value)
        name = candidate.run.display_name(candidate.strategy)
        rows.append((candidate.label, name, *cells, *counts))
        notes += [result.sentence, *_warnings(baseline, candidate, measure)]
    details = [
        *estimate_note(measure, [(side.run, side.strategy) for side in sides]),
        say("test", several=len(candidates) > 1),
    ]
    name = baseline.run.display_name(baseline.strategy)
    if baseline.label not in ("", name):
        name += f" ({baseline.label})"
    quantity = f"{measure.short}, in points" if measure.is_share else measure.short
    title = f"Difference in {quantity}, {baseline.run.noun} − {name}: {measure.better}"
    columns = (
        Column("run", is_detail=all(row[0] in (row[1], baseline.label) for row in rows)),
        Column("strategy", shown=baseline.run.noun),
        difference_column(measure, "difference"),
        difference_column(measure, "95% low", "low"),
        difference_column(measure, "95% high", "high"),
        Column("n common", "d", short="n"),
        Column("coverage", ".1%", is_detail=True),
        Column("wins", "d"),
        Column("ties", "d"),
        Column("losses", "d"),
        Column("p", ".2g"),
    )
    return Table(title, columns, tuple(rows), (*notes, *details), frozenset(details))


def _warnings(baseline: Contender, candidate: Contender, measure: Measure) -> list[str]:
    warnings = []
    settings = settings_of(measure, candidate.run, candidate.strategy)
    base_settings = settings_of(measure, baseline.run, baseline.strategy)
    different = [id_ for id_ in settings.keys() & base_settings.keys() if settings[id_] != base_settings[id_]]
    # only questions that both measured count: their records alone enter the difference
    if different:
        texts = [sorted({values[id_] for id_ in different}) for values in (settings, base_settings)]
        warnings.append(
            say("other_settings", strategy=candidate.strategy, settings=texts[0], baseline=texts[1])
        )
    common = len(baseline.common_questions(candidate))
    first, second = len(candidate.run.questions), len(baseline.run.questions)
    if 0 < common < max(first, second):  # of none, the result speaks
        warnings.append(say("other_questions", common=common, first=first, second=second))
    return warnings


def divided_contenders(
    base: Contender, candidates: Sequence[Contender], name: str
) -> dict[str, tuple[Contender, list[Contender]]]:
    """Divide a comparison's strategies by the values of a column in the baseline's run."""
    divided = {}
    for value, part in by_value(base.run, name).items():
        sides = []
        for side in candidates:
            common = {id_: side.run.questions[id_] for id_ in part.questions if id_ in side.run.questions}
            sides.append(Contender(replace(side.run, questions=common), side.strategy))
        divided[value] = (Contender(part, base.strategy), sides)
    return divided


def comparisons_by(base: Contender, candidates: Sequence[Contender], name: str) -> list[Table]:
    """Tabulate the differences from the baseline by a column's values, one table per measure."""
    rows: dict[str, list[tuple[Cell, ...]]] = {}
    tables: dict[str, Table] = {}
    for value, (part, sides) in divided_contenders(base, candidates, name).items():
        for table, _ in comparisons(part, sides):
            title = f"By {one_line(name, 40)}: {table.title}"
            rows.setdefault(title, []).extend((one_line(value, 60), *row) for row in table.rows)
            headings = (Column(one_line(name, 40)), *table.columns)
            tables[title] = Table(title, headings, (), (say("test", several=True),))
    return [replace(table, rows=tuple(rows[title])) for title, table in tables.items()]


def page_judges(runs: Sequence[Sequence[RunRecords]]) -> dict[str, list[int]]:
    """List the judges of all runs in order, with the index of their scores in each run.

    A run that a judge has not scored takes part with its first scores, whose label says so.
    """
    judges: dict[str, list[int]] = {}
    for scores in chain.from_iterable(runs):
        indices = []
        for by_judge in runs:
            matches = (index for index, run in enumerate(by_judge) if run.judge == scores.judge)
            indices.append(next(matches, 0))
        if indices not in judges.values():  # two runs with one judge each are shown once
            judges[scores.judge] = indices
    return judges


def plain_label(run: RunRecords) -> str:
    """Remove the judge from a run's label."""
    return run.label.removesuffix(f", judge {run.judge}")


def judge_tables(runs: Sequence[RunRecords]) -> list[Table]:
    """Tabulate strategy means by judge, for every measure with several judges.

    The notes say how far each two agree.

    Args:
        runs: the records of one run, once for each judge.
    """
    tables = []
    for measure in any_measures(runs):
        by_judge = {}
        for run in runs:
            numbers = {name: values_of(measure, run, name).values for name in run.strategies}
            if any(numbers.values()):
                by_judge[run.judge] = run, numbers
        if len(by_judge) > 1:
            tables.append(_judge_table(by_judge, measure))
    return tables


def _judge_table(by_judge: Mapping[str, tuple[RunRecords, Numbers]], measure: Measure) -> Table:
    runs = [run for run, _ in by_judge.values()]
    rows: list[tuple[Cell, ...]] = []
    for name in dict.fromkeys(chain.from_iterable(run.strategies for run in runs)):
        means = [values_of(measure, run, name).estimate(len(run.questions)).mean for run in runs]
        rows.append((name, *means))
    notes = []
    for (judge, (_, numbers)), (rival, (_, rival_numbers)) in combinations(by_judge.items(), 2):
        notes.append(_agreement_sentence(judge, rival, same_order(numbers, rival_numbers)))
    columns = (Column("strategy", shown=runs[0].noun), *(Column(judge, measure.form) for judge in by_judge))
    title = f"{measure.title}; by judge ({plain_label(runs[0])})"
    return Table(title, columns, tuple(rows), tuple(notes))


def same_order(first: Numbers, second: Numbers) -> Estimate:
    """Estimate the share of summary pairs that two judges put in the same order.

    Pairs that are equal to one of them do not count; ``n`` is the number of questions with a pair.
    """
    counts: dict[str, list[int]] = {}
    strategies = [name for name in first if name in second]
    for a, b in combinations(strategies, 2):
        for id_ in first[a].keys() & first[b].keys() & second[a].keys() & second[b].keys():
            pairs = [(numbers[a][id_], numbers[b][id_]) for numbers in (first, second)]
            if not any(is_tie(*pair) for pair in pairs):
                count = counts.setdefault(id_, [0, 0])
                # both judges order the pair in one way
                count[0] += len({left > right for left, right in pairs}) == 1
                count[1] += 1
    return ratio_interval([(agreed, pairs) for agreed, pairs in counts.values()], len(counts))


def _agreement_sentence(judge: str, rival: str, share: Estimate) -> str:
    return say(
        "agreement",
        first=judge,
        second=rival,
        share=share.mean,
        interval="" if share.low == share.high else spaced_percent(f" [{share.low:.0%}, {share.high:.0%}]"),
        questions=share.n,
        fewest=FEWEST_CORRELATED,
    )


SHOWN_ROWS = 20
"""Number of questions shown in a table."""

_TEXT = 60
_REPLY = 60
_NAME = 24
_VERSION = 16
_SEVERAL = 4
"""Number of systems whose columns fit into a terminal with the question."""


def worst_first(run: RunRecords, measure: Measure) -> list[str]:
    """Sort question ids by the first strategy's value, worst first and missing values last."""
    sign = 1 if measure.higher_is_better else -1
    values = values_of(measure, run, run.strategies[0])
    keys = {}
    for id_ in run.questions:
        number = values.of_question(id_)
        keys[id_] = (number is None, sign * (number or 0.0))
    return sorted(keys, key=keys.__getitem__)


def main_measure_of(run: RunRecords) -> Measure:
    """Choose the measure for displaying a run."""
    return main_measure(run, strategy_results(run))


def undefined_text(run: RunRecords, measure: Measure, outcome: SummaryOutcome, question_id: str) -> str:
    """Describe briefly why a summary has no value, with a doubtful value in brackets."""
    record = run.results(measure).get((question_id, outcome.strategy))
    if record is not None:
        doubtful = measure.doubtful(record)
        return doubtful.brief if doubtful else measure.measurement(record).undefined.replace("_", " ")
    if outcome.failure is not None:
        return outcome.failure.kind.replace("_", " ")
    return "no reply" if outcome.summary is None else "not measured"


def summary_table(run: RunRecords) -> Table:
    """Tabulate question values: all measures of one system, or one measure of several."""
    names = list(run.strategies)
    if not names:
        return Table("Questions", (Column("question"),), ())
    measures = run_measures(run)
    main = main_measure_of(run)
    only_name = names[0] if len(names) == 1 else None
    columns = [Column("question")]
    ours = [main]
    if only_name is None:
        headings = cut_apart([run.display_name(name) for name in names[:_SEVERAL]], _NAME)
        columns += [Column(heading, main.form) for heading in headings]
    else:
        columns.append(Column("reply" if run.is_imported else "summary"))
        ours += [measure for measure in measures if measure is not main]
        columns += [Column(measure.heading.removeprefix("mean "), measure.form) for measure in ours]
    values = {(measure, name): values_of(measure, run, name) for measure in ours for name in names[:_SEVERAL]}

    def value(measure: Measure, id_: str, outcome: SummaryOutcome) -> Cell:
        number = values[measure, outcome.strategy].of_question(id_)
        return undefined_text(run, measure, outcome, id_) if number is None else number

    rows: list[tuple[Cell, ...]] = []
    for id_ in worst_first(run, main):
        outcomes = {outcome.strategy: outcome for outcome in run.outcomes(id_)}
        cells: list[Cell] = [one_line(run.questions[id_].text, _TEXT)]
        if only_name is None:
            cells += [value(main, id_, outcomes[name]) for name in names[:_SEVERAL]]
        else:
            outcome = outcomes[only_name]
            if outcome.summary is None:
                continue
            cells.append(one_line(outcome.summary.text, _REPLY))
            cells += [value(measure, id_, outcome) for measure in ours]
        rows.append(tuple(cells))
    notes = []
    if len(rows) > SHOWN_ROWS:
        notes.append(f"and {counted(len(rows) - SHOWN_ROWS, 'more question')}; --json or --output shows all")
    if len(names) > _SEVERAL and only_name is None:
        notes.append(f"and {len(names) - _SEVERAL} more columns on the page")
    # the first system's values sort them
    is_sorted = bool(values[main, names[0]].values)
    title = "Questions, worst first" if is_sorted else "Questions"
    if only_name is None:
        by = f" by {one_line(run.display_name(names[0]), _TEXT)}" if is_sorted else ""
        title += f"{by}: {main.short}"
    return Table(title, tuple(columns), tuple(rows[:SHOWN_ROWS]), tuple(notes))


class Change(NamedTuple):
    """Values of a question in two versions."""

    id: str
    before: float
    after: float
    improvement: float
    """Improvement of the new value; 0 for a tie, and negative if it is worse."""


def changes(baseline: Contender, candidate: Contender, measure: Measure) -> list[Change]:
    """List the changes of common questions, worst first."""
    before = values_of(measure, baseline.run, baseline.strategy)
    after = values_of(measure, candidate.run, candidate.strategy)
    sign = 1 if measure.higher_is_better else -1
    of_questions = []
    for id_ in baseline.common_questions(candidate):
        old, new = before.of_question(id_), after.of_question(id_)
        if old is not None and new is not None:
            improvement = 0.0 if is_tie(old, new) else sign * (new - old)
            of_questions.append(Change(id_, old, new, improvement))
    return sorted(of_questions, key=lambda change: change.improvement)


def question_and_reply(candidate: Contender, id_: str) -> tuple[str, str]:
    """Shorten a question and the response to it for a table."""
    summary = candidate.run.summaries.get((id_, candidate.strategy))
    texts = (candidate.run.questions[id_].text, summary.text if summary else "")
    return one_line(texts[0], _TEXT), one_line(texts[1], _TEXT)


def worse_table(baseline: Contender, candidate: Contender, measure: Measure) -> Table:
    """Tabulate the worsened questions, worst first, with both values and the new response."""
    differences = changes(baseline, candidate, measure)
    common = len(baseline.common_questions(candidate))
    worse = [change for change in differences if change.improvement < 0]
    rows: list[tuple[Cell, ...]] = []
    for change in worse[:SHOWN_ROWS]:
        question, reply = question_and_reply(candidate, change.id)
        rows.append((question, reply, change.before, change.after, change.after - change.before))
    better = sum(change.improvement > 0 for change in differences)
    equal = len(differences) - len(worse) - better
    counts = f"{len(worse):,} got worse, {better:,} better, {equal:,} stayed equal"
    notes = []
    if differences:
        notes.append(f"of {counted(len(differences), 'common question')} with a value in both, {counts}")
    if common > len(differences):
        count = counted(common - len(differences), "common question")
        notes.append(f"without a value in at least one version: {count}")
    if len(worse) > SHOWN_ROWS:
        notes.append(f"and {len(worse) - SHOWN_ROWS} more got worse")
    sides = [baseline.name_beside(candidate), candidate.name_beside(baseline)]
    old_name, new_name = cut_apart(sides, _VERSION)
    columns = (
        Column("question"),
        Column(f"reply of {new_name}" if candidate.run.is_imported else "summary"),
        Column(old_name, measure.form),
        Column(new_name, measure.form),
        difference_column(measure, "change"),
    )
    return Table(f"Got worse: {measure.short}", columns, tuple(rows), tuple(notes))
