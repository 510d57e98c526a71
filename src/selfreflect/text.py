"""Pure string helpers that several stages share: how questions and answers are written into a conversation,
and what is left out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

PLACEHOLDER = re.compile(r"\{(\w+)\}")

# Left alone by json.dumps, yet they end a line for some readers, or (lone surrogates) cannot be encoded for a
# tokenizer.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*@")


def normalise_question(text: str) -> str:
    """The question as a model or judge is shown it: prefixed ``Question: ``, without one trailing newline,
    ending in ``?``."""
    text = text if text.startswith("Question: ") else "Question: " + text
    text = text.removesuffix("\n")
    return text if text.endswith("?") else text + "?"


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replace each ``{name}`` in one pass. Values are literal and never scanned again; names without a value
    stay as they are."""
    return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), template)


def numbered(answers: Sequence[str]) -> str:
    """One line ``1. "…"`` per answer. JSON quoting keeps an answer on its line, so that none can pass itself
    off as several."""
    quoted = (
        _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(answer, ensure_ascii=False))
        for answer in answers
    )
    return "\n".join(f"{number}. {line}" for number, line in enumerate(quoted, start=1))


def answer_list(answers: Sequence[str]) -> str:
    """The metric's own list, one line ``x_1 = '…'`` per answer. Nothing is escaped: published scores depend
    on it."""
    return "\n".join(f"x_{number} = '{answer}'" for number, answer in enumerate(answers, start=1))


def without_credentials(text: str) -> str:
    """``text`` with ``***`` in place of the user and password of every URL in it."""
    return _CREDENTIALS.sub("***@", text)
