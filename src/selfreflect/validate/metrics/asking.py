"""Questions to a generator about a summary: the texts they are made of, and replies or the reason for
none."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

from selfreflect.errors import excerpt
from selfreflect.models.base import Generator, Message, Refusal, Reply, Request, Sampling, as_done
from selfreflect.records import dump_line
from selfreflect.sources.items import Item
from selfreflect.text import fill, normalise_question, numbered
from selfreflect.validate.base import Undefined
from selfreflect.validate.metrics.naming import named
from selfreflect.validate.metrics.texts import answers


@cache
def prompts() -> Mapping[str, Mapping[str, str]]:
    """The texts of ``data/validate_prompts.toml``, by metric. They are no part of a run's prompts, and the
    same for everyone."""
    return tomllib.loads(
        (resources.files("selfreflect") / "data" / "validate_prompts.toml").read_text(encoding="utf-8")
    )


def shown(item: Item, template: str, **texts: str) -> str:
    """``template`` with the question, the answers and ``texts`` of this item.

    Whatever comes from files or models is quoted as JSON on a line of its own, so that it cannot pass itself
    off as part of the prompt.
    """
    asked = quoted(normalise_question(item.question))
    return fill(template, {"question": asked, "answers": numbered(answers(item)), **texts}).strip()


def quoted(text: str) -> str:
    return numbered([text]).removeprefix("1. ")


def asked_by(generator: Generator, texts: Mapping[str, str]) -> str:
    """The model and a digest of the texts that it is asked with, as values name them: other texts make
    another metric."""
    model = named(generator.name, generator.revision, getattr(generator, "facts", {}))
    return f"{model}, prompts {hashlib.sha256(dump_line(texts).encode()).hexdigest()[:8]}"


def ask(generator: Generator, questions: Sequence[str], max_new_tokens: int) -> list[str | Undefined]:
    """A greedy reply to each question, in order, or why there is none. Equal questions are asked once.

    Raises:
        BackendError: the generator gives up, so that asking on would be in vain.
    """
    sampling = Sampling(temperature=0.0, max_new_tokens=max_new_tokens)
    distinct = list(dict.fromkeys(questions))
    requests = [
        Request(messages=(Message(role="user", content=question),), sampling=sampling)
        for question in distinct
    ]
    found = (
        {distinct[place]: _text(reply) for place, reply in as_done(generator, requests)} if requests else {}
    )
    return [found[question] for question in questions]


def unparsed(reply: str, wanted: str) -> Undefined:
    return Undefined(
        reason="unparsed", message=f"the model was asked for {wanted} and replied {excerpt(reply, 200)}"
    )


def _text(reply: Reply | Refusal) -> str | Undefined:
    if isinstance(reply, Refusal):
        return Undefined(reason=reply.kind, message=reply.message)
    if len(reply.completions) != 1:
        return Undefined(
            reason="backend", message=f"the generator gave {len(reply.completions)} completions instead of 1"
        )
    if reply.completions[0].finish == "unclosed_reasoning":
        return Undefined(reason="unclosed_reasoning", message="the reply never ended its reasoning trace")
    if reply.completions[0].finish == "length":
        return Undefined(
            reason="cut_off", message=f"the token limit was reached after {excerpt(reply.text, 200)}"
        )
    return reply.text
