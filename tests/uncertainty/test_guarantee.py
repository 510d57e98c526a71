"""A threshold with a guarantee: exact bounds, known results, and worlds whose true risk is known."""

from __future__ import annotations

import json
import math
import string
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import uq_data
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from selfreflect.errors import ConfigError, DataError
from selfreflect.uncertainty.guarantee import (
    AGREEING,
    WINDOW,
    ClassOfAnswers,
    DriftWatch,
    NoSetRule,
    SetRule,
    answer_set,
    binomial_tail,
    fewest_answers,
    fit_sets,
    is_other_sample,
    is_pilot,
    kolmogorov_smirnov,
    search_threshold,
    upper_bound,
)

Floats = NDArray[np.float64]


# --- exact numbers

FEWEST = {
    0.01: ((299, 473, 628, 1049, 1693), (230, 388, 531, 926, 1538)),
    0.05: ((59, 93, 124, 208, 336), (45, 77, 105, 184, 306)),
    0.1: ((29, 46, 61, 103, 167), (22, 38, 52, 91, 152)),
    0.2: ((14, 22, 30, 50, 82), (11, 18, 25, 45, 75)),
}


@pytest.mark.parametrize("risk", FEWEST)
def test_the_fewest_answers_that_pass(risk: float) -> None:
    for confidence, row in zip((0.95, 0.9), FEWEST[risk], strict=True):
        assert tuple(fewest_answers(risk, confidence, wrong) for wrong in (0, 1, 2, 5, 10)) == row
        assert row[0] == int(np.ceil(np.log(1 - confidence) / np.log(1 - risk)))


@pytest.mark.parametrize(
    ("wrong", "answered", "confidence", "bound"),
    [
        (0, 59, 0.95, 0.049508),
        (3, 100, 0.95, 0.075711),
        (3, 100, 0.9, 0.065586),
        (50, 250, 0.9, 0.236182),
        (7, 7, 0.9, 1),
    ],
)
def test_bounds_of_clopper_and_pearson(wrong: int, answered: int, confidence: float, bound: float) -> None:
    assert upper_bound(wrong, answered, confidence) == pytest.approx(bound, abs=1e-6)


@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.01, 0.99))
def test_the_tail_is_the_sum_of_a_binomial(wrong: int, more: int, risk: float) -> None:
    from math import comb

    answered = wrong + more
    exact = sum(comb(answered, k) * risk**k * (1 - risk) ** (answered - k) for k in range(wrong + 1))
    assert binomial_tail(wrong, answered, risk) == pytest.approx(exact, rel=1e-9)


# --- published confidences and answers: even rows set the grid, odd rows are tested


@pytest.mark.parametrize(
    ("name", "risk", "start", "chosen", "last"),
    [
        ("csqa/RLCR", 0.05, 0.7, (0.7, 225, 3, 0.0295, 0.369), (0.6, 475, 24, 0.575)),
        ("csqa/RLCR", 0.1, 0.75, (0.35, 586, 45, 0.0928, 0.961), (0.25, 610, 53, 0.155)),
        ("csqa/Base", 0.1, 0.95, None, (0.95, 176, 15, 0.3075)),
    ],
)
def test_published_confidences(
    name: str, risk: float, start: float, chosen: tuple[float, ...] | None, last: tuple[float, ...]
) -> None:
    columns = json.loads(uq_data.find("rlcr_confidences.json").read_text())[name]
    scores = np.clip(np.array(columns["confidence"]), 0, 1)
    wrong = np.array(columns["correct"]) < 0.5
    search = search_threshold(scores[::2], scores[1::2], wrong[1::2], risk, 0.9)
    final = search.tests[-1]
    assert search.grid[0] == start
    assert (final.threshold, final.answered, final.wrong) == last[:3]
    assert final.p_value == pytest.approx(last[3], abs=5e-4)
    if chosen is None:
        assert search.chosen is None
        assert final.bound == pytest.approx(0.1188, abs=5e-5)
        return
    assert search.chosen is not None
    assert (search.chosen.threshold, search.chosen.answered, search.chosen.wrong) == chosen[:3]
    assert search.chosen.bound == pytest.approx(chosen[3], abs=5e-5)
    assert search.chosen.coverage == pytest.approx(chosen[4], abs=5e-4)


@pytest.mark.parametrize("method", ["Base", "RLVR", "RLVR-Classifier", "Answer-Prob", "RLCR"])
@pytest.mark.parametrize("risk", [0.3, 0.4])
def test_confidences_that_know_nothing_get_no_threshold(method: str, risk: float) -> None:
    columns = json.loads(uq_data.find("rlcr_confidences.json").read_text())[f"gpqa/{method}"]
    scores = np.clip(np.array(columns["confidence"]), 0, 1)
    wrong = np.array(columns["correct"]) < 0.5
    search = search_threshold(scores[::2], scores[1::2], wrong[1::2], risk, 0.9)
    assert search.chosen is None
    assert search.labels_needed > 0


