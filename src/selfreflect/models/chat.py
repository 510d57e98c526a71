"""Conversion of conversations to token ids, without special tokens from untrusted text.

Before the chat template runs, markers such as ``<|im_end|>`` inside untrusted text become placeholders, so
the markers left in the rendered string are the template's own. Only a text with placeholders pays for the
second tokenizer, whose markers have unguessable names.

A template is code of the model's author. Its sandbox bounds neither time nor memory.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache, cached_property
from itertools import accumulate, chain
from typing import Any

from selfreflect.errors import JudgeError, excerpt
from selfreflect.models.base import Message
from selfreflect.text import common_prefix

TRACE = r"(?i:<(?:[\w:]*think(?:ing)?|reasoning|thought)>|\[THINK\]|<\|START_THINKING\|>)"
"""A tag that opens a reasoning trace."""

TEMPLATE_DATE = datetime(2024, 7, 26)
"""Fixed date for templates that print today's date, to keep results reproducible. Llama templates use it as
their default."""

_DATE_FILTERS = "".join(
    f"|replace('%{code}', '{TEMPLATE_DATE.strftime(f'%{code}')}')" for code in "dbBYmyAaHMSIpj"
)
_DATE_MACRO = f"{{% macro strftime_now(format) %}}{{{{ format{_DATE_FILTERS} }}}}{{% endmacro %}}"
"""Macro that replaces transformers' function, which only knows today's date."""

# More than any token of a meaningful text has.
_MAX_CHARACTERS_PER_TOKEN = 256

_OPEN_TRACE = re.compile(rf"({TRACE})\s*\Z")


class ChatTokenizer:
    """Tokenizer of conversations for one model.

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
                "transformers first",
                code="tokenizer",
            )
        self.tokenizer = tokenizer
        self.published_bos = published_bos
        self.vocabulary = vocabulary

    @cached_property
    def _markers(self) -> Markers:
        return Markers(self.tokenizer)

    def render(self, messages: Sequence[Message], *, thinking: bool = False) -> str:
        """Render a conversation as one string, ending where the assistant's turn begins.

        Without ``thinking`` a reasoning block that the template leaves open is closed. Markers in the
        messages become private placeholders, which :meth:`encode` turns back into plain text. Raises
        JudgeError where the template cannot render these turns.
        """
        [text] = self.render_all([messages], thinking=thinking)
        return text

    def render_all(self, conversations: Sequence[Sequence[Message]], *, thinking: bool = False) -> list[str]:
        """Render conversations; see :meth:`render`."""
        # the question stands in many conversations of a call
        disarm = cache(self._markers.disarm)
        conversations_of_turns = []
        for messages in conversations:
            turns = [{"role": message.role, "content": disarm(message.content)} for message in messages]
            conversations_of_turns.append(turns)
        # a model without a template continues the turns as lines
        if not self.tokenizer.chat_template:
            return ["\n".join(turn["content"] for turn in turns) for turns in conversations_of_turns]
        if not self._has_system_role:
            conversations_of_turns = list(map(_fold_system, conversations_of_turns))
        texts = self._apply_template(conversations_of_turns, thinking)
        # A template for images, say, drops a plain text without an error, and the model would never read it.
        for text, turns in zip(texts, conversations_of_turns, strict=True):
            if turns[-1]["content"].strip() not in text:
                raise JudgeError(
                    f"the chat template of {self.tokenizer.name_or_path!r} leaves out the text of a turn",
                    code="template",
                )
        return texts if thinking else list(map(_close_trace, texts))

    def continued(self, rendered: str, word: str) -> str:
        """Append the assistant's ``word`` to a rendered conversation."""
        separator = "" if self.tokenizer.chat_template else "\n"
        return rendered + separator + self._markers.disarm(word)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenise rendered texts as full strings. Raises JudgeError if the model lacks a token."""
        return self._encode_parts([(text,) for text in texts])

    def encode_alike(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenise texts with a common prefix, processing shared parts once."""
        if not texts or not self._markers.can_cut:
            return self.encode(texts)
        longest = max(texts, key=len)
        encoded = self._encode_parts(_cut(texts, self._markers.places_in(longest)))
        # The longest text shows whether cutting changes ids: steps that nobody has heard of may look across.
        if encoded[texts.index(longest)] != self.encode([longest])[0]:
            return self.encode(texts)
        return encoded

    def _encode_parts(self, texts: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """Tokenise texts in parts. If one part needs renamed markers, all parts of its text get them."""
        if not texts:
            return []
        parts = list(dict.fromkeys(chain.from_iterable(texts)))
        encoded = self.tokenizer(parts, add_special_tokens=False, verbose=False).input_ids
        self._check_ids(encoded)
        plain = dict(zip(parts, encoded, strict=True))
        # More markers than the text spells were made of ordinary letters by a normaliser.
        excess = {part: self._markers.excess(part, ids) for part, ids in plain.items()}
        encode_safely = cache(self._markers.encode)
        ids_of_texts = []
        for text in texts:
            has_placeholder = any(map(self._markers.has_placeholder, text))
            # a normaliser can make a marker of ordinary letters, such as full-width brackets
            unsafe = has_placeholder or sum(excess[part] for part in text) != 0
            ids: list[int] = []
            for part in text:
                ids += encode_safely(part) if unsafe else plain[part]
            if self.published_bos or ids[:1] != self._bos:  # one that the template writes is not doubled
                ids = self._bos + ids
            ids_of_texts.append(ids)
        return ids_of_texts

    def _check_ids(self, encoded: Sequence[Sequence[int]]) -> None:
        if self.vocabulary is None:
            return
        highest = max(map(max, filter(None, encoded)), default=0)
        if highest >= self.vocabulary:
            raise JudgeError(
                f"the tokenizer of {self.tokenizer.name_or_path!r} writes "
                f"{excerpt(self.tokenizer.decode([highest]))} as token {highest}, but the model has only "
                f"{self.vocabulary} embeddings: tokenizer and weights do not belong together",
                code="tokenizer",
            )

    def _apply_template(self, conversations: list[list[dict[str, str]]], thinking: bool) -> list[str]:
        if not conversations:
            return []
        try:
            texts = self.tokenizer.apply_chat_template(
                conversations,
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=thinking,
                **self._dated,
            )
        except Exception as error:  # a template is a program, which may raise anything
            name = self.tokenizer.name_or_path
            problem = excerpt(str(error) or type(error).__name__, 200)
            raise JudgeError(
                f"the chat template of {name!r} cannot render these turns: {problem}", code="template"
            ) from error
        return list(texts)

    @cached_property
    def _dated(self) -> dict[str, str]:
        """Template options that provide the date, if the template asks for it."""
        template = self.tokenizer.chat_template
        writes_date = isinstance(template, str) and "strftime_now" in template
        return {"chat_template": _DATE_MACRO + template} if writes_date else {}

    @cached_property
    def _has_system_role(self) -> bool:
        """Whether the template renders a system turn."""
        probe = [{"role": "system", "content": "SYSTEM-TURN"}, {"role": "user", "content": "x"}]
        try:
            return "SYSTEM-TURN" in self._apply_template([probe], False)[0]
        except JudgeError:
            return False

    @cached_property
    def _bos(self) -> list[int]:
        """Ids that the tokenizer puts before each text: its BOS, or none."""
        bos = [self.tokenizer.bos_token_id]
        return bos if self.tokenizer("x", add_special_tokens=True).input_ids[:1] == bos else []


def fewest_tokens(texts: Iterable[str]) -> int:
    """Bound the number of tokens in all texts from below."""
    characters = 0
    words = 0
    for text in texts:
        characters += len(text)
        words += len(text.split())
    return max(characters // _MAX_CHARACTERS_PER_TOKEN, words)


def ends_in_trace(rendered: str) -> bool:
    """Check whether a rendered prompt ends inside a reasoning block."""
    return _open_trace(rendered) != ""


def _open_trace(rendered: str) -> str:
    """Find the tag of an unclosed reasoning block at the end of a prompt; empty if there is none."""
    match = _OPEN_TRACE.search(rendered, max(rendered.rfind("<"), rendered.rfind("["), 0))
    return match[1] if match else ""


def _close_trace(rendered: str) -> str:
    tag = _open_trace(rendered)
    if not tag:
        return rendered
    # </think>, [/THINK]; the other form is <|END_THINKING|>
    closing = tag[0] + "/" + tag[1:]
    if tag.startswith("<|"):
        closing = tag.replace("START", "END").replace("start", "end")
    separator = "" if rendered.endswith("\n") else "\n"
    return f"{rendered}{separator}{closing}\n\n"


def _cut(texts: Sequence[str], cut_at: re.Pattern[str]) -> list[tuple[str, ...]]:
    """Cut each text at the last match of ``cut_at`` in the common prefix, and at each later match."""
    prefix = texts[0][: common_prefix(min(texts), max(texts))]
    end = max((match.start() for match in cut_at.finditer(prefix)), default=0)
    parts_of_texts = []
    for text in texts:
        parts = [text[:end], *cut_at.split(text[end:])]
        parts_of_texts.append(tuple(filter(None, parts)) or ("",))
    return parts_of_texts


def _fold_system(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """Merge a leading system turn into the first user turn, for templates without a system role."""
    if turns[0]["role"] != "system":
        return turns
    first = {"role": "user", "content": turns[0]["content"] + "\n" + turns[1]["content"]}
    return [first, *turns[2:]]


_SURROGATE = re.compile("[\ud800-\udfff]")

# What a template may look for in a turn, whether or not the tokenizer has a token for it.
_TAG = re.compile(r"</?[\w:|]+>|\[/?[A-Z_]+\]")


class Markers:
    """Markers of a tokenizer: special tokens, and added tokens in its chat template (``</think>``)."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._nonce = secrets.token_hex(8)
        template = str(tokenizer.chat_template or "")
        self._tokens: dict[str, Any] = {}
        self._ids: set[int] = set()
        self._clean: dict[str, bool] = {}
        for index, token in tokenizer.added_tokens_decoder.items():
            name = str(token.content)
            # words occur in templates by chance
            is_written = name in template and not name[:1].isalnum() and not name[-1:].isalnum()
            if name.strip() and (token.special or is_written):
                self._tokens[name] = token
                self._ids.add(index)
        any_marker = _any_of(self._tokens)
        self._pattern = re.compile(any_marker)
        self._hidden = re.compile(f"{_any_of({*self._tokens, *_TAG.findall(template)})}|{TRACE}")
        self._armed = re.compile(f"{self._placeholder('([0-9a-f]+)')}|{any_marker}")

    def disarm(self, text: str) -> str:
        """Replace markers and template tags in a text with placeholders."""
        text = _SURROGATE.sub("\ufffd", text)
        return self._hidden.sub(lambda match: self._placeholder(match[0].encode().hex()), text)

    def has_placeholder(self, text: str) -> bool:
        return self._nonce in text

    def excess(self, text: str, ids: list[int]) -> int:
        """Count the marker tokens in ``ids`` that ``text`` does not contain, but a normaliser added."""
        return sum(index in self._ids for index in ids) - len(self._pattern.findall(text))

    def encode(self, text: str) -> list[int]:
        """Tokenise a rendered text. Placeholders become plain text, and no normaliser can make a marker."""

        def rename(match: re.Match[str]) -> str:
            return bytes.fromhex(match[1]).decode() if match[1] else self._renamed(match[0])

        text = self._armed.sub(rename, text)
        return list(self._renamed_tokenizer.encode(text, add_special_tokens=False).ids)

    @cached_property
    def can_cut(self) -> bool:
        return works_between_markers(self._tokenizer)

    def places_in(self, text: str) -> re.Pattern[str]:
        """Make a pattern for the positions at which texts that begin like ``text`` can safely be cut."""
        names = filter(self._cuts_cleanly, set(self._pattern.findall(text)))
        return re.compile(f"(?={_any_of(names)})")

    def _cuts_cleanly(self, name: str) -> bool:
        if name not in self._clean:
            added = [str(token.content) for token in self._tokenizer.added_tokens_decoder.values()]
            self._clean[name] = cuts_cleanly(self._tokens[name], added)
        return self._clean[name]

    def _placeholder(self, digits: str) -> str:
        """Encode a marker as its placeholder, in hexadecimal digits."""
        # private-use characters, which no tokenizer gives a meaning
        return f"\ue000{self._nonce}{digits}\ue001"

    @cached_property
    def _renamed_tokenizer(self) -> Any:
        """A copy of the tokenizer with renamed markers and unchanged ids."""
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
                # a merge could make the marker again from its letters
                if self._tokens.keys().isdisjoint([*pair, "".join(pair)]):
                    merges.append(pair)
            model["merges"] = merges
        return Tokenizer.from_str(json.dumps(spec))

    def _renamed(self, name: str) -> str:
        return name + self._nonce if name in self._tokens else name


def _any_of(names: Iterable[str]) -> str:
    """Make a pattern for any of ``names``, longest first; without names it never matches."""
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return "|".join(map(re.escape, longest_first)) or r"(?!)"


# Normalisers and pre-tokenizers that see one stretch between added tokens at a time;
# post-processors that only add special tokens.
_STEPS = frozenset(
    (
        "Sequence BertNormalizer ByteLevel Lowercase NFC NFD NFKC NFKD Nmt Precompiled Prepend Replace Strip "
        "StripAccents BertPreTokenizer CharDelimiterSplit Digits FixedLength Metaspace Punctuation Split "
        "UnicodeScripts Whitespace WhitespaceSplit BertProcessing RobertaProcessing TemplateProcessing"
    ).split()
)

_MODELS = frozenset(("BPE", "Unigram", "WordPiece", "WordLevel"))


def works_between_markers(tokenizer: Any) -> bool:
    """Check whether a fast tokenizer processes the text between added tokens separately.

    It then takes its added tokens out of a text first, leftmost and longest first. So a text may be cut in
    front of a marker that is found whatever surrounds it: each part but the first begins with a marker, as in
    the whole, and steps that treat the beginning of a text differently (Metaspace) see the same.
    """
    backend = tokenizer.backend_tokenizer
    model = backend.model
    if tokenizer.split_special_tokens or getattr(model, "dropout", None):
        # BPE dropout tokenises the same text in several ways
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
    """Collect the types of a tokenizer step and its nested steps."""
    inner: list[dict[str, Any]] = (
        step.get("normalizers") or step.get("pretokenizers") or step.get("processors") or []
    )
    return {str(step.get("type"))}.union(*map(_types, inner))


def cuts_cleanly(marker: Any, added: Iterable[str]) -> bool:
    """Check whether an added token is recognised wherever it occurs.

    No other token among ``added`` may overlap or hold it. It must not depend on its neighbours, nor begin
    with what another token may take from its right (space) or look at (a letter).
    """
    name = marker.content
    if marker.normalized or marker.lstrip or marker.single_word or name[0] not in "<[":
        return False
    beginnings = tuple(accumulate(name[:-1]))
    for name_beside in added:
        if name_beside.endswith(beginnings) or (name in name_beside and name != name_beside):
            return False
    return True
