"""Conversations to token ids: the model's own chat template, one BOS, and untrusted text that can never
become a special token."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import Any

from selfreflect.errors import JudgeError, excerpt
from selfreflect.models.base import Message
from selfreflect.models.segments import common_start, cuts_cleanly, works_between_markers

_SURROGATE = re.compile("[\ud800-\udfff]")

_TRACE = r"(?i:<(?:[\w:]*think(?:ing)?|reasoning|thought)>|\[THINK\]|<\|START_THINKING\|>)"
_OPEN_TRACE = re.compile(rf"({_TRACE})\s*\Z")

# What a template may look for in a turn, whether or not the tokenizer has a token for it.
_TAG = re.compile(r"</?[\w:|]+>|\[/?[A-Z_]+\]")


class ChatTokenizer:
    """Renders and tokenises conversations for one model.

    Args:
        tokenizer: a transformers tokenizer with a fast (Rust) backend.
        published_bos: tokenise as the published scorer does, with a BOS added to a text that already holds
            one.

    Raises:
        JudgeError: the tokenizer has no fast backend, which is what keeps untrusted text apart from markers.
    """

    def __init__(self, tokenizer: Any, *, published_bos: bool = False) -> None:
        if getattr(tokenizer, "backend_tokenizer", None) is None:
            raise JudgeError(
                f"{tokenizer.name_or_path!r} has no fast tokenizer (tokenizer.json); convert it with transformers first"
            )
        self.tokenizer = tokenizer
        self.published_bos = published_bos
        self._nonce = secrets.token_hex(8)
        self._clean: dict[str, bool] = {}

    def render(self, messages: Sequence[Message], *, thinking: bool = False) -> str:
        """The conversation as one string that ends where the assistant's next turn begins.

        Without ``thinking`` a reasoning block that the template leaves open is closed here, before the turn's
        first word. Markers in the messages are replaced by private stand-ins that :meth:`encode` turns back
        into plain text.

        Raises:
            JudgeError: the model's chat template cannot render these turns.
        """
        [text] = self.render_all([messages], thinking=thinking)
        return text

    def render_all(self, conversations: Sequence[Sequence[Message]], *, thinking: bool = False) -> list[str]:
        """:meth:`render` of each, at less cost: a text that many of them hold is looked through once."""
        disarm = cache(self._disarm)
        turns = [
            [{"role": m.role, "content": disarm(m.content)} for m in messages] for messages in conversations
        ]
        if not self.tokenizer.chat_template:
            return ["\n".join(turn["content"] for turn in each) for each in turns]
        texts = self._apply_template(
            turns if self._system_role else [_fold_system(each) for each in turns], thinking
        )
        return [
            self._checked(text, each[-1]["content"], thinking)
            for text, each in zip(texts, turns, strict=True)
        ]

    def _checked(self, text: str, last: str, thinking: bool) -> str:
        """``text`` as the template wrote it, with an open reasoning block closed, if it holds the ``last``
        turn."""
        if last.strip() not in text:
            raise JudgeError(
                f"the chat template of {self.tokenizer.name_or_path!r} leaves out the text of a turn"
            )
        if not thinking and (opened := _open_trace(text)):
            text += ("" if text.endswith("\n") else "\n") + _closing(opened) + "\n\n"
        return text

    def continued(self, rendered: str, word: str) -> str:
        """``rendered`` with the assistant's turn begun by ``word``. Without a template, turns are joined by
        line ends."""
        return rendered + ("" if self.tokenizer.chat_template else "\n") + self._disarm(word)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of rendered texts, each tokenised as one full string."""
        return self._joined([(text,) for text in texts])

    def encode_alike(self, texts: Sequence[str]) -> list[list[int]]:
        """What :meth:`encode` gives, for texts that begin alike: what they share between markers is tokenised
        once."""
        if not texts or not self._works_between_markers:
            return self.encode(texts)
        longest = max(texts, key=len)
        names = [
            name for name in dict.fromkeys(self._marker_pattern.findall(longest)) if self._cuts_cleanly(name)
        ]
        encoded = self._joined(_cut(texts, re.compile(f"(?={_any_of(names)})")))
        return encoded if encoded[texts.index(longest)] == self.encode([longest])[0] else self.encode(texts)

    def _joined(self, texts: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """Token ids of texts given in parts. If one part needs the armed tokenizer, all parts of its text get
        it, as the whole would."""
        if not texts:
            return []
        parts = list(dict.fromkeys(part for text in texts for part in text))
        encoded = self.tokenizer(parts, add_special_tokens=False, verbose=False).input_ids
        plain = dict(zip(parts, encoded, strict=True))
        foreign = {part: self._foreign_markers(part, ids) for part, ids in plain.items()}
        armed = cache(self._encode_armed)
        joined = []
        for text in texts:
            hidden = any(self._nonce in part for part in text) or sum(foreign[part] for part in text) != 0
            ids: list[int] = []
            for part in text:
                ids += armed(part) if hidden else plain[part]
            joined.append(self._with_bos(ids))
        return joined

    def _apply_template(self, conversations: list[list[dict[str, str]]], thinking: bool) -> list[str]:
        from jinja2 import TemplateError

        if not conversations:
            return []
        try:
            return list(
                self.tokenizer.apply_chat_template(
                    conversations, tokenize=False, add_generation_prompt=True, enable_thinking=thinking
                )
            )
        except TemplateError as error:
            name = self.tokenizer.name_or_path
            raise JudgeError(
                f"the chat template of {name!r} cannot render these turns: {excerpt(str(error), 200)}"
            ) from error

    @cached_property
    def _system_role(self) -> bool:
        """Whether the template accepts a system turn and shows it; Gemma's raises, some others drop it
        silently."""
        try:
            [text] = self._apply_template(
                [[{"role": "system", "content": "SYSTEM-TURN"}, {"role": "user", "content": "x"}]], False
            )
            return "SYSTEM-TURN" in text
        except JudgeError:
            return False

    def _with_bos(self, ids: list[int]) -> list[int]:
        bos = self.tokenizer.bos_token_id
        return [bos, *ids] if self._wants_bos and (self.published_bos or ids[:1] != [bos]) else ids

    @cached_property
    def _wants_bos(self) -> bool:
        """Whether this tokenizer starts a text with BOS by itself; a template that writes its own is then not
        doubled."""
        bos = self.tokenizer.bos_token_id
        return bos is not None and self.tokenizer("x", add_special_tokens=True).input_ids[:1] == [bos]

    # --- untrusted text: markers inside it are swapped for stand-ins before the template runs, so that the
    # markers left in the rendered string are the template's own. Only a text with stand-ins pays for the
    # second tokenizer, whose markers have unguessable names.

    @cached_property
    def _markers(self) -> dict[str, int]:
        """Added tokens that are special, or that the template itself writes or looks for (``</think>``), and
        their ids."""
        added = (
            (i, str(token.content), token.special) for i, token in self.tokenizer.added_tokens_decoder.items()
        )
        return {
            name: i for i, name, special in added if name.strip() and (special or self._in_template(name))
        }

    def _in_template(self, name: str) -> bool:
        """Whether the template holds ``name`` as a marker; words that someone added to a vocabulary occur in
        it by chance."""
        return (
            not name[0].isalnum()
            and not name[-1].isalnum()
            and name in str(self.tokenizer.chat_template or "")
        )

    @cached_property
    def _marker_ids(self) -> frozenset[int]:
        return frozenset(self._markers.values())

    @cached_property
    def _marker_pattern(self) -> re.Pattern[str]:
        return re.compile(_any_of(self._markers))

    @cached_property
    def _works_between_markers(self) -> bool:
        return works_between_markers(self.tokenizer)

    def _cuts_cleanly(self, name: str) -> bool:
        if name not in self._clean:
            added = self.tokenizer.added_tokens_decoder
            self._clean[name] = cuts_cleanly(
                added[self._markers[name]], [str(token.content) for token in added.values()]
            )
        return self._clean[name]

    @cached_property
    def _armed_pattern(self) -> re.Pattern[str]:
        """A stand-in, with what it stands for in hexadecimal digits, or a marker that the template wrote."""
        return re.compile(f"{self._stand_in('([0-9a-f]+)')}|{_any_of(self._markers)}")

    @cached_property
    def _hidden_pattern(self) -> re.Pattern[str]:
        """What no template gets to see in a turn: markers, and tags that it may look for although they are no
        tokens of their own."""
        tags = _TAG.findall(str(self.tokenizer.chat_template or ""))
        return re.compile(f"{_any_of({*self._markers, *tags})}|{_TRACE}")

    def _disarm(self, text: str) -> str:
        return self._hidden_pattern.sub(
            lambda match: self._stand_in(match[0].encode().hex()), _SURROGATE.sub("\ufffd", text)
        )

    def _stand_in(self, digits: str) -> str:
        return f"\ue000{self._nonce}{digits}\ue001"

    def _foreign_markers(self, text: str, ids: list[int]) -> int:
        """How many more marker tokens a text has than it spells; a normaliser can make them, of full-width
        letters for example."""
        return sum(i in self._marker_ids for i in ids) - len(self._marker_pattern.findall(text))

    def _encode_armed(self, text: str) -> list[int]:
        text = self._armed_pattern.sub(
            lambda match: bytes.fromhex(match[1]).decode() if match[1] else match[0] + self._nonce, text
        )
        return list(self._renamed_backend.encode(text, add_special_tokens=False).ids)

    @cached_property
    def _renamed_backend(self) -> Any:
        """The same tokenizer with every marker renamed to marker + nonce, ids unchanged."""
        from tokenizers import Tokenizer

        spec = json.loads(self.tokenizer.backend_tokenizer.to_str())
        for token in spec["added_tokens"]:
            token["content"] = self._renamed(token["content"])
        spec["post_processor"] = None  # it names the old markers, and BOS is added by _with_bos
        model = spec["model"]
        vocabulary = model.get("vocab", {})
        if isinstance(vocabulary, dict):
            model["vocab"] = {self._renamed(name): i for name, i in vocabulary.items()}
        else:  # Unigram keeps (piece, score) pairs
            model["vocab"] = [[self._renamed(name), score] for name, score in vocabulary]
        if model.get("unk_token"):
            model["unk_token"] = self._renamed(model["unk_token"])
        if "merges" in model:  # a merge that spells a marker has nothing to make any more
            model["merges"] = [
                pair for pair in model["merges"] if self._markers.keys().isdisjoint([*pair, "".join(pair)])
            ]
        return Tokenizer.from_str(json.dumps(spec))

    def _renamed(self, name: str) -> str:
        return name + self._nonce if name in self._markers else name


def opened_trace(rendered: str) -> bool:
    """Whether a rendered prompt ends inside a reasoning block, so that the reply will only close it."""
    return _open_trace(rendered) is not None


def _open_trace(rendered: str) -> str | None:
    """The tag of a reasoning block that a prompt leaves open. A tag has one bracket that opens, so a search
    from the last finds it."""
    opened = _OPEN_TRACE.search(rendered, max(rendered.rfind("<"), rendered.rfind("["), 0))
    return opened[1] if opened else None


def _cut(texts: Sequence[str], places: re.Pattern[str]) -> list[tuple[str, ...]]:
    """Each text in parts: up to the last of ``places`` in what all of them share, then from place to
    place."""
    shared = max((place.start() for place in places.finditer(common_start(texts))), default=0)
    head = texts[0][:shared]
    return [tuple(part for part in (head, *places.split(text[shared:])) if part) or ("",) for text in texts]


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


def _any_of(names: Iterable[str]) -> str:
    """A pattern for any of ``names``, the longest that fits; it matches nothing when there are none."""
    return "|".join(re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name))) or r"(?!)"
