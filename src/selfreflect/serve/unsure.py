"""Say something else than the summary if the confidence is too low: nothing, a warning, or a question."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from selfreflect.errors import ConfigError, unknown_name
from selfreflect.serve.belief import Confidence
from selfreflect.serve.clarify import CANDIDATES, HYPOTHESES, Clarification, NoClarification, texts
from selfreflect.text import counted, fill
from selfreflect.uncertainty.hedges import PHRASES, Hedge, read_hedge

UnsureAction = Literal["abstain", "hedge", "ask"]
"""``abstain``: say that the answer is not known well enough. ``hedge``: say how sure it is, then the summary.
``ask``: ask the question that separates the classes best."""

AGREEMENTS = ("modal_share", "split_half")
"""Kinds of confidence that are shares of samples: how often an answer comes back, not how often it is
right."""

_WORDS = {
    "almost certain": "It is almost certain",
    "very likely": "It is very likely",
    "very good chance": "There is a very good chance",
    "likely": "It is likely",
    "probable": "It is probable",
    "better than even": "The chances are better than even",
    "about even": "The chances are about even",
    "unlikely": "It is unlikely",
    "very unlikely": "It is very unlikely",
    "almost no chance": "There is almost no chance",
}
"""Beginnings of a sentence with a phrase of ``hedges.PHRASES``."""


_SHARE = re.compile(
    r"\d ?%|\b(?:per ?cent|prozent|half|hälfte|third|thirds|drittel|quarters?|viertel|majority|mehrheit)\b"
    r"|\bmost of (?:my|the|all|these)\b|\b\w+ (?:out of|of|von) (?:my |the |all )?\d+\b",
    re.IGNORECASE,
)


class Wording(NamedTuple):
    """What is said in the end."""

    text: str
    action: UnsureAction | None
    """None: the summary, as it is."""
    note: str = ""
    """Why another action was taken than the one that is set."""


@dataclass(frozen=True)
class UnsurePolicy:
    """What is done below which confidence.

    Raises:
        ConfigError: there is no such action, or ``below`` is not in (0, 1].
    """

    action: UnsureAction
    below: float
    candidates: int = CANDIDATES
    """Questions that ``ask`` chooses from."""
    hypotheses: int = HYPOTHESES
    """Classes, the largest, that the question is to tell apart."""

    def __post_init__(self) -> None:
        actions = list(get_args(UnsureAction))
        if self.action not in actions:
            raise unknown_name("action", self.action, actions)
        if not 0 < self.below <= 1:
            raise ConfigError(
                f"the confidence below which to {self.action} must lie in (0, 1], not {self.below}"
            )

    def is_unsure(self, confidence: Confidence) -> bool:
        """Compare a confidence with the threshold. One that is not known is no reason to act."""
        return confidence.value is not None and confidence.value < self.below

    def word(
        self,
        confidence: Confidence,
        summary: str,
        clarification: Clarification | NoClarification | None,
    ) -> Wording:
        """Put a summary into words that fit its confidence.

        Args:
            clarification: for ``ask``, where the lack of a question makes a hedge with a note; None for other
                actions.
        """
        if confidence.value is None:
            return Wording(summary, None, f"whether to {self.action} is not known without a confidence")
        if not self.is_unsure(confidence):
            return Wording(summary, None)
        if self.action == "abstain":
            return Wording(_said("abstain", certainty=certainty(confidence)), "abstain")
        if isinstance(clarification, Clarification) and self.action == "ask":
            options = "\n".join(f"- {option}" for option in clarification.options)
            return Wording(_said("ask", asked=clarification.question, options=options), "ask")
        note = ""
        if isinstance(clarification, NoClarification):
            note = f"there is no question to ask back: {clarification.message}"
        if (
            confidence.kind in AGREEMENTS
            and confidence.calibrator_id is None
            and tells_other_share(summary, confidence.value)
        ):
            own = "the summary tells shares of its own, so the text does not repeat the confidence"
            note = "; ".join(filter(None, (note, own)))
            return Wording(_said("bare_hedge", summary=summary), "hedge", note)
        return Wording(_said("hedge", certainty=certainty(confidence), summary=summary), "hedge", note)


def tells_other_share(summary: str, value: float) -> bool:
    """Whether a text tells shares itself: "30 %", "half of", "3 out of 10", or a phrase that does not fit."""
    hedge = read_hedge(summary)
    is_other = isinstance(hedge, Hedge) and not hedge.band.low <= value <= hedge.band.high
    return is_other or bool(_SHARE.search(summary))


def certainty(confidence: Confidence) -> str:
    """Say in a sentence how sure a model is, and of what, where that is known.

    A calibrated confidence speaks of being right, a share of samples of saying the same again. The sentence
    has a word of probability only if the number is in the band that people give to it.
    """
    value = confidence.value
    assert value is not None  # the caller has looked
    name = "stated"
    if confidence.calibrator_id is not None:
        name = "calibrated"
    elif confidence.kind in AGREEMENTS:
        name = "again"
    words = _words_for(value)
    values = {"percent": _percent(value), "samples": counted(confidence.num_answers, "sample")}
    template = texts()["certainty"][name if words else f"{name}_number"]
    return fill(template, {**values, "words": words or ""})


def _words_for(value: float) -> str | None:
    """The beginning of a sentence whose band holds a probability, and whose median is nearest to it."""
    fitting = [phrase for phrase in _WORDS if PHRASES[phrase].low <= value <= PHRASES[phrase].high]
    if not fitting:
        return None
    return _WORDS[min(fitting, key=lambda phrase: abs(PHRASES[phrase].middle - value))]


def _percent(value: float) -> str:
    if 0 < value < 0.005:
        return "under 1%"
    if 0.995 <= value < 1:
        return "over 99%"
    return f"{value:.0%}"


def _said(name: str, **values: str) -> str:
    return fill(texts()["unsure"][name].strip(), values)
