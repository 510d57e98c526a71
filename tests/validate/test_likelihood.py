"""What a judge makes of whole answers: against naive full forward passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from selfreflect.models.judge import Judge
from selfreflect.sources.items import Item
from selfreflect.validate.base import Value
from selfreflect.validate.catalogue import LIKELIHOOD
from selfreflect.validate.judged import Likelihood

SYSTEM = "You are a friendly chatbot who always responds with short and concise answers.\n"
ITEM = Item(
    id="q7",
    question="What should I plant",
    masked_out=("Radishes grow fast.", " Lettuce\n", "Lettuce", "", " \n", "peas, or not"),
    conditioning=("basil or peas", "", "Radishes"),
    summaries={"short": "Radishes.", "empty": "", "long": "Maybe kale, or else nothing at all before May."},
)
COUNTS = {"Radishes grow fast.": 1, "Lettuce": 2, "peas, or not": 1}
LISTING = "x_1 = 'basil or peas'\nx_2 = ''\nx_3 = 'Radishes'"


def changed(**fields: Any) -> Item:
    return Item(**{**{name: getattr(ITEM, name) for name in Item.__struct_fields__}, **fields})


def found(values: list[Value]) -> dict[tuple[str, str], float | None]:
    return {(value.metric, value.summary): value.value for value in values}


@pytest.fixture(scope="module")
def family(tiny_judge) -> Likelihood:
    return Likelihood(tiny_judge("llama"), LIKELIHOOD)


def turns(*contents: str) -> list[tuple[str, str]]:
    return list(zip(("system", "user", "assistant", "user"), contents, strict=False))


@torch.no_grad()
def next_logs(judge: Judge, chat: list[tuple[str, str]], word: str) -> tuple[list[int], torch.Tensor]:
    """The tokens of ``word`` after a conversation, and log-probabilities over the vocabulary where each is
    predicted."""
    tokenizer = judge.lm.tokenizer
    opened = tokenizer.apply_chat_template(
        [{"role": role, "content": content} for role, content in chat],
        tokenize=False,
        add_generation_prompt=True,
    )
    prompt, full = (tokenizer(text, add_special_tokens=False).input_ids for text in (opened, opened + word))
    assert full[: len(prompt)] == prompt
    logits = judge.lm.model(input_ids=torch.tensor([full]), use_cache=False).logits[0].double()
    return full[len(prompt) :], torch.log_softmax(logits[len(prompt) - 1 : -1], dim=-1)


def naive_pmi(judge: Judge, summary: str) -> float:
    total = 0.0
    for answer, count in COUNTS.items():
        chats = (
            turns(SYSTEM, "Question: What should I plant?", summary, "Give one answer to this question."),
            turns(SYSTEM, "Question: What should I plant?\nGive one answer to this question."),
        )
        (tokens, told), (_, alone) = (next_logs(judge, chat, answer) for chat in chats)
        total += count * sum((told[i, token] - alone[i, token]).item() for i, token in enumerate(tokens))
    return total / 4


@pytest.mark.parametrize("architecture", ["llama", "lfm2"])
def test_values_are_those_of_full_forward_passes(tiny_judge, architecture):
    judge = tiny_judge(architecture)
    values = found(Likelihood(judge, LIKELIHOOD).score(ITEM))
    for name, summary in ITEM.summaries.items():
        assert values["pmi", name] == pytest.approx(naive_pmi(judge, summary), abs=1e-3)
    assert len({round(value, 4) for value in values.values()}) == 3


def test_one_text_that_is_too_long_disturbs_no_other(tiny_judge, family):
    judge = tiny_judge("llama", max_position_embeddings=400)
    endless = "Radishes. " * 150
    values = Likelihood(judge, LIKELIHOOD).score(changed(summaries={**ITEM.summaries, "endless": endless}))
    undefined = [(v.metric, v.summary, v.undefined.reason) for v in values if v.undefined]
    assert undefined == [("pmi", "endless", "too_long")]
    known = found(family.score(ITEM))
    assert {key: value for key, value in found(values).items() if key in known} == pytest.approx(
        known, abs=1e-4
    )
