"""Amounts that a run takes: requests, tokens and money, and why somebody should look at them first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from selfreflect.models.backend import backend_of
from selfreflect.models.base import Message, Request
from selfreflect.table import Cell, Column, Table

if TYPE_CHECKING:
    from selfreflect.models.chat import ChatTokenizer
    from selfreflect.run.dry_run import DryRun
    from selfreflect.settings import Config


@dataclass(frozen=True)
class Amount:
    """An expected value and an upper bound; None if not known."""

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


# Conversations that are tokenised together.
_BATCH = 256

EXACT = 10_000
"""Conversations that are tokenised. Tokens of further ones are expected at the same rate per byte."""


class RequestCount:
    """Adds up what requests to one model take.

    Args:
        chat: a local model's. Of a server it is not known, nor whether it gives one completion per call and
            reads the prompt for each.
    """

    def __init__(self, chat: ChatTokenizer | None) -> None:
        self._chat = chat
        self._calls = self._most_calls = self._completions = self._most_tokens = 0
        self._prompt = self._estimated = self._most_prompt = 0
        self._estimated_of_exact = 0
        """What :func:`estimated_tokens` says of the conversations that were tokenised."""
        self._shows_replies = False
        self._is_known = True
        self._waiting: list[tuple[tuple[Message, ...], bool, int]] = []
        """Conversations of a local model that are not counted yet, and how often each is read."""

    def add(self, request: Request, stored_count: int = 0, reply_tokens: int | None = None) -> None:
        """Count a request.

        Args:
            stored_count: completions that are there already.
            reply_tokens: tokens that replies to come add to the prompt at most; None if it shows none.
        """
        # a server may give one completion per call, whatever n says
        to_draw = request.n - stored_count
        most_calls = to_draw if self._chat is None else 1
        self._calls += 1
        self._most_calls += most_calls
        self._completions += to_draw
        self._most_tokens += to_draw * request.sampling.max_new_tokens
        if reply_tokens is not None:
            self._shows_replies = True
            self._most_prompt += reply_tokens * most_calls
        if self._chat is None or self._calls > EXACT:
            tokens, bound = estimated_tokens(request.messages)
            self._estimated += tokens
            self._most_prompt += bound * most_calls
            return
        self._waiting.append((request.messages, request.thinking, most_calls))
        if len(self._waiting) >= _BATCH:
            self._tokenise()

    def add_unknown(self) -> None:
        """Count requests whose size is not known."""
        self._is_known = False

    @property
    def calls(self) -> Amount:
        return Amount(self._calls, self._most_calls) if self._is_known else UNKNOWN

    @property
    def completions(self) -> Amount:
        return Amount(self._completions, self._completions) if self._is_known else UNKNOWN

    @property
    def prompt_tokens(self) -> Amount:
        if not self._is_known:
            return UNKNOWN
        self._tokenise()
        # tokens per estimated token of those that were counted
        rate = self._prompt / self._estimated_of_exact if self._estimated_of_exact else 1
        mean = self._prompt + round(self._estimated * rate)
        return Amount(None if self._shows_replies else mean, self._most_prompt)

    @property
    def is_sampled(self) -> bool:
        """Whether some conversations of a local model were not tokenised."""
        return self._chat is not None and self._calls > EXACT

    @property
    def most_completion_tokens(self) -> int | None:
        return self._most_tokens if self._is_known else None

    def _tokenise(self) -> None:
        waiting, self._waiting = self._waiting, []
        # templates render a batch with one setting of thinking
        for thinking in {thinking for _, thinking, _ in waiting}:
            batch = [(messages, calls) for messages, thinks, calls in waiting if thinks == thinking]
            assert self._chat is not None
            texts = self._chat.render_all([messages for messages, _ in batch], thinking=thinking)
            for ids, (messages, calls) in zip(self._chat.encode(texts), batch, strict=True):
                self._prompt += len(ids)
                self._estimated_of_exact += estimated_tokens(messages)[0]
                self._most_prompt += len(ids) * calls


def estimated_tokens(messages: Sequence[Message]) -> tuple[int, int]:
    """Estimate and bound the tokens of a conversation without its tokenizer.

    A token has four bytes of UTF-8, at least one; each turn, and the one to come, gets eight tokens for its
    markers.
    """
    size = sum(len(message.content.encode("utf-8", "surrogatepass")) for message in messages)
    markers = 8 * (1 + len(messages))
    return size // 4 + markers, size + markers


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
"""From how many on somebody is asked before a run starts."""


def reasons_to_ask(dry_run: DryRun, config: Config) -> list[str]:
    """List reasons to look before the run starts."""
    completions = sum(cost.amounts["completions"].bound or 0 for cost in dry_run.costs)
    reasons = payments(dry_run, config)
    if completions >= MANY_COMPLETIONS:
        reasons.append(f"its {completions:,.0f} completions may take long")
    return reasons


def payments(dry_run: DryRun, config: Config) -> list[str]:
    """Say that a run costs money, or that a server may charge for it; empty if neither."""
    _, total = sum_up(dry_run)
    if "money" in total and total["money"]["most"] != 0:
        return ["this run costs money"]
    hosts = _paid_hosts(dry_run, config)
    return [f"{' and '.join(hosts)} may charge for this run"] if hosts else []


def _paid_hosts(dry_run: DryRun, config: Config) -> list[str]:
    """List the servers to be asked that may charge for it, and whose prices are not known."""
    hosts: dict[str, None] = {}
    for cost in dry_run.costs:
        if cost.stage in ("answers", "summaries") and cost.to_do and "money" not in cost.amounts:
            section = getattr(config, cost.stage)
            hosts[backend_of(section.model).may_charge(section.base_url)] = None
    return list(filter(None, hosts))


def sum_up(dry_run: DryRun) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """List what each stage takes, and the money of all of them, rounded."""
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
    """Keep a key that programs read: no time is guessed any more, but nothing to do takes none."""
    return dict.fromkeys(("expected", "most"), None if to_do else 0)


def _rounded(amounts: dict[str, Amount]) -> dict[str, dict[str, float | None]]:
    rounded = {}
    for name, amount in amounts.items():
        digits = AMOUNTS[name][1] or None
        rounded[name] = {
            "expected": None if amount.mean is None else round(amount.mean, digits),
            "most": None if amount.bound is None else round(amount.bound, digits),
        }
    return rounded


NOT_KNOWN = "–: not known yet"


def cost_table(stages: list[dict[str, Any]], total: dict[str, Any]) -> Table:
    """Show one row per amount of a stage, then the money of all stages."""
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
    """Show small amounts of money with more digits."""
    if value is None or name != "money":
        return value
    return f"{value:,.4f}" if value < 1 else f"{value:,.2f}"
