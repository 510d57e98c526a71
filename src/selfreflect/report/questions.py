"""Tables of questions, the worst first: of one system, of several side by side, and of what got worse."""

from __future__ import annotations

from selfreflect.metric.measure import Measure
from selfreflect.report.compare import Contender
from selfreflect.report.measures import difference_column, run_measures, values_of
from selfreflect.report.results import main_measure, strategy_results
from selfreflect.report.run_records import RunRecords, SummaryOutcome
from selfreflect.stats import is_tie
from selfreflect.table import Cell, Column, Table
from selfreflect.text import counted, one_line

SHOWN_ROWS = 20
"""Questions that a table shows."""

_TEXT = 60
_REPLY = 60
_SEVERAL = 4
"""Systems whose columns fit into a terminal beside the question."""


def worst_first(run: RunRecords, measure: Measure) -> list[str]:
    """Sort question ids by their mean over strategies, the worst first; those without a value come last."""
    sign = 1 if measure.higher_is_better else -1
    values = [values_of(measure, run, name) for name in run.strategies]
    keys = {}
    for id_ in run.questions:
        numbers = [number for value in values if (number := value.of_question(id_)) is not None]
        keys[id_] = (not numbers, sign * sum(numbers) / len(numbers) if numbers else 0.0)
    return sorted(keys, key=keys.__getitem__)


def main_measure_of(run: RunRecords) -> Measure:
    """Choose the measure in which people read a run."""
    return main_measure(run, strategy_results(run))


def undefined_text(run: RunRecords, measure: Measure, outcome: SummaryOutcome, question_id: str) -> str:
    """Say in some words why a summary has no value; a doubtful one stands in brackets."""
    record = run.results(measure).get((question_id, outcome.strategy))
    if record is not None:
        doubtful = measure.doubtful(record)
        return doubtful.brief if doubtful else measure.measurement(record).undefined.replace("_", " ")
    if outcome.failure is not None:
        return outcome.failure.kind.replace("_", " ")
    return "no reply" if outcome.summary is None else "not measured"


def summary_table(run: RunRecords) -> Table:
    """Tabulate questions with their values: every measure of one system, or one measure of several."""
    names = list(run.strategies)
    if not names:
        return Table("Questions", (Column("question"),), ())
    measures = run_measures(run)
    main = main_measure_of(run)
    one = names[0] if len(names) == 1 else None
    columns = [Column("question")]
    if one is None:
        columns += [Column(one_line(run.display_name(name), 24), main.form) for name in names[:_SEVERAL]]
    else:
        columns.append(Column("reply" if run.is_imported else "summary"))
        ours = [main, *(measure for measure in measures if measure is not main)]
        columns += [Column(measure.heading.removeprefix("mean "), measure.form) for measure in ours]
    rows: list[tuple[Cell, ...]] = []
    for id_ in worst_first(run, main):
        outcomes = {outcome.strategy: outcome for outcome in run.outcomes(id_)}
        cells: list[Cell] = [one_line(run.questions[id_].text, _TEXT)]
        if one is None:
            cells += [_value(run, main, id_, outcomes[name]) for name in names[:_SEVERAL]]
        else:
            outcome = outcomes[one]
            if outcome.summary is None:
                continue
            cells.append(one_line(outcome.summary.text, _REPLY))
            cells += [_value(run, measure, id_, outcome) for measure in ours]
        rows.append(tuple(cells))
    notes = []
    if len(rows) > SHOWN_ROWS:
        notes.append(f"and {counted(len(rows) - SHOWN_ROWS, 'more question')}; --json or --output shows all")
    if len(names) > _SEVERAL and one is None:
        notes.append(f"and {len(names) - _SEVERAL} more columns on the page")
    title = "Questions, worst first" + (f": {main.short}" if one is None else "")
    return Table(title, tuple(columns), tuple(rows[:SHOWN_ROWS]), tuple(notes))


def _value(run: RunRecords, measure: Measure, id_: str, outcome: SummaryOutcome) -> Cell:
    value = values_of(measure, run, outcome.strategy).of_question(id_)
    return undefined_text(run, measure, outcome, id_) if value is None else value


def changes(baseline: Contender, candidate: Contender, measure: Measure) -> list[tuple[str, float]]:
    """List common questions with the change of their value, in the direction of better, the worst first.

    Ties are 0.
    """
    before = values_of(measure, baseline.run, baseline.strategy)
    after = values_of(measure, candidate.run, candidate.strategy)
    sign = 1 if measure.higher_is_better else -1
    found = []
    for id_ in baseline.common_questions(candidate):
        old, new = before.of_question(id_), after.of_question(id_)
        if old is not None and new is not None:
            found.append((id_, 0.0 if is_tie(old, new) else sign * (new - old)))
    return sorted(found, key=lambda pair: pair[1])


def worse_table(baseline: Contender, candidate: Contender, measure: Measure) -> Table:
    """Tabulate the questions that got worse, the worst first, with both values and the reply of today."""
    found = changes(baseline, candidate, measure)
    common = len(baseline.common_questions(candidate))
    before = values_of(measure, baseline.run, baseline.strategy)
    after = values_of(measure, candidate.run, candidate.strategy)
    worse = [id_ for id_, change in found if change < 0]
    rows: list[tuple[Cell, ...]] = []
    for id_ in worse[:SHOWN_ROWS]:
        old, new = before.of_question(id_), after.of_question(id_)
        assert old is not None  # changes has left the others out
        assert new is not None
        summary = candidate.run.summaries.get((id_, candidate.strategy))
        texts = (candidate.run.questions[id_].text, summary.text if summary else "")
        rows.append((*(one_line(text, _TEXT) for text in texts), old, new, new - old))
    better = sum(change > 0 for _, change in found)
    counts = f"{len(worse)} got worse, {better} better, {len(found) - len(worse) - better} stayed equal"
    notes = [f"of {counted(len(found), 'common question')} with a value in both, {counts}"]
    if common > len(found):
        notes.append(f"{counted(common - len(found), 'common question')} without a value in both")
    if len(worse) > SHOWN_ROWS:
        notes.append(f"and {len(worse) - SHOWN_ROWS} more got worse")
    new_name, old_name = candidate.name_beside(baseline), baseline.name_beside(candidate)
    columns = (
        Column("question"),
        Column(f"reply of {one_line(new_name, 20)}" if candidate.run.is_imported else "summary"),
        Column(one_line(old_name, 20), measure.form),
        Column(one_line(new_name, 20), measure.form),
        difference_column(measure, "change"),
    )
    return Table(f"Got worse: {measure.short}", columns, tuple(rows), tuple(notes))
