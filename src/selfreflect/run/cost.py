"""Cost of a run in requests, tokens and money, and reasons to confirm first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from selfreflect.models.backend import backend_of
from selfreflect.models.base import Message, Request
from selfreflect.table import Cell, Column, Table

if TYPE_CHECKING:
    from selfreflect.run.dry_run import DryRun
    from selfreflect.settings import Config


@dataclass(frozen=True)
class Amount:
    """An expected value with an upper bound; None if unknown."""

    mean: float | None
    bound: float | None

    def __add__(self, amount: Amount) -> Amount:
        mean = bound = None
        if self.mean is not None and amount.mean is not None:
            mean = self.mean + amount.mean
        if self.bound is not None and amount.bound is not None:
            bound = self.bound + amount.bound
        return Amount(mean, bound)

    def __mul__(self, factor: float) -> Amount:
        mean = None if self.mean is None else self.mean * factor
        return Amount(mean, None if self.bound is None else self.bound * factor)


NOTHING = Amount(0, 0)
UNKNOWN = Amount(None, None)


COUNTED = ("calls", "completions", "prompt_tokens", "completion_tokens")
"""Amounts that follow from requests."""


class RequestCount:
    """Counter of the cost of requests to one model.

    Args:
        draws_together: whether the model draws all completions of a prompt in one call, and reads it once.
            Of a server it is not known, so that it takes a call for each at most.
    """

    def __init__(self, draws_together: bool) -> None:
        self._draws_together = draws_together
        self.amounts = dict.fromkeys(COUNTED, NOTHING)

    def add(self, request: Request, stored_count: int = 0, reply_tokens: int | None = None) -> None:
        """Add a request to the count.

        Args:
            stored_count: completions that are there already.
            reply_tokens: tokens that replies to come add to the prompt at most; None if it shows none.
        """
        to_draw = request.n - stored_count
        most_calls = 1 if self._draws_together else to_draw
        tokens, most_tokens = estimated_tokens(request.messages)
        most_tokens += reply_tokens or 0
        counts = (
            Amount(1, most_calls),
            Amount(to_draw, to_draw),
            # how long the replies will be is not known, only how long at most
            Amount(tokens if reply_tokens is None else None, most_tokens * most_calls),
            Amount(None, to_draw * request.sampling.max_new_tokens),
        )
        for name, count in zip(COUNTED, counts, strict=True):
            self.amounts[name] += count

    def add_unknown(self) -> None:
        """Add requests of unknown size."""
        self.amounts = dict.fromkeys(COUNTED, UNKNOWN)


# Tokens of the turn of the system that some templates write themselves, at most.
_OWN_SYSTEM = 64


def estimated_tokens(messages: Sequence[Message]) -> tuple[int, int]:
    """Estimate the tokens of a conversation without a tokenizer, with an upper bound.

    A token has four bytes of UTF-8, at least one; each turn, and the one to come, gets eight tokens for its
    markers. Where there is no turn of the system, a template may write one of its own.
    """
    size = sum(len(message.content.encode("utf-8", "surrogatepass")) for message in messages)
    markers = 8 * (1 + len(messages))
    has_system = any(message.role == "system" for message in messages)
    return size // 4 + markers, size + markers + (0 if has_system else _OWN_SYSTEM)


AMOUNTS = {
    "calls": ("calls", 0),
    "completions": ("completions", 0),
    "prompt_tokens": ("prompt tokens", 0),
    "completion_tokens": ("completion tokens", 0),
    "judge_tokens": ("judge tokens", 0),
    "money": ("money", 6),
}
"""Heading and digits of each amount of a stage's cost.

Calls are conversations to send, at most one per completion, for servers that give one at a time; judge tokens
are nodes of prefix trees.
"""

MANY_COMPLETIONS = 200
"""Minimum number of completions for which the user must confirm a run."""


def reasons_to_ask(dry_run: DryRun, config: Config) -> list[str]:
    """List the reasons to confirm before a run: its price, charging servers and its size."""
    reasons = []
    _, total = sum_up(dry_run)
    hosts: dict[str, None] = {}
    for cost in dry_run.costs:
        # a price that is known is a reason of its own
        if cost.stage in ("answers", "summaries") and cost.to_do and "money" not in cost.amounts:
            section = getattr(config, cost.stage)
            hosts[backend_of(section.model).may_charge(section.base_url)] = None
    if "money" in total and total["money"]["most"] != 0:
        reasons.append("this run costs money")
    elif paid_hosts := list(filter(None, hosts)):
        reasons.append(f"{' and '.join(paid_hosts)} may charge for this run")
    completions = sum(cost.amounts["completions"].bound or 0 for cost in dry_run.costs)
    if completions >= MANY_COMPLETIONS:
        reasons.append(f"its {completions:,.0f} completions may take a long time")
    return reasons


def sum_up(dry_run: DryRun) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """List the cost of each stage, and the total money, rounded."""
    stages: list[dict[str, Any]] = []
    prices = []
    for cost in dry_run.costs:
        if "money" in cost.amounts:
            prices.append(cost.amounts["money"])
        fields = {"stage": cost.stage, "model": cost.model, "to_do": cost.to_do}
        stages.append({**fields, **_rounded(cost.amounts), "seconds": _seconds(cost.to_do)})
    total = _rounded({"money": sum(prices, NOTHING)}) if prices else {}
    return stages, {"seconds": _seconds(sum(cost.to_do for cost in dry_run.costs)), **total}


def _seconds(to_do: int) -> dict[str, int | None]:
    """Build the JSON values for seconds, which other programs read: 0 if nothing is left to do, else
    unknown."""
    return dict.fromkeys(("expected", "most"), None if to_do else 0)


def _rounded(amounts: dict[str, Amount]) -> dict[str, dict[str, float | None]]:
    rounded = {}
    for name, amount in amounts.items():
        # rounded to no digits, a number stays a float
        digits = AMOUNTS[name][1] or None
        rounded[name] = {
            "expected": None if amount.mean is None else round(amount.mean, digits),
            "most": None if amount.bound is None else round(amount.bound, digits),
        }
    return rounded


NOT_KNOWN = "–: not known yet"


def cost_table(stages: list[dict[str, Any]], total: dict[str, Any]) -> Table:
    """Tabulate each stage's amounts, then the total money."""
    rows: list[tuple[Cell, ...]] = []
    for stage in stages:
        rows.append((stage["stage"], "to do", stage["to_do"], stage["to_do"]))
        if stage["to_do"]:
            if stage["model"]:
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
        if amount is not None and amount["most"] != 0:
            rows.append((stage, heading, _cell(name, amount["expected"]), _cell(name, amount["most"])))
    return rows


def _cell(name: str, value: float | None) -> Cell:
    """Format small amounts of money with more digits."""
    if value is None or name != "money":
        return value
    return f"{value:,.4f}" if value < 1 else f"{value:,.2f}"
