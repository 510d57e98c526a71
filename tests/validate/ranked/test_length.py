"""The length audit: its sign, its unit, and what it says of few items."""

from __future__ import annotations

import pytest
from studies import measured, rows

from selfreflect.errors import DataError
from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo
from selfreflect.validate.ranked.length import LengthStudy
from selfreflect.validate.study import Finding

LOWER = MetricInfo(name="distance", better="lower", group="selfreflect", about="made up")
HIGHER = MetricInfo(name="length", better="higher", group="control", about="made up")


def items(n: int, *lengths: int) -> list[Item]:
    return [
        Item(
            id=f"i{number}",
            question="Why?",
            masked_out=("x",),
            conditioning=("y",),
            summaries={f"s{place}": " ".join(["w"] * length) for place, length in enumerate(lengths)},
        )
        for number in range(n)
    ]


def audit(made: list[Item], metric: MetricInfo, rule) -> Finding:
    study = LengthStudy(made)
    number = {item.id: place for place, item in enumerate(made)}
    values = measured(
        study, metric, lambda item, name: rule(number[item.id], len(item.summaries[name].split()))
    )
    return study.finding(values, [metric])


def row(found: Finding) -> dict[str, object]:
    return rows(found.tables[0])[0]


@pytest.mark.parametrize(("metric", "sign"), [(LOWER, -1), (HIGHER, 1)])
def test_above_zero_means_that_longer_is_judged_better(metric, sign):
    found = audit(items(8, 2, 5, 9), metric, lambda number, words: sign * words)
    assert (row(found)["within items"], row(found)["items"], row(found)["summaries"]) == (1, 8, 24)
    assert row(found)["95% low"] == pytest.approx(1 - 2 * (1 - 0.025 ** (1 / 8)))
    assert row(found)["over all"] == pytest.approx(1)
    assert f"Judge the longer of two summaries of one item to be better: {metric.name}" in "\n".join(
        found.says
    )
    opposite = audit(items(8, 2, 5, 9), metric, lambda number, words: -sign * words)
    assert row(opposite)["within items"] == -1
    assert "Judge the shorter" in "\n".join(opposite.says)


def test_hard_questions_do_not_hide_what_happens_within_items():
    found = audit(items(10, 3, 4), HIGHER, lambda number, words: 10 * (number * 7 % 10) + words)
    assert row(found)["within items"] == 1
    assert row(found)["over all"] < 0.5
    assert row(found)["over all low"] < row(found)["over all"] < row(found)["over all high"]


def test_two_summaries_suffice_and_ties_count_as_no_preference():
    found = audit(items(8, 3, 6), HIGHER, lambda number, words: 0.0 if number < 4 else words)
    assert (row(found)["within items"], row(found)["items"]) == (0.5, 8)


def test_a_metric_blind_to_length_is_unclear():
    found = audit(items(20, 3, 6), HIGHER, lambda number, words: words * (-1) ** number)
    assert row(found)["within items"] == 0
    assert "No clear preference for longer or shorter summaries: length." in found.says


def test_undefined_values_are_counted_and_a_metric_without_any_is_named():
    made = items(8, 3, 6)
    found = audit(made, LOWER, lambda number, words: None if words == 6 and number == 0 else float(words))
    assert (row(found)["undefined"], row(found)["items"], row(found)["summaries"]) == (1, 7, 15)
    values = measured(LengthStudy(made), HIGHER, lambda item, name: float(len(item.summaries[name])))
    both = LengthStudy(made).finding(values, [HIGHER, LOWER])
    assert both.tables[0].rows[1][1:] == (None, None, None, 0, None, None, None, 0, 16)
    assert "Without values to compare with length: distance." in both.says
    assert [(curve.label, curve.x, curve.y) for curve in both.plots[0].curves] == [("length", (1.0,), (1.0,))]


@pytest.mark.parametrize("n", [1, 4])
def test_few_items_are_said_to_be_too_few(n):
    found = audit(items(n, 3, 6), HIGHER, lambda number, words: float(words))
    assert "too small a number for any conclusion" in found.says[1]
    assert "Judge the" not in "\n".join(found.says)


@pytest.mark.parametrize("made", [[], items(3, 5), items(3, 5, 5)])
def test_summaries_of_one_length_cannot_be_audited(made):
    with pytest.raises(DataError, match="nothing to audit"):
        LengthStudy(made)
