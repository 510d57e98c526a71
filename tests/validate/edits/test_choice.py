"""Stated against true distributions: the grid, the texts, and the correlations of metrics whose answer is
known."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfreflect.errors import ConfigError
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.edits.choice import (
    QUESTIONS,
    ChoiceQuestion,
    MultipleChoice,
    evenly,
    shapes,
    total_variation,
)
from selfreflect.validate.edits.statements import Point
from selfreflect.validate.statistics import correlation_interval, interaction

LOWER = MetricInfo(name="distance", better="lower", group="control", about="")
HIGHER = MetricInfo(name="agreement", better="higher", group="control", about="")
TWO = ChoiceQuestion("coin", "Which side is up", ("heads", "tails"))


def values(study: MultipleChoice, metric: MetricInfo, score: Callable[[Point], float | None]) -> list[Value]:
    found = [(point, score(point)) for point in study.points]
    return [
        Value(metric=metric.name, item=point.item, summary=point.summaries[0], digest="", value=number)
        for point, number in found
        if number is not None
    ]


def test_two_options_word_by_word():
    study = MultipleChoice(questions=[TWO], grid=2)
    certain, even = study.items
    assert certain.id == "choice-coin-10-0"
    assert certain.question == "Which side is up: heads or tails?"
    [said] = {*certain.masked_out, *certain.conditioning}
    assert said in ("heads", "tails")
    assert certain.summaries == even.summaries
    assert list(certain.summaries) == [
        "heads 100%, tails 0%" if said == "heads" else "heads 0%, tails 100%",
        "heads 50%, tails 50%",
    ]
    assert certain.summaries["heads 50%, tails 50%"] == "I would say “heads” (50%) or “tails” (50%)."
    assert Counter(even.masked_out) == Counter(even.conditioning) == {"heads": 5, "tails": 5}
    assert [(point.item, point.distance) for point in study.points] == [
        ("choice-coin-10-0", 0.0),
        ("choice-coin-10-0", 0.5),
        ("choice-coin-5-5", 0.5),
        ("choice-coin-5-5", 0.0),
    ]


def test_every_distribution_is_true_once_and_stated_of_all():
    study = MultipleChoice()
    assert len(study.items) == 16
    assert len(study.points) == 128
    for question in QUESTIONS:
        items = [item for item in study.items if question.text in item.question]
        assert len(items) == 8
        assert all(item.summaries == items[0].summaries for item in items)
        right = [
            point.summaries[0]
            for point in study.points
            if point.question == question.id and point.distance == 0
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
            for place in [question.options.index(Counter(item.conditioning).most_common(1)[0][0])]
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
    assert len(study.items) == 2 * min(4, len(shapes(4, answers)))
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
        mine = [point for point in study.points if point.question == question.id]
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
    assert shapes(4, 1) == [(1, 0, 0, 0)]
    assert shapes(2, 3) == [(3, 0), (2, 1)]
    assert len(shapes(4, 10)) == 23
    assert (shapes(4, 10)[0], shapes(4, 10)[-1]) == ((10, 0, 0, 0), (3, 3, 2, 2))


def test_total_variation_of_different_totals():
    assert total_variation([1, 1], [10, 0]) == 0.5
    assert total_variation([3, 0], [0, 10]) == 1
    assert total_variation([2, 3], [4, 6]) == 0


def test_places_run_from_the_first_to_the_last():
    assert evenly(4, 10) == [0, 3, 6, 9]
    assert evenly(1, 10) == [0]
    assert evenly(3, 3) == [0, 1, 2]


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
        "agreement gives all statements of one true distribution the same value"
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
    assert (
        finding.says[1]
        == "distance gives each statement the same value whatever is true, but for a level of each truth."
    )


@pytest.mark.parametrize(
    ("turn", "verdict"),
    [(1, "gets worse with the true distance, as it must"), (-1, "gets BETTER with the true distance")],
)
def test_a_metric_without_exception_says_which_way(turn: int, verdict: str):
    study = MultipleChoice()
    finding = study.finding(values(study, LOWER, lambda point: turn * point.distance), [LOWER])
    assert finding.says[1].startswith(
        f"distance {verdict}: rank correlation {turn:+}.00 (p = 0.0005) over 128 statements"
    )


@pytest.mark.parametrize("turn", [1, -1])
def test_few_statements_show_no_clear_relation_however_well_they_agree(turn: int):
    study = MultipleChoice(questions=[TWO], grid=3)
    finding = study.finding(values(study, LOWER, lambda point: turn * point.distance), [LOWER])
    assert finding.says[1].startswith(
        f"distance shows no clear relation to the true distance: rank correlation {turn:+}.00 (p = 0.17)"
    )


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
        "agreement gets worse with the true distance, as it must: rank correlation +0."
    )
    assert wrong.says[1].startswith("distance gets BETTER with the true distance: rank correlation -0.")
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
    assert sum("shows no clear relation to the true distance" in one for one in said) >= 4


def test_a_quirk_of_one_statement_with_some_truths_is_no_reading():
    """A bootstrap over true distributions holds it for certain, since it is in all of them."""
    study = MultipleChoice(questions=QUESTIONS[:1])
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
    assert finding.says[2] == "agreement has no value for any statement."
    assert [plot.name for plot in finding.plots] == ["choice-distance"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"questions": []}, "needs questions"),
        ({"questions": [TWO, TWO]}, "an id of its own"),
        ({"questions": [ChoiceQuestion("x", "?", ("a", "a"))]}, "'x' needs 2 to 6 different options"),
        ({"questions": [ChoiceQuestion("x", "?", tuple("abcdefg"))]}, "different options"),
        ({"questions": [ChoiceQuestion("x", "?", ("an apple", "a"))]}, "of one word each"),
        ({"grid": 1}, "takes 2 to 23 distributions over 4 options, not 1"),
        ({"grid": 24}, "not 24"),
        ({"questions": [TWO], "grid": 7}, "takes 2 to 6 distributions over 2 options, not 7"),
        ({"answers": 0}, "'answers' must be at least 1"),
        ({"answers": 1}, "1 answers in each half have only one distribution"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], message: str):
    with pytest.raises(ConfigError, match=message):
        MultipleChoice(**settings)  # type: ignore[arg-type]
