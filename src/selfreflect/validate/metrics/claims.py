"""Claims that an LLM finds in the summary and in the answers, and whether it finds each of them supported by
the other side.

Like precision and recall, they count claims and not how often one was made: a summary may give any odds it
likes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import harmonic_mean

from selfreflect.models.base import Generator
from selfreflect.sources.items import Item
from selfreflect.text import numbered
from selfreflect.validate.base import MetricInfo, Undefined, Value
from selfreflect.validate.metrics.asking import ask, asked_by, prompts, quoted, shown, unparsed
from selfreflect.validate.metrics.naming import chosen
from selfreflect.validate.metrics.texts import scorable, values


def _metric(name: str, about: str) -> MetricInfo:
    return MetricInfo(name=name, better="higher", group="competitor", about=about, needs=("generator",))


METRICS = (
    _metric(
        "claims_precision",
        "Share of the summary's claims that the answers support; a language model lists and checks them.",
    ),
    _metric(
        "claims_recall",
        "Share of the answers' claims that the summary supports; a language model lists and checks them.",
    ),
    _metric("claims_f1", "Harmonic mean of claims_precision and claims_recall."),
)

TOKENS = 512
"""For a list of claims, or of verdicts on them."""

Claims = tuple[str, ...]

_CLAIM = re.compile(r"(?:[-*•]|[0-9]+[.)])\s+(\S.*)")
_VERDICT = re.compile(r"([0-9]{1,9})[.):]*\s*\**(yes|no)\.?", re.IGNORECASE)


def parse_claims(reply: str) -> Claims | Undefined:
    """The items of a list with bullets or numbers, each once. Lines around the list are passed over; ``none``
    is an empty list."""
    if reply.strip().strip(".-*").strip().lower() == "none":
        return Undefined(reason="no_claims", message="the model found no claim")
    found = [match[1] for line in reply.splitlines() if (match := _CLAIM.fullmatch(line.strip()))]
    return tuple(dict.fromkeys(found)) or unparsed(reply, "a list of claims")


def parse_verdicts(reply: str, count: int) -> float | Undefined:
    """The share of "yes" among numbered lines ``1. yes``, if there is exactly one for each of ``count``
    claims."""
    found = [
        (int(match[1]), match[2].lower())
        for line in reply.splitlines()
        if (match := _VERDICT.fullmatch(line.strip().strip("*")))
    ]
    if sorted(number for number, _ in found) != list(range(1, count + 1)):
        return unparsed(reply, f"yes or no on each of {count} claims")
    return [verdict for _, verdict in found].count("yes") / count


def f1(precision: float | Undefined, recall: float | Undefined) -> float | Undefined:
    """The harmonic mean; 0 where either is 0, undefined where either is."""
    if isinstance(precision, Undefined):
        return precision
    return recall if isinstance(recall, Undefined) else float(harmonic_mean([precision, recall]))


class ClaimCheck:
    """Claims found and checked by a generator: for an item with S summaries 1 + 3 S requests, in three
    batches."""

    def __init__(self, generator: Generator, names: Sequence[str] | None = None) -> None:
        self.metrics = chosen(METRICS, names)
        self._generator = generator
        self._prompts = prompts()["claims"]
        self.by = asked_by(generator, self._prompts)

    def score(self, item: Item) -> list[Value]:
        """One value in [0, 1] for each summary and metric."""
        summaries = scorable(item)
        if not summaries:
            return values(self, item, {})
        texts = [quoted(text) for text in summaries.values()]
        of_answers, *of_summaries = self._claims(item, texts)
        precisions = self._supported(item, "check_by_answers", of_summaries, texts)
        recalls = self._supported(item, "check_by_summary", [of_answers] * len(texts), texts)
        return values(
            self,
            item,
            {
                name: {
                    "claims_precision": precision,
                    "claims_recall": recall,
                    "claims_f1": f1(precision, recall),
                }
                for name, precision, recall in zip(summaries, precisions, recalls, strict=True)
            },
        )

    def _claims(self, item: Item, summaries: Sequence[str]) -> list[Claims | Undefined]:
        """Those of the answers, then those of each summary."""
        asked = [shown(item, self._prompts["list_answers"])]
        asked += [shown(item, self._prompts["list_summary"], summary=summary) for summary in summaries]
        return [
            reply if isinstance(reply, Undefined) else parse_claims(reply)
            for reply in ask(self._generator, asked, TOKENS)
        ]

    def _supported(
        self, item: Item, template: str, claims: Sequence[Claims | Undefined], summaries: Sequence[str]
    ) -> list[float | Undefined]:
        """The share of each summary's ``claims`` that the model finds supported. It is not asked where there
        are none."""
        asked = {
            place: shown(item, self._prompts[template], claims=numbered(listed), summary=summary)
            for place, (listed, summary) in enumerate(zip(claims, summaries, strict=True))
            if not isinstance(listed, Undefined)
        }
        replies = dict(zip(asked, ask(self._generator, list(asked.values()), TOKENS), strict=True))
        return [
            listed if isinstance(listed, Undefined) else _verdict(replies[place], len(listed))
            for place, listed in enumerate(claims)
        ]


def _verdict(reply: str | Undefined, count: int) -> float | Undefined:
    return reply if isinstance(reply, Undefined) else parse_verdicts(reply, count)
