"""Where a rendered conversation may be cut so that its parts have the tokens of the whole.

A tokenizer first takes its added tokens out of a text, leftmost and longest first, and handles what is left
between them apart. So it may be cut in front of a marker wherever that marker is found whatever surrounds it.
Each part but the first then begins with a marker, as it does in the whole, and steps that treat the beginning
of a text differently (Metaspace's first space) see the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from selfreflect.text import common_prefix

_STEPS = frozenset(
    (
        "Sequence BertNormalizer ByteLevel Lowercase NFC NFD NFKC NFKD Nmt Precompiled Prepend Replace Strip StripAccents "
        "BertPreTokenizer CharDelimiterSplit Digits FixedLength Metaspace Punctuation Split UnicodeScripts Whitespace WhitespaceSplit "
        "BertProcessing RobertaProcessing TemplateProcessing"
    ).split()
)
"""Normalisers and pre-tokenizers that see one stretch between added tokens at a time, and post-processors
that only add special tokens."""

_MODELS = frozenset(("BPE", "Unigram", "WordPiece", "WordLevel"))


def works_between_markers(tokenizer: Any) -> bool:
    """Whether every step of a fast tokenizer is known to treat the stretches between added tokens one by
    one."""
    backend = tokenizer.backend_tokenizer
    if (
        tokenizer.split_special_tokens
        or type(backend.model).__name__ not in _MODELS
        or getattr(backend.model, "dropout", None)
    ):
        return False
    steps = (backend.normalizer, backend.pre_tokenizer, backend.post_processor)
    try:
        return all(_steps(json.loads(step.__getstate__())) <= _STEPS for step in steps if step is not None)
    except Exception:  # a step written in Python cannot be described, so nothing is known of it
        return False


def _steps(spec: dict[str, Any]) -> set[str]:
    """The types of a step and of all steps in its sequence."""
    inner: list[dict[str, Any]] = (
        spec.get("normalizers") or spec.get("pretokenizers") or spec.get("processors") or []
    )
    return {spec["type"]}.union(*map(_steps, inner))


def cuts_cleanly(marker: Any, added: Iterable[str]) -> bool:
    """Whether an added token is found wherever it is written: no other one among ``added`` can overlap it or
    hold it.

    It must not depend on its neighbours, nor begin with what another token may take from its right (space) or
    look at (a letter).
    """
    name = marker.content
    if marker.normalized or marker.lstrip or marker.single_word or name[0] not in "<[":
        return False
    beginnings = tuple(name[:length] for length in range(1, len(name)))
    return not any(other.endswith(beginnings) or (name in other and name != other) for other in added)


def common_start(texts: Sequence[str]) -> str:
    """What all texts begin with; only the least and the greatest need to be compared."""
    return texts[0][: common_prefix(min(texts), max(texts))]
