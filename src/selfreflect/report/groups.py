"""Which sampled answers say the same, as far as spelling can tell: exact match after a normalisation that drops what carries no meaning."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

_PAIRS = {("(", ")"), ("[", "]"), ("{", "}"), ("“", "”"), ("‘", "’"), ("„", "“"), ("«", "»"), ("‹", "›"), ("「", "」"), ("『", "』")}
_PAIRS |= {(mark, mark) for mark in "\"'`*_”’»"}
_LEADING = "¿¡.,;:!?"
_TRAILING = ".,;:!?。、"
_ARTICLE = re.compile(r"\A(?:an?|the) (?=.)")
_NESTING = 4  # quotes within brackets within emphasis; deeper ones are not an answer's packaging


@dataclass(frozen=True)
class AnswerGroup:
    """Answers with the same normal form. ``text`` is the spelling that occurs most often, the first in order where several do."""

    text: str
    count: int
    members: tuple[str, ...]
    """The answers as they were given, sorted."""


def answer_groups(answers: Iterable[str]) -> list[AnswerGroup]:
    """Answers grouped by :func:`normal_form`, the largest group first. The order of the answers makes no difference."""
    members = defaultdict(list)
    for answer in answers:
        members[normal_form(answer)].append(answer)
    groups = [AnswerGroup(most_common(texts), len(texts), tuple(sorted(texts))) for texts in members.values()]
    return sorted(groups, key=lambda group: (-group.count, group.text))


def most_common(texts: Iterable[str]) -> str:
    """The text that occurs most often; of several, the first in code point order."""
    counts = Counter(texts)
    return min(counts, key=lambda text: (-counts[text], text))


def normal_form(text: str) -> str:
    """NFKC, case folded, white space collapsed, and without surrounding quotes, brackets, sentence marks and leading article.

    Quotes, brackets and emphasis go only in pairs and signs stay, so that ``-5``, ``.5``, ``$5``, ``5%``, ``[0, 1)`` and ``6'`` keep
    their meaning; so does a text that consists of nothing else, such as ``A`` or ``?``.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    result = " ".join(folded.split())
    for _ in range(_NESTING):
        result = _unwrap(result)
    return result


def _unwrap(text: str) -> str:
    """One layer less: sentence marks, then one pair around the rest, then an article."""
    trimmed = text.rstrip(_TRAILING)
    inner = trimmed.lstrip(_LEADING)
    dropped = trimmed[: len(trimmed) - len(inner)]
    if inner[:1].isdigit() and dropped.endswith(".") and not dropped.endswith(".."):
        inner = "." + inner
    if len(inner) > 2 and (inner[0], inner[-1]) in _PAIRS:
        inner = inner[1:-1].strip()
    return _ARTICLE.sub("", inner) or text
