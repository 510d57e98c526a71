"""Show what a dry run found: the cost of each stage, as a table or as one line of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from selfreflect.cli.console import emit, print_table, say, stderr
from selfreflect.pipeline.costs import AMOUNTS, reasons_to_ask, sum_up
from selfreflect.pipeline.rough_time import ROUGH, rough_duration
from selfreflect.render.table import Cell, Column, Table
from selfreflect.render.text import one_line

if TYPE_CHECKING:
    from selfreflect.config import Config
    from selfreflect.pipeline.dry_run import DryRun


NOT_KNOWN = (
    "–: not known yet; the line of progress tells the time that is left once the first texts have ended"
)
ROUGHLY = f"time from … to …: {ROUGH}"


def show_costs(dry_run: DryRun, json: bool) -> None:
    """Print the costs of a dry run."""
    stages, total = sum_up(dry_run)
    if json:
        emit({"dry_run": stages, "total": total, "notes": dry_run.notes})
        return
    print_table(_table(stages, total))
    for note in dry_run.notes:
        say(one_line(note))
    say("dry run: nothing was written, and no server was asked.")


def announce_costs(dry_run: DryRun, config: Config) -> bool:
    """Print the costs of a run on stderr if it may take more than some minutes, or money; return whether."""
    reasons = reasons_to_ask(dry_run, config)
    if not reasons:
        return False
    print_table(_table(*sum_up(dry_run)), stderr)
    say("; ".join(reasons))
    return True


def _table(stages: list[dict[str, Any]], total: dict[str, Any]) -> Table:
    """One row per amount of a stage, then the time and money of all stages."""
    rows: list[tuple[Cell, ...]] = []
    for stage in stages:
        rows.append((stage["stage"], "to do", stage["to_do"], stage["to_do"]))
        if stage["to_do"]:
            rows.append(("", f"with {stage['model']}", "", ""))
            rows += _amount_rows("", stage)
    if len(stages) > 1:
        rows += _amount_rows("all", total)
    columns = (Column("stage"), Column("what"), Column("expected", ",.0f"), Column("at most", ",.0f"))
    notes = []
    if any(None in row for row in rows):
        notes.append(NOT_KNOWN)
    if total["rough"] and total["seconds"]["expected"] is not None:
        notes.append(ROUGHLY)
    return Table(title="What is left to do", columns=columns, rows=tuple(rows), notes=tuple(notes))


def _amount_rows(stage: str, amounts: dict[str, Any]) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for name, (heading, _) in AMOUNTS.items():
        amount = amounts.get(name)
        if amount is not None and amount["most"] != 0:
            mean = _cell(name, amount["expected"])
            if name == "seconds" and amounts["rough"] and amount["expected"] is not None:
                mean = rough_duration(amount["expected"])
            rows.append((stage, heading, mean, _cell(name, amount["most"])))
    return rows


def _cell(name: str, value: float | None) -> Cell:
    """Show a time as ``3.2 s``, or ``1:02:03`` from a minute on, small amounts of money with more digits."""
    if value is None:
        return None
    if name == "money":
        return f"{value:,.4f}" if value < 1 else f"{value:,.2f}"
    if name != "seconds":
        return value
    if value < 60:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
