"""Shifted percentages: the shifts, the texts, and the responses of metrics whose answer is known."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from studies import HIGHER, LOWER, measured, rows

from selfreflect.grouping import group_indices
from selfreflect.sources.items import Item
from selfreflect.validate.edits.percentages import SHIFTS, ShiftedPercentages
from selfreflect.validate.edits.statements import stated

CAPITAL = Item(
    id="capital",
    question="What is the capital? ",
    masked_out=("Paris.", "paris", "Lyon", "Nice"),
    conditioning=("Paris.", "Lyon", "", "Paris.", "the Paris", "Lyon", "Lille"),
    summaries={},
)


def item(answers: Sequence[str], id_: str = "i") -> Item:
    middle = len(answers) // 2
    halves = {"masked_out": tuple(answers[:middle]), "conditioning": tuple(answers[middle:])}
    return Item(id=id_, question="Why?", summaries={}, **halves)


def parsed(text: str, names: Sequence[str]) -> list[int]:
    """The percentages of a statement whose possibilities are known."""
    pattern = "(?:, | or )".join([re.escape(f"“{name}”") + r" \((\d+)%\)" for name in names])
    match = re.fullmatch(
        rf"I would say {pattern}(?:(?:, | or )something else \((\d+)%\))?\.", text, re.DOTALL
    )
    assert match, text
    return [int(group) for group in match.groups() if group is not None]


@given(st.lists(st.text(max_size=30), min_size=2, max_size=12), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_a_shift_moves_exactly_its_points(answers: list[str], seed: int):
    one = item(answers)
    statement = stated(one, group_indices)
    study = ShiftedPercentages([one, CAPITAL], seed)
    if statement is None or statement.percentages[0] < SHIFTS[0]:
        assert [found.id for found in study.items] == ["capital"]
        assert study.skipped == {
            "no possibility has 10%" if statement else "no answers that can be stated": 1
        }
        return
    texts = study.items[0].summaries
    names = [possibility.text for possibility in statement.possibilities]
    if len(names) == 1:
        names.append("Paris." if "“Paris.” (0%)" in texts["0 points"] else "Nobody has ever found out")
    base = parsed(texts["0 points"], names)
    shifts = study.shifts["i"][1:]
    assert shifts == [shift for shift in SHIFTS if shift <= base[0]]
    turned = [names[1], names[0], *names[2:]]
    for shift in shifts:
        assert parsed(texts[f"{shift} points"], names) == [base[0] - shift, base[1] + shift, *base[2:]]
        assert parsed(texts[f"{shift} points, turned"], turned) == [
            base[1] + shift,
            base[0] - shift,
            *base[2:],
        ]
    assert study.items[0].masked_out == study.items[0].conditioning == one.masked_out + one.conditioning


DOSE_ITEMS = [item(["pea"] * (6 + place % 4) + ["leek"] * (4 - place % 4), f"i{place}") for place in range(8)]


def points(name: str) -> float:
    return float(name.removesuffix(", turned").removesuffix(" points"))


def test_a_metric_that_counts_the_shift_rises_with_it_and_a_constant_one_has_no_correlation():
    study = ShiftedPercentages(DOSE_ITEMS)
    counting = measured(study, LOWER, lambda one, name: points(name) / 100)
    constant = measured(study, HIGHER, lambda one, name: 2.0)
    finding = study.finding([*counting, *constant], [LOWER, HIGHER])
    response, changes = finding.tables
    assert [row[:2] for row in response.rows] == [("distance", pytest.approx(1)), ("agreement", None)]
    first = rows(response)[0]
    assert (first["n"], first["of"], first["rises at every step"]) == (8, 8, 1.0)
    assert response.rows[1][4:7] == (0, 8, 0.0)
    assert [(row[1], row[2], row[5], row[6]) for row in changes.rows if row[0] == "distance"] == [
        (shift, pytest.approx(shift / 100), 8, 8) for shift in SHIFTS
    ]
    assert finding.says[1].startswith(
        "distance gets worse with the distance, as it must: mean rank correlation +1.00 [+"
    )
    assert (
        finding.says[2]
        == "agreement cannot be judged by 0 items: mean rank correlation undefined within 0 of 8 items."
    )
    assert {row[2] for row in changes.rows if row[0] == "agreement"} == {0.0}


def test_a_metric_where_higher_is_better_has_to_fall():
    study = ShiftedPercentages(DOSE_ITEMS)
    finding = study.finding(measured(study, HIGHER, lambda one, name: -points(name)), [HIGHER])
    assert finding.tables[0].rows[0][1] == pytest.approx(1)
    assert finding.tables[1].rows[0][2] == 10.0
    contrary = study.finding(measured(study, HIGHER, lambda one, name: points(name)), [HIGHER])
    assert contrary.tables[0].rows[0][1] == pytest.approx(-1)
    assert contrary.says[1].startswith("agreement gets BETTER with the distance")


def test_an_equal_step_is_no_rise_and_noise_is_no_response():
    study = ShiftedPercentages(DOSE_ITEMS)
    steps = study.finding(measured(study, LOWER, lambda one, name: min(points(name), 40)), [LOWER])
    assert steps.tables[0].rows[0][6] == 0.0
    said = []
    for seed in range(20):
        rng = random.Random(seed)
        said.append(
            study.finding(measured(study, LOWER, lambda one, name, rng=rng: rng.random()), [LOWER]).says[1]
        )
    assert sum("shows no clear response" in says for says in said) >= 18
    few = ShiftedPercentages(DOSE_ITEMS[:5])
    says = few.finding(measured(few, LOWER, lambda one, name: points(name)), [LOWER]).says[1]
    assert says.startswith("distance cannot be judged by 5 items: mean rank correlation +1.00 [")


def test_items_have_the_shifts_that_they_have_room_for():
    crowded = item(["pea", "pea", "leek", "kale", "bean", "beet", "chard", "rocket"], "crowded")
    scattered = item([f"word{place}" for place in range(12)], "scattered")
    study = ShiftedPercentages([crowded, scattered])
    assert study.shifts == {"crowded": [0, 10, 20]}
    assert study.skipped == {"no possibility has 10%": 1}
    one = study.finding(measured(study, LOWER, lambda one, name: points(name)), [LOWER])
    assert [row[1:3] for row in one.tables[1].rows] == [(10, 10.0), (20, 20.0)]
    assert "cannot be judged by 1 item: mean rank correlation +1.00 within 1 of 1 item" in one.says[1]
    assert "1 item left out: no possibility has 10%." in one.says[0]
    assert {row[3:5] for row in one.tables[1].rows} == {(None, None)}


def test_a_metric_that_likes_the_smaller_number_in_front_shows_no_response():
    study = ShiftedPercentages(DOSE_ITEMS)

    def first_number(one: Item, name: str) -> float:
        return float(one.summaries[name].partition("(")[2].partition("%")[0])

    finding = study.finding(measured(study, LOWER, first_number), [LOWER])
    assert all(row[2] == 0 for row in finding.tables[1].rows)
    assert "mean rank correlation undefined within 0 of 8 items" in finding.says[1]


def test_items_whose_words_only_the_percentages_can_tell_are_named_and_counted():
    closed = [item(["The wood swells."] * 5 + ["Hinges are loose."] * 3, f"c{place}") for place in range(3)]
    study = ShiftedPercentages([*DOSE_ITEMS, *closed])
    assert study.open == {one.id for one in DOSE_ITEMS}
    finding = study.finding(
        measured(study, LOWER, lambda one, name: points(name) * (1 if one.id in study.open else -1)), [LOWER]
    )
    [response] = rows(finding.tables[0])
    assert (response["n"], response["open items"], response["n open"]) == (11, pytest.approx(1), 8)
    assert response["rank correlation"] == pytest.approx(5 / 11)
    assert (
        "In 8 of them a masked-out answer has a word that only the two percentages can tell"
        in finding.says[0]
    )


def test_an_item_with_a_gap_has_no_rank_correlation_but_keeps_its_changes():
    study = ShiftedPercentages(DOSE_ITEMS)
    found = measured(
        study, LOWER, lambda one, name: None if one.id == "i0" and name == "30 points" else points(name)
    )
    finding = study.finding(found, [LOWER, HIGHER])
    assert finding.tables[0].rows[0][4:6] == (7, 8)
    assert [row[5] for row in finding.tables[1].rows[:5]] == [8, 8, 7, 8, 8]
    assert finding.says[2].startswith("agreement cannot be judged by 0 items")
    assert [row[5] for row in finding.tables[1].rows[5:]] == [0] * 5
