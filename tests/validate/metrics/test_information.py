"""Usable information as a metric: the values of the measure itself, and why there is none."""

from __future__ import annotations

import msgspec
import pytest

from selfreflect.metric.engine.engines import engine_for
from selfreflect.metric.information import measure
from selfreflect.sources.items import Item
from selfreflect.validate.catalogue import INFORMATION
from selfreflect.validate.measure import measure as measure_items
from selfreflect.validate.measure import open_values
from selfreflect.validate.metrics.judged import UsableInformation, judge_name

ITEM = Item(
    id="q7",
    question="What should I plant",
    masked_out=("Radishes grow fast.", "Lettuce", "peas, or not"),
    conditioning=("basil or peas", "Radishes"),
    summaries={"short": "Radishes.", "same": "Radishes.", "empty": "", "long": "Kale, or nothing at all."},
)


@pytest.fixture(scope="module")
def family(tiny_judge) -> UsableInformation:
    return UsableInformation(tiny_judge("llama"), INFORMATION)


def with_verdict(monkeypatch: pytest.MonkeyPatch, **fields: object) -> None:
    """Let the measure come to a verdict that a random judge reaches only by chance."""

    def judged(*arguments):
        results = measure(*arguments)
        return {text: msgspec.structs.replace(result, **fields) for text, result in results.items()}

    monkeypatch.setattr("selfreflect.validate.metrics.judged.measure", judged)


def test_values_are_the_bits_of_the_measure_for_each_reader(family, tiny_judge, monkeypatch):
    with_verdict(monkeypatch, undefined=None)
    judge = tiny_judge("llama")
    values = {(value.metric, value.summary): value.value for value in family.score(ITEM)}
    for metric, reader in (("information", "informed"), ("information_blind", "blind")):
        texts = list(ITEM.summaries.values())
        truth = measure(judge, engine_for(judge), ITEM.question_record, ITEM.answer_set, texts, reader)
        for name, text in ITEM.summaries.items():
            assert values[metric, name] == truth[text].bits
    assert values["information", "short"] != values["information_blind", "short"]


def test_values_stored_with_another_zero_are_measured_anew(family, tiny_judge, monkeypatch, tmp_path):
    with_verdict(monkeypatch, undefined=None)
    values = measure_items([ITEM], [family])
    with open_values(tmp_path) as store:
        before = judge_name(tiny_judge("llama"))
        store.append_all([msgspec.structs.replace(value, value=99.0, by=before) for value in values])
        assert measure_items([ITEM], [family], store) == values


@pytest.mark.parametrize("reason", ["known", "unclear"])
def test_where_the_answers_tell_nothing_the_reason_is_typed(family, monkeypatch, reason):
    with_verdict(monkeypatch, undefined=reason)
    values = family.score(ITEM)
    assert len(values) == 8
    assert {value.undefined.reason for value in values} == {reason}


def test_without_answers_nothing_is_measured(family):
    values = family.score(msgspec.structs.replace(ITEM, conditioning=()))
    assert {(value.value, value.undefined.reason) for value in values} == {(None, "no_answers")}


def test_a_summary_that_does_not_fit_leaves_the_others_alone(family):
    item = msgspec.structs.replace(ITEM, summaries={"short": "Radishes.", "huge": "many words " * 4000})
    values = {(value.metric, value.summary): value for value in family.score(item)}
    for metric in ("information", "information_blind"):
        assert values[metric, "huge"].undefined.reason == "unmeasured"
        short = values[metric, "short"]
        assert short.undefined is None or short.undefined.reason != "unmeasured"
