"""Words that a summary has in common with the answers: ROUGE-L (Lin 2004, "ROUGE: A Package for Automatic
Evaluation of Summaries").

Needs the ``validate`` extra.
"""

from __future__ import annotations

import re
from statistics import fmean

from selfreflect.errors import MissingExtraError
from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo, Undefined, Value
from selfreflect.validate.metrics.texts import answers, scorable, values

METRICS = (
    MetricInfo(
        name="rouge_l",
        better="higher",
        group="competitor",
        about="Mean F-measure of ROUGE-L between the summary and each answer: the longest common subsequence of their words.",
    ),
)


class Words:
    """Runs of letters and digits in lower case: for ASCII those of rouge-score, which drops the letters of
    every other script."""

    _WORD = re.compile(r"[^\W_]+")

    def tokenize(self, text: str) -> list[str]:
        return self._WORD.findall(text.lower())


class Overlap:
    """ROUGE-L against every answer.

    The F-measure, not recall: recall grows with every word that is added to a summary, so it would repeat
    what the control ``length`` says.

    Raises:
        MissingExtraError: rouge-score is not installed.
    """

    metrics = METRICS
    by = ""

    def __init__(self) -> None:
        try:
            from rouge_score.rouge_scorer import RougeScorer
        except ImportError:
            raise MissingExtraError("ROUGE-L", "validate") from None
        self._words = Words()
        self._scorer = RougeScorer(["rougeL"], tokenizer=self._words)

    def score(self, item: Item) -> list[Value]:
        """One value in [0, 1] for each summary."""
        said = answers(item)
        return values(
            self,
            item,
            {name: {"rouge_l": self._overlap(said, text)} for name, text in scorable(item).items()},
        )

    def _overlap(self, said: list[str], summary: str) -> float | Undefined:
        if not self._words.tokenize(summary):
            return Undefined(reason="blank", message="the summary has no letter and no digit")
        return fmean(self._scorer.score(answer, summary)["rougeL"].fmeasure for answer in said)
