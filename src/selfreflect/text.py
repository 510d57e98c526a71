"""Helpers for strings and token sequences that several stages share."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

PLACEHOLDER = re.compile(r"\{(\w+)\}")

# json.dumps leaves these alone, but some readers take them for line ends, and lone surrogates cannot be
# encoded for a tokenizer.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*@")


def normalise_question(text: str) -> str:
    """Format a question for a model or judge: ``Question: `` in front, one trailing newline removed, ``?`` at
    the end."""
    if not text.startswith("Question: "):
        text = "Question: " + text
    text = text.removesuffix("\n")
    if not text.endswith("?"):
        text += "?"
    return text


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replace each ``{name}`` that has a value, in one pass: braces in a value are literal."""
    return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), template)


def fenced(text: str) -> str:
    """Put a text between two lines of quotes, at least three, and more than follow each other in the text, so
    that it cannot close them itself."""
    longest = max(map(len, re.findall('"+', text)), default=0)
    fence = '"' * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def quoted(text: str) -> str:
    """Quote a text as JSON on one line, so that it cannot pass for part of a prompt."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))


def numbered(answers: Sequence[str]) -> str:
    """List answers, one line ``1. "…"`` each, so that none can pose as several."""
    return "\n".join(f"{number}. {quoted(answer)}" for number, answer in enumerate(answers, start=1))


def answer_list(answers: Sequence[str]) -> str:
    """List answers as the metric does, one line ``x_1 = '…'`` each; unescaped as in the published scorer."""
    return "\n".join(f"x_{number} = '{answer}'" for number, answer in enumerate(answers, start=1))


def counted(count: int, noun: str) -> str:
    """Count things in words, as ``1 summary`` or ``2 summaries``."""
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {plural}"


def name_list(text: str) -> list[str]:
    """The names of a list such as ``a,b``, without blank ones."""
    return list(filter(None, map(str.strip, text.split(","))))


def listed(names: Sequence[str]) -> str:
    """Join names as in ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def without_credentials(text: str) -> str:
    """Replace user and password in every URL of ``text`` by ``***``."""
    return _CREDENTIALS.sub("***@", text)


def common_prefix(a: Sequence[object], b: Sequence[object]) -> int:
    """Measure the longest common prefix of two strings or token sequences.

    For more than two, compare only the smallest and the greatest.
    """
    shorter = min(len(a), len(b))
    if a[:shorter] == b[:shorter]:  # one fast comparison; only where it fails is the place looked for
        return shorter
    for index in range(shorter):
        if a[index] != b[index]:
            return index
    return shorter
