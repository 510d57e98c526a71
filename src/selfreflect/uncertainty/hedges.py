"""Read words of probability, such as "highly likely", back to a number with a band.

The numbers are what people say that the words mean. Of 123 people who put a number on each of 17 phrases, the
median is the value, and the quartiles are the band: the middle half (Fagen-Ulmschneider, "Perception of
Probability Words", University of Illinois 2019). After "highly" or "very", "probable" means the same as
"likely" (Reagan, Mosteller and Youtz 1989, Journal of Applied Psychology 74, 433-442), so they share an
entry. "Possible" and its kin (maybe, perhaps, might) have no entry, because they mean different things to
different people (Mosteller and Youtz 1990, Statistical Science 5, 2-34).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from selfreflect.errors import excerpt
from selfreflect.uncertainty.question import NoValue


class Band(NamedTuple):
    """Probabilities that people give to a phrase."""

    low: float
    """First quartile."""
    middle: float
    """Median."""
    high: float
    """Third quartile."""


class Hedge(NamedTuple):
    """A phrase in a text, and what it means."""

    phrase: str
    band: Band


_MEANINGS: tuple[tuple[Band, tuple[str, ...]], ...] = (
    (Band(0.90, 0.95, 0.98), ("almost certain", "almost certainly", "nearly certain")),
    (
        Band(0.80, 0.90, 0.95),
        ("highly likely", "very likely", "highly probable", "very probable", "very probably"),
    ),
    (Band(0.75, 0.80, 0.90), ("very good chance",)),
    (Band(0.65, 0.75, 0.85), ("we believe", "i believe")),
    (Band(0.65, 0.70, 0.75), ("likely",)),
    (Band(0.60, 0.70, 0.75), ("probable", "probably")),
    (Band(0.55, 0.60, 0.60), ("better than even",)),
    (Band(0.50, 0.50, 0.50), ("about even", "roughly even")),
    (Band(0.15, 0.25, 0.30), ("probably not",)),
    (Band(0.10, 0.20, 0.30), ("unlikely", "we doubt", "i doubt")),
    (Band(0.05, 0.10, 0.225), ("improbable",)),
    (Band(0.10, 0.10, 0.20), ("chances are slight", "slight chance")),
    (Band(0.05, 0.10, 0.15), ("little chance",)),
    (Band(0.05, 0.05, 0.10), ("highly unlikely", "very unlikely", "highly improbable", "very improbable")),
    (Band(0.01, 0.02, 0.05), ("almost no chance",)),
)
PHRASES = {phrase: band for band, phrases in _MEANINGS for phrase in phrases}
"""By phrase, in lower case."""

# Words before a phrase that change its meaning to something that the study did not ask for.
_CHANGED = (
    "not|never|no|cannot|hardly|more|less|most|least|equally|as|so|too|how|somewhat|quite|rather|fairly|pretty|"
    "extremely"
)
_BEFORE = re.compile(rf"(?:(?<!\w)(?:{_CHANGED})|n['’]t|%)(?:\s+(?:a|an|at|all|be|that|very))*\s*$")
# A denied verb earlier in the same clause: "I don't think that it is likely".
_DENIED = re.compile(
    r"(?:n['’]t|\b(?:not|never|cannot|hardly))\s+(?:really\s+|actually\s+)?"
    r"(?:think|believe|expect|say|seem|feel|consider|suppose|assume|look|sound)\b[^.!?;,]*$"
)
_LONGEST_FIRST = sorted(PHRASES, key=lambda phrase: -len(phrase))
_PHRASE = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, _LONGEST_FIRST))})(?!\w)")


def read_hedge(text: str) -> Hedge | NoValue:
    """Read the one phrase of probability in a text.

    A phrase that is negated, compared or modified ("not likely", "more likely") is unknown, and so is every
    word that is not in the list. Several phrases with the same meaning are one.
    """
    plain = " ".join(text.lower().split())
    phrases = []
    for match in _PHRASE.finditer(plain):
        before = plain[: match.start()]
        if _BEFORE.search(before) or _DENIED.search(before):
            around = plain[max(0, match.start() - 20) : match.end()]
            return NoValue("unknown_hedge", f"no study says what this means: {excerpt(around)}")
        phrases.append(match[0])
    if not phrases:
        return NoValue("no_hedge", "no word of probability that is known")
    bands = {PHRASES[phrase] for phrase in phrases}
    if len(bands) > 1:
        return NoValue("several_hedges", f"several words of probability: {', '.join(dict.fromkeys(phrases))}")
    return Hedge(phrases[0], bands.pop())
