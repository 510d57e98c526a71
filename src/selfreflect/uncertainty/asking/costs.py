"""What it costs to ask a model about answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from selfreflect.table import Cell, Column, Table
from selfreflect.uncertainty.asking.asker import Inquiry

CHARACTERS_PER_TOKEN = 4
"""Of English prompts, roughly: the tokenizer of a server is not known."""


def cost_table(inquiries: Sequence[Inquiry], model: str, cost: Callable[[int, int], float] | None) -> Table:
    """A row for each step: requests, replies, and the tokens of prompts and, at most, of replies.

    Args:
        cost: of so many tokens of prompts and of replies, if the price of the model is known.
    """
    requests, replies = Counter[str](), Counter[str]()
    prompt_tokens, reply_tokens = Counter[str](), Counter[str]()
    for inquiry in inquiries:
        requests[inquiry.step] += 1
        replies[inquiry.step] += inquiry.n
        prompt_tokens[inquiry.step] += -(-inquiry.characters // CHARACTERS_PER_TOKEN)
        reply_tokens[inquiry.step] += inquiry.n * inquiry.max_new_tokens
    rows: list[tuple[Cell, ...]] = []
    for step in requests:
        counts: list[Cell] = [requests[step], replies[step], prompt_tokens[step], reply_tokens[step]]
        if cost is not None:
            counts.append(cost(prompt_tokens[step], reply_tokens[step]))
        rows.append((step, *counts))
    columns = [
        Column("asked for"),
        Column("requests", ",d"),
        Column("replies", ",d"),
        Column("prompt tokens, about", ",d"),
        Column("reply tokens, at most", ",d"),
    ]
    if cost is not None:
        columns.append(Column("money, at most", ",.4f"))
    return Table(f"What {model} is asked", tuple(columns), tuple(rows))
