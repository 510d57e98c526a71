"""How far a summary is from the answers as sentence embeddings of all-MiniLM-L6-v2. Needs the ``embed``
extra, transport ``validate`` too.

The model reads the first 256 word pieces of a text and no more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from selfreflect.errors import MissingExtraError
from selfreflect.models.embedder import SentenceEmbedder
from selfreflect.sources.items import Item
from selfreflect.stats import Floats
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.metrics.common import score_texts
from selfreflect.validate.metrics.infos import EMBEDDED

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
    """The least mean cost of moving equal masses at the rows onto equal masses at the columns, exact.

    It is the 1-Wasserstein distance between the two uniform distributions where the costs are a metric, found
    by the network simplex of Bonneel et al. (2011, ACM TOG 30) in POT.

    Args:
        costs: shape (rows, columns), finite, at least one of each.
    """
    import ot

    # Without weights POT takes equal ones. It would stop early, with a mere warning, at its default of
    # 100,000 steps.
    cost = ot.emd2([], [], costs, numItermax=2**31 - 1)
    return max(0.0, float(cost))


class Embedded:
    """Metrics on embeddings. All answers count, as often as they were given.

    Raises:
        MissingExtraError: an extra is not installed.
        BackendError: the installed model is not the published one.
    """

    def __init__(self, metrics: Sequence[MetricInfo] = EMBEDDED) -> None:
        self.metrics = tuple(metrics)
        names = [info.name for info in metrics]
        if "embedding_transport" in names and find_spec("ot") is None:
            raise MissingExtraError("Optimal transport between embeddings", "validate")
        self._embed = SentenceEmbedder("Measuring distances between embeddings")
        self.by = self._embed.name

    def score(self, item: Item) -> list[Value]:
        """One value for each summary and metric: a cosine distance in [0, 2], or a transport cost in the same
        range."""
        return score_texts(self, item, self._measure)

    def _measure(
        self, question: str, answers: Sequence[str], summaries: Sequence[str]
    ) -> Iterator[dict[str, float]]:
        embedded = self._embed(answers).astype(float)
        for summary in summaries:
            distances = {}
            for info in self.metrics:
                whole = info.name == "embedding_cosine"
                texts = [summary] if whole else sentences(summary)
                costs = (1.0 - embedded @ self._embed(texts).T.astype(float)).clip(0, 2)
                distances[info.name] = float(costs.mean()) if whole else transport(costs)
            yield distances
