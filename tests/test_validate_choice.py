"""Stated against true distributions: the grid, the texts, and the correlations of metrics whose answer is known."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfreflect.errors import ConfigError
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.statistics import correlation_interval
from selfreflect.validate.studies.choice import (
    QUESTIONS,
    ChoiceQuestion,
    MultipleChoice,
    Point,
    distributions,
    evenly,
    spread_out,
    total_variation,
)

LOWER = MetricInfo(name="distance", better="lower", group="control", about="")
HIGHER = MetricInfo(name="agreement", better="higher", group="control", about="")
TWO = ChoiceQuestion("coin", "Which side is up", ("heads", "tails"))


def values(study: MultipleChoice, metric: MetricInfo, score: Callable[[Point], float | None]) -> list[Value]:
    found = [(point, score(point)) for point in study.points]
    return [
        Value(metric=metric.name, item=point.item, summary=point.summary, digest="", value=number)
        for point, number in found
        if number is not None
    ]


def test_two_options_word_by_word():
    study = MultipleChoice(questions=[TWO], true=2, stated=3)
    certain, even = study.items
    assert certain.id == "choice-coin-10-0"
    assert certain.question == "Which side is up: heads or tails?"
    [said] = {*certain.masked_out, *certain.conditioning}
    assert said in ("heads", "tails")
    assert list(certain.summaries) == (
        ["heads 100%, tails 0%", "heads 50%, tails 50%", "heads 0%, tails 100%"]
        if said == "heads"
        else ["heads 0%, tails 100%", "heads 50%, tails 50%", "heads 100%, tails 0%"]
    )
    assert certain.summaries["heads 50%, tails 50%"] == "I would say “heads” (50%) or “tails” (50%)."
    assert Counter(even.masked_out) == Counter(even.conditioning) == {"heads": 5, "tails": 5}
    assert [(point.item, point.distance) for point in study.points] == [
        ("choice-coin-10-0", 0.0),
        ("choice-coin-10-0", 0.5),
        ("choice-coin-10-0", 1.0),
        ("choice-coin-5-5", 0.0),
        ("choice-coin-5-5", pytest.approx(0.25, abs=0.051)),
        ("choice-coin-5-5", 0.5),
    ]


def test_the_default_grid_runs_from_right_to_entirely_wrong():
    study = MultipleChoice()
    assert len(study.items) == 16
    assert all(len(item.summaries) == 6 for item in study.items)
    assert len(study.points) == 96
    for item in study.items:
        mine = [point.distance for point in study.points if point.item == item.id]
        assert mine[0] == 0
        assert mine == sorted(mine)
        assert mine[-1] >= 0.7
        assert Counter(item.masked_out) == Counter(item.conditioning)
        assert len(item.masked_out) == 10
        assert len({len(text.split()) for text in item.summaries.values()}) == 1  # length tells nothing
    assert len({item.masked_out[0] for item in study.items if item.id.endswith("10-0-0-0")}) == len(QUESTIONS)
    assert len({item.id for item in study.items}) == 16


@pytest.mark.parametrize("answers", [1, 3, 10, 25])
def test_distances_are_those_of_the_answers_that_are_there(answers: int):
    study = MultipleChoice(seed=2, true=4, stated=4, answers=answers)
    for item in study.items:
        assert len(item.masked_out) == len(item.conditioning) == answers
        counts = Counter(item.conditioning)
        for point in (point for point in study.points if point.item == item.id):
            stated = [(part.split()[0], int(part.split()[1].removesuffix("%")) / 100) for part in point.summary.split(", ")]
            assert point.distance == pytest.approx(sum(abs(share - counts[option] / answers) for option, share in stated) / 2)
            for option, share in stated:
                assert f"“{option}” ({share * 100:.0f}%)" in item.summaries[point.summary]


def test_the_seed_decides_everything():
    assert MultipleChoice(seed=3).items == MultipleChoice(seed=3).items
    assert MultipleChoice(seed=3).items != MultipleChoice(seed=4).items


@given(st.lists(st.integers(0, 9), min_size=2, max_size=4).filter(any), st.integers(3, 8), st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_stated_distributions_differ_and_start_next_to_the_truth(true: list[int], count: int, seed: int):
    found = spread_out(true, count, random.Random(seed))
    distances = [total_variation(true, weights) for weights in found]
    assert len(set(found)) == count
    assert all(sum(weights) == 10 for weights in found)
    assert distances[0] == min(total_variation(true, weights) for weights in distributions(len(true)))
    assert max(distances) == max(total_variation(true, weights) for weights in distributions(len(true)))
    assert all(0 <= distance <= 1 for distance in distances)


def test_the_grid_holds_every_distribution_once():
    found = distributions(4)
    assert len(found) == len(set(found)) == 286  # thirteen choose three
    assert (found[0], found[-1]) == ((10, 0, 0, 0), (0, 0, 0, 10))
    assert distributions(2) == [(10 - tenths, tenths) for tenths in range(11)]


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
    overall, within = finding.tables
    name, rho, _, _, r, _, _, n, total = overall.rows[0]
    assert (name, rho, r, n, total) == ("distance", pytest.approx(1), pytest.approx(1), 96, 96)
    assert overall.rows[1] == ("agreement", None, None, None, None, None, None, 96, 96)
    assert within.rows[0][1] == pytest.approx(1)
    assert within.rows[0][7:] == (16, 16)
    assert within.rows[1] == ("agreement", None, None, None, None, None, None, 0, 16)
    assert "rank correlation +1.00" in finding.says[1]
    assert finding.says[2] == "agreement gives no correlation: its 96 values are fewer than three, or all equal."
    plot = finding.plots[0]
    assert (plot.name, plot.points) == ("choice-distance", True)
    assert plot.curves[0].x == plot.curves[0].y == tuple(point.distance for point in study.points)


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
    assert 0.5 < low < rho < high < 1
    assert right.says[1].startswith("agreement gets worse with the true distance, as it must: rank correlation +0.")
    assert wrong.says[1].startswith("distance gets BETTER with the true distance: rank correlation -0.")
    assert right.plots[0].y_label == "agreement (negative)"


def test_the_interval_draws_whole_items():
    study = MultipleChoice()
    levels = {item.id: float(place % 3) for place, item in enumerate(study.items)}
    score = {point: levels[point.item] + point.distance for point in study.points}
    _, _, low, high, *_ = study.finding(values(study, LOWER, score.__getitem__), [LOWER]).tables[0].rows[0]
    x, y = [point.distance for point in study.points], [score[point] for point in study.points]
    whole = correlation_interval(x, y, groups=[point.item for point in study.points])
    assert (low, high) == (whole.low, whole.high)
    assert (low, high) != (correlation_interval(x, y).low, correlation_interval(x, y).high)


def test_noise_has_no_clear_relation():
    study = MultipleChoice()
    rng = random.Random(5)
    finding = study.finding(values(study, LOWER, lambda point: rng.random()), [LOWER])
    assert "shows no clear relation to the true distance" in finding.says[1]


def test_correlation_within_items_survives_levels_that_differ_between_them():
    """Each true distribution has a level of its own, which hides the relation from the overall correlation."""
    study = MultipleChoice()
    levels = {item.id: 100.0 * place for place, item in enumerate(study.items)}
    overall, within = study.finding(values(study, LOWER, lambda point: levels[point.item] + point.distance), [LOWER]).tables
    assert isinstance(overall.rows[0][1], float)
    assert overall.rows[0][1] < 0.3
    assert within.rows[0][1] == pytest.approx(1)


def test_missing_values_show_in_n_and_a_metric_without_any_says_so():
    study = MultipleChoice()
    found = values(study, LOWER, lambda point: None if point.distance == 0 else point.distance)
    stray = Value(metric="agreement", item="elsewhere", summary="A 100%", digest="", value=1.0)
    finding = study.finding([*found, stray], [LOWER, HIGHER])
    assert finding.tables[0].rows[0][7:] == (80, 96)
    assert finding.tables[0].rows[1] == ("agreement", None, None, None, None, None, None, 0, 96)
    assert finding.says[2] == "agreement has no value for any statement, so nothing can be said of it."
    assert [plot.name for plot in finding.plots] == ["choice-distance"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"questions": []}, "needs questions"),
        ({"questions": [TWO, TWO]}, "an id of its own"),
        ({"questions": [ChoiceQuestion("x", "?", ("a", "a"))]}, "'x' needs 2 to 6 different options"),
        ({"questions": [ChoiceQuestion("x", "?", tuple("abcdefg"))]}, "different options"),
        ({"questions": [ChoiceQuestion("x", "?", ("an apple", "a"))]}, "of one word each"),
        ({"true": 0}, "'true' must lie between 1 and 23 for 4 options, not 0"),
        ({"true": 24}, "not 24"),
        ({"stated": 2}, "'stated' must lie between 3 and 286"),
        ({"questions": [TWO], "stated": 12, "true": 1}, "between 3 and 11 for 2 options, not 12"),
        ({"answers": 0}, "'answers' must be at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], message: str):
    with pytest.raises(ConfigError, match=message):
        MultipleChoice(**settings)  # type: ignore[arg-type]
