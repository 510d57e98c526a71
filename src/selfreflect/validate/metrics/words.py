"""Metrics that only look at words: ROUGE-L (Lin 2004, "ROUGE: A Package for Automatic Evaluation of
Summaries"), which needs the ``validate`` extra, and the length of the summary."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import fmean

from selfreflect.errors import MissingExtraError
from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo, Undefined, Value, make_value
from selfreflect.validate.metrics.common import Result, score_texts
from selfreflect.validate.metrics.infos import LENGTH, OVERLAP


class Words:
    """Runs of letters and digits in lower case: rouge-score's tokens, but of every script, where rouge-score
    drops all letters beyond ASCII."""

    _WORD = re.compile(r"[^\W_]+")

    def tokenize(self, text: str) -> list[str]:
        return self._WORD.findall(text.lower())


class Overlap:
    """ROUGE-L against every answer.

    The F-measure, not recall: recall grows with every word added to a summary, so it would repeat what the
    control ``length`` says.

    Raises:
        MissingExtraError: rouge-score is not installed.
    """

    by = ""

    def __init__(self, metrics: Sequence[MetricInfo] = OVERLAP) -> None:
        try:
            from rouge_score.rouge_scorer import RougeScorer
        except ImportError:
            raise MissingExtraError("ROUGE-L", "validate") from None
        self.metrics = tuple(metrics)
        self._words = Words()
        self._scorer = RougeScorer(["rougeL"], tokenizer=self._words)

    def score(self, item: Item) -> list[Value]:
        """One value in [0, 1] for each summary."""
        return score_texts(self, item, self._measure)

    def _measure(
        self, question: str, answers: Sequence[str], summaries: Sequence[str]
    ) -> Iterator[dict[str, Result]]:
        for summary in summaries:
            if self._words.tokenize(summary):
                scores = [self._scorer.score(answer, summary)["rougeL"].fmeasure for answer in answers]
                yield {"rouge_l": fmean(scores)}
            else:
                message = "the summary has no letter and no digit"
                yield {"rouge_l": Undefined(reason="blank", message=message)}


class Length:
    """How many words a summary has; a blank one has none."""

    by = ""

    def __init__(self, metrics: Sequence[MetricInfo] = LENGTH) -> None:
        self.metrics = tuple(metrics)

    def score(self, item: Item) -> list[Value]:
        """One value for each summary."""
        lengths = {name: float(len(text.split())) for name, text in item.summaries.items()}
        return [make_value(self, "length", item, name, length) for name, length in lengths.items()]
