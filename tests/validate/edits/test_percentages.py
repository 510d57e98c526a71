"""Percentages that are wrong by a known distance: the grid, the shifts, the texts, and the correlations of
metrics whose answer is known."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfreflect.errors import ConfigError
from selfreflect.grouping import group_indices
from selfreflect.render.table import Table
from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo, Undefined, Value
from selfreflect.validate.edits.percentages import (
    QUESTIONS,
    SHIFTS,
    MultipleChoice,
    ShiftedPercentages,
    shapes,
    total_variation,
)
from selfreflect.validate.edits.statements import Point, stated
from selfreflect.validate.statistics import correlation_interval, interaction

LOWER = MetricInfo(name="distance", better="lower", group="control", about="")
HIGHER = MetricInfo(name="agreement", better="higher", group="control", about="")


def values(study: MultipleChoice, metric: MetricInfo, score: Callable[[Point], float | None]) -> list[Value]:
    found = [(point, score(point)) for point in study.points]
    return [
        Value(metric=metric.name, item=point.item, summary=point.summaries[0], digest="", value=number)
        for point, number in found
        if number is not None
    ]


def test_two_distributions_word_by_word():
    study = MultipleChoice(grid=2)
    certain, even, *_ = study.items
    assert certain.id == "choice-colour-10-0-0-0"
    assert certain.question == "Which colour would you paint the front door: red, blue, green or white?"
    assert {*certain.masked_out, *certain.conditioning} == {"blue"}
    assert certain.summaries == even.summaries
    assert even.summaries == {
        "red 0%, blue 100%, green 0%, white 0%": (
            "I would say “red” (0%), “blue” (100%), “green” (0%) or “white” (0%)."
        ),
        "red 30%, blue 20%, green 20%, white 30%": (
            "I would say “red” (30%), “blue” (20%), “green” (20%) or “white” (30%)."
        ),
    }
    assert Counter(even.masked_out) == Counter(even.conditioning)
    assert Counter(even.masked_out) == {"red": 3, "blue": 2, "green": 2, "white": 3}
    assert [(point.item, point.distance) for point in study.points[:4]] == [
        ("choice-colour-10-0-0-0", 0.0),
        ("choice-colour-10-0-0-0", 0.8),
        ("choice-colour-3-3-2-2", 0.8),
        ("choice-colour-3-3-2-2", 0.0),
    ]


def test_every_distribution_is_true_once_and_stated_of_all():
    study = MultipleChoice()
    assert len(study.items) == 16
    assert len(study.points) == 128
    for question, (text, options) in QUESTIONS.items():
        items = [item for item in study.items if text in item.question]
        assert len(items) == 8
        assert all(item.summaries == items[0].summaries for item in items)
        right = [
            point.summaries[0] for point in study.points if point.question == question and point.distance == 0
        ]
        assert sorted(right) == sorted(items[0].summaries)
        distances = {(point.item, point.summaries[0]): point.distance for point in study.points}
        assert {
            distances[item.id, name] == 0 for item, name in zip(items, items[0].summaries, strict=True)
        } == {True}
        assert max(distances[item.id, name] for item in items for name in item.summaries) >= 0.9
        most = [Counter(item.conditioning).most_common(1)[0][1] for item in items]
        leading = [
            place
            for item in items[:4]
            for place in [options.index(Counter(item.conditioning).most_common(1)[0][0])]
        ]
        assert (max(most), min(most), sorted(leading)) == (10, 3, [0, 1, 2, 3])
    for item in study.items:
        assert Counter(item.masked_out) == Counter(item.conditioning)
        assert len(item.masked_out) == 10
        assert len({len(text.split()) for text in item.summaries.values()}) == 1  # length tells nothing
    assert len({item.id for item in study.items}) == 16


@pytest.mark.parametrize("answers", [2, 3, 10, 25])
def test_distances_are_those_of_the_answers_that_are_there(answers: int):
    study = MultipleChoice(seed=2, grid=4, answers=answers)
    assert len(study.items) == 2 * min(4, len(shapes(answers)))
    for item in study.items:
        assert len(item.masked_out) == len(item.conditioning) == answers
        counts = Counter(item.conditioning)
        for point in (point for point in study.points if point.item == item.id):
            stated = [
                (part.split()[0], int(part.split()[1].removesuffix("%")) / 100)
                for part in point.summaries[0].split(", ")
            ]
            found = sum(abs(share - counts[option] / answers) for option, share in stated) / 2
            assert point.distance == pytest.approx(found, abs=0.015)  # whole percentages
            for option, share in stated:
                assert f"“{option}” ({share * 100:.0f}%)" in item.summaries[point.summaries[0]]


def test_the_seed_decides_everything():
    assert MultipleChoice(seed=3).items == MultipleChoice(seed=3).items
    assert MultipleChoice(seed=3).items != MultipleChoice(seed=4).items


@given(st.integers(0, 1000), st.integers(2, 8), st.integers(2, 30))
@settings(max_examples=50, deadline=None)
def test_stated_and_true_may_change_places(seed: int, grid: int, answers: int):
    study = MultipleChoice(seed, grid=grid, answers=answers)
    for question in QUESTIONS:
        mine = [point for point in study.points if point.question == question]
        items, names = (
            list(dict.fromkeys(point.item for point in mine)),
            list(dict.fromkeys(point.summaries[0] for point in mine)),
        )
        distance = {(point.item, point.summaries[0]): point.distance for point in mine}
        assert len(mine) == len(items) ** 2 == len(names) ** 2
        for a, one in enumerate(items):
            for b, other in enumerate(items):
                assert distance[one, names[b]] == distance[other, names[a]]
                assert (distance[one, names[b]] == 0) == (a == b)


def test_shapes_of_few_answers_are_those_that_exist():
    assert shapes(1) == [(1, 0, 0, 0)]
    assert shapes(3) == [(3, 0, 0, 0), (2, 1, 0, 0), (1, 1, 1, 0)]
    assert len(shapes(10)) == 23
    assert (shapes(10)[0], shapes(10)[-1]) == ((10, 0, 0, 0), (3, 3, 2, 2))


def test_total_variation_is_half_of_what_differs():
    assert total_variation([1, 1], [2, 0]) == 0.5
    assert total_variation([3, 0], [0, 3]) == 1
    assert total_variation([2, 3], [2, 3]) == 0


def test_the_true_distance_correlates_fully_and_a_constant_not_at_all():
    study = MultipleChoice()
    found = [
        *values(study, LOWER, lambda point: point.distance),
        *values(study, HIGHER, lambda point: 1.0),
    ]
    finding = study.finding(found, [LOWER, HIGHER])
    net, overall, within = finding.tables
    for table in (net, overall):
        name, rho, _, _, r, _, _, n, total, *_ = table.rows[0]
        assert (name, rho, r, n, total) == ("distance", pytest.approx(1), pytest.approx(1), 128, 128)
        assert table.rows[1][:9] == ("agreement", None, None, None, None, None, None, 128, 128)
    assert net.rows[0][9] < 0.001
    assert 0 < net.rows[0][10] < 0.3
    assert net.rows[1][9:] == (None, None)
    assert within.rows[0][1] == pytest.approx(1)
    assert within.rows[0][7:] == (16, 16)
    assert within.rows[1] == ("agreement", None, None, None, None, None, None, 0, 16)
    assert "rank correlation +1.00" in finding.says[1]
    assert finding.says[2].startswith(
        "agreement shows no clear response to the distance: rank correlation undefined"
    )
    plot = finding.plots[0]
    assert (plot.name, plot.points) == ("choice-distance", True)
    assert plot.curves[0].x == plot.curves[0].y


def test_a_metric_that_reads_only_the_form_seems_to_have_a_relation_and_has_none_net_of_form():
    """Statements with many zeros are far from most true distributions. Whoever likes zeros seems to like
    wrong statements."""
    study = MultipleChoice()
    finding = study.finding(
        values(study, LOWER, lambda point: -point.summaries[0].count(" 0%") + len(point.item)), [LOWER]
    )
    net, _, within = finding.tables
    assert within.rows[0][1] == pytest.approx(-0.38, abs=0.01)
    assert within.rows[0][3] < 0
    assert net.rows[0][1:10] == (None,) * 6 + (128, 128, None)
    assert net.rows[0][10] == pytest.approx(1)
    assert "no clear response to the distance: rank correlation undefined" in finding.says[1]


@pytest.mark.parametrize(
    ("turn", "verdict"),
    [(1, "gets worse with the distance, as it must"), (-1, "gets BETTER with the distance")],
)
def test_a_metric_without_exception_says_which_way(turn: int, verdict: str):
    study = MultipleChoice()
    finding = study.finding(values(study, LOWER, lambda point: turn * point.distance), [LOWER])
    assert finding.says[1].startswith(f"distance {verdict}: rank correlation {turn:+}.00 over 128 statements")
    assert finding.tables[0].rows[0][9] == pytest.approx(0.0005, abs=1e-4)


@pytest.mark.parametrize("turn", [1, -1])
def test_few_statements_show_no_clear_relation_however_well_they_agree(turn: int):
    study = MultipleChoice(grid=2)
    finding = study.finding(values(study, LOWER, lambda point: turn * point.distance), [LOWER])
    assert finding.tables[0].rows[0][9] > 0.05
    assert finding.says[1].startswith("distance shows no clear response to the distance: rank correlation")


def test_form_does_not_hide_a_relation():
    study = MultipleChoice()
    finding = study.finding(
        values(study, LOWER, lambda point: point.distance / 10 - point.summaries[0].count(" 0%")), [LOWER]
    )
    net, _, within = finding.tables
    assert within.rows[0][1] < 0
    assert (net.rows[0][1], net.rows[0][4]) == (pytest.approx(1, abs=1e-3), pytest.approx(1))
    assert net.rows[0][10] > 0.9


def test_a_noisy_metric_has_an_interval_and_the_better_side_decides_the_sign():
    study = MultipleChoice()
    rng = random.Random(0)
    noise = {point: rng.gauss(0, 0.2) for point in study.points}
    right = study.finding(values(study, HIGHER, lambda point: noise[point] - point.distance), [HIGHER])
    wrong = study.finding(values(study, LOWER, lambda point: noise[point] - point.distance), [LOWER])
    _, rho, low, high, *_ = right.tables[0].rows[0]
    assert isinstance(rho, float)
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert 0.4 < low < rho < high < 1
    assert right.says[1].startswith(
        "agreement gets worse with the distance, as it must: rank correlation +0."
    )
    assert wrong.says[1].startswith("distance gets BETTER with the distance: rank correlation -0.")
    assert right.plots[0].y_label == "agreement (negative), net of form"


def test_the_interval_draws_whole_items():
    study = MultipleChoice()
    rng = random.Random(1)
    score = {point: rng.gauss(0, 0.3) + point.distance for point in study.points}
    _, _, low, high, *_ = study.finding(values(study, LOWER, score.__getitem__), [LOWER]).tables[0].rows[0]
    items, columns = (
        [point.item for point in study.points],
        [(point.question, point.summaries[0]) for point in study.points],
    )
    x, y = (
        interaction(side, items, columns)
        for side in ([p.distance for p in study.points], [score[p] for p in study.points])
    )
    whole = correlation_interval(x, y, groups=items)
    assert (low, high) == (whole.low, whole.high)
    assert (low, high) != (correlation_interval(x, y).low, correlation_interval(x, y).high)


def test_noise_has_no_clear_relation():
    study = MultipleChoice()
    said = []
    for seed in range(5):
        rng = random.Random(seed)
        said.append(study.finding(values(study, LOWER, lambda point, rng=rng: rng.random()), [LOWER]).says[1])
    assert sum("shows no clear response to the distance" in one for one in said) >= 4


def test_a_quirk_of_one_statement_with_some_truths_is_no_reading():
    """A bootstrap over true distributions holds it for certain, since it is in all of them."""
    study = MultipleChoice()
    odd = study.points[1].summaries[0]
    turn = {item.id: 1 if place % 2 else -1 for place, item in enumerate(study.items)}
    net = study.finding(
        values(study, LOWER, lambda point: float(turn[point.item] * (point.summaries[0] == odd))), [LOWER]
    ).tables[0]
    assert net.rows[0][9] > 0.05


def test_levels_of_true_distributions_do_not_count():
    """Each true distribution has a level of its own, which hides the relation from the correlation as
    measured."""
    study = MultipleChoice()
    levels = {item.id: 100.0 * place for place, item in enumerate(study.items)}
    net, overall, within = study.finding(
        values(study, LOWER, lambda point: levels[point.item] + point.distance), [LOWER]
    ).tables
    assert isinstance(overall.rows[0][1], float)
    assert overall.rows[0][1] < 0.3
    assert net.rows[0][4] == pytest.approx(1)
    assert within.rows[0][1] == pytest.approx(1)


def test_missing_values_show_in_n_and_a_metric_without_any_says_so():
    study = MultipleChoice()
    found = values(study, LOWER, lambda point: None if point.distance == 0 else point.distance)
    stray = Value(metric="agreement", item="elsewhere", summary="A 100%", digest="", value=1.0)
    finding = study.finding([*found, stray], [LOWER, HIGHER])
    assert finding.tables[0].rows[0][7:9] == (112, 128)
    assert finding.tables[0].rows[0][4] == pytest.approx(1)
    assert finding.tables[0].rows[1] == ("agreement", None, None, None, None, None, None, 0, 128, None, None)
    assert "agreement has no value for any statement." in finding.says
    assert [plot.name for plot in finding.plots] == ["choice-distance"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grid": 1}, "takes 2 to 23 distributions, not 1"),
        ({"grid": 24}, "not 24"),
        ({"answers": 0}, "2 answers or more in each half, not 0"),
        ({"answers": 1}, "2 answers or more in each half, not 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], message: str):
    with pytest.raises(ConfigError, match=message):
        MultipleChoice(**settings)  # type: ignore[arg-type]


# --- shifts

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


def measured(
    study: ShiftedPercentages, metric: MetricInfo, score: Callable[[Item, str], float | None]
) -> list[Value]:
    found = []
    for one in study.items:
        for name in one.summaries:
            number = score(one, name)
            reason = Undefined(reason="blank", message="") if number is None else None
            fields = {"metric": metric.name, "item": one.id, "summary": name, "digest": ""}
            found.append(Value(value=number, undefined=reason, **fields))
    return found


def rows(table: Table) -> dict[tuple[object, object], dict[str, object]]:
    headings = [column.heading for column in table.columns]
    return {(row[0], row[1]): dict(zip(headings, row, strict=True)) for row in table.rows}


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
    shifts = list(study.points["i"])[1:]
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
    first = dict(zip([column.heading for column in response.columns], response.rows[0], strict=True))
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
    [plot] = finding.plots
    curve, flat = plot.curves
    assert curve.x == (0.0, 10.0, 20.0, 30.0, 40.0, 50.0)
    # the root mean square of 10 to 50 is the root of 1100
    assert curve.y == tuple(pytest.approx(x / 1100**0.5) for x in curve.x)
    assert set(flat.y) == {0.0}
    assert all(len(side) == len(curve.x) for side in (curve.y, curve.low, curve.high))


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
    assert {item: list(points) for item, points in study.points.items()} == {"crowded": [0, 10, 20]}
    assert study.skipped == {"no possibility has 10%": 1}
    one = study.finding(measured(study, LOWER, lambda one, name: points(name)), [LOWER])
    assert [row[1:3] for row in one.tables[1].rows] == [(10, 10.0), (20, 20.0)]
    assert "cannot be judged by 1 item: mean rank correlation +1.00 within 1 of 1 item" in one.says[1]
    assert "1 item left out: no possibility has 10%." in one.says[0]
    assert one.plots[0].curves[0].low == ()


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
    (response,) = rows(finding.tables[0]).values()
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
    assert [curve.label for curve in finding.plots[0].curves] == ["distance"]
