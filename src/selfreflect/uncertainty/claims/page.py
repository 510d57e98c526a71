"""Claims for a page: parts of texts, with their claims and supporting answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from selfreflect.errors import DataError
from selfreflect.report.page.frame import packed, render_page
from selfreflect.uncertainty.claims.placed import placed
from selfreflect.uncertainty.claims.support import ClaimDistribution, Stance, claim_distribution
from selfreflect.uncertainty.claims.words import WordReader

LONG = 20
"""Words of the median answer from which on a question of a report shows claims."""


def claims_view(distribution: ClaimDistribution) -> dict[str, Any]:
    """Convert claims to the JSON that ``claims.js`` draws, whose head explains the fields."""
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
    """List the parts of a text in order: of each the text, and the claims that it makes and contradicts."""
    parts: list[tuple[str, Sequence[int], Sequence[int]]] = []
    position = 0
    for sentence, says, contradicts in placed(distribution, text, stances):
        parts.append((text[position : sentence.start], (), ()))
        parts.append((sentence.text, says, contradicts))
        position = sentence.end
    parts.append((text[position:], (), ()))
    return {"name": name, "parts": [part for part in parts if part[0]]}


def claims_of(question: str, answers: Sequence[str], summaries: Mapping[str, str]) -> dict[str, Any] | None:
    """Read the claims of a question by words, for a report.

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
    """Render a page of its own: one HTML file that needs no network and no other file."""
    views = [{"question": item.question, **claims_view(item)} for item in distributions]
    return render_page(
        "claims.html",
        ("dom.js", "csv.js", "frame.js", "claims.js", "claims_page.js"),
        title=title,
        blocks={"index": packed({"questions": views})},
    )
