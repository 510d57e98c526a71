"""Sort answers into classes of the same meaning.

``exact`` and ``numeric`` compare a key of each answer, so they are transitive. The others compare pairs: A
may match B and B match C where A does not match C. Then the order decides, and a rule's name says which it
is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from selfreflect.errors import ConfigError, nearest
from selfreflect.grouping import normal_form
from selfreflect.uncertainty.question import AnsweredQuestion
from selfreflect.uncertainty.similarity import Similarity, make_similarity, prepare

Labels = NDArray[np.intp]
"""A class number for each answer, numbered in the order of first answers; shape (M,)."""
Order = Literal["first", "components"]
"""``first``: an answer joins the first class whose first answer it matches. ``components``: any chain of
matches makes one class."""

THRESHOLDS = {"jaccard": 0.5, "rouge": 0.7, "embedding": 0.7}
"""From which similarity two answers match."""
RULES = ("exact", "numeric", *THRESHOLDS)

_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")

normalised = lru_cache(maxsize=2**18)(normal_form)


def last_number(text: str) -> float | None:
    """The last number of a text, where commas separate thousands; None without one that is finite."""
    for match in reversed(_NUMBER.findall(text)):
        number = float(match.replace(",", ""))
        if np.isfinite(number):
            return number
    return None


class ClassRule:
    """What makes two answers the same.

    Args:
        name: one of ``RULES``, with a threshold for those that compare pairs, as in ``jaccard:0.6``.
        order: for rules that compare pairs.

    Raises:
        ConfigError: there is no such rule, or the threshold is not in (0, 1].
        MissingExtraError: ``embedding`` without the ``embed`` extra.
    """

    def __init__(self, name: str = "exact", order: Order = "first") -> None:
        self._kind, _, written = name.partition(":")
        if self._kind not in RULES:
            known = ", ".join(RULES)
            raise ConfigError(f"no class rule {name!r}.{nearest(self._kind, list(RULES))} Known: {known}")
        self._order = order
        self.name = self._kind
        self.similarity: Similarity | None = None
        if self._kind in THRESHOLDS:
            self._threshold = threshold_of(name, THRESHOLDS[self._kind])
            self.similarity = make_similarity(self._kind)
            self.name = f"{self._kind}:{self._threshold:g}, {order}"
        elif written:
            raise ConfigError(f"the class rule {self._kind!r} has no threshold")

    def prepare(self, questions: Iterable[AnsweredQuestion]) -> None:
        """Let a rule that needs a model see all answers at once."""
        prepare(self.similarity, (text for question in questions for text in question.answers))

    def __call__(self, question: AnsweredQuestion) -> Labels:
        """Sort the answers of a question."""
        same = {normalised(text): number for number, texts in enumerate(question.aliases) for text in texts}
        keys: list[object] = [same.get(normalised(text), normalised(text)) for text in question.answers]
        if self._kind == "numeric":
            numbers = [last_number(text) for text in question.answers]
            keys = [key if number is None else number for key, number in zip(keys, numbers, strict=True)]
        labels = _numbered(keys)
        if self.similarity is None or not len(labels):
            return labels
        first_of = [int(np.argmax(labels == label)) for label in range(int(labels.max()) + 1)]
        related = self.similarity([question.answers[index] for index in first_of]) >= self._threshold
        return _numbered(group_related(related, self._order)[labels].tolist())


def threshold_of(name: str, default: float) -> float:
    """The number after the colon of ``name:0.6``.

    Raises:
        ConfigError: it is not a number in (0, 1].
    """
    _, colon, written = name.partition(":")
    try:
        value = float(written) if colon else default
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise ConfigError(f"{name!r}: the threshold after the colon must be a number in (0, 1]")
    return value


def group_related(related: NDArray[np.bool_], order: Order) -> Labels:
    """Make classes of a symmetric relation that need not be transitive.

    Args:
        related: shape (n, n), true on the diagonal.
    """
    labels = np.full(len(related), -1, dtype=np.intp)
    size = 0
    for start in range(len(related)):
        if labels[start] >= 0:
            continue
        if order == "first":
            members = related[start] & (labels < 0)
        else:
            members = np.zeros(len(related), dtype=bool)
            members[start] = True
            while (wider := related[members].any(0)).sum() > members.sum():
                members = wider
        labels[members] = size
        size += 1
    return labels


def _numbered(keys: Sequence[object]) -> Labels:
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.intp)
