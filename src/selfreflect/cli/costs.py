"""What a dry run shows: the costs of each stage as a table or as one line of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from selfreflect.cli.console import emit, print_table, say
from selfreflect.pipeline.cost import Amount, StageCost, total
from selfreflect.render.table import Cell, Column, Table
from selfreflect.render.text import one_line

if TYPE_CHECKING:
    from selfreflect.pipeline.dry_run import DryRun

_AMOUNTS = ("calls", "completions", "prompt_tokens", "completion_tokens", "judge_tokens", "seconds", "money")
_HEADINGS = {
    "prompt_tokens": "prompt tokens",
    "completion_tokens": "completion tokens",
    "judge_tokens": "judge tokens",
    "seconds": "time",
}


def show_costs(rehearsal: DryRun, json: bool) -> None:
    """Print what a rehearsal found."""
    if json:
        emit(
            {
                "dry_run": [_plain(cost) for cost in rehearsal.costs],
                "total": _total(rehearsal.costs),
                "notes": rehearsal.notes,
            }
        )
        return
    print_table(cost_table(rehearsal.costs))
    for note in rehearsal.notes:
        say(one_line(note))
    say("dry run: nothing was written, and no server was asked.")


def cost_table(costs: list[StageCost]) -> Table:
    """One row for each quantity of a stage, and at the end the time and money of all."""
    rows: list[tuple[Cell, ...]] = []
    for cost in costs:
        rows.append((cost.stage, "to do", cost.to_do, cost.to_do))
        if not cost.to_do:
            continue
        rows.append(("", f"with {cost.model}", "", ""))
        for name in _AMOUNTS:
            amount = getattr(cost, name)
            if amount is not None and amount.most != 0:
                rows.append(("", _HEADINGS.get(name, name), *_cells(name, amount)))
    if len(costs) > 1:
        rows += [
            ("all", _HEADINGS.get(name, name), *_cells(name, amount))
            for name, amount in _summed(costs).items()
        ]
    columns = (Column("stage"), Column("what"), Column("expected", ",.0f"), Column("at most", ",.0f"))
    return Table(title="What is still to do", columns=columns, rows=tuple(rows), notes=("a dash: not known",))


def _cells(name: str, amount: Amount) -> tuple[Cell, Cell]:
    values = amount.expected, amount.most
    if name == "seconds":
        return _duration(values[0]), _duration(values[1])
    if name == "money":
        return _price(values[0]), _price(values[1])
    return values


def _duration(seconds: float | None) -> Cell:
    """``3.2 s``, or ``1:02:03`` from a minute on."""
    if seconds is None:
        return None
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def _price(money: float | None) -> Cell:
    return None if money is None else f"{money:,.4f}" if money < 1 else f"{money:,.2f}"


def _summed(costs: list[StageCost]) -> dict[str, Amount]:
    """Time of all stages, and money where there are prices."""
    found = {"seconds": total(costs, lambda cost: cost.seconds)}
    if any(cost.money is not None for cost in costs):
        found["money"] = total(costs, lambda cost: cost.money)
    return found


def _total(costs: list[StageCost]) -> dict[str, Any]:
    return {name: _rounded(name, amount) for name, amount in _summed(costs).items()}


def _plain(cost: StageCost) -> dict[str, Any]:
    amounts = {
        name: _rounded(name, amount) for name in _AMOUNTS if (amount := getattr(cost, name)) is not None
    }
    return {"stage": cost.stage, "model": cost.model, "to_do": cost.to_do, **amounts}


def _rounded(name: str, amount: Amount) -> dict[str, float | None]:
    digits = {"seconds": 2, "money": 6}.get(name)
    return {
        key: None if value is None else round(value, digits)
        for key, value in (("expected", amount.expected), ("most", amount.most))
    }
