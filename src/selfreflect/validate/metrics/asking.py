"""Questions to a generator about a summary: their texts, and the replies or why there are none."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

from selfreflect.errors import excerpt
from selfreflect.models.base import Generator, Message, Refusal, Reply, Request, Sampling, as_done
from selfreflect.records import dump_line
from selfreflect.text import fill, normalise_question, numbered
from selfreflect.validate.base import Undefined
from selfreflect.validate.metrics.common import model_name


@cache
def prompts() -> Mapping[str, Mapping[str, str]]:
    """The texts of ``data/validate_prompts.toml``, by metric. No run configures them."""
    file = resources.files("selfreflect") / "data" / "validate_prompts.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def described(question: str, answers: Sequence[str]) -> dict[str, str]:
    """What every prompt may say of an item.

    Texts from files or models are quoted as JSON on a line of their own, so that they cannot pass for part of
    the prompt.
    """
    return {"question": quoted(normalise_question(question)), "answers": numbered(answers)}


def filled(template: str, description: Mapping[str, str], **texts: str) -> str:
    """Put a description and further quoted texts in place of their names."""
    return fill(template, {**description, **texts}).strip()


def quoted(text: str) -> str:
    return numbered([text]).removeprefix("1. ")


def name_with_prompts(generator: Generator, texts: Mapping[str, str]) -> str:
    """The model and a digest of its prompts, as values name them: other prompts make another metric."""
    name = model_name(generator.name, generator.revision, getattr(generator, "facts", {}))
    return f"{name}, prompts {hashlib.sha256(dump_line(texts).encode()).hexdigest()[:8]}"


def ask(generator: Generator, questions: Sequence[str], max_new_tokens: int) -> list[str | Undefined]:
    """A greedy reply to each question, in order, or why there is none. Equal questions are asked once.

    Raises:
        BackendError: the generator has given up, so that further questions are pointless.
    """
    sampling = Sampling(temperature=0.0, max_new_tokens=max_new_tokens)
    requests = {}
    for question in questions:
        requests[question] = Request(messages=(Message(role="user", content=question),), sampling=sampling)
    if not requests:
        return []
    distinct = list(requests)
    replies = {}
    for index, reply in as_done(generator, list(requests.values())):
        replies[distinct[index]] = _text(reply)
    return [replies[question] for question in questions]


def unparsed(reply: str, request: str) -> Undefined:
    message = f"the model was asked for {request} and replied {excerpt(reply, 200)}"
    return Undefined(reason="unparsed", message=message)


def _text(reply: Reply | Refusal) -> str | Undefined:
    if isinstance(reply, Refusal):
        return Undefined(reason=reply.kind, message=reply.message)
    if len(reply.completions) != 1:
        message = f"the generator gave {len(reply.completions)} completions instead of 1"
        return Undefined(reason="backend", message=message)
    if reply.completions[0].finish == "unclosed_reasoning":
        return Undefined(reason="unclosed_reasoning", message="the reply never ended its reasoning trace")
    if reply.completions[0].finish == "length":
        message = f"the token limit was reached after {excerpt(reply.text, 200)}"
        return Undefined(reason="cut_off", message=message)
    return reply.text
