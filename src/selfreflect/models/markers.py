"""Markers of a model's chat format, such as ``<|im_end|>``: kept out of untrusted text, and places to cut.

Before the chat template runs, markers inside untrusted text are swapped for stand-ins, so the markers left in
the rendered string are the template's own. Only a text with stand-ins pays for the second tokenizer, whose
markers have unguessable names.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable
from functools import cached_property
from itertools import accumulate
from typing import Any

TRACE = r"(?i:<(?:[\w:]*think(?:ing)?|reasoning|thought)>|\[THINK\]|<\|START_THINKING\|>)"
"""A tag that opens a reasoning trace."""

_SURROGATE = re.compile("[\ud800-\udfff]")

# What a template may look for in a turn, whether or not the tokenizer has a token for it.
_TAG = re.compile(r"</?[\w:|]+>|\[/?[A-Z_]+\]")


class Markers:
    """The markers of one tokenizer: special added tokens, and added tokens that its chat template writes or
    looks for (``</think>``)."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._nonce = secrets.token_hex(8)
        template = str(tokenizer.chat_template or "")
        self._tokens: dict[str, Any] = {}
        self._ids: set[int] = set()
        self._clean: dict[str, bool] = {}
        for index, token in tokenizer.added_tokens_decoder.items():
            name = str(token.content)
            if name.strip() and (token.special or _is_marker_of(template, name)):
                self._tokens[name] = token
                self._ids.add(index)
        any_marker = _any_of(self._tokens)
        self._pattern = re.compile(any_marker)
        self._hidden = re.compile(f"{_any_of({*self._tokens, *_TAG.findall(template)})}|{TRACE}")
        self._armed = re.compile(f"{self._stand_in('([0-9a-f]+)')}|{any_marker}")

    def disarm(self, text: str) -> str:
        """Replace markers, and tags that the template may look for, by stand-ins."""
        text = _SURROGATE.sub("\ufffd", text)
        return self._hidden.sub(lambda match: self._stand_in(match[0].encode().hex()), text)

    def has_stand_in(self, text: str) -> bool:
        return self._nonce in text

    def excess(self, text: str, ids: list[int]) -> int:
        """How many more marker tokens ``ids`` hold than ``text`` spells. A normaliser can make some."""
        return sum(index in self._ids for index in ids) - len(self._pattern.findall(text))

    def encode(self, text: str) -> list[int]:
        """Token ids of a rendered text. Stand-ins become plain text, and no normaliser can make a marker."""

        def rename(match: re.Match[str]) -> str:
            return bytes.fromhex(match[1]).decode() if match[1] else self._renamed(match[0])

        text = self._armed.sub(rename, text)
        return list(self._renamed_tokenizer.encode(text, add_special_tokens=False).ids)

    @cached_property
    def can_cut(self) -> bool:
        return works_between_markers(self._tokenizer)

    def places_in(self, text: str) -> re.Pattern[str]:
        """Matches the places where ``text``, and texts with its beginning, may be cut."""
        names = filter(self._cuts_cleanly, set(self._pattern.findall(text)))
        return re.compile(f"(?={_any_of(names)})")

    def _cuts_cleanly(self, name: str) -> bool:
        if name not in self._clean:
            added = [str(token.content) for token in self._tokenizer.added_tokens_decoder.values()]
            self._clean[name] = cuts_cleanly(self._tokens[name], added)
        return self._clean[name]

    def _stand_in(self, digits: str) -> str:
        """Holds what it stands for in hexadecimal digits."""
        return f"\ue000{self._nonce}{digits}\ue001"

    @cached_property
    def _renamed_tokenizer(self) -> Any:
        """The same tokenizer with every marker renamed to marker + nonce, ids unchanged."""
        from tokenizers import Tokenizer

        spec = json.loads(self._tokenizer.backend_tokenizer.to_str())
        for token in spec["added_tokens"]:
            token["content"] = self._renamed(token["content"])
        spec["post_processor"] = None  # it names the old markers, and BOS is added elsewhere
        model = spec["model"]
        vocabulary = model.get("vocab", {})
        if isinstance(vocabulary, dict):
            model["vocab"] = {self._renamed(name): index for name, index in vocabulary.items()}
        else:  # Unigram keeps (piece, score) pairs
            model["vocab"] = [[self._renamed(name), score] for name, score in vocabulary]
        if model.get("unk_token"):
            model["unk_token"] = self._renamed(model["unk_token"])
        if "merges" in model:  # a merge that spells a marker has nothing to make any more
            merges = []
            for pair in model["merges"]:
                if self._tokens.keys().isdisjoint([*pair, "".join(pair)]):
                    merges.append(pair)
            model["merges"] = merges
        return Tokenizer.from_str(json.dumps(spec))

    def _renamed(self, name: str) -> str:
        return name + self._nonce if name in self._tokens else name


