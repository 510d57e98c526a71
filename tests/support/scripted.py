"""A generator that replies from a script, to test strategies and whatever calls a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from selfreflect.errors import BackendError, excerpt
from selfreflect.models.base import Completion, Refusal, Reply, Request

Line: TypeAlias = str | Sequence[str] | Reply | Refusal
"""One scripted reply. Texts repeat in turn until the request has its ``n`` completions; a Reply or Refusal is
given as it is."""

Script: TypeAlias = Callable[[Request], Line] | Mapping[str, Line] | Sequence[Line]


class Scripted:
    """Replies from a function of the request, from a mapping, or from a list in the order of the requests.

    A mapping is searched for the first key that occurs in the request's last message. One plain text answers
    everything. The requests of every call are kept in ``batches``.
    """

    name = "scripted"
    revision = ""

    def __init__(self, script: Script) -> None:
        self.batches: list[tuple[Request, ...]] = []
        self._line = _reader(script)

    @property
    def requests(self) -> list[Request]:
        """All requests so far, in order."""
        return [request for batch in self.batches for request in batch]

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        """Reply to each request, in order. Raises BackendError if the list is used up, or no key occurs."""
        self.batches.append(tuple(requests))
        return [_reply(self._line(request), request) for request in requests]


def _reader(script: Script) -> Callable[[Request], Line]:
    if callable(script):
        return script
    remaining = iter(() if isinstance(script, str | Mapping) else script)

    def read(request: Request) -> Line:
        message = request.messages[-1].content
        if isinstance(script, str):
            return script
        if isinstance(script, Mapping):
            for key, line in script.items():
                if key in message:
                    return line
            raise BackendError(f"no key of the script occurs in the message {excerpt(message, 200)}")
        for line in remaining:
            return line
        raise BackendError(f"the script is used up; the next request ends in {excerpt(message, 200)}")

    return read


def _reply(line: Line, request: Request) -> Reply | Refusal:
    if isinstance(line, Reply | Refusal):
        return line
    texts = [line] if isinstance(line, str) else line
    texts = [texts[index % len(texts)].strip() for index in range(request.n)]
    completions = (Completion(text=text, finish="stop", tokens=len(text.split())) for text in texts)
    words = sum(len(message.content.split()) for message in request.messages)
    return Reply(completions=tuple(completions), prompt_tokens=words)
