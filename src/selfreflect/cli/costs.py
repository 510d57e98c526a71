"""Show what a dry run found: the cost of each stage, as a table or as one line of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from selfreflect.cli.console import emit, print_table, say
from selfreflect.pipeline.cost import Amount, StageCost, total
from selfreflect.render.table import Cell, Column, Table
from selfreflect.render.text import one_line

if TYPE_CHECKING:
    from selfreflect.pipeline.dry_run import DryRun

AMOUNTS = {
    "calls": "calls",
    "completions": "completions",
    "prompt_tokens": "prompt tokens",
    "completion_tokens": "completion tokens",
    "judge_tokens": "judge tokens",
    "seconds": "time",
    "money": "money",
}
"""Headings of the amounts of a stage's cost."""
DIGITS = {"seconds": 2, "money": 6}


def show_costs(dry_run: DryRun, json: bool) -> None:
    """Print the costs of a dry run."""
    costs = dry_run.costs
    if json:
        totals = {name: _rounded(name, amount) for name, amount in _totals(costs).items()}
        emit({"dry_run": [_to_json(cost) for cost in costs], "total": totals, "notes": dry_run.notes})
        return
    print_table(cost_table(costs))
    for note in dry_run.notes:
        say(one_line(note))
    say("dry run: nothing was written, and no server was asked.")


def cost_table(costs: Sequence[StageCost]) -> Table:
    """One row per amount of a stage, then the time and money of all stages."""
    rows: list[tuple[Cell, ...]] = []
    for cost in costs:
        rows.append((cost.stage, "to do", cost.to_do, cost.to_do))
        if not cost.to_do:
            continue
        rows.append(("", f"with {cost.model}", "", ""))
        for name, amount in _amounts(cost).items():
            if amount.most != 0:
                rows.append(("", AMOUNTS[name], *_cells(name, amount)))
    if len(costs) > 1:
        for name, amount in _totals(costs).items():
            rows.append(("all", AMOUNTS[name], *_cells(name, amount)))
    columns = (Column("stage"), Column("what"), Column("expected", ",.0f"), Column("at most", ",.0f"))
    return Table(title="What is left to do", columns=columns, rows=tuple(rows), notes=("a dash: unknown",))


def _amounts(cost: StageCost) -> dict[str, Amount]:
    """The amounts of a stage that are known to apply."""
    amounts = {name: getattr(cost, name) for name in AMOUNTS}
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _totals(costs: Sequence[StageCost]) -> dict[str, Amount]:
    """The time of all stages, and the money if there are prices."""
    totals = {"seconds": total(costs, lambda cost: cost.seconds)}
    if any(cost.money is not None for cost in costs):
        totals["money"] = total(costs, lambda cost: cost.money)
    return totals


def _cells(name: str, amount: Amount) -> tuple[Cell, Cell]:
    if name == "seconds":
        return _duration(amount.expected), _duration(amount.most)
    if name == "money":
        return _price(amount.expected), _price(amount.most)
    return amount.expected, amount.most


def _duration(seconds: float | None) -> Cell:
    """``3.2 s``, or ``1:02:03`` from a minute on."""
    if seconds is None:
        return None
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def _price(money: float | None) -> Cell:
    if money is None:
        return None
    return f"{money:,.4f}" if money < 1 else f"{money:,.2f}"


def _to_json(cost: StageCost) -> dict[str, Any]:
    amounts = {name: _rounded(name, amount) for name, amount in _amounts(cost).items()}
    return {"stage": cost.stage, "model": cost.model, "to_do": cost.to_do, **amounts}


def _rounded(name: str, amount: Amount) -> dict[str, float | None]:
    digits = DIGITS.get(name)
    expected, most = amount.expected, amount.most
    return {
        "expected": None if expected is None else round(expected, digits),
        "most": None if most is None else round(most, digits),
    }