def _is_marker_of(template: str, name: str) -> bool:
    """Whether a template uses ``name`` as a marker. Words in a vocabulary occur in templates by chance."""
    return not name[0].isalnum() and not name[-1].isalnum() and name in template


def _any_of(names: Iterable[str]) -> str:
    """A pattern for any of ``names``, the longest that fits; it matches nothing when there are none."""
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return "|".join(map(re.escape, longest_first)) or r"(?!)"


_STEPS = frozenset(
    (
        "Sequence BertNormalizer ByteLevel Lowercase NFC NFD NFKC NFKD Nmt Precompiled Prepend Replace Strip "
        "StripAccents BertPreTokenizer CharDelimiterSplit Digits FixedLength Metaspace Punctuation Split "
        "UnicodeScripts Whitespace WhitespaceSplit BertProcessing RobertaProcessing TemplateProcessing"
    ).split()
)
"""Normalisers and pre-tokenizers that see one stretch between added tokens at a time; post-processors that
only add special tokens."""

_MODELS = frozenset(("BPE", "Unigram", "WordPiece", "WordLevel"))


def works_between_markers(tokenizer: Any) -> bool:
    """Whether every step of a fast tokenizer is known to treat stretches between added tokens separately.

    It then takes its added tokens out of a text first, leftmost and longest first. So a text may be cut in
    front of a marker that is found whatever surrounds it: each part but the first begins with a marker, as in
    the whole, and steps that treat the beginning of a text differently (Metaspace) see the same.
    """
    backend = tokenizer.backend_tokenizer
    model = backend.model
    if tokenizer.split_special_tokens or getattr(model, "dropout", None):
        return False
    if type(model).__name__ not in _MODELS:
        return False
    for step in (backend.normalizer, backend.pre_tokenizer, backend.post_processor):
        if step is None:
            continue
        try:
            description = step.__getstate__()
        except Exception:  # what tokenizers raises for a step written in Python, of which nothing is known
            return False
        if not _types(json.loads(description)) <= _STEPS:
            return False
    return True


def _types(step: dict[str, Any]) -> set[str]:
    """The types of a step and of all steps in its sequence."""
    inner: list[dict[str, Any]] = (
        step.get("normalizers") or step.get("pretokenizers") or step.get("processors") or []
    )
    return {str(step.get("type"))}.union(*map(_types, inner))


def cuts_cleanly(marker: Any, added: Iterable[str]) -> bool:
    """Whether an added token is found wherever it is written.

    No other token among ``added`` may overlap or hold it. It must not depend on its neighbours, nor begin
    with what another token may take from its right (space) or look at (a letter).
    """
    name = marker.content
    if marker.normalized or marker.lstrip or marker.single_word or name[0] not in "<[":
        return False
    beginnings = tuple(accumulate(name[:-1]))
    for other in added:
        if other.endswith(beginnings) or (name in other and name != other):
            return False
    return True
