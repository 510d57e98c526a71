"""A sentence around a statement in a model's own words. The list of possibilities stays the template's, so
that edits stay controlled."""

from __future__ import annotations

from collections.abc import Sequence

from selfreflect.models.base import Generator, Message, Refusal, Reply, Request, Sampling, seed_for
from selfreflect.sources.items import Item
from selfreflect.text import normalise_question
from selfreflect.validate.base import Undefined
from selfreflect.validate.edits.possibilities import FRAME, LIST

_LONGEST = 60
"""Words. A frame that says more than the list would drown the edits."""
_SAMPLING = Sampling(max_new_tokens=256)


def frames(items: Sequence[Item], writer: Generator, seed: int) -> list[str | Undefined]:
    """For each item a text that holds the marker of the list once, or why the model gave none."""
    replies = writer.generate([_request(item, seed) for item in items])
    return [_frame(reply) for reply in replies]


def _request(item: Item, seed: int) -> Request:
    prompt = (
        f"{normalise_question(item.question)}\n\n"
        f'Somebody answers this question with "{FRAME}", where {LIST} stands for a list of possible answers that you do not see. '
        f"Write that reply in your own words, in one sentence that suits the question. Keep {LIST} exactly as it is, once, and name no "
        "answer yourself. Reply with the sentence only."
    )
    return Request(
        messages=(Message(role="user", content=prompt),),
        sampling=_SAMPLING,
        seed=seed_for(seed, item.id, "writer"),
    )


def _frame(reply: Reply | Refusal) -> str | Undefined:
    if isinstance(reply, Refusal):
        return Undefined(reason=reply.kind, message=reply.message)
    text = reply.text.strip()
    if text.count(LIST) != 1:
        return Undefined(reason="unparsed", message=f"the writer's reply does not hold {LIST} once")
    if len(text.split()) > _LONGEST:
        return Undefined(reason="unparsed", message=f"the writer's reply has more than {_LONGEST} words")
    return text
