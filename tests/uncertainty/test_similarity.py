"""Similarities of a few texts, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest

from selfreflect.models import embed as embedder
from selfreflect.uncertainty.relations import (
    EmbeddingSimilarity,
    jaccard,
    make_similarity,
    prepare,
)


class Compass:
    """Embeds four words as directions, and counts what it embeds."""

    batches: ClassVar[list[list[str]]] = []

    def __init__(self, purpose: str) -> None:
        pass

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.batches.append(list(texts))
        ways = {"east": [1, 0], "north": [0, 1], "northeast": [0.6, 0.8], "west": [-1, 0]}
        return np.array([ways[text] for text in texts], dtype=np.float32)


def test_embeddings_are_made_once_and_never_below_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder, "SentenceEmbedder", Compass)
    similarity = make_similarity("embedding")
    assert isinstance(similarity, EmbeddingSimilarity)
    prepare(similarity, ["east", "north", "east"])
    matrix = similarity(["east", "northeast", "west", "east"])
    expected = [[1, 0.6, 0, 1], [0.6, 1, 0, 0.6], [0, 0, 1, 0], [1, 0.6, 0, 1]]
    assert matrix == pytest.approx(np.array(expected), abs=1e-6)
    assert matrix.diagonal().tolist() == [1] * 4
    prepare(similarity, ["north"])
    assert Compass.batches == [["east", "north"], ["northeast", "west"]]
    prepare(jaccard, ["east"])
    prepare(None, ["east"])
