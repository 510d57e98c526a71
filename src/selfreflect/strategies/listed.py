"""Read replies that list answers, one ``ANSWER | PERCENT%`` per line, and show them as one line."""

from __future__ import annotations

import re
from typing import NamedTuple

from selfreflect.errors import excerpt
from selfreflect.strategies.task import MalformedReplyError

_BULLET = re.compile(r"^(?:[-*•]|\d{1,2}[.)])\s+")
_PERCENT = re.compile(r"^(\d{1,3}(?:\.\d+)?)\s*%$")


class ListedAnswer(NamedTuple):
    """An answer, and the probability that the model gives it."""

    answer: str
    percent: float


def parse_listed(text: str, cut: bool = False) -> list[ListedAnswer]:
    """Read a list of answers with percentages, as the model gave them.

    Lines without a bar are talk around the list, and a line that was cut off is left out. Percentages are not
    made to sum to 100: what the model said is what is measured.

    Args:
        cut: whether the limit of tokens ended the text, which may be within its last line.

    Raises:
        MalformedReplyError: no line has the form, a line with a bar has another one, a percentage is above
            100, or an answer is listed twice.
    """
    lines = text.strip().splitlines()
    if cut:
        lines = lines[:-1]
    entries = [_listed_answer(line) for line in lines if "|" in line]
    if not entries:
        raise MalformedReplyError(f"the reply lists no 'answer | percentage': {excerpt(text, 120)}")
    answers = {one.answer.casefold() for one in entries}
    if len(answers) < len(entries):
        raise MalformedReplyError(f"the reply lists an answer twice: {excerpt(text, 120)}")
    return entries


def _listed_answer(line: str) -> ListedAnswer:
    text, _, percentage = _BULLET.sub("", line.strip()).rpartition("|")
    answer = text.strip().strip("|").strip().rstrip(".")
    number = _PERCENT.match(percentage.strip())
    if not answer or number is None:
        raise MalformedReplyError(f"a line is not of the form 'answer | percentage': {excerpt(line, 120)}")
    percent = float(number[1])
    if percent > 100:
        raise MalformedReplyError(f"a percentage is above 100: {excerpt(line, 120)}")
    return ListedAnswer(answer, percent)


def one_line_list(answers: list[ListedAnswer]) -> str:
    """Show answers in one line, the most probable first: ``in March (60%); in April (25%)``."""
    ranking = sorted(answers, key=lambda one: -one.percent)
    return "; ".join(f"{one.answer} ({one.percent:g}%)" for one in ranking)
