"""How far a summary is from the answers as sentence embeddings of all-MiniLM-L6-v2. Needs the ``embed``
extra, transport ``validate`` too.

The model reads the first 256 word pieces of a text and no more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from selfreflect.errors import MissingExtraError
from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.metrics.naming import chosen
from selfreflect.validate.metrics.texts import answers, scorable, values

if TYPE_CHECKING:
    from selfreflect.stats import Floats

METRICS = (
    MetricInfo(
        name="embedding_cosine",
        better="lower",
        group="competitor",
        about="Mean cosine distance between the embedding of the summary and that of each answer.",
        needs=("embedder",),
    ),
    MetricInfo(
        name="embedding_transport",
        better="lower",
        group="competitor",
        about="Optimal transport between the embeddings of the answers and those of the summary's sentences, over cosine distances.",
        needs=("embedder",),
    ),
)

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
    return max(0.0, float(ot.emd2([], [], costs, numItermax=2**31 - 1)))


class Embedded:
    """Metrics on embeddings. All answers count, as often as they were given.

    Raises:
        MissingExtraError: an extra is not installed.
        BackendError: the installed model is not the published one.
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        from selfreflect.models.embedder import SentenceEmbedder

        self.metrics = chosen(METRICS, names)
        if find_spec("ot") is None and any(info.name == "embedding_transport" for info in self.metrics):
            raise MissingExtraError("Optimal transport between embeddings", "validate")
        self._embed = SentenceEmbedder("Measuring distances between embeddings")
        self.by = self._embed.name

    def score(self, item: Item) -> list[Value]:
        """One value for each summary and metric: a cosine in [0, 2], and a transport cost in the same
        range."""
        said = self._embed(answers(item)).astype(float)
        return values(
            self, item, {name: self._distances(said, text) for name, text in scorable(item).items()}
        )

    def _distances(self, said: Floats, summary: str) -> dict[str, float]:
        found = {}
        for info in self.metrics:
            whole = info.name == "embedding_cosine"
            costs = (
                1.0 - said @ self._embed([summary] if whole else sentences(summary)).T.astype(float)
            ).clip(0, 2)
            found[info.name] = float(costs.mean()) if whole else transport(costs)
        return found
