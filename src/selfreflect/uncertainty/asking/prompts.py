"""The texts of ``data/uncertainty_prompts.toml``, and how questions and answers stand in them."""

from __future__ import annotations

from collections.abc import Mapping

from selfreflect.prompts import bundled_texts
from selfreflect.text import fenced, fill, normalise_question, quoted
from selfreflect.uncertainty.question import AnsweredQuestion


def prompts() -> Mapping[str, Mapping[str, str]]:
    """The texts of ``data/uncertainty_prompts.toml``, by estimator."""
    return bundled_texts("uncertainty_prompts.toml")


def described(question: AnsweredQuestion) -> str:
    """The question as prompts name it, with the text that belongs to it."""
    plain = quoted(normalise_question(question.text or question.id))
    if not question.context:
        return plain
    template = prompts()["question"]["with_context"].strip()
    return fill(template, {"question": plain, "context": fenced(question.context)})
