"""Conversations to token ids: the model's own chat template, one BOS, and untrusted text that can never become a special token."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from selfreflect.errors import JudgeError
from selfreflect.models.base import Message

_SURROGATE = re.compile("[\ud800-\udfff]")

_OPEN_TRACE = re.compile(r"(<(?:[\w:]*think(?:ing)?|reasoning|thought)>|\[THINK\]|<\|START_THINKING\|>)\s*\Z", re.IGNORECASE)


class ChatTokenizer:
    """Renders and tokenises conversations for one model.

    Args:
        tokenizer: a transformers tokenizer with a fast (Rust) backend.
        published_bos: tokenise as the published scorer does, with special tokens added to a text that already holds them.

    Raises:
        JudgeError: the tokenizer has no fast backend, which is what keeps untrusted text apart from markers.
    """

    def __init__(self, tokenizer: Any, *, published_bos: bool = False) -> None:
        if getattr(tokenizer, "backend_tokenizer", None) is None:
            raise JudgeError(f"{tokenizer.name_or_path!r} has no fast tokenizer (tokenizer.json); convert it with transformers first")
        self.tokenizer = tokenizer
        self.published_bos = published_bos
        self._nonce = secrets.token_hex(8)

    def render(self, messages: Sequence[Message], *, thinking: bool = False) -> str:
        """The conversation as one string that ends where the assistant's next turn begins.

        Without ``thinking`` a reasoning block that the template leaves open is closed here, before the turn's first word. Markers in the
        messages are replaced by private stand-ins that :meth:`encode` turns back into plain text.
        """
        turns = [{"role": m.role, "content": self._disarm(m.content)} for m in messages]
        if not self.tokenizer.chat_template:
            return "\n".join(turn["content"] for turn in turns)
        text = self._apply_template(turns if self._system_role else _fold_system(turns), thinking)
        if not thinking and (opened := _OPEN_TRACE.search(text)):
            text += ("" if text.endswith("\n") else "\n") + _closing(opened[1]) + "\n\n"
        return text

    def continued(self, rendered: str, word: str) -> str:
        """``rendered`` with the assistant's turn begun by ``word``. Without a template, turns are joined by line ends."""
        return rendered + ("" if self.tokenizer.chat_template else "\n") + self._disarm(word)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of rendered texts, each tokenised as one full string."""
        if not texts:
            return []
        plain = [i for i, text in enumerate(texts) if self._nonce not in text]
        ids: list[list[int]] = [[] for _ in texts]
        if plain:
            encoded = self.tokenizer([texts[i] for i in plain], add_special_tokens=self.published_bos, verbose=False).input_ids
            for i, tokens in zip(plain, encoded, strict=True):
                ids[i] = tokens
        for i in set(range(len(texts))).difference(plain):
            ids[i] = self._encode_armed(texts[i])
        return [self._with_bos(tokens) for tokens in ids]

    def _apply_template(self, turns: list[dict[str, str]], thinking: bool) -> str:
        rendered = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, enable_thinking=thinking)
        return str(rendered)

    @cached_property
    def _system_role(self) -> bool:
        """Whether the template accepts a system turn and shows it; Gemma's raises, some others drop it silently."""
        from jinja2 import TemplateError

        try:
            return "SYSTEM-TURN" in self._apply_template(
                [{"role": "system", "content": "SYSTEM-TURN"}, {"role": "user", "content": "x"}], thinking=False
            )
        except TemplateError:
            return False

    def _with_bos(self, ids: list[int]) -> list[int]:
        bos = self.tokenizer.bos_token_id
        return [bos, *ids] if self._wants_bos and ids[:1] != [bos] else ids

    @cached_property
    def _wants_bos(self) -> bool:
        """Whether this tokenizer starts a text with BOS by itself; a template that writes its own is then not doubled."""
        bos = self.tokenizer.bos_token_id
        return bos is not None and self.tokenizer("x", add_special_tokens=True).input_ids[:1] == [bos]

    # --- untrusted text: markers inside it are swapped for stand-ins before the template runs, so that the markers left in the rendered
    # string are the template's own. Only a text with stand-ins pays for the second tokenizer, whose markers have unguessable names.

    @cached_property
    def _markers(self) -> list[str]:
        """Added tokens that are special, or that the template itself writes or looks for (``</think>``). Longest first."""
        template = str(self.tokenizer.chat_template or "")
        added = self.tokenizer.added_tokens_decoder.values()
        names = {str(token.content) for token in added if token.special or token.content in template}
        return sorted((name for name in names if name.strip()), key=lambda name: (-len(name), name))

    @cached_property
    def _marker_pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self._markers)) or r"(?!)")

    def _disarm(self, text: str) -> str:
        text = _SURROGATE.sub("\ufffd", text)
        return self._marker_pattern.sub(lambda match: self._stand_in(self._markers.index(match[0])), text)

    def _stand_in(self, index: int) -> str:
        return f"\ue000{self._nonce}.{index}\ue001"

    def _encode_armed(self, text: str) -> list[int]:
        text = self._marker_pattern.sub(lambda match: match[0] + self._nonce, text)
        for index, marker in enumerate(self._markers):
            text = text.replace(self._stand_in(index), marker)
        return list(self._renamed_backend.encode(text, add_special_tokens=False).ids)

    @cached_property
    def _renamed_backend(self) -> Any:
        """The same tokenizer with every marker renamed to marker + nonce, ids unchanged."""
        from tokenizers import Tokenizer

        spec = json.loads(self.tokenizer.backend_tokenizer.to_str())
        markers = set(self._markers)
        for token in spec["added_tokens"]:
            if token["content"] in markers:
                token["content"] += self._nonce
        spec["post_processor"] = None  # it names the old markers, and BOS is added by _with_bos
        vocabulary = spec["model"].get("vocab", {})
        if isinstance(vocabulary, dict):
            spec["model"]["vocab"] = {name + self._nonce if name in markers else name: i for name, i in vocabulary.items()}
        else:  # Unigram keeps (piece, score) pairs
            spec["model"]["vocab"] = [[name + self._nonce if name in markers else name, score] for name, score in vocabulary]
        if spec["model"].get("unk_token") in markers:
            spec["model"]["unk_token"] += self._nonce
        return Tokenizer.from_str(json.dumps(spec))


def opened_trace(rendered: str) -> bool:
    """Whether a rendered prompt ends inside a reasoning block, so that the reply will only close it."""
    return _OPEN_TRACE.search(rendered) is not None


def _fold_system(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """Put a leading system turn in front of the first user turn, for templates without a system role."""
    if turns[0]["role"] != "system":
        return turns
    first = {"role": "user", "content": turns[0]["content"] + "\n" + turns[1]["content"]}
    return [first, *turns[2:]]


def _closing(tag: str) -> str:
    if tag.startswith("<|"):
        return tag.replace("START", "END").replace("start", "end")
    return tag[0] + "/" + tag[1:]
