"""The latest answers with their distributions, in memory."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from selfreflect.serve.reflector import Exchange
from selfreflect.serve.reply import to_json

REMEMBERED = 1000
LARGEST = 64 * 2**20
"""Bytes of all together."""


class History:
    """Responses by id, as JSON. The oldest are forgotten first."""

    def __init__(self, remembered: int = REMEMBERED, largest: int = LARGEST) -> None:
        self._bodies: OrderedDict[str, bytes] = OrderedDict()
        self._remembered = remembered
        self._largest = largest
        self._size = 0

    def add(self, exchange: Exchange) -> None:
        body = to_json(detail(exchange))
        self._bodies[exchange.belief.id] = body
        self._size += len(body)
        while len(self._bodies) > self._remembered or self._size > self._largest:
            _, forgotten = self._bodies.popitem(last=False)
            self._size -= len(forgotten)

    def find(self, id_: str) -> bytes | None:
        """The JSON of a response; None if it was never given or is forgotten."""
        body = self._bodies.get(id_)
        if body is not None:
            self._bodies.move_to_end(id_)
        return body


def detail(exchange: Exchange) -> dict[str, object]:
    """Everything that came of a question. Each answer has the place of its class in ``classes``."""
    answers = exchange.answers
    draws = answers.conditioning if exchange.measured else answers.answers
    texts = [
        {"text": text, "class": place} for text, place in zip(draws, exchange.classes.labels, strict=True)
    ]
    return {
        **msgspec.structs.asdict(exchange.belief),
        "object": "selfreflect",
        "created": exchange.created,
        "question": exchange.question.text,
        "context": exchange.question.context,
        "content": [choice.text for choice in exchange.choices],
        "answers": texts,
        "held_out": answers.masked_out if exchange.measured else (),
        "summaries": [{"name": one.name, "text": one.text} for one in exchange.summaries],
        "measures": [{"kind": type(one).__name__.lower(), **one.to_dict()} for one in exchange.measured],
    }
