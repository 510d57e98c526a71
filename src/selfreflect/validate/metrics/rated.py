"""An LLM as the judge of faithfulness: it reads the answers and the summary, and gives a mark."""

from __future__ import annotations

import re

from selfreflect.models.base import Generator
from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo, Undefined, Value
from selfreflect.validate.metrics.asking import ask, asked_by, prompts, quoted, shown, unparsed
from selfreflect.validate.metrics.texts import scorable, values

METRICS = (
    MetricInfo(
        name="llm_judge",
        better="higher",
        group="competitor",
        about="How faithful a language model finds the summary to the listed answers, from 0 to 10.",
        needs=("generator",),
    ),
)

TOKENS = 64
"""Room for a mark and some words around it. A reply that needs more is not in the form that was asked for."""

_RATING = re.compile(r"(?:(?:rating|score) ?:? ?)?(10|[0-9])(?: ?/ ?10| out of 10)? ?\.?", re.IGNORECASE)


def parse_rating(reply: str) -> float | Undefined:
    """A whole number from 0 to 10 and next to nothing else: ``7``, ``7/10``, ``Rating: 7 out of 10.``,
    ``**7**``.

    A number within a sentence is refused: it may be a count of answers, or an answer.
    """
    found = _RATING.fullmatch(re.sub(r"[\s*]+", " ", reply).strip())
    return float(found[1]) if found else unparsed(reply, "a number from 0 to 10")


class Rated:
    """A generator's marks, one request for each summary."""

    metrics = METRICS

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._prompts = prompts()["llm_judge"]
        self.by = asked_by(generator, self._prompts)

    def score(self, item: Item) -> list[Value]:
        """One value in 0, 1, …, 10 for each summary."""
        summaries = scorable(item)
        replies = ask(
            self._generator,
            [shown(item, self._prompts["rate"], summary=quoted(text)) for text in summaries.values()],
            TOKENS,
        )
        ratings = [reply if isinstance(reply, Undefined) else parse_rating(reply) for reply in replies]
        return values(
            self, item, {name: {"llm_judge": rating} for name, rating in zip(summaries, ratings, strict=True)}
        )
