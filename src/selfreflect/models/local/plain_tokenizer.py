"""The tokenizer of the embedded model, as transformers' class for it works, without its imports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Template
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer


class Encoded(NamedTuple):
    """Token ids, of one text or of each."""

    input_ids: Any


class PlainTokenizer:
    """What :class:`~selfreflect.models.chat.ChatTokenizer` and generators need of a tokenizer.

    Args:
        folder: holds ``tokenizer.json``, ``tokenizer_config.json`` and ``chat_template.jinja``.
    """

    split_special_tokens = False

    def __init__(self, folder: Path) -> None:
        self.name_or_path = str(folder)
        self.backend_tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.chat_template = (folder / "chat_template.jinja").read_text("utf-8")
        config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
        self.model_max_length = config["model_max_length"]
        self.bos_token_id = self.backend_tokenizer.token_to_id(config["bos_token"])
        self.eos_token_id = self.backend_tokenizer.token_to_id(config["eos_token"])
        self.pad_token_id = self.backend_tokenizer.token_to_id(config["pad_token"])

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size())

    def __call__(
        self, texts: str | Sequence[str], add_special_tokens: bool = True, verbose: bool = True
    ) -> Encoded:
        """Token ids of a text, or of each text. ``verbose`` changes nothing: no text is too long here."""
        if isinstance(texts, str):
            return Encoded(self.backend_tokenizer.encode(texts, add_special_tokens=add_special_tokens).ids)
        encoded = self.backend_tokenizer.encode_batch(list(texts), add_special_tokens=add_special_tokens)
        return Encoded([one.ids for one in encoded])

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """Tokens beside the vocabulary, by id."""
        tokens: dict[int, Any] = self.backend_tokenizer.get_added_tokens_decoder()
        return tokens

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = False) -> str:
        text: str = self.backend_tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens)
        return text

    @cached_property
    def _template(self) -> Template:
        return ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(
            self.chat_template
        )

    def apply_chat_template(
        self, conversations: Sequence[Sequence[dict[str, str]]], add_generation_prompt: bool, **options: Any
    ) -> list[str]:
        """Render conversations. The template reads none of the other options."""
        return [
            self._template.render(messages=turns, add_generation_prompt=add_generation_prompt)
            for turns in conversations
        ]