def squad_form(text: str) -> str:
    """Normalise as the known results did."""
    plain = "".join(mark for mark in text.lower() if mark not in string.punctuation)
    return " ".join(word for word in plain.split() if word not in ("a", "an", "the"))


def trivia() -> tuple[Floats, NDArray[np.bool_], Floats, list[list[float]]]:
    """Share of the modal answer, whether it is wrong, share of the right one, and all shares."""
    modal, wrong, right, shares = [], [], [], []
    for row in json.loads(uq_data.find("triviaqa_llama13b.json").read_text()):
        counts = Counter(map(squad_form, row["answers"]))
        gold = squad_form(row["gold"])
        text, count = counts.most_common(1)[0]
        modal.append(count / 20)
        wrong.append(text != gold)
        right.append(counts[gold] / 20)
        shares.append([count / 20 for count in counts.values()])
    return np.array(modal), np.array(wrong), np.array(right), shares


def test_published_answers() -> None:
    scores, wrong, _, _ = trivia()
    search = search_threshold(scores[::2], scores[1::2], wrong[1::2], 0.2, 0.9)
    assert search.chosen is not None
    assert search.grid[0] == 0.8
    assert search.chosen[:3] == (0.45, 69, 8)
    assert search.chosen.bound == pytest.approx(0.1815, abs=5e-5)
    assert search.chosen.coverage == 0.552
    none = search_threshold(scores[::2], scores[1::2], wrong[1::2], 0.1, 0.9)
    assert none.chosen is None
    assert none.tests[0][:3] == (0.65, 40, 2)
    assert none.tests[0].p_value == pytest.approx(0.2228, abs=5e-5)


# --- worlds whose true risk is known

World = tuple[Callable[[Any, tuple[int, int]], Floats], Callable[[Floats], Floats]]


def tied(generator: Any, shape: tuple[int, int]) -> Floats:
    return generator.integers(0, 11, shape) / 10


def smooth(generator: Any, shape: tuple[int, int]) -> Floats:
    return generator.random(shape)


def worlds(risk: float) -> dict[str, World]:
    """Scores, and the chance to be wrong at a score."""
    return {
        "useless": (smooth, lambda scores: np.full_like(scores, risk * 1.05)),
        "useless, ties": (tied, lambda scores: np.full_like(scores, risk * 1.05)),
        "perfect": (smooth, lambda scores: (scores < 0.4).astype(float)),
        "informative, ties": (tied, lambda scores: 2 * risk * (1 - scores)),
        "overconfident top": (smooth, lambda scores: np.where(scores > 0.9, min(1, 4 * risk), risk / 4)),
    }


def true_risk(world: World, threshold: float) -> float:
    draw, chance = world
    levels = np.arange(11) / 10
    edges = np.linspace(threshold, 1, 501)
    points = levels[levels >= threshold] if draw is tied else (edges[1:] + edges[:-1]) / 2
    return float(chance(points).mean())


REPEATS = 2000


@pytest.mark.parametrize("n", [50, 200])
@pytest.mark.parametrize("risk", [0.01, 0.05, 0.2])
def test_the_bound_holds_as_often_as_it_says(n: int, risk: float) -> None:
    confidence = 0.9
    allowed = (1 - confidence) + 3 * (confidence * (1 - confidence) / REPEATS) ** 0.5
    for name, world in worlds(risk).items():
        draw, chance = world
        generator = np.random.default_rng(n)
        scores = draw(generator, (REPEATS, n))
        wrong = generator.random((REPEATS, n)) < chance(scores)
        pilot = n // 4
        found = [
            search_threshold(row[:pilot], row[pilot:], errors[pilot:], risk, confidence).threshold
            for row, errors in zip(scores, wrong, strict=True)
        ]
        chosen = [threshold for threshold in found if threshold is not None]
        violated = sum(true_risk(world, threshold) > risk + 1e-12 for threshold in chosen)
        assert violated / REPEATS <= allowed, (name, violated)
        if name == "perfect" and n * 0.75 * 0.6 > 2.5 * fewest_answers(risk, confidence):
            assert len(chosen) > 0.9 * REPEATS


# --- what changes nothing, and what is refused


@given(st.integers(0, 2**32), st.sampled_from([5, 11, 101]))
def test_order_and_monotone_maps_change_nothing(seed: int, levels: int) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.integers(0, levels, 400) / levels
    wrong = generator.random(400) < 0.3 * (1 - scores)
    plain = search_threshold(scores[:100], scores[100:], wrong[100:], 0.2, 0.9)
    order = generator.permutation(300)
    moved = search_threshold(
        np.exp(5 * scores[:100][::-1]), np.exp(5 * scores[100:][order]), wrong[100:][order], 0.2, 0.9
    )
    assert moved.counts == plain.counts


