"""Templates of sentences, with plural forms and numbers."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from selfreflect.text import counted, listed, percent

_NUMBERS = "no one two three four five six seven eight nine ten eleven twelve".split()

PLURALS = {
    "is": "are",
    "has": "have",
    "does": "do",
    "misleads": "mislead",
    "recovers": "recover",
    "shares": "share",
}
"""Singular and plural forms of verbs."""


def say(finding: str, **values: Any) -> str:
    """Render one sentence of a report.

    Args:
        finding: the name of a macro in ``templates/sentences.jinja``.
        values: its arguments, which may be untrusted text.
    """
    # templates break lines and nest blocks; names lose no more than doubled blanks
    return " ".join(getattr(_sentences(), finding)(**values).split())


@cache
def _sentences() -> Any:
    environment = Environment(
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: f"{value:,}" if type(value) is int else value,
    )
    environment.filters |= {
        "percent": percent,
        "verb": lambda verb, count: verb if count == 1 else PLURALS[verb],
        "counted": counted,
        "listed": listed,
        "form": format,
        "score": lambda score: f"{score:.4f}",
    }
    source = files("selfreflect.report") / "templates" / "sentences.jinja"
    return environment.from_string(source.read_text(encoding="utf-8")).module


def answers_text(count: int | None, kind: str = "sampled") -> str:
    """Count answers in words, as ``ten sampled answers``; None gives ``the sampled answers``."""
    if count is None:
        return f"the {kind} answers"
    number = _NUMBERS[count] if count < len(_NUMBERS) else str(count)
    return f"{number} {kind} answer{'' if count == 1 else 's'}"
