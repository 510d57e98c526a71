"""Metrics that a judge computes: against the slow oracle, full forward passes and the measure itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import oracle
import pytest
import torch

from selfreflect.metric.engine.engines import engine_for
from selfreflect.metric.information import measure
from selfreflect.metric.prompts import Context, MaskedWord, masked_words, summary_context
from selfreflect.sources.items import Item
from selfreflect.validate.base import FAMILIES, Undefined, Value
from selfreflect.validate.judged import Informed, JudgeMeasures

MASKED, INFORMATION = FAMILIES["judged:JudgeMeasures"], FAMILIES["judged:Informed"]
ITEM = Item(
    id="q7",
    question="What should I plant?",
    masked_out=(
        "Radishes grow fast",
        "Lettuce",
        "Lettuce",
        "",
        " \n",
        "It is not.",
        "You can plant Lettuce or peas",
    ),
    conditioning=("basil or peas", "", "basil or peas"),
    summaries={
        "short": "Radishes.",
        "empty": "",
        "long": "Maybe kale, or else nothing at all before May.",
        "again": "Radishes.",
    },
)


def changed(**fields: Any) -> Item:
    return Item(**{**{name: getattr(ITEM, name) for name in Item.__struct_fields__}, **fields})


def numbers(values: Sequence[Value], summary: str = "short") -> dict[str, float | None]:
    return {value.metric: value.value for value in values if value.summary == summary}


@pytest.fixture(scope="module")
def masked(tiny_judge) -> JudgeMeasures:
    return JudgeMeasures(tiny_judge("llama"), MASKED)


def by_the_oracle(judge: Any, item: Item, summary: str) -> float:
    """The mean over token tasks of their total variation, from full passes in float64."""
    model, tokenizer = judge.lm.model, judge.lm.tokenizer
    listing = "\n".join(f"x_{i} = '{answer}'" for i, answer in enumerate(item.conditioning, 1))
    distances = []
    for masked, word in [pair for answer in item.masked_out for pair in oracle.masked_words(answer)]:
        known = oracle.conversation(
            item.question, listing, "distribution of answers", masked, len(item.conditioning)
        )
        told = oracle.conversation(item.question, summary, "answer", masked, None)
        p, q = (oracle.word_probabilities(model, tokenizer, chat, word) for chat in (told, known))
        distances += [0.5 * (a.double() - b.double()).abs().sum().item() for a, b in zip(p, q, strict=True)]
    return float(np.mean(distances))


@pytest.mark.parametrize("architecture", ["llama", "bloom"])
def test_the_score_is_that_of_the_slow_oracle(tiny_judge, architecture):
    judge = tiny_judge(architecture)
    values = JudgeMeasures(judge, MASKED).score(ITEM)
    for name, summary in list(ITEM.summaries.items())[:3]:
        assert numbers(values, name) == pytest.approx(
            {"selfreflect": by_the_oracle(judge, ITEM, summary)}, abs=2e-5
        )


def undefined(values: Sequence[Value]) -> dict[tuple[str, str], Undefined]:
    return {(value.summary, value.metric): value.undefined for value in values if value.undefined is not None}


def needed(judge: Any, context: Context, words: Sequence[MaskedWord]) -> int:
    """Tokens of the longest task."""
    return max(
        len(ids)
        for ids, _ in judge.encode_tasks(
            [context.conversation(w.masked) for w in words], [w.text for w in words]
        )
    )


def test_a_summary_that_is_too_long_disturbs_no_other(tiny_judge, masked):
    longest = summary_context(ITEM.question, "Radishes. " * 90)
    window = needed(tiny_judge("llama"), longest, masked_words(ITEM.masked_out))
    judge, endless = tiny_judge("llama", max_position_embeddings=window), "Radishes. " * 100
    values = JudgeMeasures(judge, MASKED).score(
        changed(summaries={"endless": endless, **ITEM.summaries, "twin": endless})
    )
    found = undefined(values)
    assert set(found) == {(name, "selfreflect") for name in ("endless", "twin")}
    assert {why.reason for why in found.values()} == {"too_long"}
    assert "the summary with a masked word needs" in found["endless", "selfreflect"].message
    assert numbers(values) == pytest.approx(numbers(masked.score(ITEM)), abs=1e-6)


@pytest.mark.parametrize("half", ["masked_out", "conditioning"])
def test_without_answers_there_are_no_values(masked, half):
    found = undefined(masked.score(changed(**{half: ()})))
    assert len(found) == len(ITEM.summaries)
    assert {why.reason for why in found.values()} == {"no_answers"}


def test_a_damaged_judge_gives_no_numbers(tiny_judge):
    judge = tiny_judge("llama", seed=5)
    family = JudgeMeasures(judge, MASKED)
    with torch.no_grad():
        judge.lm.model.get_output_embeddings().weight[7] = math.nan
    found = undefined(family.score(ITEM))
    assert len(found) == len(ITEM.summaries)
    assert {why.reason for why in found.values()} == {"backend"}
    assert "not finite numbers" in found["short", "selfreflect"].message


PLANTS = Item(
    id="q7",
    question="What should I plant",
    masked_out=("Radishes grow fast.", "Lettuce", "peas, or not"),
    conditioning=("basil or peas", "Radishes"),
    summaries={"short": "Radishes.", "same": "Radishes.", "empty": "", "long": "Kale, or nothing at all."},
)


@pytest.fixture(scope="module")
def informed(tiny_judge) -> Informed:
    return Informed(tiny_judge("llama"), INFORMATION)


def with_verdict(monkeypatch: pytest.MonkeyPatch, **fields: object) -> None:
    """Let the measure come to a verdict that a random judge reaches only by chance."""

    def judged(*arguments):
        results = measure(*arguments)
        return {text: msgspec.structs.replace(result, **fields) for text, result in results.items()}

    monkeypatch.setattr("selfreflect.metric.information.measure", judged)


def test_values_are_the_bits_of_the_measure_for_each_reader(informed, tiny_judge, monkeypatch):
    with_verdict(monkeypatch, undefined="unclear", cause="out_of_range")
    judge = tiny_judge("llama")
    values = {(value.metric, value.summary): value.value for value in informed.score(PLANTS)}
    for metric, reader in (("information", "informed"), ("information_blind", "blind")):
        texts = list(PLANTS.summaries.values())
        truth = measure(judge, engine_for(judge), PLANTS.question_record, PLANTS.answer_set, texts, reader)
        for name, text in PLANTS.summaries.items():
            assert values[metric, name] == truth[text].bits
    assert values["information", "short"] != values["information_blind", "short"]


@pytest.mark.parametrize("reason", ["known", "unclear"])
def test_where_the_answers_tell_nothing_the_reason_is_typed(informed, monkeypatch, reason):
    with_verdict(monkeypatch, undefined=reason, cause=None)
    values = informed.score(PLANTS)
    assert len(values) == 8
    assert {value.undefined.reason for value in values} == {reason}