def test_the_pilot_depends_on_names_alone() -> None:
    names = [format(number * 7919 % 1009, "04x") for number in range(41)]
    chosen = {name for name, is_in in zip(names, is_pilot(names), strict=True) if is_in}
    backwards = names[::-1]
    assert chosen == {name for name, is_in in zip(backwards, is_pilot(backwards), strict=True) if is_in}
    assert len(chosen) == 10


def test_too_few_labels_say_how_many_are_needed() -> None:
    scores = np.linspace(0, 1, 44)
    search = search_threshold(scores[:11], scores[11:], np.zeros(33, bool), 0.05, 0.95)
    assert search.chosen is None
    assert search.tests[0].wrong == 0
    more = search.labels_needed
    enough = np.linspace(0, 1, 44 + more)
    pilot = len(enough) // 4
    assert search_threshold(
        enough[:pilot], enough[pilot:], np.zeros(len(enough) - pilot, bool), 0.05, 0.95
    ).chosen


def test_a_threshold_that_the_pilot_kept_from_a_test_lacks_labels_though_enough_reached_it() -> None:
    pilot, scores = np.repeat([0.5, 0.9], [76, 24]), np.repeat([0.5, 0.9], [280, 120])
    search = search_threshold(pilot, scores, scores < 0.9, 0.05, 0.95)
    assert (search.chosen, search.nearest.threshold, search.nearest.answered) == (None, 0.9, 120)
    assert search.labels_needed > 0
    tested = np.repeat([0.5, 0.9], [280 + search.labels_needed * 3 // 4 - 27, 147])
    found = search_threshold(pilot, tested, tested < 0.9, 0.05, 0.95).chosen
    assert found is not None
    assert found.threshold == 0.9


def test_the_labels_that_a_strict_threshold_lacks_are_counted_if_it_comes_nearest() -> None:
    pilot = np.repeat([0.5, 0.8, 0.9], [5, 26, 46])
    scores = np.repeat([0.5, 0.8, 0.9], [15, 80, 138])
    wrong = np.zeros(233, bool)
    wrong[[*range(24), 100]] = True
    search = search_threshold(pilot, scores, wrong, 0.03, 0.95)
    assert (search.chosen, search.tests[0].threshold) == (None, 0.8)
    assert (search.nearest.threshold, search.nearest.answered, search.nearest.wrong) == (0.9, 138, 1)
    # a quarter of the further labels goes to the pilot
    share = 1 + search.labels_needed / 310
    further = np.repeat([0.5, 0.8, 0.9], [math.ceil(count * share) - count for count in (15, 80, 138)])
    all_wrong = np.append(wrong, np.zeros(len(further), bool))
    found = search_threshold(np.repeat(pilot, 2), np.append(scores, further), all_wrong, 0.03, 0.95)
    assert found.chosen
    assert found.tests[0].threshold == 0.9


@pytest.mark.parametrize(
    "levels", [(0, 0.9), (1, 0.9), (0.05, 1), (1e-300, 0.9), (0.1, 1 - 1e-16), (float("nan"), 0.9)]
)
def test_levels_that_mean_nothing(levels: tuple[float, float]) -> None:
    with pytest.raises(ConfigError) as error:
        search_threshold(np.ones(4), np.ones(12), np.zeros(12, bool), *levels)
    assert error.value.code == "level"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers(value: float) -> None:
    with pytest.raises(DataError) as error:
        search_threshold(np.ones(4), np.array([value, 1.0]), np.zeros(2, bool), 0.05, 0.9)
    assert error.value.code == "score"
    with pytest.raises(DataError) as error:
        search_threshold(np.ones(0), np.ones(2), np.zeros(2, bool), 0.05, 0.9)
    assert error.value.code == "too_few_labels"
    assert error.value.fields["labels_needed"] == 59  # 45 answered, and a pilot of 59 // 4


# --- sets of answers


def test_sets_on_published_answers() -> None:
    _, _, right, shares = trivia()
    cannot = fit_sets(right[::2], 0.8)
    assert isinstance(cannot, NoSetRule)
    everything = fit_sets(right, 0.9)
    assert isinstance(everything, NoSetRule)
    assert (everything.unsampled, everything.ceiling) == (50, 0.8)
    for coverage, share, covered, size, empty in (
        (0.7, 0.05, 0.816, 9.38, 0),
        (0.6, 0.2, 0.64, 1.10, 19),
        (0.5, 0.45, 0.488, 0.55, 56),
    ):
        rule = fit_sets(right[::2], coverage)
        assert isinstance(rule, SetRule)
        sets = [answer_set(rule, [ClassOfAnswers("", part) for part in row]) for row in shares[1::2]]
        assert (rule.share, float((right[1::2] >= rule.share).mean())) == (share, covered)
        assert np.mean(list(map(len, sets))) == pytest.approx(size, abs=0.005)
        assert sets.count([]) == empty


@pytest.mark.parametrize(
    ("n", "low", "high"),
    [
        (50, 0.8262, 0.9598),
        (100, 0.848205, 0.944737),
        (200, 0.863722, 0.932739),
        (500, 0.8773, 0.9213),
        (1000, 0.884075, 0.915215),
    ],
)
def test_coverage_of_sets_is_that_of_order_statistics(n: int, low: float, high: float) -> None:
    """Without ties the coverage over calibration sets is Beta(n + 1 - l, l)."""
    generator = np.random.default_rng(n)
    covers = []
    for row in generator.random((2000, n)):
        rule = fit_sets(row, 0.9)
        assert isinstance(rule, SetRule)
        covers.append(1 - rule.share)
    rank = int(0.1 * (n + 1))
    assert np.mean(covers) == pytest.approx((n + 1 - rank) / (n + 1), abs=0.003)
    assert np.quantile(covers, 0.05) == pytest.approx(low, abs=0.01)
    assert np.quantile(covers, 0.95) == pytest.approx(high, abs=0.01)


# shares of the right class in tenths, each as likely as it stands here
SHARES = {
    "ties": tuple(range(1, 11)),
    "useless": (5,),
    "perfect": (10,),
    "some never drawn": (0, *[1] * 5, *[5] * 20, *[10] * 20),
}


@pytest.mark.parametrize("n", [50, 200])
@pytest.mark.parametrize("world", SHARES)
@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_sets_cover_as_many_questions_as_they_say(world: str, coverage: float, n: int) -> None:
    """In the mean over samples of labelled questions; where no set can, nothing is promised."""
    generator = np.random.default_rng(n)
    levels = np.array(SHARES[world]) / 10
    covered = []
    for row in generator.choice(levels, (REPEATS, n)):
        rule = fit_sets(row, coverage)
        # a share of 0 would be needed: the set of everything, also of what nobody drew
        covered.append(float((levels >= rule.share).mean()) if isinstance(rule, SetRule) else 1.0)
    error = 3 * float(np.std(covered)) / REPEATS**0.5
    assert np.mean(covered) >= coverage - error


def test_few_labels_make_no_set() -> None:
    few = fit_sets([1.0] * 8, 0.9)
    assert isinstance(few, NoSetRule)
    assert few.fewest == 9
    assert isinstance(fit_sets([1.0] * 9, 0.9), SetRule)
    with pytest.raises(ConfigError):
        fit_sets([0.5], 1.5)
    with pytest.raises(DataError):
        fit_sets([], 0.9)
    with pytest.raises(DataError):
        fit_sets([1.5], 0.9)


# --- drift


def test_the_distance_of_two_samples() -> None:
    assert kolmogorov_smirnov([0, 1, 2, 3], [0, 1, 2, 3]) == 0
    assert kolmogorov_smirnov([0, 0, 1, 1], [0, 1, 1, 1]) == 0.25
    assert not is_other_sample([1, 2], [])


def test_drift_is_seen_and_hardly_ever_imagined() -> None:
    generator = np.random.default_rng(0)
    calibration = generator.integers(0, 21, 500) / 20
    alarms = 0
    for _ in range(300):
        watch = DriftWatch(calibration.tolist())
        for score in generator.integers(0, 21, WINDOW) / 20:
            watch.add(float(score))
        alarms += watch.has_drifted
    assert alarms <= 3


def test_a_guarantee_returns_once_recent_scores_agree_for_long_enough() -> None:
    generator = np.random.default_rng(0)
    watch = DriftWatch((generator.integers(0, 21, 500) / 20).tolist())

    def states(windows: int, scale: float) -> list[bool]:
        result = []
        for _ in range(windows):
            for score in generator.integers(0, 21, WINDOW) / scale:
                watch.add(float(score))
            result.append(watch.has_drifted)
        return result

    assert states(2, 40) == [True, True]
    assert states(AGREEING - 1, 20) == [True] * (AGREEING - 1), "too few to show that it is over"
    assert states(1, 40) == [True], "counting begins anew"
    assert states(AGREEING, 20) == [*[True] * (AGREEING - 1), False]
    assert states(1, 40) == [True]


def test_windows_that_agree_one_by_one_but_not_together_bring_nothing_back() -> None:
    watch = DriftWatch(np.linspace(0, 1, 2000).tolist())
    for score in np.linspace(0, 0.4, WINDOW):
        watch.add(float(score))
    for score in np.tile(np.linspace(0, 0.88, WINDOW), AGREEING + 2):
        watch.add(float(score))
    assert watch.distance is not None
    assert watch.distance < 0.19, "no window by itself raises an alarm"
    assert watch.has_drifted
