"""The fair control for length: what raw answers tell, pasted as a summary, against their number of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PasteCurve:
    """From nothing to all conditioning answers pasted, straight lines in between; each of shape (K,).

    ``answers`` and ``words`` ascend from 0.
    """

    answers: Sequence[float]
    words: Sequence[float]
    bits: Sequence[float]

    def at(self, words: float) -> float:
        """The bits in as many words; those of all answers if they have fewer."""
        return float(np.interp(words, self.words, self.bits))

    def equal(self, bits: float) -> tuple[float, float] | None:
        """The fewest answers that tell as much, and their words. None if no answer is needed, or if not even
        all of them tell as much."""
        if bits <= 0 or bits > max(self.bits):
            return None
        end = next(index for index, told in enumerate(self.bits) if told >= bits)
        ends = slice(end - 1, end + 1)
        answers = np.interp(bits, self.bits[ends], self.answers[ends])
        words = np.interp(bits, self.bits[ends], self.words[ends])
        return float(answers), float(words)

    def sentence(self, subject: str, words: float, bits: float) -> str:
        """Say how many pasted answers tell as much as a summary, or a mean of summaries.

        Args:
            subject: the summary's name at the start of the sentence.
        """
        if bits <= 0:
            return f"{subject} tells nothing, in {words:.0f} words."
        equal = self.equal(bits)
        if equal is None:
            most = f"all answers pasted ({self.words[-1]:.0f} words)"
            return f"{subject} tells more in {words:.0f} words than {most}."
        answers, equal_words = equal
        return (
            f"{subject} tells as much in {words:.0f} words as pasting {answers:.1f} answers "
            f"({equal_words:.0f} words)."
        )


def mean_curve(curves: Sequence[PasteCurve]) -> PasteCurve:
    """Means over the curves with the most points. Those of questions with fewer answers are left out: they
    lack points in between."""
    most = max(len(curve.answers) for curve in curves)
    longest = [curve for curve in curves if len(curve.answers) == most]
    table = np.mean([(curve.answers, curve.words, curve.bits) for curve in longest], axis=0)
    return PasteCurve(*table.tolist())
