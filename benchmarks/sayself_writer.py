"""A writer of self-reflections by rule, for `selfreflect sayself --writer sayself_writer:write`.

A small model seldom keeps to what it is asked. This names what the two largest clusters say that the question
does not.
"""

from __future__ import annotations

import re
from typing import Any

CLUSTER = re.compile(r'^\d+\. "(.*)" \(share', re.MULTILINE)
WORD = re.compile(r"[^\W\d_]+")
BEGINNINGS = frozenset("a an and der die in it on the there this".split())


def write(messages: list[dict[str, str]], *, n: int = 1, **options: Any) -> list[str]:
    """Write one reflection of what the clusters in the prompt disagree about."""
    text = messages[-1]["content"]
    question = text.partition("wavered between")[0]
    said = {word.lower() for word in WORD.findall(question)}
    names: list[str] = []
    for answer in CLUSTER.findall(text):
        name = new_name(answer, said)
        if name and name not in names:
            names.append(name)
    names += ["this"] if not names else []
    names += ["something else"] if len(names) < 2 else []
    return [f"I do not know whether it is {names[0]} or {names[1]}."] * n


def new_name(answer: str, said: set[str]) -> str:
    """The first name in an answer that the question does not have; else its longest new word."""
    words = [word for word in WORD.findall(answer) if word.lower() not in said | BEGINNINGS]
    names = [word for word in words if word[0].isupper()]
    return names[0] if names else max(words, key=len, default="")
