"""Support of claims: answers that say, contradict, or omit them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from selfreflect.errors import DataError, excerpt
from selfreflect.stats import wilson

if TYPE_CHECKING:
    from selfreflect.uncertainty.claims.words import WordReader

Stance = Literal["says", "contradicts", "silent"]
MOST_CLAIMS = 1_500
"""Maximum number of distinct claims of a question to compare, since comparing more takes long."""
LOW_SUPPORT = 0.5
"""Share below which a claim counts as weakly supported."""


class Support(NamedTuple):
    """Number of answers that state, contradict or omit a claim."""

    says: int
    contradicts: int
    silent: int

    @property
    def share(self) -> float | None:
        """Share of answers with a verdict that state the claim; None without a verdict."""
        total = sum(self)
        return self.says / total if total else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's 95 % interval of the share."""
        return None if self.share is None else wilson(self.share, sum(self))


@dataclass(frozen=True)
class Claim:
    """A claim of at least one answer."""

    text: str
    stances: tuple[Stance | None, ...]
    """Stance of each answer; None without a verdict."""
    mentioned: float | None = None
    """Mean degree in [0, 1] to which answers mention the claim: finer than counts for few answers, but blind
    to numbers and negations."""
    confidence: float | None = None
    """Calibrated share of right claims with such support; None without a calibrator."""
    is_kept: bool | None = None
    """Whether the claim is kept by the rule for a share of questions; None without such a rule."""

    @property
    def support(self) -> Support:
        counts = Counter(self.stances)
        return Support(counts["says"], counts["contradicts"], counts["silent"])


@dataclass(frozen=True)
class Coverage:
    """Claim-by-claim reading of a summary."""

    covered: float | None
    """Support-weighted share of the answers' claims that the summary states; None if no answer makes a
    claim."""
    precision: float | None
    """Share of the summary's claims that an answer states; None without claims."""
    added: tuple[str, ...]
    """Claims that no answer states."""
    says: tuple[bool, ...]
    """Whether the summary states each claim of the answers."""

    @property
    def stances(self) -> list[Stance | None]:
        """Stances of the summary on the answers' claims."""
        return ["says" if is_said else None for is_said in self.says]


@dataclass(frozen=True)
class ClaimDistribution:
    """The claims of a question's answers."""

    id: str
    question: str
    claims: tuple[Claim, ...]
    """Claims with the most support first."""
    answers: tuple[str, ...]
    coverages: Mapping[str, Coverage]
    """Coverages by summary name."""
    summaries: Mapping[str, str]
    reader: str = "words"
    """Reader that split and compared texts."""

    @property
    def mean_support(self) -> float | None:
        """Mean support of all claims; None without claims."""
        shares = self._shares
        return fmean(shares) if shares else None

    @property
    def least_support(self) -> float | None:
        """Share of answers that state the least supported claim."""
        return min(self._shares, default=None)

    @property
    def weak(self) -> float | None:
        """Share of claims with support below ``LOW_SUPPORT``."""
        shares = self._shares
        return fmean(share < LOW_SUPPORT for share in shares) if shares else None

    @property
    def is_calibrated(self) -> bool:
        """Whether any claim has a calibrated confidence."""
        return any(claim.confidence is not None for claim in self.claims)

    @property
    def expected_wrong(self) -> float | None:
        """Expected number of wrong claims; None without calibrated confidences."""
        confidences = [claim.confidence for claim in self.claims if claim.confidence is not None]
        return math.fsum(1 - confidence for confidence in confidences) if confidences else None

    @property
    def _shares(self) -> list[float]:
        return [share for claim in self.claims if (share := claim.support.share) is not None]

    def to_json(self) -> dict[str, Any]:
        """Describe the distribution as JSON."""
        return {
            "id": self.id,
            "question": self.question,
            "answers": self.answers,
            "reader": self.reader,
            "mean_support": self.mean_support,
            "least_support": self.least_support,
            "weak": self.weak,
            **({"expected_wrong": self.expected_wrong} if self.is_calibrated else {}),
            "claims": [
                {
                    "text": claim.text,
                    "support": claim.support.share,
                    "interval": claim.support.interval,
                    "mentioned": claim.mentioned,
                    **({"confidence": claim.confidence} if self.is_calibrated else {}),
                    **({} if claim.is_kept is None else {"kept": claim.is_kept}),
                    **claim.support._asdict(),
                    "stances": claim.stances,
                }
                for claim in self.claims
            ],
            "summaries": {name: asdict(coverage) for name, coverage in self.coverages.items()},
        }


