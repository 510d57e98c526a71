"""Which sampled answers say the same, as far as spelling can tell: exact match after a normalisation that
drops what carries no meaning."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_PAIRS = {
    ("(", ")"),
    ("[", "]"),
    ("{", "}"),
    ("“", "”"),
    ("‘", "’"),
    ("„", "“"),
    ("«", "»"),
    ("‹", "›"),
    ("「", "」"),
    ("『", "』"),
}
_PAIRS |= {(mark, mark) for mark in "\"'`*_”’»"}
_LEADING = "¿¡.,;:!?"
_TRAILING = ".,;:!?。、"
_ARTICLE = re.compile(r"\A(?:an?|the) (?=.)")
_NESTING = 4  # quotes within brackets within emphasis; deeper ones are not an answer's packaging


@dataclass(frozen=True)
class AnswerGroup:
    """Answers with the same normal form. ``text`` is the spelling that occurs most often, the first in order
    where several do."""

    text: str
    count: int
    members: tuple[str, ...]
    """The answers as they were given, sorted."""


def answer_groups(answers: Iterable[str]) -> list[AnswerGroup]:
    """Answers grouped by :func:`normal_form`, the largest group first. The order of the answers makes no
    difference."""
    drawn = list(answers)
    texts = [[drawn[index] for index in group] for group in group_indices(drawn)]
    return [AnswerGroup(group[0], len(group), tuple(sorted(group))) for group in texts]


def group_indices(answers: Sequence[str]) -> list[list[int]]:
    """The groups of :func:`answer_groups` as indices into ``answers``: in each an index of its ``text``
    first, then the others in order."""
    members = defaultdict(list)
    for index, answer in enumerate(answers):
        members[normal_form(answer)].append(index)
    return ordered_groups(answers, members.values())


def ordered_groups(answers: Sequence[str], groups: Iterable[Sequence[int]]) -> list[list[int]]:
    """Groups with the most common spelling of each in front, the largest group first; of equal ones the first
    in code point order."""
    led = []
    for group in groups:
        text = most_common(answers[index] for index in group)
        led.append((text, sorted(group, key=lambda index: (answers[index] != text, index))))
    return [group for _, group in sorted(led, key=lambda pair: (-len(pair[1]), pair[0]))]


def spread(groups: Iterable[Sequence[int]]) -> float | None:
    """The effective number of groups, 2 to the power of their entropy in bits: 1 where all answers agree.
    None without answers.

    It is the first-order diversity of Hill (1973), Ecology 54, 427-432.
    """
    sizes = [len(group) for group in groups]
    total = sum(sizes)
    return math.exp(-math.fsum(size / total * math.log(size / total) for size in sizes)) if total else None


def most_common(texts: Iterable[str]) -> str:
    """The text that occurs most often; of several, the first in code point order."""
    counts = Counter(texts)
    return min(counts, key=lambda text: (-counts[text], text))


def normal_form(text: str) -> str:
    """NFKC, case folded, white space collapsed, and without surrounding quotes, brackets, sentence marks and
    leading article.

    Quotes, brackets and emphasis go only in pairs and signs stay, so that ``-5``, ``.5``, ``$5``, ``5%``,
    ``[0, 1)`` and ``6'`` keep their meaning; so does a text that consists of nothing else, such as ``A`` or
    ``?``.
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
