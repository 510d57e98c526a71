"""Results by the values of a column that travels with the questions, such as a topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from selfreflect.errors import DataError, excerpt, nearest
from selfreflect.records import Question, dump_line
from selfreflect.report.comparison import Contender, comparisons
from selfreflect.report.results import method_note, run_measures, strategy_results
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import Estimate
from selfreflect.table import Cell, Column, Table
from selfreflect.text import one_line

MAX_VALUES = 20
"""Values that get rows of their own, the most frequent ones; the others share theirs."""

MISSING = "(none)"


def by_value(run: RunRecords, name: str) -> dict[str, RunRecords]:
    """Divide a run by a column's value, the most frequent one first; ``kind`` is a column, too.

    Raises:
        DataError: no question has the column.
    """
    groups: dict[str, dict[str, Question]] = {}
    for id_, question in run.questions.items():
        groups.setdefault(_value(question, name), {})[id_] = question
    if groups.keys() <= {MISSING}:
        columns = list(dict.fromkeys(chain.from_iterable(one.metadata for one in run.questions.values())))
        if any(question.kind for question in run.questions.values()):
            columns.append("kind")
        names = ", ".join(map(excerpt, columns[:20])) or "none"
        raise DataError(
            f"no question of {excerpt(run.label)} has a column {excerpt(name)}.{nearest(name, columns)} "
            f"Columns that came with the questions: {names}"
        )
    ranking = sorted(groups, key=lambda value: -len(groups[value]))
    first = ranking if len(ranking) <= MAX_VALUES else ranking[: MAX_VALUES - 1]
    divided = {value: replace(run, questions=groups[value]) for value in first}
    rest = ranking[len(first) :]
    if rest:
        questions = dict(chain.from_iterable(groups[value].items() for value in rest))
        divided[f"({len(rest)} other values)"] = replace(run, questions=questions)
    return divided


def _value(question: Question, name: str) -> str:
    value = question.metadata.get(name)
    if value is None and name == "kind":
        value = question.kind or None
    if value is None:
        return MISSING
    return value if isinstance(value, str) else dump_line(value)


def breakdown(run: RunRecords, name: str) -> Table:
    """Tabulate what each strategy's mean is for each value of a column, with its interval and n."""
    measures = run_measures(run)
    headings = [Column(one_line(name, 40)), Column("strategy")]
    for measure in measures:
        headings += measure.columns
    headings += [Column("n", "d"), Column("questions", "d")]
    rows: list[tuple[Cell, ...]] = []
    estimates: list[Estimate] = []
    for value, part in by_value(run, name).items():
        for result in strategy_results(part):
            cells: list[Cell] = [one_line(value, 60), result.strategy]
            for measure in measures:
                estimate = result.estimate(measure)
                estimates.append(estimate)
                cells += [estimate.mean, estimate.low, estimate.high]
            rows.append((*cells, result.estimate(measures[-1]).n, len(part.questions)))
    title = f"By {one_line(name, 40)}" + (f" ({run.label})" if run.label else "")
    return Table(title, tuple(headings), tuple(rows), (method_note(estimates),))


def divided_contenders(
    base: Contender, others: Sequence[Contender], name: str
) -> dict[str, tuple[Contender, list[Contender]]]:
    """The sides of a comparison for each value that the column has in the baseline's run."""
    divided = {}
    for value, part in by_value(base.run, name).items():
        sides = []
        for other in others:
            common = {id_: other.run.questions[id_] for id_ in part.questions if id_ in other.run.questions}
            sides.append(Contender(replace(other.run, questions=common), other.strategy))
        divided[value] = (Contender(part, base.strategy), sides)
    return divided


def comparisons_by(base: Contender, others: Sequence[Contender], name: str) -> list[Table]:
    """Tabulate the differences from the baseline for each value of a column, one table per measure."""
    rows: dict[str, list[tuple[Cell, ...]]] = {}
    tables: dict[str, Table] = {}
    for value, (part, sides) in divided_contenders(base, others, name).items():
        for table, _ in comparisons(part, sides):
            title = f"By {one_line(name, 40)}: {table.title}"
            rows.setdefault(title, []).extend((one_line(value, 60), *row) for row in table.rows)
            headings = (Column(one_line(name, 40)), *table.columns)
            note = f"{table.notes[-1].partition(', not adjusted')[0]}, not adjusted for multiple comparisons"
            tables[title] = Table(title, headings, (), (note,))
    return [replace(table, rows=tuple(rows[title])) for title, table in tables.items()]
