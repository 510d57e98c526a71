"""Natural language inference: whether one text follows from another, by a sequence classification model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from selfreflect.errors import ConfigError, excerpt
from selfreflect.models.base import ModelSpec
from selfreflect.models.local.loading import locate
from selfreflect.models.local.machine import set_library_defaults

BATCH = 32
"""Pairs that are classified at once."""

Pair = tuple[str, str]
"""A premise and a hypothesis."""


class EntailmentModel:
    """Says of pairs whether the first text entails the second.

    The label that means entailment is found by its name in the model's configuration, because its number
    differs between models.

    Args:
        name: a hub name or a local directory of a model with a sequence classification head.

    Raises:
        ConfigError: none, or several, of the model's labels begin with "entail".
        BackendError: the model cannot be loaded.
    """

    def __init__(self, name: str) -> None:
        set_library_defaults()
        import transformers

        source = locate(ModelSpec(name), None)
        with source.explain_errors():
            config = transformers.AutoConfig.from_pretrained(source.path, **source.options)
            source.check_weight_files(config)
            labels = {int(number): str(label) for number, label in (config.id2label or {}).items()}
        self._entailment = _entailment_label(name, labels)
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
        """Classify pairs, in order: whether entailment is the likeliest label. None for a pair that is longer
        than the model reads."""
        verdicts: list[bool | None] = [None] * len(pairs)
        lengths = list(map(len, self._encode(pairs)["input_ids"])) if pairs else []
        order = sorted(range(len(pairs)), key=lengths.__getitem__)
        order = [index for index in order if lengths[index] <= self._longest]
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            inputs = self._encode([pairs[place] for place in places], padding=True, return_tensors="pt")
            with torch.inference_mode():
                logits = self._model(**inputs.to(self._model.device)).logits
            for place, label in zip(places, logits.argmax(-1).tolist(), strict=True):
                verdicts[place] = label == self._entailment
        return verdicts

    def _encode(self, pairs: Sequence[Pair], **options: Any) -> Any:
        return self._tokenizer([one for one, _ in pairs], [other for _, other in pairs], **options)


def _entailment_label(name: str, labels: dict[int, str]) -> int:
    """The number of the label that means entailment."""
    matching = [number for number, label in labels.items() if label.lower().startswith("entail")]
    if len(matching) != 1:
        names = ", ".join(map(excerpt, labels.values()))
        raise ConfigError(
            f"nli:{name}: which label means entailment is not clear, because they are called {names}. Take a "
            "model whose config.json names one of its labels entailment"
        )
    return matching[0]
