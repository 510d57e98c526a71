"""Claims that an LLM finds in the summary and in the answers, and whether it finds each supported by the other
side.

Like precision and recall, they count claims and not how often one was made: a summary may give any odds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import harmonic_mean

from selfreflect.models.base import Generator
from selfreflect.sources.items import Item
from selfreflect.text import numbered
from selfreflect.validate.base import MetricInfo, Undefined, Value
from selfreflect.validate.metrics.asking import (
    ask,
    described,
    filled,
    name_with_prompts,
    prompts,
    quoted,
    unparsed,
)
from selfreflect.validate.metrics.common import Result, score_texts
from selfreflect.validate.metrics.infos import CLAIMS

TOKENS = 512
"""For a list of claims, or of verdicts on them."""

Claims = tuple[str, ...]

_CLAIM = re.compile(r"(?:[-*•]|[0-9]+[.)])\s+(\S.*)")
_VERDICT = re.compile(r"([0-9]{1,9})[.):]*\s*\**(yes|no)\.?", re.IGNORECASE)


def parse_claims(reply: str) -> Claims | Undefined:
    """The items of a list with bullets or numbers, each once. Lines around the list are ignored; ``none`` is
    an empty list."""
    if reply.strip().strip(".-*").strip().lower() == "none":
        return Undefined(reason="no_claims", message="the model found no claim")
    matches = [_CLAIM.fullmatch(line.strip()) for line in reply.splitlines()]
    claims = tuple(dict.fromkeys(match[1] for match in matches if match))
    return claims or unparsed(reply, "a list of claims")


def parse_verdicts(reply: str, count: int) -> Result:
    """The share of "yes" among numbered lines ``1. yes``, if there is exactly one for each of ``count``
    claims."""
    matches = [_VERDICT.fullmatch(line.strip().strip("*")) for line in reply.splitlines()]
    verdicts = [(int(match[1]), match[2].lower()) for match in matches if match]
    if sorted(number for number, _ in verdicts) != list(range(1, count + 1)):
        return unparsed(reply, f"yes or no on each of {count} claims")
    return [verdict for _, verdict in verdicts].count("yes") / count


def f1(precision: Result, recall: Result) -> Result:
    """The harmonic mean; 0 if either is 0, undefined if either is."""
    if isinstance(precision, Undefined):
        return precision
    if isinstance(recall, Undefined):
        return recall
    return float(harmonic_mean([precision, recall]))


class ClaimCheck:
    """Claims found and checked by a generator: for an item with S summaries 1 + 3 S requests, in three
    batches."""

    def __init__(self, generator: Generator, metrics: Sequence[MetricInfo] = CLAIMS) -> None:
        self.metrics = tuple(metrics)
        self._generator = generator
        self._prompts = prompts()["claims"]
        self.by = name_with_prompts(generator, self._prompts)

    def score(self, item: Item) -> list[Value]:
        """One value in [0, 1] for each summary and metric."""
        return score_texts(self, item, self._check)

    def _check(
        self, question: str, answers: Sequence[str], summaries: Sequence[str]
    ) -> Iterator[dict[str, Result]]:
        description = described(question, answers)
        texts = [quoted(summary) for summary in summaries]
        requests = [filled(self._prompts["list_answers"], description)]
        requests += [filled(self._prompts["list_summary"], description, summary=text) for text in texts]
        of_answers, *of_summaries = map(_claims, ask(self._generator, requests, TOKENS))
        precisions = self._supported("check_by_answers", description, of_summaries, texts)
        recalls = self._supported("check_by_summary", description, [of_answers] * len(texts), texts)
        for precision, recall in zip(precisions, recalls, strict=True):
            both = f1(precision, recall)
            yield {"claims_precision": precision, "claims_recall": recall, "claims_f1": both}

    def _supported(
        self,
        template: str,
        description: Mapping[str, str],
        claims: Sequence[Claims | Undefined],
        summaries: Sequence[str],
    ) -> list[Result]:
        """The share of each summary's ``claims`` that the model finds supported. It is asked only where there
        are claims."""
        requests = {}
        for index, (own, summary) in enumerate(zip(claims, summaries, strict=True)):
            if not isinstance(own, Undefined):
                texts = {"claims": numbered(own), "summary": summary}
                requests[index] = filled(self._prompts[template], description, **texts)
        replies = ask(self._generator, list(requests.values()), TOKENS)
        by_index = dict(zip(requests, replies, strict=True))
        return [_share(own, by_index.get(index, "")) for index, own in enumerate(claims)]


def _share(claims: Claims | Undefined, reply: str | Undefined) -> Result:
    if isinstance(claims, Undefined):
        return claims
    return reply if isinstance(reply, Undefined) else parse_verdicts(reply, len(claims))


def _claims(reply: str | Undefined) -> Claims | Undefined:
    return reply if isinstance(reply, Undefined) else parse_claims(reply)
