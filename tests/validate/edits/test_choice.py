"""Multiple choice: the grid, the texts, and the correlations of metrics whose answer is known."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from studies import HIGHER, LOWER, measured

from selfreflect.errors import ConfigError
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.edits.percentages import QUESTIONS, MultipleChoice, shapes
from selfreflect.validate.statistics import correlation_interval, interaction


def distances_of(study: MultipleChoice) -> dict[tuple[str, str], float]:
    """By item and summary."""
    rows = study.distances.reshape(len(study.items), -1)
    return {
        (item.id, name): distance
        for item, row in zip(study.items, rows.tolist(), strict=True)
        for name, distance in zip(item.summaries, row, strict=True)
    }


def values(
    study: MultipleChoice, metric: MetricInfo, score: Callable[[str, str, float], float | None]
) -> list[Value]:
    """``score`` is of the item, the summary and the distance."""
    distances = distances_of(study)
    return measured(study, metric, lambda item, name: score(item.id, name, distances[item.id, name]))


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
    assert study.distances[0].tolist() == [[0.0, 0.8], [0.8, 0.0]]


def test_every_distribution_is_true_once_and_stated_of_all():
    study = MultipleChoice()
    assert len(study.items) == 16
    assert study.distances.shape == (2, 8, 8)
    for text, options in QUESTIONS.values():
        items = [item for item in study.items if text in item.question]
        assert len(items) == 8
        assert all(item.summaries == items[0].summaries for item in items)
        distances = distances_of(study)
        for item, name in zip(items, items[0].summaries, strict=True):
            assert [other for other in item.summaries if distances[item.id, other] == 0] == [name]
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
        for name, text in item.summaries.items():
            stated = [
                (part.split()[0], int(part.split()[1].removesuffix("%")) / 100) for part in name.split(", ")
            ]
            distance = sum(abs(share - counts[option] / answers) for option, share in stated) / 2
            assert distances_of(study)[item.id, name] == pytest.approx(
                distance, abs=0.015
            )  # whole percentages
            for option, share in stated:
                assert f"“{option}” ({share * 100:.0f}%)" in text


def test_the_seed_decides_everything():
    assert MultipleChoice(seed=3).items == MultipleChoice(seed=3).items
    assert MultipleChoice(seed=3).items != MultipleChoice(seed=4).items


@given(st.integers(0, 1000), st.integers(2, 8), st.integers(2, 30))
@settings(max_examples=50, deadline=None)
def test_stated_and_true_may_change_places(seed: int, grid: int, answers: int):
    study = MultipleChoice(seed, grid=grid, answers=answers)
    for table in study.distances:
        assert (table == table.T).all()
        assert ((table == 0) == np.eye(len(table), dtype=bool)).all()


def test_shapes_of_few_answers_are_those_that_exist():
    assert shapes(1) == [(1, 0, 0, 0)]
    assert shapes(3) == [(3, 0, 0, 0), (2, 1, 0, 0), (1, 1, 1, 0)]
    assert len(shapes(10)) == 23
    assert (shapes(10)[0], shapes(10)[-1]) == ((10, 0, 0, 0), (3, 3, 2, 2))


def test_the_true_distance_correlates_fully_and_a_constant_not_at_all():
    study = MultipleChoice()
    found = [
        *values(study, LOWER, lambda item, name, distance: distance),
        *values(study, HIGHER, lambda item, name, distance: 1.0),
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
        values(study, LOWER, lambda item, name, _: len(item) - name.count(" 0%")), [LOWER]
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
    finding = study.finding(values(study, LOWER, lambda item, name, distance: turn * distance), [LOWER])
    assert finding.says[1].startswith(f"distance {verdict}: rank correlation {turn:+}.00 over 128 statements")
    assert finding.tables[0].rows[0][9] == pytest.approx(0.0005, abs=1e-4)


@pytest.mark.parametrize("turn", [1, -1])
def test_few_statements_show_no_clear_relation_however_well_they_agree(turn: int):
    study = MultipleChoice(grid=2)
    finding = study.finding(values(study, LOWER, lambda item, name, distance: turn * distance), [LOWER])
    assert finding.tables[0].rows[0][9] > 0.05
    assert finding.says[1].startswith("distance shows no clear response to the distance: rank correlation")


def test_form_does_not_hide_a_relation():
    study = MultipleChoice()
    finding = study.finding(
        values(study, LOWER, lambda _, name, distance: distance / 10 - name.count(" 0%")), [LOWER]
    )
    net, _, within = finding.tables
    assert within.rows[0][1] < 0
    assert (net.rows[0][1], net.rows[0][4]) == (pytest.approx(1, abs=1e-3), pytest.approx(1))
    assert net.rows[0][10] > 0.9


def test_a_noisy_metric_has_an_interval_and_the_better_side_decides_the_sign():
    study = MultipleChoice()
    rng = random.Random(0)
    noise = {key: rng.gauss(0, 0.2) for key in distances_of(study)}
    noisy = values(study, HIGHER, lambda item, name, distance: noise[item, name] - distance)
    right = study.finding(noisy, [HIGHER])
    noisy = values(study, LOWER, lambda item, name, distance: noise[item, name] - distance)
    wrong = study.finding(noisy, [LOWER])
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
    score = {key: rng.gauss(0, 0.3) + distance for key, distance in distances_of(study).items()}
    measures = values(study, LOWER, lambda item, name, _: score[item, name])
    _, _, low, high, *_ = study.finding(measures, [LOWER]).tables[0].rows[0]
    bad = np.array(list(score.values())).reshape(study.distances.shape)
    x, y = (np.ravel([interaction(table) for table in side]) for side in (study.distances, bad))
    whole = correlation_interval(x, y, groups=np.repeat(range(16), 8).tolist())
    assert (low, high) == (whole.low, whole.high)
    assert (low, high) != (correlation_interval(x, y).low, correlation_interval(x, y).high)


def test_noise_has_no_clear_relation():
    study = MultipleChoice()
    said = []
    for seed in range(3):
        rng = random.Random(seed)
        said.append(study.finding(values(study, LOWER, lambda *_, rng=rng: rng.random()), [LOWER]).says[1])
    assert sum("shows no clear response to the distance" in one for one in said) >= 2


def test_a_quirk_of_one_statement_with_some_truths_is_no_reading():
    """A bootstrap over true distributions holds it for certain, since it is in all of them."""
    study = MultipleChoice()
    odd = list(study.items[0].summaries)[1]
    turn = {item.id: 1 if place % 2 else -1 for place, item in enumerate(study.items)}
    net = study.finding(
        values(study, LOWER, lambda item, name, _: float(turn[item] * (name == odd))), [LOWER]
    ).tables[0]
    assert net.rows[0][9] > 0.05


def test_levels_of_true_distributions_do_not_count():
    """Each true distribution has a level of its own, which hides the relation from the correlation as
    measured."""
    study = MultipleChoice()
    levels = {item.id: 100.0 * place for place, item in enumerate(study.items)}
    net, overall, within = study.finding(
        values(study, LOWER, lambda item, _, distance: levels[item] + distance), [LOWER]
    ).tables
    assert isinstance(overall.rows[0][1], float)
    assert overall.rows[0][1] < 0.3
    assert net.rows[0][4] == pytest.approx(1)
    assert within.rows[0][1] == pytest.approx(1)


def test_missing_values_show_in_n_and_a_metric_without_any_says_so():
    study = MultipleChoice()
    found = values(study, LOWER, lambda item, name, distance: distance or None)
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
