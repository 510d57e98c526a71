"""Show what a dry run found: the cost of each stage, as a table or as one line of JSON."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from selfreflect.cli.console import emit, print_table, say, stderr
from selfreflect.models.openai.endpoint import endpoint
from selfreflect.models.spec import kind_of
from selfreflect.render.table import Cell, Column, Table
from selfreflect.render.text import one_line

if TYPE_CHECKING:
    from selfreflect.config import Config
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
    stages, total = _sum_up(dry_run)
    if json:
        emit({"dry_run": stages, "total": total, "notes": dry_run.notes})
        return
    print_table(_table(stages, total))
    for note in dry_run.notes:
        say(one_line(note))
    say("dry run: nothing was written, and no server was asked.")


LONG_SECONDS = 180
MANY_COMPLETIONS = 200
"""From how many on a run whose time is not known is announced."""


def announce_costs(dry_run: DryRun, config: Config) -> bool:
    """Print the costs of a run on stderr if it may take more than some minutes, or money; return whether."""
    reasons = _reasons(dry_run, config)
    if not reasons:
        return False
    print_table(_table(*_sum_up(dry_run)), stderr)
    say("; ".join(reasons))
    return True


def _reasons(dry_run: DryRun, config: Config) -> list[str]:
    """Why somebody should look before the run starts."""
    _, total = _sum_up(dry_run)
    completions = sum(cost.amounts["completions"].most or 0 for cost in dry_run.costs)
    reasons = []
    if "money" in total and total["money"]["most"] != 0:
        reasons.append("this run costs money")
    elif hosts := _paid_hosts(dry_run, config):
        reasons.append(f"{' and '.join(hosts)} may charge for this run")
    seconds = total["seconds"]["expected"]
    if seconds is not None and seconds >= LONG_SECONDS:
        reasons.append(f"it takes about {seconds / 60:.0f} minutes")
    if seconds is None and completions >= MANY_COMPLETIONS:
        reasons.append(f"how long its {completions:,.0f} completions take is not known yet")
    return reasons


def _paid_hosts(dry_run: DryRun, config: Config) -> list[str]:
    """The servers to be asked that are not in a network of one's own, and whose prices are not known."""
    hosts: dict[str, None] = {}
    for cost in dry_run.costs:
        if cost.stage in ("answers", "summaries") and cost.to_do and "money" not in cost.amounts:
            section = getattr(config, cost.stage)
            if kind_of(section.model) == "openai":
                hosts[endpoint(section.base_url).host] = None
    return [host for host in hosts if not is_own(host)]


def is_own(host: str) -> bool:
    """Whether a host is this machine, or has an address or a name of a private network."""
    try:
        return ip_address(host).is_private
    except ValueError:
        return host == "localhost" or "." not in host or host.endswith((".local", ".internal", ".lan"))


def _sum_up(dry_run: DryRun) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What each stage takes, and time and money of all of them, rounded."""
    stages: list[dict[str, Any]] = []
    totals: dict[str, Amount] = {}
    for cost in dry_run.costs:
        for name in ("seconds", "money"):
            if name in cost.amounts:
                amount = cost.amounts[name]
                totals[name] = totals[name] + amount if name in totals else amount
        line = {"stage": cost.stage, "model": cost.model, "to_do": cost.to_do, **_rounded(cost.amounts)}
        stages.append(line)
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
