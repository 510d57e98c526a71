"""The texts of ``data/uncertainty_prompts.toml``, and how questions and answers stand in them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources

from selfreflect.text import fenced, fill, normalise_question, numbered
from selfreflect.uncertainty.question import AnsweredQuestion


@cache
def prompts() -> Mapping[str, Mapping[str, str]]:
    """The texts of ``data/uncertainty_prompts.toml``, by estimator."""
    file = resources.files("selfreflect") / "data" / "uncertainty_prompts.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def quoted(text: str) -> str:
    """Quote a text as JSON on one line, so that it cannot pass for part of a prompt."""
    return numbered([text]).removeprefix("1. ")


def described(question: AnsweredQuestion) -> str:
    """The question as prompts name it, with the text that belongs to it."""
    plain = quoted(normalise_question(question.text or question.id))
    if not question.context:
        return plain
    template = prompts()["question"]["with_context"].strip()
    return fill(template, {"question": plain, "context": fenced(question.context)})
