"""How similar answers are: 1 for equal texts, 0 for nothing in common.

A similarity takes n texts and returns a symmetric matrix, shape (n, n), with ones on its diagonal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from selfreflect.stats import Floats
from selfreflect.text import UNSPACED

Similarity = Callable[[Sequence[str]], Floats]
SIMILARITIES = ("jaccard", "rouge", "embedding")

_WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")


def words(text: str) -> list[str]:
    """Runs of letters and digits, in lower case; single characters of scripts without spaces."""
    return _WORD.findall(text.lower())


def jaccard(texts: Sequence[str]) -> Floats:
    """Shared words as a part of all words of both texts. Texts without words have nothing in common."""
    vocabulary: dict[str, int] = {}
    cells = []
    for row, text in enumerate(texts):
        for word in set(words(text)):
            cells.append((row, vocabulary.setdefault(word, len(vocabulary))))
    present = np.zeros((len(texts), max(1, len(vocabulary))))
    if cells:
        present[tuple(zip(*cells, strict=True))] = 1
    overlap = present @ present.T
    sizes = present.sum(1)
    matrix: Floats = overlap / np.maximum(sizes[:, None] + sizes - overlap, 1)
    np.fill_diagonal(matrix, 1)
    return matrix


def rouge(texts: Sequence[str]) -> Floats:
    """ROUGE-L F1: words of the longest common subsequence, in relation to the mean length (Lin 2004)."""
    split = list(map(words, texts))
    matrix = np.eye(len(texts))
    for row, one in enumerate(split):
        for column in range(row):
            matrix[row, column] = matrix[column, row] = rouge_l(one, split[column])
    return matrix


def rouge_l(one: Sequence[str], other: Sequence[str]) -> float:
    """ROUGE-L F1 of two lists of words; 0 if one is empty."""
    total = len(one) + len(other)
    return 2 * _common_subsequence(one, other) / total if total else 0.0


def _common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest common subsequence, a row of the usual table at a time as the bits of an integer
    (Hyyrö 2004, "Bit-parallel LCS-length computation revisited")."""
    places: dict[str, int] = {}
    for place, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << place
    full = (1 << len(one)) - 1
    row = full
    for word in other:
        matches = row & places.get(word, 0)
        row = (row + matches | row - matches) & full
    return len(one) - row.bit_count()


class EmbeddingSimilarity:
    """Cosine of sentence embeddings, not below 0. Each distinct text is embedded once.

    Raises:
        MissingExtraError: the ``embed`` extra is not installed.
    """

    def __init__(self) -> None:
        from selfreflect.models.embed import SentenceEmbedder

        self._embed = SentenceEmbedder("Comparing answers by embeddings")
        self._vectors: dict[str, Floats] = {}

    def prepare(self, texts: Iterable[str]) -> None:
        """Embed many texts at once, which is much faster than question by question."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            self._vectors.update(zip(new, self._embed(new).astype(np.float64), strict=True))

    def __call__(self, texts: Sequence[str]) -> Floats:
        self.prepare(texts)
        vectors = np.array([self._vectors[text] for text in texts])
        matrix: Floats = np.clip(vectors @ vectors.T, 0, 1)
        np.fill_diagonal(matrix, 1)
        return matrix


def prepare(similarity: Similarity | None, texts: Iterable[str]) -> None:
    """Let a similarity that needs a model see all texts at once."""
    if isinstance(similarity, EmbeddingSimilarity):
        similarity.prepare(texts)


def make_similarity(name: str) -> Similarity:
    """The similarity of a name of ``SIMILARITIES``."""
    if name == "embedding":
        return EmbeddingSimilarity()
    return {"jaccard": jaccard, "rouge": rouge}[name]
