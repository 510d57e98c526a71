"""Usable information as a metric: the values of the measure itself, and why there is none."""

from __future__ import annotations

import msgspec
import pytest

from selfreflect.metric.engine.engines import engine_for
from selfreflect.metric.information import measure
from selfreflect.sources.items import Item
from selfreflect.validate.catalogue import INFORMATION
from selfreflect.validate.judged import UsableInformation, judge_name
from selfreflect.validate.measure import measure as measure_items
from selfreflect.validate.measure import open_values

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

    monkeypatch.setattr("selfreflect.validate.judged.measure", judged)


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
