"""Readers of claims that compare meanings, and the table of all readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from selfreflect.errors import ConfigError, unknown_name
from selfreflect.stats import Floats
from selfreflect.text import counted
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.claims.asked import ModelReader
from selfreflect.uncertainty.claims.sentences import sentences
from selfreflect.uncertainty.claims.support import Reader, Stance
from selfreflect.uncertainty.claims.words import ABOUT, WordReader, largest, overlaps
from selfreflect.uncertainty.classes import group_related
from selfreflect.uncertainty.relations import EmbeddingSimilarity

if TYPE_CHECKING:
    from selfreflect.models.embed import Entailed, EntailmentModel, Pair

PREMISE = 3
"""Sentences of a text that a classifier of pairs reads: it learned from short texts, and reads few words."""


class EmbeddingReader(WordReader):
    """Compares claims and sentences by the cosine of their embeddings, in place of shared words.

    Numbers, negations and opposites are compared as words are, because embeddings hardly see them.

    Raises:
        MissingExtraError: the ``embed`` extra is not installed.
    """

    name = "embedding"
    said, about = 0.75, 0.65

    def __init__(self) -> None:
        self._similarity = EmbeddingSimilarity()

    def closeness(self, question: str, claims: Sequence[str], parts: Sequence[str]) -> Floats:
        return self._similarity.between(parts, claims)

    def mentions(self, question: str, claims: Sequence[str], texts: Sequence[str]) -> Floats:
        """Compute the largest cosine of a sentence of each text."""
        return largest(self.closeness, question, claims, texts)


class EntailmentReader(WordReader):
    """Asks a classifier of pairs whether the ``PREMISE`` sentences with most of a claim's words entail it.

    The question stands before both, so that "Ankara" is read as an answer to it.

    Args:
        model: a hub name or a local directory, see :class:`~selfreflect.models.embed.EntailmentModel`.

    Raises:
        ConfigError: no model is named.
    """

    def __init__(self, model: str) -> None:
        if not model:
            raise ConfigError("the reader nli needs a model, as in nli:DIRECTORY or nli:HUB-NAME")
        self.name = f"nli:{model}"
        self._directory = model
        self._model: EntailmentModel | None = None
        self._read: dict[Pair, Entailed | None] = {}

    @property
    def caveats(self) -> list[str]:
        unread = sum(found is None for found in self._read.values())
        return [f"{counted(unread, 'pair')} of text and claim left out: too long."] if unread else []

    def stances(
        self, question: str, claims: Sequence[str], texts: Sequence[str]
    ) -> list[list[Stance | None]]:
        return [list(map(_likeliest, row)) for row in self._entailed(question, claims, texts)]

    def mentions(self, question: str, claims: Sequence[str], texts: Sequence[str]) -> Floats:
        """Compute the probabilities of entailment; 0 for a pair that is too long."""
        rows = self._entailed(question, claims, texts)
        values = [[0.0 if found is None else found.entails for found in row] for row in rows]
        return np.array(values, dtype=np.float64).reshape(len(texts), len(claims))

    def distinct(self, question: str, claims: Sequence[str]) -> list[str]:
        """Keep a claim unless it and an earlier one entail each other, if the two share words."""
        claims = super().distinct(question, claims)
        close = overlaps(question, claims, claims) >= ABOUT
        related = np.eye(len(claims), dtype=bool)
        pairs = np.argwhere(np.triu(close | close.T, 1)).tolist()
        # both directions: the same claim entails and is entailed
        both = [
            (f"{question} {claims[first]}", f"{question} {claims[second]}")
            for pair in pairs
            for first, second in (pair, pair[::-1])
        ]
        found = [_likeliest(entailed) == "says" for entailed in self._probabilities(both)]
        for (first, second), there, back in zip(pairs, found[::2], found[1::2], strict=True):
            related[first, second] = related[second, first] = there and back
        labels = group_related(related).tolist()
        return [claims[labels.index(label)] for label in dict.fromkeys(labels)]

    def _entailed(
        self, question: str, claims: Sequence[str], texts: Sequence[str]
    ) -> list[list[Entailed | None]]:
        pairs = []
        for text in texts:
            parts = [sentence.text for sentence in sentences(text)]
            # the sentences with most of the claim's words, in the order of the text
            order = np.argsort(-overlaps(question, claims, parts), axis=0, kind="stable")[:PREMISE]
            for claim, best in zip(claims, order.T.tolist(), strict=True):
                premise = " ".join(parts[index] for index in sorted(best))
                pairs.append((f"{question} {premise}", f"{question} {claim}"))
        found = iter(self._probabilities(pairs))
        return [[next(found) for _ in claims] for _ in texts]

    def _probabilities(self, pairs: Sequence[Pair]) -> list[Entailed | None]:
        missing = [pair for pair in dict.fromkeys(pairs) if pair not in self._read]
        # loading takes seconds, and all pairs may be known
        if missing and self._model is None:
            from selfreflect.models.embed import EntailmentModel

            self._model = EntailmentModel(self._directory)
        if self._model is not None:
            self._read.update(zip(missing, self._model.probabilities(missing), strict=True))
        return [self._read[pair] for pair in pairs]


def _likeliest(entailed: Entailed | None) -> Stance | None:
    if entailed is None:
        return None
    stances: tuple[Stance, ...] = ("says", "contradicts", "silent")
    return stances[entailed.index(max(entailed))]


def _asking(model: str, asker: Asker | None) -> Reader:
    if asker is None:
        raise ConfigError("the reader asked asks a model", code="no_model", remedy="Name one with {model}.")
    return ModelReader(asker)


READERS: Mapping[str, Callable[[str, Asker | None], Reader]] = {
    "words": lambda model, asker: WordReader(),
    "embedding": lambda model, asker: EmbeddingReader(),
    "nli": lambda model, asker: EntailmentReader(model),
    "asked": _asking,
}
"""Makes each reader, of what follows a colon after its name, and of the model that is asked."""


def open_reader(name: str, asker: Asker | None = None) -> Reader:
    """Make a reader of ``READERS``; ``nli:MODEL`` names a classifier of pairs.

    Raises:
        ConfigError: there is no such reader, or it lacks its model.
        MissingExtraError: ``embedding`` without the ``embed`` extra.
    """
    kind, colon, model = name.partition(":")
    if kind not in READERS:
        raise unknown_name("reader of claims", kind, READERS)
    if colon and kind != "nli":
        raise ConfigError(f"the reader {kind!r} takes no model after a colon", code="usage")
    return READERS[kind](model, asker)
