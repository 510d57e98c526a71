"""Short requests to a model, their stored replies, and their cost."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

from selfreflect.models.base import (
    Generator,
    Message,
    ModelSpec,
    Refusal,
    Reply,
    Request,
    Sampling,
    as_done,
    seed_for,
)
from selfreflect.records import dump_line
from selfreflect.store.journal import Journal, ModelReplies, RepliesInMemory
from selfreflect.table import Cell, Column, Table
from selfreflect.text import without_credentials
from selfreflect.uncertainty.question import NoValue

SAME_MEANING = "same_meaning"
"""The step that asks whether two answers mean the same."""
CONTROL = "control"
"""The step that asks the same of pairs whose result is known."""


class Inquiry(NamedTuple):
    """One conversation that a model is to continue."""

    step: str
    """What it is for, such as ``p_true``."""
    messages: tuple[Message, ...]
    n: int = 1
    temperature: float = 0.0
    max_new_tokens: int = 64
    first_tokens: int = 0
    """How many likely first tokens are wanted with each reply."""

    @property
    def characters(self) -> int:
        """Length of the prompt."""
        return sum(len(message.content) for message in self.messages)


class ReplyCounter(Protocol):
    """Counts replies."""

    def advance(self, count: int = 1, failures: int = 0) -> None: ...


class Asker:
    """Asks one model, and looks up what it was asked before.

    Args:
        model: its :func:`model_name`, under which replies are kept.
        load: loads it, when the first inquiry has no stored reply.
        store: where replies are kept; None keeps them for the life of this object.
        confirm: called with the inquiries that have no stored reply, before each batch; it may raise.
        progress: opens a display for a step and a number of inquiries.
        samples_p_true: whether P(True) is counted in replies even where the model tells probabilities.
    """

    def __init__(
        self,
        model: str,
        load: Callable[[], Generator],
        store: Journal[ModelReplies] | RepliesInMemory | None = None,
        *,
        confirm: Callable[[Sequence[Inquiry]], None] = lambda inquiries: None,
        progress: Callable[[str, int], AbstractContextManager[ReplyCounter | None]] | None = None,
        samples_p_true: bool = False,
    ) -> None:
        self.model = model
        self.samples_p_true = samples_p_true
        self._load = load
        self._generator: Generator | None = None
        self._store = RepliesInMemory() if store is None else store
        self._confirm = confirm
        self._progress = progress or (lambda name, total: nullcontext(None))

    def ask(self, inquiries: Sequence[Inquiry]) -> list[ModelReplies]:
        """Get the replies to inquiries, in order. Equal inquiries are asked once, and each reply is on disk
        before the next one is waited for.

        Raises:
            BackendError: the model has stopped working. What it replied before is kept.
            StoreError: the disk refuses.
        """
        keys = list(map(self._digest, inquiries))
        records = self._store.records
        missing: dict[str, Inquiry] = {}
        for key, inquiry in zip(keys, inquiries, strict=True):
            if key not in records or not records[key].is_final:
                missing.setdefault(key, inquiry)
        if missing:
            self._confirm(list(missing.values()))
            self._ask(missing)
        return [records[key] for key in keys]

    def _ask(self, inquiries: dict[str, Inquiry]) -> None:
        if self._generator is None:
            self._generator = self._load()
        digests = list(inquiries)
        requests = [_request(digest, inquiry) for digest, inquiry in inquiries.items()]
        steps = ", ".join(dict.fromkeys(inquiry.step for inquiry in inquiries.values()))
        with self._progress(steps, len(requests)) as counter:
            for index, result in as_done(self._generator, requests):
                digest = digests[index]
                replies = self._replies(digest, inquiries[digest], result)
                self._store.append_all([replies])
                if counter is not None:
                    counter.advance(int(replies.failure is None), int(replies.failure is not None))

    def _replies(self, digest: str, inquiry: Inquiry, result: Reply | Refusal) -> ModelReplies:
        facts: dict[str, Any] = {"step": inquiry.step, "request": digest, "model": self.model}
        if isinstance(result, Refusal):
            return ModelReplies(**facts, failure=result.kind, message=result.message)
        return ModelReplies(
            **facts,
            texts=result.texts,
            finishes=tuple(completion.finish for completion in result.completions),
            first_tokens=result.completions[0].first_tokens,
            tokens=result.tokens,
        )

    def _digest(self, inquiry: Inquiry) -> str:
        turns = [[message.role, message.content] for message in inquiry.messages]
        parts = [self.model, turns, inquiry.n, inquiry.temperature, inquiry.max_new_tokens]
        if inquiry.first_tokens:
            parts.append(inquiry.first_tokens)
        line = dump_line(parts)
        return hashlib.sha256(line.encode()).hexdigest()[:32]


def _request(digest: str, inquiry: Inquiry) -> Request:
    sampling = Sampling(temperature=inquiry.temperature, max_new_tokens=inquiry.max_new_tokens)
    return Request(
        messages=inquiry.messages,
        sampling=sampling,
        n=inquiry.n,
        seed=seed_for(0, digest),
        first_tokens=inquiry.first_tokens,
    )


def model_name(spec: ModelSpec) -> str:
    """Name a model with its revision, address and extra settings, without credentials."""
    revision = f"@{spec.revision}" if spec.revision else ""
    address = f" at {without_credentials(spec.base_url)}" if spec.base_url else ""
    extra = f" with {dump_line(spec.extra_body)}" if spec.extra_body else ""
    return f"{spec.name}{revision}{address}{extra}"


def failure_of(replies: ModelReplies) -> NoValue | None:
    """Why there is no reply at all; None if there is one."""
    if replies.failure is None:
        return None
    return NoValue("no_reply", f"the model gave no reply ({replies.failure}): {replies.message}")


def reply_text(replies: ModelReplies) -> str | NoValue:
    """Return the only text of a reply, or why there is no whole one."""
    if failure := failure_of(replies):
        return failure
    finish = replies.finishes[0]
    if finish == "length":
        return NoValue("cut_off", "the reply was cut off at the limit of tokens")
    if finish != "stop":
        return NoValue("no_reply", f"the model gave no reply ({finish})")
    return replies.texts[0]


CHARACTERS_PER_TOKEN = 4
"""Of English prompts, roughly: the tokenizer of a server is not known."""


def cost_table(inquiries: Sequence[Inquiry], model: str, cost: Callable[[int, int], float] | None) -> Table:
    """List requests, replies and the tokens of prompts and replies (at most) of each step.

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
