"""What a dry run adds up to, and why somebody should look at it before the run starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from selfreflect.models.backend import backend_of
from selfreflect.table import Cell, Column, Table

if TYPE_CHECKING:
    from selfreflect.pipeline.counting import Amount
    from selfreflect.pipeline.dry_run import DryRun
    from selfreflect.settings import Config

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

LONG_SECONDS = 180
MANY_COMPLETIONS = 200
"""From how many on a run whose time is not known is announced."""


def reasons_to_ask(dry_run: DryRun, config: Config) -> list[str]:
    """Why somebody should look before the run starts."""
    _, total = sum_up(dry_run)
    completions = sum(cost.amounts["completions"].most or 0 for cost in dry_run.costs)
    reasons = payments(dry_run, config)
    seconds = total["seconds"]["expected"]
    if seconds is not None and seconds >= LONG_SECONDS:
        reasons.append(f"it takes about {seconds / 60:.0f} minutes")
    if seconds is None and completions >= MANY_COMPLETIONS:
        reasons.append(f"how long its {completions:,.0f} completions take is not known yet")
    return reasons


def payments(dry_run: DryRun, config: Config) -> list[str]:
    """Say that a run costs money, or that a server may charge for it; empty if neither."""
    _, total = sum_up(dry_run)
    if "money" in total and total["money"]["most"] != 0:
        return ["this run costs money"]
    hosts = _paid_hosts(dry_run, config)
    return [f"{' and '.join(hosts)} may charge for this run"] if hosts else []


def _paid_hosts(dry_run: DryRun, config: Config) -> list[str]:
    """The servers to be asked that may charge for it, and whose prices are not known."""
    hosts: dict[str, None] = {}
    for cost in dry_run.costs:
        if cost.stage in ("answers", "summaries") and cost.to_do and "money" not in cost.amounts:
            section = getattr(config, cost.stage)
            hosts[backend_of(section.model).may_charge(section.base_url)] = None
    return list(filter(None, hosts))


def sum_up(dry_run: DryRun) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What each stage takes, and time and money of all of them, rounded."""
    stages: list[dict[str, Any]] = []
    totals: dict[str, Amount] = {}
    for cost in dry_run.costs:
        for name in ("seconds", "money"):
            if name in cost.amounts:
                amount = cost.amounts[name]
                totals[name] = totals[name] + amount if name in totals else amount
        facts = {"stage": cost.stage, "model": cost.model, "to_do": cost.to_do}
        stages.append({**facts, **_rounded(cost.amounts)})
    return stages, _rounded(totals)


def _rounded(amounts: dict[str, Amount]) -> dict[str, dict[str, float | None]]:
    rounded = {}
    for name, amount in amounts.items():
        digits = AMOUNTS[name][1] or None
        rounded[name] = {
            "expected": None if amount.expected is None else round(amount.expected, digits),
            "most": None if amount.most is None else round(amount.most, digits),
        }
    return rounded


NOT_KNOWN = (
    "–: not known yet; the line of progress tells the time that is left once the first texts have ended"
)


def cost_table(stages: list[dict[str, Any]], total: dict[str, Any]) -> Table:
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
    notes = (NOT_KNOWN,) if any(None in row for row in rows) else ()
    return Table(title="What is left to do", columns=columns, rows=tuple(rows), notes=notes)


def _amount_rows(stage: str, amounts: dict[str, Any]) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for name, (heading, _) in AMOUNTS.items():
        amount = amounts.get(name)
        is_known = amount is not None and (name != "seconds" or amount["expected"] is not None)
        if amount is not None and is_known and amount["most"] != 0:
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
