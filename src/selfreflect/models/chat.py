"""Conversations to token ids (chat template, one BOS, untrusted text that never becomes a special token), and
generated tokens to completions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from itertools import chain
from typing import Any

from selfreflect.errors import JudgeError, excerpt
from selfreflect.models.base import Completion, Message
from selfreflect.models.markers import TRACE, Markers
from selfreflect.models.reasoning import UnclosedReasoningError, split_reasoning
from selfreflect.text import common_prefix

_MAX_CHARACTERS_PER_TOKEN = 256
"""More than any token of a meaningful text has."""

_OPEN_TRACE = re.compile(rf"({TRACE})\s*\Z")


class ChatTokenizer:
    """Renders and tokenises conversations for one model, and reads what it generated.

    Args:
        tokenizer: of transformers, or the embedded model's. Its fast (Rust) backend keeps untrusted text
            apart from markers.
        published_bos: add a BOS to a text that already holds one, as the published scorer does.
        vocabulary: token ids that the model has; None for all that the tokenizer makes.
    """

    def __init__(self, tokenizer: Any, *, published_bos: bool = False, vocabulary: int | None = None) -> None:
        if getattr(tokenizer, "backend_tokenizer", None) is None:
            raise JudgeError(
                f"{tokenizer.name_or_path!r} has no fast tokenizer (tokenizer.json); convert it with "
                "transformers first"
            )
        self.tokenizer = tokenizer
        self.published_bos = published_bos
        self.vocabulary = vocabulary

    @cached_property
    def _markers(self) -> Markers:
        return Markers(self.tokenizer)

    def render(self, messages: Sequence[Message], *, thinking: bool = False) -> str:
        """The conversation as one string that ends where the assistant's next turn begins.

        Without ``thinking`` a reasoning block that the template leaves open is closed. Markers in the
        messages become private stand-ins, which :meth:`encode` turns back into plain text. Raises JudgeError
        where the template cannot render these turns.
        """
        [text] = self.render_all([messages], thinking=thinking)
        return text

    def render_all(self, conversations: Sequence[Sequence[Message]], *, thinking: bool = False) -> list[str]:
        """:meth:`render` each; a text that occurs in many of them is searched for markers once."""
        disarm = cache(self._markers.disarm)
        conversations_of_turns = []
        for messages in conversations:
            turns = [{"role": message.role, "content": disarm(message.content)} for message in messages]
            conversations_of_turns.append(turns)
        if not self.tokenizer.chat_template:
            return ["\n".join(turn["content"] for turn in turns) for turns in conversations_of_turns]
        if not self._has_system_role:
            conversations_of_turns = list(map(_fold_system, conversations_of_turns))
        texts = self._apply_template(conversations_of_turns, thinking)
        for text, turns in zip(texts, conversations_of_turns, strict=True):
            if turns[-1]["content"].strip() not in text:
                raise JudgeError(
                    f"the chat template of {self.tokenizer.name_or_path!r} leaves out the text of a turn"
                )
        return texts if thinking else list(map(_close_trace, texts))

    def continued(self, rendered: str, word: str) -> str:
        """``rendered`` continued by the first ``word`` of the assistant's turn."""
        separator = "" if self.tokenizer.chat_template else "\n"
        return rendered + separator + self._markers.disarm(word)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of rendered texts, each tokenised as one full string. Raises JudgeError where the model
        lacks one."""
        return self._encode_parts([(text,) for text in texts])

    def encode_alike(self, texts: Sequence[str]) -> list[list[int]]:
        """:meth:`encode` for texts that begin alike: what they share between markers is tokenised once."""
        if not texts or not self._markers.can_cut:
            return self.encode(texts)
        longest = max(texts, key=len)
        encoded = self._encode_parts(_cut(texts, self._markers.places_in(longest)))
        if encoded[texts.index(longest)] != self.encode([longest])[0]:
            return self.encode(texts)
        return encoded

    def completion(self, tokens: Sequence[int], *, in_trace: bool, stopped: bool) -> Completion:
        """What the model generated, without reasoning trace and special tokens. ``in_trace``: the prompt ends
        inside a trace. ``stopped``: the model ended by itself."""
        raw = self.tokenizer.decode(tokens, skip_special_tokens=False)
        try:
            visible = split_reasoning(raw, in_trace).visible
        except UnclosedReasoningError:
            return Completion(text="", finish="unclosed_reasoning", tokens=len(tokens))
        if visible == raw.strip():
            visible = self.tokenizer.decode(tokens, skip_special_tokens=True)
        else:
            # some models write their reasoning tags as special tokens, which must be there to find the trace
            for token in self.tokenizer.added_tokens_decoder.values():
                if token.special:
                    visible = visible.replace(token.content, "")
        return Completion(text=visible.strip(), finish="stop" if stopped else "length", tokens=len(tokens))

    def token_texts(self, tokens: Sequence[int]) -> list[str | None]:
        """The text that each generated token adds to those before it; None for a special token, which has no
        text. Of several tokens that are one character together, the last one has it, and the others are
        empty."""
        texts: list[str | None] = []
        start = stop = 0  # text is known up to `stop`; `start` is one step before it
        for end in range(1, len(tokens) + 1):
            # Some tokenizers leave out the space before the first token of a text, so there is one before it.
            before = self.tokenizer.decode(tokens[start:stop], skip_special_tokens=True)
            text = self.tokenizer.decode(tokens[start:end], skip_special_tokens=True)
            if text == before:
                texts.append(None)
            elif text.endswith("\ufffd") and end < len(tokens):
                texts.append("")
            else:
                texts.append(text[len(before) :])
                start, stop = stop, end
        return texts

    def _encode_parts(self, texts: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """Token ids of texts in parts. Where one needs renamed markers, all parts of the text get them."""
        if not texts:
            return []
        parts = list(dict.fromkeys(chain.from_iterable(texts)))
        encoded = self.tokenizer(parts, add_special_tokens=False, verbose=False).input_ids
        self._check_ids(encoded)
        plain = dict(zip(parts, encoded, strict=True))
        excess = {part: self._markers.excess(part, ids) for part, ids in plain.items()}
        encode_safely = cache(self._markers.encode)
        ids_of_texts = []
        for text in texts:
            has_stand_in = any(map(self._markers.has_stand_in, text))
            unsafe = has_stand_in or sum(excess[part] for part in text) != 0
            ids: list[int] = []
            for part in text:
                ids += encode_safely(part) if unsafe else plain[part]
            ids_of_texts.append(self._with_bos(ids))
        return ids_of_texts

    def _check_ids(self, encoded: Sequence[Sequence[int]]) -> None:
        if self.vocabulary is None:
            return
        highest = max(map(max, filter(None, encoded)), default=0)
        if highest >= self.vocabulary:
            raise JudgeError(
                f"the tokenizer of {self.tokenizer.name_or_path!r} writes "
                f"{excerpt(self.tokenizer.decode([highest]))} as token {highest}, but the model has only "
                f"{self.vocabulary} embeddings: tokenizer and weights do not belong together"
            )

    def _apply_template(self, conversations: list[list[dict[str, str]]], thinking: bool) -> list[str]:
        if not conversations:
            return []
        try:
            texts = self.tokenizer.apply_chat_template(
                conversations, tokenize=False, add_generation_prompt=True, enable_thinking=thinking
            )
        except Exception as error:  # a template is a program, which may raise anything
            name = self.tokenizer.name_or_path
            problem = excerpt(str(error) or type(error).__name__, 200)
            raise JudgeError(f"the chat template of {name!r} cannot render these turns: {problem}") from error
        return list(texts)

    @cached_property
    def _has_system_role(self) -> bool:
        """Whether the template shows a system turn; Gemma's raises, others drop it silently."""
        probe = [{"role": "system", "content": "SYSTEM-TURN"}, {"role": "user", "content": "x"}]
        try:
            return "SYSTEM-TURN" in self._apply_template([probe], False)[0]
        except JudgeError:
            return False

    def _with_bos(self, ids: list[int]) -> list[int]:
        bos = self.tokenizer.bos_token_id
        if not self._wants_bos or (ids[:1] == [bos] and not self.published_bos):
            return ids
        return [bos, *ids]

    @cached_property
    def _wants_bos(self) -> bool:
        """Whether this tokenizer starts a text with BOS. One that the template writes is not doubled."""
        bos = self.tokenizer.bos_token_id
        return bos is not None and self.tokenizer("x", add_special_tokens=True).input_ids[:1] == [bos]


