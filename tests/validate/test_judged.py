"""Metrics that a judge computes: against the slow oracle, full forward passes and the measure itself."""

from __future__ import annotations

import msgspec
import pytest

from selfreflect.metric.engine.engines import engine_for
from selfreflect.metric.information import measure
from selfreflect.sources.items import Item
from selfreflect.validate.base import FAMILIES
from selfreflect.validate.judged import Informed

MASKED, INFORMATION = FAMILIES["judged:JudgeMeasures"], FAMILIES["judged:Informed"]


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
