"""Show what a dry run found: the cost of each stage, as a table or as one line of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from selfreflect.cli.console import emit, print_table, say
from selfreflect.render.table import Cell, Column, Table
from selfreflect.render.text import one_line

if TYPE_CHECKING:
    from selfreflect.pipeline.dry_run import Amount, DryRun

AMOUNTS = {
    "calls": ("calls", 0),
    "completions": ("completions", 0),
    "prompt_tokens": ("prompt tokens", 0),
    "completion_tokens": ("completion tokens", 0),
    "judge_tokens": ("judge tokens", 0),
    "seconds": ("time", 2),
    "money": ("money", 6),
}
"""Heading and digits of each amount of a stage's cost."""


def show_costs(dry_run: DryRun, json: bool) -> None:
    """Print the costs of a dry run."""
    stages: list[dict[str, Any]] = []
    totals: dict[str, Amount] = {}
    for cost in dry_run.costs:
        for name in ("seconds", "money"):
            if name in cost.amounts:
                amount = cost.amounts[name]
                totals[name] = totals[name] + amount if name in totals else amount
        line = {"stage": cost.stage, "model": cost.model, "to_do": cost.to_do, **_rounded(cost.amounts)}
        stages.append(line)
    total = _rounded(totals)
    if json:
        emit({"dry_run": stages, "total": total, "notes": dry_run.notes})
        return
    print_table(_table(stages, total))
    for note in dry_run.notes:
        say(one_line(note))
    say("dry run: nothing was written, and no server was asked.")


def _rounded(amounts: dict[str, Amount]) -> dict[str, dict[str, float | None]]:
    rounded = {}
    for name, amount in amounts.items():
        digits = AMOUNTS[name][1] or None
        rounded[name] = {
            "expected": None if amount.expected is None else round(amount.expected, digits),
            "most": None if amount.most is None else round(amount.most, digits),
        }
    return rounded


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
    has_unknown = any(None in row for row in rows)
    notes = ("–: not known yet",) if has_unknown else ()
    return Table(title="What is left to do", columns=columns, rows=tuple(rows), notes=notes)


def _amount_rows(stage: str, amounts: dict[str, Any]) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for name, (heading, _) in AMOUNTS.items():
        amount = amounts.get(name)
        if amount is not None and amount["most"] != 0:
            rows.append((stage, heading, _cell(name, amount["expected"]), _cell(name, amount["most"])))
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
