"""The slow, obvious SelfReflect scorer that the engine is proved against.

Written from docs/metric.md alone and sharing no code with ``selfreflect.metric``: one full forward pass per
masked word, no cache, no batching, no packing, every conversation rendered and tokenised in full.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

STOPWORDS_FILE = Path(__file__).parents[1] / "data" / "stopwords.tsv"
STOPWORDS = {line.split("\t")[0] for line in STOPWORDS_FILE.read_text(encoding="utf-8").splitlines()[1:]}
SYSTEM = "You are a friendly chatbot who always responds with short and concise answers.\n"
ASK = (
    'We now show a text with a missing word "_". Fill in the missing word "_" only based on the {what} '
    "you gave above: {masked}\n"
    'Please provide only the missing word "_", not the whole sentence.'
)


@dataclass
class OracleScore:
    value: float
    distances: list[list[list[float]]]  # answer that is not blank -> masked word -> token


def masked_words(answer: str) -> list[tuple[str, str]]:
    """(masked answer, word) for every word to mask."""
    words = answer.split()
    strip = string.whitespace + string.punctuation
    content = [i for i, word in enumerate(words) if word.strip(strip).lower() not in STOPWORDS]
    chosen = content if content else list(range(len(words)))
    return [(" ".join([*words[:i], "_", *words[i + 1 :]]), words[i]) for i in chosen]


def conversation(
    question: str, said: str, what: str, masked: str, samples: int | None
) -> list[dict[str, str]]:
    text = question if question.startswith("Question: ") else "Question: " + question
    if text.endswith("\n"):
        text = text[:-1]
    if not text.endswith("?"):
        text += "?"
    if samples is not None:
        text += f"\nSample {samples} answers to this question."
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": text},
        {"role": "assistant", "content": said},
        {"role": "user", "content": ASK.replace("{what}", what).replace("{masked}", masked)},
    ]


@torch.no_grad()
def word_probabilities(model: Any, tokenizer: Any, chat: list[dict[str, str]], word: str) -> torch.Tensor:
    """Probabilities over the full vocabulary for each token of the word, (tokens, vocabulary)."""
    opened = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(opened, add_special_tokens=False).input_ids
    full = tokenizer(opened + word, add_special_tokens=False).input_ids
    assert full[: len(prompt)] == prompt
    assert len(full) > len(prompt)
    # the last token is only predicted
    logits = model(input_ids=torch.tensor([full[:-1]]), use_cache=False).logits[0].float()
    return torch.stack([torch.softmax(logits[i - 1] / 5.0, dim=-1) for i in range(len(prompt), len(full))])


def score(
    model: Any,
    tokenizer: Any,
    question: str,
    masked_out: list[str],
    conditioning: list[str],
    summaries: dict[str, str],
) -> dict[str, OracleScore]:
    """Scores of several summaries; what the judge predicts from the conditioning answers is computed once for
    all of them."""
    listing = "\n".join(f"x_{i} = '{answer}'" for i, answer in enumerate(conditioning, 1))
    distances: dict[str, list[list[list[float]]]] = {name: [] for name in summaries}
    for answer in masked_out:
        if not answer.strip():
            continue
        for name in summaries:
            distances[name].append([])
        for masked, word in masked_words(answer):
            known = conversation(question, listing, "distribution of answers", masked, len(conditioning))
            truth = word_probabilities(model, tokenizer, known, word)
            for name, summary in summaries.items():
                told = word_probabilities(
                    model, tokenizer, conversation(question, summary, "answer", masked, None), word
                )
                distances[name][-1].append(
                    [0.5 * (told[j] - truth[j]).abs().sum().item() for j in range(len(truth))]
                )
    return {
        name: OracleScore(mean([d for answer in per for word in answer for d in word]), per)
        for name, per in distances.items()
    }


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


MARKS = ' \n"`*_“”„«».,;:!?¿¡…。、，；：！？'


@torch.no_grad()
def information(
    model: Any,
    tokenizer: Any,
    question: str,
    held_out: Sequence[str],
    conditioning: Sequence[str],
    summary: str,
    blind: bool,
) -> tuple[float, float]:
    """Bits per answer that a summary, and that the distinct conditioning answers tell: one pass for each
    answer."""
    asked = conversation(question, "", "", "", None)[1]["content"]

    def log2(answer: str, told: str) -> float:
        chat = [{"role": "system", "content": SYSTEM}]
        text = f"{asked}\nWhat is known about the answer: {told}\nGive one answer to this question."
        if blind:
            chat.append({"role": "user", "content": "What do you think?"})
            chat.append({"role": "assistant", "content": told})
            text = "Give one answer."
        chat.append({"role": "user", "content": text})
        opened = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        prompt = tokenizer(opened, add_special_tokens=False).input_ids
        full = tokenizer(opened + answer, add_special_tokens=False).input_ids
        assert full[: len(prompt)] == prompt
        logits = model(input_ids=torch.tensor([full]), use_cache=False).logits[0].double()
        logs = logits.log_softmax(dim=-1)
        # marks around an answer say nothing of it
        said = [i for i in range(len(prompt), len(full)) if tokenizer.decode([full[i]]).strip(MARKS)]
        ends = (said[0], said[-1] + 1) if said else (len(prompt), len(full))
        return sum(logs[i - 1, full[i]].item() for i in range(*ends)) / math.log(2)

    answers = [answer.strip() for answer in held_out if answer.strip()]
    zero = question if blind else ""
    told = [log2(answer, summary) - log2(answer, zero) for answer in answers]
    listed = []
    for text in anchors(conditioning):
        listed.append(mean([log2(answer, text) - log2(answer, zero) for answer in answers]))
    return mean(told), max(listed)


def anchors(conditioning: Sequence[str]) -> list[str]:
    """The distinct answers, the most frequent first, and the same with counts if these differ."""
    spellings: dict[str, list[str]] = {}
    for answer in conditioning:
        if answer.strip():
            spellings.setdefault(answer.casefold().strip(" .!?"), []).append(answer)
    groups = sorted(spellings.values(), key=len, reverse=True)
    lines = [sorted(group, key=lambda text: (-group.count(text), text))[0] for group in groups]
    texts = ["\n".join(lines)]
    if len({len(group) for group in groups}) > 1:
        total = sum(map(len, groups))
        counted = zip(lines, groups, strict=True)
        texts.append("\n".join(f"{line} ({len(group)} of {total})" for line, group in counted))
    return texts
