"""Which possibilities the answers of an item hold and how often, and the plain statement of it that the
studies edit."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from selfreflect.errors import DataError, excerpt
from selfreflect.grouping import group_indices, normal_form
from selfreflect.sources.items import Item

Grouping = Callable[[Sequence[str]], list[list[int]]]
"""Which answers say the same, as indices with the index of the group's text in front: by spelling
(``report.groups.group_indices``), or by meaning (``embedding.MeaningGroups``)."""

NAMED = 5
"""A statement names at most so many possibilities. What is left is "something else"."""

LIST = "[LIST]"
FRAME = f"I would say {LIST}."
"""How a statement reads. The list of possibilities takes the place of its marker."""

_WORDS, _LETTERS = 20, 160
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+")
_SENTENCE_WORDS = 4  # fewer may be an abbreviation, such as "Dr."


@dataclass(frozen=True)
class Possibility:
    """``weight`` is a number of answers, or of percentage points: only its share of the statement's total
    counts."""

    text: str
    weight: int


@dataclass(frozen=True)
class Statement:
    """Possibilities with their frequencies, the most frequent first until an edit says otherwise. At least
    one, and a total above 0."""

    named: tuple[Possibility, ...]
    rest: int = 0
    """The weight of everything that is not named."""

    @property
    def percentages(self) -> tuple[int, ...]:
        """Of the named possibilities, then of the rest; they sum to 100."""
        return apportioned([*(one.weight for one in self.named), self.rest], 100)

    def text(self, frame: str = FRAME) -> str:
        """``I would say “Paris” (60%), “Lyon” (30%) or something else (10%).`` The texts are quoted as they
        are.

        Args:
            frame: holds :data:`LIST` once.
        """
        *shares, rest = self.percentages
        parts = [f"“{one.text}” ({share}%)" for one, share in zip(self.named, shares, strict=True)]
        if rest:
            parts.append(f"something else ({rest}%)")
        return frame.replace(
            LIST, " or ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
        )


def apportioned(weights: Sequence[int], total: int) -> tuple[int, ...]:
    """``total`` shared out in whole parts, in proportion to ``weights``: by largest remainder, the first in
    order where they are equal."""
    whole = sum(weights)
    parts = [weight * total // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda index: -(weights[index] * total % whole))
    for index in by_remainder[: total - sum(parts)]:
        parts[index] += 1
    return tuple(parts)


def statements(items: Sequence[Item], grouping: Grouping = group_indices) -> dict[str, Statement | None]:
    """Item id -> what its answers say, see :func:`stated`.

    Raises:
        DataError: there are no items, or two have one id.
    """
    if not items:
        raise DataError("there are no items to study")
    found: dict[str, Statement | None] = {}
    for item in items:
        if item.id in found:
            raise DataError(f"two items have the id {excerpt(item.id)}; give each its own")
        found[item.id] = stated(item, grouping)
    return found


def stated(item: Item, grouping: Grouping = group_indices) -> Statement | None:
    """What all answers of an item say, and how often. None where no possibility has 1% of them, or all are
    blank.

    Both halves are counted. The distribution is what a summary has to describe, and all answers are the best
    that is known of it; a statement of one half would be made to measure for the metrics that read that half.
    Blank answers say nothing and are left out, as the metric leaves them out. Long answers are cut, and those
    that are then spelt alike are counted together.
    """
    answers = [answer for answer in item.masked_out + item.conditioning if answer.strip()]
    counts: dict[str, int] = {}
    texts: dict[str, str] = {}
    for group in grouping(answers) if answers else []:
        text = short(answers[group[0]])
        form = normal_form(text)
        texts.setdefault(form, text)
        counts[form] = counts.get(form, 0) + len(group)
    ranked = sorted(counts, key=lambda form: (-counts[form], texts[form]))
    named = tuple(
        Possibility(texts[form], counts[form])
        for form in ranked[:NAMED]
        if counts[form] * 100 >= len(answers)
    )
    return Statement(named, len(answers) - sum(one.weight for one in named)) if named else None


def short(text: str) -> str:
    """An answer on one line: all of it where it has at most 20 words, else the sentences that fit, else its
    beginning and ``…``."""
    words = text.split()
    line = " ".join(words)
    if _fits(line):
        return line
    kept = ""
    for sentence in _SENTENCE_END.split(line):
        longer = f"{kept} {sentence}".lstrip()
        if not _fits(longer):
            break
        kept = longer
    return (
        kept if len(kept.split()) >= _SENTENCE_WORDS else " ".join(words[:_WORDS])[:_LETTERS].rstrip() + "…"
    )


def _fits(line: str) -> bool:
    return len(line.split()) <= _WORDS and len(line) <= _LETTERS
