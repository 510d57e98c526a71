"""Metrics by asking a language model: a mark of faithfulness, and claims that it lists and checks.

Claims are counted like precision and recall, not by how often one was made: a summary may give any odds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import harmonic_mean
from typing import TypeVar

from selfreflect.errors import excerpt
from selfreflect.models.base import Generator, Message, Refusal, Reply, Request, Sampling, as_done
from selfreflect.prompts import bundled_texts
from selfreflect.records import dump_line
from selfreflect.text import fill, normalise_question, numbered, quoted
from selfreflect.validate.base import MetricInfo, Undefined
from selfreflect.validate.metrics.common import Results, TextMetrics, model_name

T = TypeVar("T")

RATING_TOKENS = 64
"""Room for a mark and some words around it. A longer reply is not in the form that was asked for."""

_RATING = re.compile(r"(?:(?:rating|score) ?:? ?)?(10|[0-9])(?: ?/ ?10| out of 10)? ?\.?", re.IGNORECASE)


def parse_rating(reply: str) -> float | Undefined:
    """A whole number from 0 to 10 and next to nothing else: ``7``, ``7/10``, ``Rating: 7 out of 10.``,
    ``**7**``.

    A number within a sentence is refused: it may be a count of answers, or an answer.
    """
    match = _RATING.fullmatch(re.sub(r"[\s*]+", " ", reply).strip())
    return float(match[1]) if match else unparsed(reply, "a number from 0 to 10")


class Rated(TextMetrics):
    """A generator's marks, one request for each summary."""

    def __init__(self, generator: Generator, metrics: Sequence[MetricInfo]) -> None:
        super().__init__(metrics)
        self._generator = generator
        self._template = prompts()["llm_judge"]["rate"]
        self.by = name_with_prompts(generator, prompts()["llm_judge"])

    def compare(self, question: str, answers: Sequence[str], summaries: Sequence[str]) -> Iterator[Results]:
        """Marks 0, 1, …, 10."""
        description = described(question, answers)
        questions = [filled(self._template, description, summary=quoted(summary)) for summary in summaries]
        for mark in ask(self._generator, questions, RATING_TOKENS, parse_rating):
            yield {"llm_judge": mark}


CLAIM_TOKENS = 512
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


def parse_verdicts(reply: str, count: int) -> float | Undefined:
    """The share of "yes" among numbered lines ``1. yes``, if there is exactly one for each of ``count``
    claims."""
    matches = [_VERDICT.fullmatch(line.strip().strip("*")) for line in reply.splitlines()]
    verdicts = [(int(match[1]), match[2].lower()) for match in matches if match]
    if sorted(number for number, _ in verdicts) != list(range(1, count + 1)):
        return unparsed(reply, f"yes or no on each of {count} claims")
    return [verdict for _, verdict in verdicts].count("yes") / count


def f1(precision: float | Undefined, recall: float | Undefined) -> float | Undefined:
    """The harmonic mean; 0 if either is 0, undefined if either is."""
    if isinstance(precision, Undefined):
        return precision
    if isinstance(recall, Undefined):
        return recall
    return float(harmonic_mean([precision, recall]))


class ClaimCheck(TextMetrics):
    """Claims found and checked by a generator: for an item with S summaries 1 + 3 S requests, in three
    batches."""

    def __init__(self, generator: Generator, metrics: Sequence[MetricInfo]) -> None:
        super().__init__(metrics)
        self._generator = generator
        self._prompts = prompts()["claims"]
        self.by = name_with_prompts(generator, self._prompts)

    def compare(self, question: str, answers: Sequence[str], summaries: Sequence[str]) -> Iterator[Results]:
        """Shares in [0, 1]."""
        description = described(question, answers)
        texts = list(map(quoted, summaries))
        requests = [filled(self._prompts["list_answers"], description)]
        requests += [filled(self._prompts["list_summary"], description, summary=text) for text in texts]
        of_answers, *of_summaries = ask(self._generator, requests, CLAIM_TOKENS, parse_claims)
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
    ) -> list[float | Undefined]:
        """The share of each summary's ``claims`` that the model finds supported. It is asked only where there
        are claims."""
        requests = []
        for own, summary in zip(claims, summaries, strict=True):
            if not isinstance(own, Undefined):
                requests.append(
                    filled(self._prompts[template], description, claims=numbered(own), summary=summary)
                )
        replies = iter(ask(self._generator, requests, CLAIM_TOKENS, str))
        shares: list[float | Undefined] = []
        for own in claims:
            if isinstance(own, Undefined):
                shares.append(own)
                continue
            reply = next(replies)
            shares.append(reply if isinstance(reply, Undefined) else parse_verdicts(reply, len(own)))
        return shares


def prompts() -> Mapping[str, Mapping[str, str]]:
    """The texts of ``data/validate_prompts.toml``, by metric. No run configures them."""
    return bundled_texts("validate_prompts.toml")


def described(question: str, answers: Sequence[str]) -> dict[str, str]:
    """What every prompt may say of an item.

    Texts from files or models are quoted as JSON on a line of their own, so that they cannot pass for part of
    the prompt.
    """
    return {"question": quoted(normalise_question(question)), "answers": numbered(answers)}


def filled(template: str, description: Mapping[str, str], **texts: str) -> str:
    """Put a description and further quoted texts in place of their names."""
    return fill(template, {**description, **texts}).strip()


def name_with_prompts(generator: Generator, texts: Mapping[str, str]) -> str:
    """The model and a digest of its prompts, as values name them: other prompts make another metric."""
    name = model_name(generator.name, generator.revision, getattr(generator, "facts", {}))
    return f"{name}, prompts {hashlib.sha256(dump_line(texts).encode()).hexdigest()[:8]}"


def ask(
    generator: Generator, questions: Sequence[str], max_new_tokens: int, parse: Callable[[str], T | Undefined]
) -> list[T | Undefined]:
    """Ask each question greedily, and parse the replies, in order. Equal questions are asked once.

    Raises:
        BackendError: the generator has given up, so that further questions are pointless.
    """
    sampling = Sampling(temperature=0.0, max_new_tokens=max_new_tokens)
    distinct = list(dict.fromkeys(questions))
    requests = [
        Request(messages=(Message(role="user", content=text),), sampling=sampling) for text in distinct
    ]
    results: dict[str, T | Undefined] = {}
    for index, reply in as_done(generator, requests) if requests else ():
        text = _text(reply)
        results[distinct[index]] = text if isinstance(text, Undefined) else parse(text)
    return [results[question] for question in questions]


def unparsed(reply: str, request: str) -> Undefined:
    message = f"the model was asked for {request} and replied {excerpt(reply, 200)}"
    return Undefined(reason="unparsed", message=message)


def _text(reply: Reply | Refusal) -> str | Undefined:
    if isinstance(reply, Refusal):
        return Undefined(reason=reply.kind, message=reply.message)
    finish = reply.completions[0].finish
    if finish == "unclosed_reasoning":
        return Undefined(reason="unclosed_reasoning", message="the reply never ended its reasoning trace")
    if finish == "length":
        message = f"the token limit was reached after {excerpt(reply.text, 200)}"
        return Undefined(reason="cut_off", message=message)
    return reply.text
