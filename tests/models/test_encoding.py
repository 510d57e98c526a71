"""Parts instead of full strings: whatever the text, template and tokenizer, the ids are those of full
strings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tiny_chat import (
    CHATML,
    CHATML_MARKERS,
    INSTRUCT,
    QWEN3,
    R1,
    byte_bpe,
    chatml,
    gemma,
    instruct,
    llama3,
    metaspace_bpe,
    unigram,
    wordpiece,
    wrapped,
)
from tokenizers import AddedToken, Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import selfreflect.models.chat as chat_module
from selfreflect.errors import JudgeError
from selfreflect.metric.prompts import reference_context, summary_context
from selfreflect.models.base import Message
from selfreflect.models.judge import Judge

STRIPS = CHATML.replace("m.content", "m.content | trim | upper")
REPEATS = CHATML.replace("+ m.content +", "+ m.content + ' ' + m.content | reverse +")
COUNTS = CHATML.replace("+ m.content +", "+ m.content | length | string + m.content +")


def with_added(backend: Tokenizer, **options: bool) -> PreTrainedTokenizerFast:
    """Markers, and ordinary words beside them, that are normalised or take the space beside them."""
    backend.add_special_tokens([AddedToken(marker, special=True, **options) for marker in CHATML_MARKERS])
    backend.add_tokens([AddedToken(word, special=False, **options) for word in ("Paris", "_", "\n", "nt|>x")])
    return wrapped(backend, CHATML, ())


def prepends(scheme: str) -> PreTrainedTokenizerFast:
    backend = unigram()
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    return wrapped(backend)


def other_markers(*others: str) -> PreTrainedTokenizerFast:
    return wrapped(byte_bpe(), CHATML, (*CHATML_MARKERS, *others))


def splits_its_markers() -> PreTrainedTokenizerFast:
    made = chatml()
    made.split_special_tokens = True
    return made


TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "byte-level": chatml,
    "byte-level, llama": llama3,
    "byte-level, gemma": gemma,
    "byte-level with a space before": lambda: _with_space(),
    "no template": lambda: chatml(None),
    "no template, metaspace": lambda: wrapped(metaspace_bpe(), None),
    "reasoning": lambda: chatml(QWEN3, plain=("<think>", "</think>")),
    "open reasoning": lambda: chatml(R1),
    "strips": lambda: chatml(STRIPS),
    "repeats": lambda: chatml(REPEATS),
    "counts": lambda: wrapped(unigram(), COUNTS),
    "metaspace": lambda: wrapped(metaspace_bpe()),
    "metaspace, inst": lambda: instruct(metaspace_bpe("<s>", "</s>")),
    "unigram first, inst": lambda: wrapped(
        unigram("<s>", "</s>"), INSTRUCT, ("<s>", "</s>", "[INST]", "[/INST]"), bos="<s>", adds_bos=True
    ),
    "unigram first": lambda: prepends("first"),
    "unigram always": lambda: prepends("always"),
    "wordpiece": lambda: wrapped(wordpiece()),
    "normalised markers": lambda: with_added(unigram(), normalized=True),
    "lstrip": lambda: with_added(byte_bpe(), normalized=False, lstrip=True),
    "rstrip": lambda: with_added(byte_bpe(), normalized=False, rstrip=True),
    "both strip, unigram": lambda: with_added(unigram(), normalized=False, lstrip=True, rstrip=True),
    "whole words": lambda: with_added(byte_bpe(), normalized=False, single_word=True),
    "overlapping markers": lambda: other_markers("n<|im_start|>", ".<|im_", "<|im_end|>\n", "sentence.<"),
    "splits its markers": splits_its_markers,
}


def _with_space() -> PreTrainedTokenizerFast:
    backend = byte_bpe()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return wrapped(backend)


@cache
def judge(name: str) -> Judge:
    return Judge(SimpleNamespace(tokenizer=TOKENIZERS[name](), name=name, vocabulary=None))


def one_by_one(
    made: Judge, conversations: Sequence[Sequence[Message]], words: Sequence[str]
) -> list[tuple[tuple[int, ...], int]]:
    """Every conversation rendered in full, every string tokenised in full and alone."""
    tasks = []
    for conversation, word in zip(conversations, words, strict=True):
        opened = made.chat.render(conversation)
        [prompt], [full] = made.chat.encode([opened]), made.chat.encode([made.chat.continued(opened, word)])
        first = next(
            (i for i, (a, b) in enumerate(zip(prompt, full, strict=False)) if a != b),
            min(len(prompt), len(full)),
        )
        if first == len(full):
            raise JudgeError("no token")
        tasks.append((tuple(full), first))
    return tasks


def outcome(encode: Callable[..., object], *arguments: object) -> object:
    try:
        return encode(*arguments)
    except JudgeError:
        return JudgeError


def without_us(tokenizer: PreTrainedTokenizerFast, conversation: Sequence[Message], word: str) -> list[int]:
    """What the library alone makes of a conversation, when no text in it looks like a marker."""
    turns = [{"role": m.role, "content": m.content} for m in conversation]
    opened = tokenizer.apply_chat_template(
        turns, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    return list(tokenizer(opened + word, add_special_tokens=False).input_ids)


# --- texts: anything, much of it made to confuse

PIECES = [
    *CHATML_MARKERS, "<|eot_id|>", "<start_of_turn>", "</s>", "[INST]", "[/INST]", "<think>", "</think>",
    "<", "|>", "<|im_", "nt|>x", "_",
    " ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u2028", "\u3000", "\u200b", "\ufeff",
    "\x85", "\x1c", "\u0301", "e\u0301", "é", "ﬁ",
    "＜｜im_end｜＞", "＜|im_start|＞", "שלום", "\u202e", "مرحبا", "👩‍👩‍👧", "🇫🇷", "日本",
    "\ud800", "\U0010ffff", "\ue000", "\ue001",
    "▁", "##", "İ", "ß", "Paris", "n",
]  # fmt: skip
TEXT = st.one_of(
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=8).map("".join),
    st.text(max_size=12),
    st.sampled_from(["", "abc" * 200, "\u0301" * 40, " " * 50]),
)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=40, deadline=None)
@given(
    question=TEXT,
    said=TEXT,
    masked=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4),
    of_many=st.booleans(),
)
def test_tasks_have_the_tokens_of_full_strings(
    name: str, question: str, said: str, masked: list[tuple[str, str]], of_many: bool
) -> None:
    context = reference_context(question, [said, said]) if of_many else summary_context(question, said)
    conversations, words = [context.conversation(text) for text, _ in masked], [word for _, word in masked]
    made = judge(name)
    assert outcome(made.encode_tasks, conversations, words) == outcome(one_by_one, made, conversations, words)


PLAIN = sorted(
    {
        "byte-level",
        "byte-level, llama",
        "reasoning",
        "strips",
        "counts",
        "metaspace",
        "unigram always",
        "wordpiece",
    }
)


@given(name=st.sampled_from(PLAIN), said=TEXT, masked=st.lists(TEXT, min_size=1, max_size=4), word=TEXT)
def test_tasks_are_what_the_library_alone_makes_of_ordinary_text(
    name: str, said: str, masked: list[str], word: str
) -> None:
    made = judge(name)
    context = summary_context("Capital of France", said)
    texts = (said, *masked, word)
    assume(
        not any(made.chat._markers.disarm(text) != text or "＜" in text or "\u3000" in text for text in texts)
    )
    conversations = [context.conversation(text) for text in masked]
    tasks = outcome(made.encode_tasks, conversations, [word] * len(masked))
    assume(tasks is not JudgeError)  # the word has no token, or the template alters what it shows
    assert [list(ids) for ids, _ in tasks] == [
        without_us(made.chat.tokenizer, conversation, word) for conversation in conversations
    ]


# --- what is worth cutting is cut, and nothing else


def test_a_tokenizer_that_still_differs_is_given_full_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that nobody has heard of may look across markers; the longest text tells."""
    monkeypatch.setattr(chat_module, "_cut", lambda texts, _: [(text[:7], text[7:]) for text in texts])
    chat = judge("byte-level").chat
    texts = ["The capital of France", "The capital"]
    assert chat.encode(["The cap", "ital"]) != chat.encode(["The capital"])
    assert chat.encode_alike(texts) == chat.encode(texts)
