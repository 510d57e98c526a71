"""A generator that asks no model: it counts what it is asked, and replies with stand-ins for the texts that a
model would write."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import count

from msgspec.structs import replace

from selfreflect.models.base import Completion, Message, Refusal, Reply, Request, Sampling
from selfreflect.pipeline.cost import Call
from selfreflect.records import Record

_STAND_IN = re.compile("\ue000([0-9]+)/([0-9]+)\ue001")

Counted = tuple[int, int]
"""Tokens of a prompt: about, and at most."""


class Kind(Record, frozen=True, kw_only=True):
    """How tokens are drawn, and by which model: completions of one kind are expected to be equally long."""

    model: str
    sampling: Sampling


def shown_kinds(text: str) -> tuple[int, ...]:
    """The kinds of the stand-ins in ``text``, by their indices."""
    return tuple(int(match[2]) for match in _STAND_IN.finditer(text))


def blanked(text: str) -> str:
    """``text`` with one letter in place of each stand-in."""
    return _STAND_IN.sub("x", text)


def byte_count(requests: Sequence[Request]) -> list[Counted]:
    """For tokenizers that are not at hand: about four bytes of UTF-8 to a token, at most one token for each
    byte.

    Each turn, and the one to come, gets eight tokens for its markers.
    """
    sizes = [
        (
            sum(len(m.content.encode("utf-8", "surrogatepass")) for m in request.messages),
            8 * (1 + len(request.messages)),
        )
        for request in requests
    ]
    return [(size // 4 + markers, size + markers) for size, markers in sizes]


class CountingGenerator:
    """Notes every request in ``requests`` and ``calls``, and gives each completion a text of its own that
    names its kind.

    Args:
        kinds: the kinds met so far, by index; new ones are appended, so several stand-ins may share the list.
        counted: tokens of prompts, given requests that hold no stand-ins any more.
        window: most tokens of prompt and completion; a prompt that fills it is refused, as the model would.
    """

    def __init__(
        self,
        name: str,
        kinds: list[Kind],
        *,
        revision: str = "",
        counted: Callable[[Sequence[Request]], list[Counted]] = byte_count,
        window: int | None = None,
    ) -> None:
        self.name, self.revision, self.window = name, revision, window
        self.facts = {"name": name, "revision": revision}
        self.requests: list[Request] = []
        """What was asked, without those that were refused; with one letter for each earlier reply."""
        self.calls: list[Call] = []
        self._kinds, self._counted = kinds, counted
        self._serial = count()

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        bare = [_bare(request) for request in requests]
        return [self._reply(*each) for each in zip(requests, bare, self._counted(bare), strict=True)]

    def _reply(self, request: Request, bare: Request, tokens: Counted) -> Reply | Refusal:
        if self.window is not None and tokens[0] >= self.window:
            return Refusal(
                kind="too_long",
                message=f"the prompt has {tokens[0]} tokens, but the window holds {self.window}",
            )
        shown = tuple(kind for message in request.messages for kind in shown_kinds(message.content))
        kind = self._kind(request.sampling)
        self.requests.append(bare)
        self.calls.append(
            Call(
                kind=kind,
                n=request.n,
                prompt=tokens[0],
                prompt_most=tokens[1],
                shown=shown,
                window=self.window,
            )
        )
        texts = [f"\ue000{next(self._serial)}/{kind}\ue001" for _ in range(request.n)]
        return Reply(completions=tuple(Completion(text=text, finish="stop", tokens=0) for text in texts))

    def _kind(self, sampling: Sampling) -> int:
        kind = Kind(model=self.name, sampling=sampling)
        if kind not in self._kinds:
            self._kinds.append(kind)
        return self._kinds.index(kind)


def _bare(request: Request) -> Request:
    return replace(
        request, messages=tuple(Message(role=m.role, content=blanked(m.content)) for m in request.messages)
    )
