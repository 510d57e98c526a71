"""What a summary tells, as JSON for the page's scripts: shares, the bits of words, and controls. The head of
``question.js`` explains the fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from selfreflect.records import AnswerSet, Controls, Information, WordBits
from selfreflect.report.results import control_text, pasted_answers
from selfreflect.report.run_records import SummaryOutcome
from selfreflect.report.sentences import information_sentence
from selfreflect.report.words import MarkKind, mark

ZERO = 0x5D
"""In a chunk each number is one character: this code point plus the number. JSON escapes none of them."""

_MARKS: tuple[MarkKind, ...] = ("told", "missed", "misled")
_LEVELS = 10
"""Steps of a mark's strength."""
_MOST_TENTHS = 999
"""Tenths of bits that one character holds, above and below 0."""


def information_view(information: Information, answers: AnswerSet | None) -> dict[str, Any]:
    """Convert what a summary tells, with the sentence that says it."""
    conditioning = len(answers.conditioning) if answers else None
    return {
        "sentence": information_sentence(information, conditioning),
        "reader": information.reader,
        "recovered": information.recovered,
        "interval": information.interval,
        "bits": information.bits,
        "available": information.bits_available,
        "undefined": information.undefined,
    }


def bits_view(information: Information | None, masked: Sequence[Sequence[str]]) -> dict[str, Any] | None:
    """The marks and the bits of every word of every masked-out answer.

    None if they were not kept, belong to other answers, or mean nothing because the judge knows the answers.
    """
    if information is None or information.undefined == "known" or not information.answers:
        return None
    if len(information.answers) != len(masked):
        return None
    for words, texts in zip(information.answers, masked, strict=True):
        if words and len(words) != len(texts):
            return None
    return {
        "marks": [list(map(_mark_code, answer)) for answer in information.answers],
        "told": [[_tenths(word.told) for word in answer] for answer in information.answers],
        "available": [[_tenths(word.available) for word in answer] for answer in information.answers],
    }


def _mark_code(word: WordBits) -> int:
    """0 for a plain word; else 1 to 10 for told, 11 to 20 for missed, 21 to 30 for misled, by strength."""
    look = mark(word)
    if look.kind == "plain":
        return 0
    return _LEVELS * _MARKS.index(look.kind) + max(1, round(_LEVELS * look.strength))


def _tenths(bits: float) -> int:
    return round(min(max(10 * bits, -_MOST_TENTHS), _MOST_TENTHS))


def control_views(controls: Controls | None, outcomes: Sequence[SummaryOutcome]) -> list[dict[str, Any]]:
    """The controls of a question, each with the strategies that tell less than it.

    Shares are relative to the same bits as those of the summaries, and undefined where theirs are.
    """
    if controls is None:
        return []
    shares = {}
    for outcome in outcomes:
        if outcome.information is not None and outcome.information.recovered is not None:
            shares[outcome.strategy] = outcome.information.recovered
    views = []
    for control in controls.controls:
        share = None
        if shares and control.bits is not None and controls.bits_available:
            share = control.bits / controls.bits_available
        name = control_text(control, pasted_answers(controls))
        beaten = [strategy for strategy, own in shares.items() if share is not None and share > own]
        view = {"name": name, "words": control.words, "recovered": share, "score": control.score}
        views.append({**view, "pasted": control.answers, "beats": beaten})
    return views


def compact_bits(bits: dict[str, list[list[int]]] | None) -> dict[str, str] | None:
    """Encode each list of numbers as one string, with ``!`` between answers; ``report.js`` decodes it."""
    if bits is None:
        return None
    zeros = {"marks": ZERO, "told": ZERO + _MOST_TENTHS, "available": ZERO + _MOST_TENTHS}
    packed = {}
    for name, zero in zeros.items():
        answers = ["".join(chr(zero + number) for number in answer) for answer in bits[name]]
        packed[name] = "!".join(answers)
    return packed
