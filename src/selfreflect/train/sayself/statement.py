"""Statements of a trained model: answer, doubts and a confidence from 0 to 10, on one line.

The published format: ``The hotel is by the lake. Answer: Nam Van Lake. Self-reflection: I am not sure
which lake it is. Confidence: 7``.
"""

from __future__ import annotations

import re

from selfreflect.errors import excerpt
from selfreflect.models.base import Message
from selfreflect.records import StatedParts
from selfreflect.strategies.task import MalformedReplyError, StatedSummary, Strategy, Task
from selfreflect.text import fenced, normalise_question
from selfreflect.train.rewards.stated import StatedBelief
from selfreflect.uncertainty.asking.asker import parse_probability
from selfreflect.uncertainty.question import NoValue

ANSWER = "Answer:"
REFLECTION = "Self-reflection:"
CONFIDENCE = "Confidence:"

# What a model says whose samples all agree; the published data say the same
SURE = "I'm totally confident in my response."

_MARKERS = tuple(
    re.compile(rf"(?:^|(?<=\s))[*_]*{marker[:-1]}[*_]*\s*:[*_]*", re.IGNORECASE)
    for marker in (ANSWER, REFLECTION, CONFIDENCE)
)
# no part of a word, of a range or of another number
_NUMBER = re.compile(r"(?<![\w.,-])-?\d+(?:\.\d+)?(?![\w]|[.,]\d)")
_MARKED = re.compile(r"%|/|\bper\s?cent\b|\bout of\b", re.IGNORECASE)


def asked(question: str, context: str = "") -> str:
    """Write a trained model's prompt: the question, after any context."""
    plain = normalise_question(question)
    return f"{fenced(context)}\n\n{plain}" if context else plain


def write_statement(reasoning: str, answer: str, reflection: str, confidence: int | None) -> str:
    """Write a statement in its published form, leaving out missing parts and their markers.

    Args:
        confidence: 0 to 10.
    """
    parts = [reasoning.strip(), f"{ANSWER} {answer.strip().removesuffix('.')}."]
    if reflection:
        parts.append(f"{REFLECTION} {reflection}")
    if confidence is not None:
        parts.append(f"{CONFIDENCE} {confidence}")
    return " ".join(" ".join(part.split()) for part in parts if part)


def parse_statement(text: str) -> StatedBelief:
    """Parse the parts of a statement.

    The first ``Answer:`` ends the reasoning; the first ``Self-reflection:`` and ``Confidence:`` after it end
    the part before. Without ``Answer:`` all text before the other markers is the answer.
    """
    answer, reflection, confidence = _places(text)
    answer_end = next((match.start() for match in (reflection, confidence) if match), len(text))
    reflection_end = confidence.start() if confidence else len(text)
    value: float | NoValue = NoValue("no_number", f"no {CONFIDENCE!r} in {excerpt(text, 80)}")
    if confidence is not None:
        value = parse_confidence(text[confidence.end() :])
    return StatedBelief(
        answer=_plain(text[answer.end() if answer else 0 : answer_end]).removesuffix("."),
        confidence=value,
        reasoning=_plain(text[: answer.start()]) if answer else "",
        reflection=_plain(text[reflection.end() : reflection_end]) if reflection else "",
    )


def begin_statement(text: str) -> str:
    """Cut a statement after the confidence marker; empty if there is no marker."""
    *_, confidence = _places(text)
    return text[: confidence.end()] if confidence else ""


def has_marker(text: str) -> bool:
    """Check whether a part of a statement contains another part's marker."""
    return any(marker.search(text) for marker in _MARKERS)


def _places(text: str) -> list[re.Match[str] | None]:
    """Locate the markers of answer, reflection and confidence, in this order."""
    marks: list[re.Match[str] | None] = []
    start = 0
    for marker in _MARKERS:
        match = marker.search(text, start)
        marks.append(match)
        start = match.end() if match else start
    return marks


def _plain(text: str) -> str:
    return " ".join(text.split()).strip("*_ ")


def parse_confidence(text: str) -> float | NoValue:
    """Parse the confidence on the first line of a text, as a number in [0, 1].

    A plain number counts tenths: ``7`` is 0.7. ``8/10``, ``8 out of 10`` and ``85%`` mean what they say.
    Refused with a reason: no number, several different ones, a plain one outside 0 to 10, and one between 0
    and 1, which may be tenths or a probability. Nothing is clamped.
    """
    line = text.strip().partition("\n")[0]
    if _MARKED.search(line):
        return parse_probability(line)
    # a number that is said twice is one
    numbers = sorted(set(map(float, _NUMBER.findall(line))))
    if not numbers:
        return NoValue("no_number", f"no number in {excerpt(line, 80)}")
    if len(numbers) > 1:
        return NoValue("several_numbers", f"{len(numbers)} different numbers in {excerpt(line, 80)}")
    if not 0 <= numbers[0] <= 10:
        return NoValue("out_of_range", f"{numbers[0]:g} is not from 0 to 10")
    if 0 < numbers[0] < 1:
        return NoValue("ambiguous_number", f"{numbers[0]:g} may be tenths or a probability")
    return numbers[0] / 10


def sayself(task: Task) -> Strategy:
    """Ask the question alone, as in training, and parse the statement."""
    message = Message(role="user", content=asked(task.question.text, task.question.context))
    [reply] = yield task.request((message,), "summary")
    statement = parse_statement(reply.text)
    if isinstance(statement.confidence, NoValue):
        raise MalformedReplyError(f"it states no confidence: {statement.confidence.message}")
    if not statement.answer:
        raise MalformedReplyError("it states a confidence and no answer")
    parts = StatedParts(
        answer=statement.answer, reflection=statement.reflection, confidence=statement.confidence
    )
    return StatedSummary(reply.text, parts)
