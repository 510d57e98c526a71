"""Location of claims in a text, and a page of claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from msgspec import Struct

from selfreflect.errors import DataError
from selfreflect.report.page.frame import packed, render_page
from selfreflect.uncertainty.claims.sentences import Sentence, sentences
from selfreflect.uncertainty.claims.support import (
    Claim,
    ClaimDistribution,
    Stance,
    claim_distribution,
    claims_in,
)
from selfreflect.uncertainty.claims.words import WordReader, clauses, overlaps


class PlacedSentence(NamedTuple):
    """A sentence with the indices of claims that it makes and contradicts."""

    sentence: Sentence
    says: list[int]
    contradicts: list[int]


def placed(
    distribution: ClaimDistribution, text: str, stances: Sequence[Stance | None]
) -> list[PlacedSentence]:
    """Find the sentence that makes or contradicts each claim, by shared words.

    Args:
        stances: what the text does with each claim of the distribution.
    """
    places = [PlacedSentence(part, [], []) for part in sentences(text)]
    claims = [claim.text for claim in distribution.claims]
    close = overlaps(distribution.question, claims, [place.sentence.text for place in places])
    for index, stance in enumerate(stances):
        # a text may make a claim in no single sentence; the closest one stands for it
        if places and stance in ("says", "contradicts"):
            closest = places[int(close[:, index].argmax())]
            (closest.says if stance == "says" else closest.contradicts).append(index)
    return places


class ToldClaim(Struct, frozen=True, kw_only=True):
    """A claim of sampled answers or of a summary.

    Attributes:
        start, end: characters (code points) of the sentence of the text that makes it; None without one.
        support: share of the answers that make it; 0 for one that only the text makes.
        contradicted: share of the answers that contradict it.
        told: whether the text makes it.
        confidence: calibrated, that it is right; None without a calibrator.
        kept: whether it is among those that are all right for a share of questions; None without such a rule.
    """

    text: str
    start: int | None
    end: int | None
    support: float
    contradicted: float
    told: bool
    confidence: float | None = None
    kept: bool | None = None


def told_claims(
    question: str,
    answers: Sequence[str],
    text: str,
    rate: Callable[[Claim], Claim] | None = None,
) -> list[ToldClaim]:
    """List the claims of answers, and claims that only a summary makes, as read by shared words.

    Args:
        rate: gives claims a calibrated confidence.

    Raises:
        DataError: there are more than :data:`~.support.MOST_CLAIMS` different claims.
    """
    reader = WordReader()
    found = claim_distribution(
        reader, id="", question=question, answers=answers, summaries={"": text}, rate=rate
    )
    places = placed(found, text, found.coverages[""].stances)
    claims = []
    for index, claim in enumerate(found.claims):
        sentence = next((place.sentence for place in places if index in place.says), None)
        claims.append(_told(claim, sentence))
    added = {*found.coverages[""].added}
    # a claim that only the text makes is a clause of one of its sentences
    pairs = [(place, part) for place in places for part in clauses(place.sentence.text) if part in added]
    for (place, _), claim in zip(
        pairs, claims_in(reader, question, [part for _, part in pairs], answers), strict=True
    ):
        claims.append(_told(claim if rate is None else rate(claim), place.sentence))
    return claims


def _told(claim: Claim, sentence: Sentence | None) -> ToldClaim:
    support = claim.support
    return ToldClaim(
        text=claim.text,
        start=None if sentence is None else sentence.start,
        end=None if sentence is None else sentence.end,
        support=support.share or 0.0,
        contradicted=support.contradicts / max(1, sum(support)),
        told=sentence is not None,
        confidence=claim.confidence,
        kept=claim.is_kept,
    )


LONG = 20
"""Minimum number of words of the median answer for showing claims in a report."""


def claims_view(distribution: ClaimDistribution) -> dict[str, Any]:
    """Convert claims to the JSON that ``claims.js`` draws."""
    texts = []
    for index, answer in enumerate(distribution.answers):
        stances = [claim.stances[index] for claim in distribution.claims]
        texts.append(_text_view(distribution, f"answer {index + 1}", answer, stances))
    summaries = []
    for name, coverage in distribution.coverages.items():
        view = _text_view(distribution, name, distribution.summaries[name], coverage.stances)
        facts = {"covered": coverage.covered, "precision": coverage.precision, "added": coverage.added}
        summaries.append({**view, **facts})
    claims = []
    for claim in distribution.claims:
        support = claim.support
        fields = {**support._asdict(), "share": support.share, "interval": support.interval}
        rated = {"confidence": claim.confidence, "kept": claim.is_kept}
        claims.append({"text": claim.text, **fields, **rated, "stances": claim.stances})
    return {"claims": claims, "answers": texts, "summaries": summaries, "reader": distribution.reader}


def _text_view(
    distribution: ClaimDistribution, name: str, text: str, stances: Sequence[Stance | None]
) -> dict[str, Any]:
    """List a text's parts in order, with the claims that each makes and contradicts."""
    parts: list[tuple[str, Sequence[int], Sequence[int]]] = []
    position = 0
    for sentence, says, contradicts in placed(distribution, text, stances):
        parts.append((text[position : sentence.start], (), ()))
        parts.append((sentence.text, says, contradicts))
        position = sentence.end
    parts.append((text[position:], (), ()))
    return {"name": name, "parts": [part for part in parts if part[0]]}


def claims_of(question: str, answers: Sequence[str], summaries: Mapping[str, str]) -> dict[str, Any] | None:
    """Read a question's claims by words, for a report.

    None unless most answers are long; ``refused`` alone says why none are shown, as for too many claims.
    """
    if not answers or median(len(answer.split()) for answer in answers) < LONG:
        return None
    reader = WordReader()
    try:
        distribution = claim_distribution(
            reader, id="", question=question, answers=answers, summaries=summaries
        )
    except DataError as error:
        return {"refused": error.message}
    return claims_view(distribution)


def claims_page(title: str, distributions: Sequence[ClaimDistribution]) -> str:
    """Render a separate page: one HTML file without network or other files."""
    views = [{"question": item.question, **claims_view(item)} for item in distributions]
    return render_page(
        "claims.html",
        ("dom.js", "csv.js", "frame.js", "claims.js", "claims_page.js"),
        title=title,
        blocks={"index": packed({"questions": views})},
    )