def claim_distribution(
    reader: WordReader,
    *,
    id: str,
    question: str,
    answers: Sequence[str],
    summaries: Mapping[str, str] | None = None,
    rate: Callable[[Claim], Claim] | None = None,
) -> ClaimDistribution:
    """Find the answers' claims and their support, and read summaries claim by claim.

    A claim that is said by an answer in which it was found is never silent there.

    Args:
        rate: gives claims a calibrated confidence.

    Raises:
        DataError: there are more than ``MOST_CLAIMS`` different claims.
        BackendError: the model that is asked has stopped working.
    """
    named = dict(summaries or {})
    split = reader.split(question, answers)
    # equal claims of several answers are one; dict keeps the order in which they were found
    different = list(dict.fromkeys(text for parts in split for text in parts))
    if len(different) > MOST_CLAIMS:
        raise DataError(
            f"the answers to {excerpt(question)} make {len(different):,} different claims, and at most "
            f"{MOST_CLAIMS:,} are compared",
            code="too_many_claims",
            remedy="Use fewer answers with {num_answers}.",
        )
    texts = reader.distinct(question, different)
    # answers and summaries in one call: a reader that asks a model sends one batch
    columns = reader.stances(question, texts, [*answers, *named.values()])
    claims = _claims(reader, question, texts, answers, columns[: len(answers)], split)
    if rate is not None:
        claims = list(map(rate, claims))
    order = sorted(range(len(claims)), key=lambda index: -claims[index].support.says)
    ordered = [claims[index] for index in order]
    coverages = {}
    summary_parts = reader.split_summaries(question, list(named.values()))
    for name, parts, column in zip(named, summary_parts, columns[len(answers) :], strict=True):
        says = tuple(column[index] == "says" for index in order)
        coverages[name] = coverage_of(reader, question, parts, says, ordered, answers)
    return ClaimDistribution(
        id,
        question,
        tuple(ordered),
        answers=tuple(answers),
        coverages=coverages,
        summaries=named,
        reader=reader.name,
    )


def claims_in(reader: WordReader, question: str, texts: Sequence[str], answers: Sequence[str]) -> list[Claim]:
    """Find the stance of each answer on the given claims, and count their support.

    Raises:
        BackendError: the model that is asked has stopped working.
    """
    split = reader.split(question, answers)
    return _claims(reader, question, texts, answers, reader.stances(question, texts, answers), split)


def _claims(
    reader: WordReader,
    question: str,
    texts: Sequence[str],
    answers: Sequence[str],
    columns: Sequence[list[Stance | None]],
    split: Sequence[Sequence[str]],
) -> list[Claim]:
    """Build claims from the stances of the answers."""
    for column, said in zip(columns, map(set, split), strict=True):
        for index, text in enumerate(texts):
            # splitting and comparing are two requests of a model, which may contradict each other
            if text in said:
                column[index] = "says"
    mentions = reader.mentions(question, texts, answers)
    return [
        Claim(
            text,
            tuple(column[index] for column in columns),
            float(mentions[:, index].mean()) if len(mentions) else None,
        )
        for index, text in enumerate(texts)
    ]


def coverage_of(
    reader: WordReader,
    question: str,
    parts: Sequence[str],
    says: Sequence[bool],
    claims: Sequence[Claim],
    answers: Sequence[str],
) -> Coverage:
    """Read a summary claim by claim.

    Args:
        parts: the claims of the summary.
        says: for each of ``claims``, whether the summary says it.
        answers: where the claims of the summary are looked for.
    """
    weights = [claim.support.share or 0.0 for claim in claims]
    total = math.fsum(weights)
    covered = math.fsum(weight for weight, is_said in zip(weights, says, strict=True) if is_said)
    columns = reader.stances(question, parts, answers)
    # a claim that every answer contradicts or omits is the summary's own
    added = tuple(
        text for index, text in enumerate(parts) if all(column[index] != "says" for column in columns)
    )
    return Coverage(
        covered=covered / total if total else None,
        precision=1 - len(added) / len(parts) if parts else None,
        added=added,
        says=tuple(says),
    )
