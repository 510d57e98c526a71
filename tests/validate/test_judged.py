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
from selfreflect.metric.engine.tree import PrefixTree
from selfreflect.metric.information import measure
from selfreflect.metric.prompts import (
    Context,
    MaskedWord,
    masked_words,
    summary_context,
)
from selfreflect.sources.items import Item
from selfreflect.validate.base import FAMILIES, Undefined, Value
from selfreflect.validate.judged import GROUP, InformationMetrics, Masked

MASKED, INFORMATION = FAMILIES["judged:Masked"], FAMILIES["judged:InformationMetrics"]
NAMES = [info.name for info in MASKED]
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
def masked(tiny_judge) -> Masked:
    return Masked(tiny_judge("llama"), MASKED)


class Watched:
    """An engine that keeps what it was asked for."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.head = engine.head
        self.calls: list[Sequence[PrefixTree]] = []

    def states(self, plans: Sequence[PrefixTree]) -> list[torch.Tensor]:
        self.calls.append(plans)
        return self.engine.states(plans)


def divergences(p: torch.Tensor, q: torch.Tensor) -> dict[str, float]:
    """Of one token task by the definitions in float64, from probabilities at temperature 5."""
    p, q = p.double(), q.double()
    sharp = [torch.softmax(5 * one.log(), dim=0) for one in (p, q)]
    return {
        "selfreflect": 0.5 * (p - q).abs().sum().item(),
        "tv_t1": 0.5 * (sharp[0] - sharp[1]).abs().sum().item(),
    }


def by_the_oracle(judge: Any, item: Item, summary: str) -> list[list[dict[str, float]]]:
    """Word -> token -> distances."""
    model, tokenizer = judge.lm.model, judge.lm.tokenizer
    listing = "\n".join(f"x_{i} = '{answer}'" for i, answer in enumerate(item.conditioning, 1))
    found = []
    for masked, word in [pair for answer in item.masked_out for pair in oracle.masked_words(answer)]:
        known = oracle.conversation(
            item.question, listing, "distribution of answers", masked, len(item.conditioning)
        )
        told = oracle.conversation(item.question, summary, "answer", masked, None)
        p, q = (oracle.word_probabilities(model, tokenizer, chat, word) for chat in (told, known))
        found.append([divergences(*pair) for pair in zip(p, q, strict=True)])
    return found


@pytest.mark.parametrize("architecture", ["llama", "bloom"])
def test_every_metric_is_that_of_the_slow_oracle(tiny_judge, architecture):
    judge = tiny_judge(architecture)
    values = Masked(judge, MASKED).score(ITEM)
    for name, summary in list(ITEM.summaries.items())[:3]:
        words = by_the_oracle(judge, ITEM, summary)
        tokens = [token for word in words for token in word]
        expected = {metric: np.mean([token[metric] for token in tokens]) for metric in tokens[0]}
        assert numbers(values, name) == pytest.approx(expected, abs=2e-5)
        assert len({round(expected[metric], 6) for metric in expected}) == len(NAMES), (
            "no two metrics are the same here"
        )


def test_many_summaries_run_in_groups_beside_one_reference(tiny_judge, masked):
    summaries = {f"s{index}": f"Radishes, and {index} more." for index in range(2 * GROUP + 1)}
    family = Masked(tiny_judge("llama"), MASKED)
    family.engine = Watched(family.engine)
    together = family.score(changed(summaries={**summaries, "twin": summaries["s0"]}))
    # the reference runs with the first group
    assert [len(plans) for plans in family.engine.calls] == [GROUP + 1, GROUP, 1]
    for name, text in summaries.items():
        alone = numbers(masked.score(changed(summaries={name: text})), name)
        assert numbers(together, name) == pytest.approx(alone, abs=1e-6)
    assert numbers(together, "twin") == numbers(together, "s0")


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
    values = Masked(judge, MASKED).score(
        changed(summaries={"endless": endless, **ITEM.summaries, "twin": endless})
    )
    found = undefined(values)
    assert set(found) == {(name, metric) for name in ("endless", "twin") for metric in NAMES}
    assert {why.reason for why in found.values()} == {"too_long"}
    assert "the summary with a masked word needs" in found["endless", "tv_t1"].message
    assert numbers(values) == pytest.approx(numbers(masked.score(ITEM)), abs=1e-6)


@pytest.mark.parametrize("half", ["masked_out", "conditioning"])
def test_without_answers_there_are_no_values(masked, half):
    found = undefined(masked.score(changed(**{half: ()})))
    assert len(found) == len(NAMES) * len(ITEM.summaries)
    assert {why.reason for why in found.values()} == {"no_answers"}


def test_a_damaged_judge_gives_no_numbers(tiny_judge):
    family = Masked(tiny_judge("llama", seed=5), MASKED)
    with torch.no_grad():
        family.judge.lm.model.get_output_embeddings().weight[7] = math.nan
    found = undefined(family.score(ITEM))
    assert len(found) == len(NAMES) * len(ITEM.summaries)
    assert {why.reason for why in found.values()} == {"backend"}
    assert "not a finite number" in found["short", "tv_t1"].message


PLANTS = Item(
    id="q7",
    question="What should I plant",
    masked_out=("Radishes grow fast.", "Lettuce", "peas, or not"),
    conditioning=("basil or peas", "Radishes"),
    summaries={"short": "Radishes.", "same": "Radishes.", "empty": "", "long": "Kale, or nothing at all."},
)


@pytest.fixture(scope="module")
def informed(tiny_judge) -> InformationMetrics:
    return InformationMetrics(tiny_judge("llama"), INFORMATION)


def with_verdict(monkeypatch: pytest.MonkeyPatch, **fields: object) -> None:
    """Let the measure come to a verdict that a random judge reaches only by chance."""

    def judged(*arguments):
        results = measure(*arguments)
        return {text: msgspec.structs.replace(result, **fields) for text, result in results.items()}

    monkeypatch.setattr("selfreflect.validate.judged.measure", judged)


def test_values_are_the_bits_of_the_measure_for_each_reader(informed, tiny_judge, monkeypatch):
    with_verdict(monkeypatch, undefined=None)
    judge = tiny_judge("llama")
    values = {(value.metric, value.summary): value.value for value in informed.score(PLANTS)}
    for metric, reader in (("information", "informed"), ("information_blind", "blind")):
        texts = list(PLANTS.summaries.values())
        truth = measure(
            judge,
            engine_for(judge),
            PLANTS.question_record,
            PLANTS.answer_set,
            texts,
            reader,
        )
        for name, text in PLANTS.summaries.items():
            assert values[metric, name] == truth[text].bits
    assert values["information", "short"] != values["information_blind", "short"]


@pytest.mark.parametrize("reason", ["known", "unclear"])
def test_where_the_answers_tell_nothing_the_reason_is_typed(informed, monkeypatch, reason):
    with_verdict(monkeypatch, undefined=reason)
    values = informed.score(PLANTS)
    assert len(values) == 8
    assert {value.undefined.reason for value in values} == {reason}
