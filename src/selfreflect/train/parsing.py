"""Read the answer and the confidence that a completion states.

What cannot be read is an error with its reason; nothing is clamped, averaged or guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from selfreflect.errors import excerpt
from selfreflect.uncertainty.asking.verdicts import parse_probability
from selfreflect.uncertainty.question import NoValue

_LABEL = re.compile(r"(?<![\w-])[*_]{0,2}(answer|self-reflection|confidence)[*_]{0,2}\s*:", re.IGNORECASE)
_TAG = re.compile(r"<(answer|analysis|confidence)\s*>(.*?)</\1\s*>", re.IGNORECASE | re.DOTALL)
_PLAIN = re.compile(r"\d+(?:\.\d+)?")
_CERTAIN = re.compile(r"1(\.0*)?")
_EMPHASIS = " \t\r\n*_"


@dataclass(frozen=True)
class StatedBelief:
    """What a model says, in parts. Parts that it leaves out are empty."""

    answer: str
    confidence: float | NoValue
    """In [0, 1], or why there is none."""
    reasoning: str = ""
    reflection: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether there are an answer and a confidence."""
        return bool(self.answer) and not isinstance(self.confidence, NoValue)


def parse_stated(text: str, out_of: int | None = None) -> StatedBelief:
    """Read ``Answer: Paris`` and ``Confidence: 85%`` from a completion, in either order.

    Each label must occur once; a section ends at the next label, and ``Self-reflection:`` is one, too. The
    confidence is read by :func:`~selfreflect.uncertainty.asking.verdicts.parse_probability`: ``85%``,
    ``0.85``, ``17/20``. Missing, several and ambiguous numbers and those outside [0, 1] are errors.

    Tags may stand in place of labels, as RLCR (arXiv 2507.16806) asks for: ``<answer>4</answer>
    <analysis>…</analysis> <confidence>0.8</confidence>``. In a tag a plain 1 is certainty.

    Args:
        out_of: the top of a scale for plain numbers: with 10, ``Confidence: 8`` is 0.8 and 11 is an error.
    """
    parts = [(tag[1], tag[2]) for tag in _TAG.finditer(text)]
    tagged = {name.lower() for name, _ in parts}
    untagged = _TAG.sub("\n", text)
    labels = list(_LABEL.finditer(untagged))
    ends = [label.start() for label in labels] + [len(untagged)]
    parts += [(label[1], untagged[label.end() : end]) for label, end in zip(labels, ends[1:], strict=True)]
    sections: dict[str, str] = {}
    for name, part in parts:
        if name.lower() in sections:
            several = f"several '{name.capitalize()}:' in one completion"
            return StatedBelief("", NoValue("unparsed", several))
        sections[name.lower()] = part.strip(_EMPHASIS)
    answer = sections.get("answer", "")
    if not answer:
        return StatedBelief("", NoValue("no_answer", f"no 'Answer:' in {excerpt(text, 80)}"))
    if "confidence" not in sections:
        return StatedBelief(answer, NoValue("no_confidence", f"no 'Confidence:' in {excerpt(text, 80)}"))
    if out_of is None and "confidence" in tagged and _CERTAIN.fullmatch(sections["confidence"]):
        return StatedBelief(answer, 1.0)
    return StatedBelief(answer, parse_confidence(sections["confidence"], out_of))


def parse_confidence(text: str, out_of: int | None = None) -> float | NoValue:
    """Read a confidence in [0, 1]; with ``out_of``, a plain number is on a scale from 0 to it."""
    plain = _PLAIN.fullmatch(text.strip().rstrip("."))
    if out_of is None or plain is None:
        return parse_probability(text)
    value = float(plain[0]) / out_of
    if value > 1:
        return NoValue("out_of_range", f"{excerpt(text, 80)} is not between 0 and {out_of}")
    return value
