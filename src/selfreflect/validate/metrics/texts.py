"""Metrics that compare texts without a judge: sentence embeddings (the ``embed`` extra; transport needs
``validate`` too), ROUGE-L (``validate``), and the length of a summary."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from statistics import fmean

from selfreflect.errors import MissingExtraError
from selfreflect.models.embedder import SentenceEmbedder
from selfreflect.sources.items import Item
from selfreflect.stats import Floats
from selfreflect.validate.base import MetricInfo, Undefined
from selfreflect.validate.metrics.common import Family, Results, TextMetrics

_END = re.compile(r"(?<=[.!?…])(?<!\b\d\.)\s+|(?<=[。！？])|\n+")


def sentences(text: str) -> list[str]:
    """``text`` cut at line ends and after ``.``, ``!``, ``?`` or ``…`` before white space; the text itself
    where that leaves nothing.

    A single digit with its full stop ("1. Paris") begins a sentence and ends none. Abbreviations are not
    known: "Dr. Who" is cut in two.
    """
    parts = [part.strip() for part in _END.split(text)]
    return [part for part in parts if any(character.isalnum() for character in part)] or [text]


def transport(costs: Floats) -> float:
    """The least mean cost of moving equal masses at the rows onto equal masses at the columns, exact: by the
    network simplex of Bonneel et al. (2011, ACM TOG 30) in POT.

    Args:
        costs: shape (rows, columns), finite, at least one of each.
    """
    import ot

    # Without weights POT takes equal ones. It would stop early, with a mere warning, at its default of
    # 100,000 steps.
    cost = ot.emd2([], [], costs, numItermax=2**31 - 1)
    return max(0.0, float(cost))


class Embedded(TextMetrics):
    """How far a summary is from the answers as sentence embeddings of all-MiniLM-L6-v2, which reads the first
    256 word pieces of a text. All answers count, as often as they were given.

    Raises:
        MissingExtraError: an extra is not installed.
        BackendError: the installed model is not the published one.
    """

    def __init__(self, metrics: Sequence[MetricInfo]) -> None:
        super().__init__(metrics)
        names = [info.name for info in metrics]
        if "embedding_transport" in names and find_spec("ot") is None:
            raise MissingExtraError("Optimal transport between embeddings", "validate")
        self._embed = SentenceEmbedder("Measuring distances between embeddings")
        self.by = self._embed.name

    def compare(self, question: str, answers: Sequence[str], summaries: Sequence[str]) -> Iterator[Results]:
        """A cosine distance in [0, 2], and a transport cost in the same range."""
        embedded = self._embed(answers).astype(float)
        for summary in summaries:
            distances = {}
            for info in self.metrics:
                whole = info.name == "embedding_cosine"
                texts = [summary] if whole else sentences(summary)
                costs = (1.0 - embedded @ self._embed(texts).T.astype(float)).clip(0, 2)
                distances[info.name] = float(costs.mean()) if whole else transport(costs)
            yield distances


class WordTokenizer:
    """Runs of letters and digits in lower case: rouge-score's tokens, but of every script, where rouge-score
    drops all letters beyond ASCII."""

    _WORD = re.compile(r"[^\W_]+")

    def tokenize(self, text: str) -> list[str]:
        return self._WORD.findall(text.lower())


class Overlap(TextMetrics):
    """ROUGE-L against every answer (Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries").

    The F-measure, not recall: recall grows with every word added to a summary, so it would repeat what the
    control ``length`` says.

    Raises:
        MissingExtraError: rouge-score is not installed.
    """

    def __init__(self, metrics: Sequence[MetricInfo]) -> None:
        super().__init__(metrics)
        try:
            from rouge_score.rouge_scorer import RougeScorer
        except ImportError:
            raise MissingExtraError("ROUGE-L", "validate") from None
        self._words = WordTokenizer()
        self._scorer = RougeScorer(["rougeL"], tokenizer=self._words)

    def compare(self, question: str, answers: Sequence[str], summaries: Sequence[str]) -> Iterator[Results]:
        for summary in summaries:
            if self._words.tokenize(summary):
                scores = [self._scorer.score(answer, summary)["rougeL"].fmeasure for answer in answers]
                yield {"rouge_l": fmean(scores)}
            else:
                message = "the summary has no letter and no digit"
                yield {"rouge_l": Undefined(reason="blank", message=message)}


class Length(Family):
    """How many words a summary has; a blank one has none."""

    def measure(self, item: Item) -> dict[str, Results]:
        return {text: {"length": float(len(text.split()))} for text in item.summaries.values()}
