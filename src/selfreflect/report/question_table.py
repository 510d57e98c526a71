"""One row per question and strategy, for files."""

from __future__ import annotations

from collections.abc import Mapping

from selfreflect.records import metadata_headings
from selfreflect.report.results import INFORMATION, SELFREFLECT, approximate, estimated_from
from selfreflect.report.run_records import RunRecords, SummaryOutcome
from selfreflect.table import Cell, Column, Table

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
    Column("zero"),
    Column("anchor"),
    Column("undefined"),
    Column("summary"),
    Column("summary_words", "d"),
    Column("failure"),
)
QUESTION_HEADINGS = [column.heading for column in QUESTION_COLUMNS]


def question_table(run: RunRecords) -> Table:
    """Tabulate every question and strategy; ``failure`` says why a score is missing. The questions' metadata
    follow in columns of their own."""
    own_headings = [*QUESTION_HEADINGS, "run"]  # joined tables have that, too
    headings = metadata_headings(run.questions.values(), own_headings)
    rows: list[tuple[Cell, ...]] = []
    for question in run.questions.values():
        cells = (question.id, question.text, question.kind)
        values = list(map(question.metadata.get, headings))
        rows += [(*cells, *_outcome_cells(outcome), *values) for outcome in run.outcomes(question.id)]
    columns = (*QUESTION_COLUMNS, *map(Column, headings.values()))
    return Table("Questions", columns, tuple(rows))


def _outcome_cells(outcome: SummaryOutcome) -> tuple[Cell, ...]:
    strategy, summary, score, failure, information = outcome
    score_cells: tuple[Cell, ...] = (None, None, None, None)
    if score:
        value = approximate(score.value, score.estimate is not None)
        score_cells = (value, score.stderr, score.token_tasks, estimated_from(score))
    information_cells: tuple[Cell, ...] = (None,) * 9
    if information:
        low, high = information.interval or (None, None)
        bits = (information.bits, information.bits_available, information.recovered, low, high)
        undefined: str | None = information.undefined
        if detail := information.cause or information.why:
            undefined = f"{undefined}: {detail}"
        of_scale = (information.reader, information.zero, information.anchor)
        information_cells = (*bits, *of_scale, undefined)
    summary_cells: tuple[Cell, ...] = (None, None)
    if summary:
        summary_cells = (summary.text, len(summary.text.split()))
    reason = f"{failure.kind}: {failure.message}" if failure else None
    return (strategy, *score_cells, *information_cells, *summary_cells, reason)


def joined(tables: Mapping[str, Table], of: str = "run") -> Table:
    """Join tables, with the key of each in a column ``of`` in front; a column that a table lacks stays
    empty."""
    columns: dict[str, Column] = {}
    for table in tables.values():
        columns |= {column.heading: column for column in table.columns}
    rows: list[tuple[Cell, ...]] = []
    for label, table in tables.items():
        for row in table.rows:
            cells = dict(zip(table.headings, row, strict=True))
            rows.append((label, *map(cells.get, columns)))
    first = next(iter(tables.values()))
    return Table(first.title, (Column(of), *columns.values()), tuple(rows))