def fewest_tokens(texts: Iterable[str]) -> int:
    """A lower bound of the number of tokens of all texts."""
    characters = 0
    words = 0
    for text in texts:
        characters += len(text)
        words += len(text.split())
    return max(characters // _MAX_CHARACTERS_PER_TOKEN, words)


def ends_in_trace(rendered: str) -> bool:
    """Whether a rendered prompt ends inside a reasoning block, so that the reply will only close it."""
    return _open_trace(rendered) != ""


def _open_trace(rendered: str) -> str:
    """The tag of a reasoning block that a prompt leaves open; empty without one."""
    match = _OPEN_TRACE.search(rendered, max(rendered.rfind("<"), rendered.rfind("["), 0))
    return match[1] if match else ""


def _close_trace(rendered: str) -> str:
    tag = _open_trace(rendered)
    if not tag:
        return rendered
    closing = tag[0] + "/" + tag[1:]
    if tag.startswith("<|"):
        closing = tag.replace("START", "END").replace("start", "end")
    separator = "" if rendered.endswith("\n") else "\n"
    return f"{rendered}{separator}{closing}\n\n"


def _cut(texts: Sequence[str], places: re.Pattern[str]) -> list[tuple[str, ...]]:
    """Cut each text: at the last of ``places`` in their common prefix, then at each further one."""
    prefix = texts[0][: common_prefix(min(texts), max(texts))]
    end = max((place.start() for place in places.finditer(prefix)), default=0)
    parts_of_texts = []
    for text in texts:
        parts = [text[:end], *places.split(text[end:])]
        parts_of_texts.append(tuple(filter(None, parts)) or ("",))
    return parts_of_texts


def _fold_system(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """Put a leading system turn in front of the first user turn, for templates without a system role."""
    if turns[0]["role"] != "system":
        return turns
    first = {"role": "user", "content": turns[0]["content"] + "\n" + turns[1]["content"]}
    return [first, *turns[2:]]
