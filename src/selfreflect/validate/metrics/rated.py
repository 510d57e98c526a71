"""An LLM as the judge of faithfulness: it reads the answers and the summary, and gives a mark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from selfreflect.models.base import Generator
from selfreflect.sources.items import Item
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
from selfreflect.validate.metrics.infos import RATED

TOKENS = 64
"""Room for a mark and some words around it. A longer reply is not in the form that was asked for."""

_RATING = re.compile(r"(?:(?:rating|score) ?:? ?)?(10|[0-9])(?: ?/ ?10| out of 10)? ?\.?", re.IGNORECASE)


def parse_rating(reply: str) -> Result:
    """A whole number from 0 to 10 and next to nothing else: ``7``, ``7/10``, ``Rating: 7 out of 10.``,
    ``**7**``.

    A number within a sentence is refused: it may be a count of answers, or an answer.
    """
    match = _RATING.fullmatch(re.sub(r"[\s*]+", " ", reply).strip())
    return float(match[1]) if match else unparsed(reply, "a number from 0 to 10")


class Rated:
    """A generator's marks, one request for each summary."""

    def __init__(self, generator: Generator, metrics: Sequence[MetricInfo] = RATED) -> None:
        self.metrics = tuple(metrics)
        self._generator = generator
        self._template = prompts()["llm_judge"]["rate"]
        self.by = name_with_prompts(generator, prompts()["llm_judge"])

    def score(self, item: Item) -> list[Value]:
        """One value in 0, 1, …, 10 for each summary."""
        return score_texts(self, item, self._rate)

    def _rate(
        self, question: str, answers: Sequence[str], summaries: Sequence[str]
    ) -> Iterator[dict[str, Result]]:
        description = described(question, answers)
        questions = [filled(self._template, description, summary=quoted(summary)) for summary in summaries]
        for reply in ask(self._generator, questions, TOKENS):
            yield {"llm_judge": reply if isinstance(reply, Undefined) else parse_rating(reply)}
