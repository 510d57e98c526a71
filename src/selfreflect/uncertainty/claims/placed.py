"""Where in a text its claims stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from selfreflect.uncertainty.claims.sentences import Sentence, sentences
from selfreflect.uncertainty.claims.support import Claim, ClaimDistribution, Stance, claim_distribution
from selfreflect.uncertainty.claims.words import WordReader, clauses, overlaps


class PlacedText(NamedTuple):
    """A text with the claims that each of its sentences makes or contradicts."""

    text: str
    sentences: tuple[Sentence, ...]
    says: tuple[tuple[int, ...], ...]
    """Of each sentence, the indices of the claims that it makes."""
    contradicts: tuple[tuple[int, ...], ...]

    @property
    def parts(self) -> list[tuple[Sentence, tuple[int, ...]]]:
        """The sentences, each with the claims that it makes."""
        return list(zip(self.sentences, self.says, strict=True))


def placed(distribution: ClaimDistribution, text: str, stances: Sequence[Stance | None]) -> PlacedText:
    """Find the sentence of a text that makes, or contradicts, each claim: it shares most words with it.

    Args:
        stances: what the text does with each claim of the distribution.
    """
    parts = tuple(sentences(text))
    claims = [claim.text for claim in distribution.claims]
    close = overlaps(distribution.question, claims, [part.text for part in parts])
    found: dict[Stance, list[list[int]]] = {"says": [], "contradicts": []}
    for rows in found.values():
        rows.extend([] for _ in parts)
    for index, stance in enumerate(stances):
        if stance in found and len(parts):
            found[stance][int(close[:, index].argmax())].append(index)
    says, contradicts = (tuple(map(tuple, found[stance])) for stance in ("says", "contradicts"))
    return PlacedText(text, parts, says, contradicts)


class ToldClaim(Struct, frozen=True, kw_only=True):
    """A claim of sampled answers, or of the text that stands for them.

    Attributes:
        start, end: characters (code points) of the sentence of the text that makes it; None without one.
        support: share of the answers that make it; 0 for one that only the text makes.
        contradicted: share of the answers that contradict it.
        told: whether the text makes it.
    """

    text: str
    start: int | None
    end: int | None
    support: float
    contradicted: float
    told: bool


def told_claims(question: str, answers: Sequence[str], text: str) -> list[ToldClaim]:
    """List the claims of answers, read by words, and those that only a text makes which stands for them."""
    reader = WordReader()
    found = claim_distribution(reader, id="", question=question, answers=answers, summaries={"": text})
    place = placed(found, text, found.coverages[""].stances)
    claims = []
    for index, claim in enumerate(found.claims):
        sentence = next((part for part, says in place.parts if index in says), None)
        claims.append(_told(claim, sentence))
    for sentence in place.sentences:
        for part in clauses(sentence.text):
            if part in found.coverages[""].added:
                stances = [row[0] for row in reader.stances(question, [part], answers)]
                claims.append(_told(Claim(part, tuple(stances)), sentence))
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
    )
