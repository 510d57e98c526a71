import itertools
import math
import warnings
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfreflect.stats import (
    Estimate,
    clear_sign,
    clustered_mean,
    mean_interval,
    paired_difference,
    rank_correlation,
    ratio_interval,
    sign_flip_p,
    student_p,
    student_quantile,
)

SCORES = st.floats(0, 1, allow_subnormal=False)
MANY = st.lists(SCORES, min_size=2, max_size=40)


def quick(values, total=None, **settings):
    return mean_interval(values, len(values) if total is None else total, **{"resamples": 500, **settings})


def test_no_values_leave_everything_undefined_but_the_counts():
    assert mean_interval([], 7) == Estimate(None, None, None, 0, 7)
    assert mean_interval([], 7).coverage == 0


def test_values_that_differ_by_rounding_alone_give_no_warning_and_no_nan():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimate = quick([0.1, 0.1, math.nextafter(0.1, 1)])
    assert estimate.low == pytest.approx(0.1)
    assert estimate.high == pytest.approx(0.1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_undefined_values_are_refused(bad):
    with pytest.raises(ValueError, match="NaN or infinite"):
        mean_interval([0.1, bad], 2)


def test_it_is_the_bca_interval_of_all_possible_resamples():
    """Efron's formula written out for the 6**6 resamples of six values, by counting instead of drawing."""
    values = np.array([0.01, 0.03, 0.04, 0.09, 0.17, 0.83])
    normal = NormalDist()
    means = np.sort([np.mean(sample) for sample in itertools.product(values, repeat=6)])
    z0 = normal.inv_cdf(np.mean(means < values.mean()))
    jackknife = np.array([np.delete(values, i).mean() for i in range(6)])
    away = jackknife.mean() - jackknife
    a = np.sum(away**3) / (6 * np.sum(away**2) ** 1.5)
    low, high = (
        means[int(normal.cdf(z0 + (z0 + z) / (1 - a * (z0 + z))) * len(means))]
        for z in (normal.inv_cdf(0.025), normal.inv_cdf(0.975))
    )
    estimate = mean_interval(values, 6, resamples=200_000)
    assert (estimate.low, estimate.high) == (pytest.approx(low, abs=0.003), pytest.approx(high, abs=0.003))


@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(lambda rng: (rng.beta(2, 6, 60), 0.25), id="beta(2, 6)"),
        pytest.param(lambda rng: (rng.beta(1, 8, 60), 1 / 9), id="beta(1, 8)"),
        pytest.param(lambda rng: (rng.exponential(1.0, 60), 1.0), id="exponential"),
    ],
)
def test_the_interval_covers_the_truth_as_often_as_it_says(draw):
    rng, covered = np.random.default_rng(3), 0
    for seed in range(1000):
        values, truth = draw(rng)
        estimate = mean_interval(values, 60, resamples=1000, seed=seed)
        covered += estimate.low <= truth <= estimate.high
    assert 0.92 <= covered / 1000 <= 0.97


@given(MANY, st.randoms())
def test_the_order_of_the_values_makes_no_difference(values, random):
    shuffled = random.sample(values, len(values))
    assert quick(shuffled) == quick(values)


@given(MANY)
def test_the_interval_holds_the_mean_and_lies_among_the_values(values):
    estimate = quick(values)
    rounding = 1e-12
    assert min(values) - rounding <= estimate.low <= estimate.mean + rounding
    assert estimate.mean - rounding <= estimate.high <= max(values) + rounding


def test_pairs_are_made_by_key_and_the_rest_is_left_out():
    paired = paired_difference(
        {"a": 0.5, "b": 0.5, "c": 0.5, "x": 0.0}, {"c": 0.6, "b": 0.5, "a": 0.1, "y": 1.0}, 10
    )
    assert paired.difference.mean == pytest.approx(-0.1)
    assert (paired.difference.n, paired.difference.total) == (3, 10)
    assert (paired.wins, paired.ties, paired.losses) == (1, 1, 1)


def test_nothing_in_common_is_undefined():
    paired = paired_difference({"a": 0.5}, {"b": 0.5}, 3)
    assert paired.difference == Estimate(None, None, None, 0, 3)
    assert (paired.wins, paired.ties, paired.losses, paired.p_value) == (0, 0, 0, None)


@given(
    st.dictionaries(st.sampled_from("abcdefghij"), SCORES),
    st.dictionaries(st.sampled_from("abcdefghij"), SCORES),
)
def test_swapping_the_sides_turns_the_difference_around(a, b):
    there, back = (paired_difference(x, y, 10) for x, y in ((a, b), (b, a)))
    assert there.difference.mean == (
        None if back.difference.mean is None else pytest.approx(-back.difference.mean)
    )
    assert (there.wins, there.ties, there.losses) == (back.losses, back.ties, back.wins)
    assert there.p_value == back.p_value
    assert there.wins + there.ties + there.losses == there.difference.n == len(a.keys() & b.keys())


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        pytest.param([1, 2, 3], 2 / 8, id="only all plus and all minus reach 6"),
        pytest.param([-1, 2, 3], 4 / 8, id="6, 4, -4 and -6 reach 4; 2, 0, 0 and -2 do not"),
        pytest.param([1, 1, 1, 1, 1], 2 / 32, id="the sign test"),
        pytest.param([0.1, 0.2, 0.3, 0, 0], 2 / 8, id="ties change nothing"),
        pytest.param([0.1] * 10, 2 / 1024, id="added one by one they make less than 1"),
        pytest.param([0.1, 0.2, -0.3], 1.0, id="a sum of nothing but rounding"),
        pytest.param([0.0, 0.0], 1.0, id="no difference at all"),
    ],
)
def test_sign_flips_of_a_few_differences_are_counted_exactly(differences, p):
    assert sign_flip_p(differences) == p


def test_sampled_sign_flips_come_close_to_the_exact_value():
    """17 equal differences, 13 of them positive: P(at least 13 or at most 4 of 17 coins), 0.0490."""
    exact = 2 * sum(math.comb(17, k) for k in range(13, 18)) / 2**17
    assert sign_flip_p([0.1] * 13 + [-0.1] * 4, resamples=20_000) == pytest.approx(exact, abs=0.006)


def test_a_worked_example_of_clusters():
    """Sums 0.6, 0.3 over 3 and 1 tokens: mean 0.225, residuals -0.075 and 0.075, so sqrt(2 * 2 * 0.075**2) /
    4."""
    value, stderr = clustered_mean([[0.1, 0.2, 0.3], [0.3]])
    assert value == pytest.approx(0.225)
    assert stderr == pytest.approx(0.0375)


@given(MANY)
def test_with_one_token_per_answer_it_is_the_classic_standard_error(values):
    value, stderr = clustered_mean([[value] for value in values])
    assert value == pytest.approx(np.mean(values), abs=1e-12)
    assert stderr == pytest.approx(np.std(values, ddof=1) / math.sqrt(len(values)), abs=1e-9)


@given(st.lists(st.lists(SCORES, max_size=5), min_size=1, max_size=8).filter(any), st.randoms())
def test_the_order_of_answers_and_empty_answers_make_no_difference(answers, random):
    expected = clustered_mean(answers)
    assert clustered_mean([[], *random.sample(answers, len(answers))]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("t", "degrees", "p"),
    [
        (0.0, 5, 1.0),
        (12.7062, 1, 0.05),
        (4.30265, 2, 0.05),
        (3.18245, 3, 0.05),
        (2.22814, 10, 0.05),
        (-2.22814, 10.9, 0.05),
        (3.29053, math.inf, 0.001),
    ],
)
def test_student_p_is_that_of_the_tables(t, degrees, p):
    assert student_p(t, degrees) == pytest.approx(p, rel=1e-4)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (49, 2.010), (1000, 1.962)],
)
def test_t_quantiles_are_those_of_the_tables(freedom, quantile):
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, rel=3e-4)


@pytest.mark.parametrize(
    ("low", "high", "side"), [(0.1, 0.3, 1), (-0.3, -0.1, -1), (-0.1, 0.3, 0), (0.0, 0.3, 0), (None, None, 0)]
)
def test_an_interval_lies_on_a_side_of_zero_unless_it_covers_it(low, high, side):
    estimate = Estimate(0.2, low, high, 10, 10)
    assert estimate.side_of(0) == side
    assert clear_sign(estimate, 0.01) == side


@pytest.mark.parametrize("p_value", [None, 0.06, 1.0])
def test_a_sign_is_not_clear_where_the_test_disagrees_with_the_interval(p_value):
    assert clear_sign(Estimate(0.2, 0.1, 0.3, 4, 4), p_value) == 0


# --- ratios of sums


def test_a_ratio_of_sums_weighs_questions_by_their_denominator():
    estimate = ratio_interval([(1.0, 10.0), (8.0, 10.0), (0.0, 40.0)], 5)
    assert estimate.mean == pytest.approx(9 / 60)
    assert (estimate.n, estimate.total) == (3, 5)
    assert 0 <= estimate.low < estimate.mean < estimate.high <= 0.8


@given(MANY, st.sampled_from([0.5, 1, 2, 32]), st.randoms())
def test_a_ratio_with_equal_denominators_is_a_mean(values, denominator, random):
    """In any order of the pairs. Powers of two round nothing, so that equal resamples stay equal."""
    mean = quick(values)
    pairs = random.sample([(value, denominator) for value in values], len(values))
    ratio = ratio_interval(pairs, len(values), resamples=500)
    scaled = [end * denominator for end in (ratio.mean, ratio.low, ratio.high)]
    assert scaled == pytest.approx([mean.mean, mean.low, mean.high], abs=1e-6)


@pytest.mark.parametrize("pair", [(math.nan, 1.0), (1.0, math.inf), (1.0, 0.0), (1.0, -2.0)])
def test_undefined_ratios_are_refused(pair):
    with pytest.raises(ValueError, match=r"NaN or infinite|not above 0"):
        ratio_interval([(1.0, 2.0), pair], 2)


def test_a_paired_difference_can_be_a_share_of_what_there_was_to_gain():
    a, b = {"p": 10.0, "q": 30.0, "r": 5.0}, {"p": 15.0, "q": 29.0, "s": 1.0}
    paired = paired_difference(a, b, 4, scale={"p": 20.0, "q": 60.0}, higher_is_better=True)
    assert paired.difference.mean == pytest.approx(4 / 80)
    assert (paired.wins, paired.ties, paired.losses) == (1, 0, 1)
    assert paired.p_value == paired_difference(a, b, 4).p_value


# --- rank correlation


def test_rank_correlation_of_known_data():
    # ties: scipy.stats.spearmanr
    assert rank_correlation([1, 2, 3, 4, 5], [5, 6, 7, 8, 7]).mean == pytest.approx(0.8207826816681233)
    found = rank_correlation([1, 2, 3, 4, 5], [1, 3, 2, 5, 4])
    assert (found.mean, found.n) == (pytest.approx(0.8), 5)
    assert -1 < found.low < 0.8 < found.high < 1
    assert rank_correlation([1, 1, 1], [1, 2, 3]).mean is None
    assert rank_correlation([], []).mean is None
    assert rank_correlation([1, 2, 3, 4, 5], [5, 4, 3, 2, 1]).mean == -1
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]).mean is None  # by chance in one of 12 cases


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=8))
@settings(deadline=None)
def test_sign_flips_agree_with_plain_enumeration(differences):
    flipped = [
        sum(map(int.__mul__, signs, differences))
        for signs in itertools.product((-1, 1), repeat=len(differences))
    ]
    extreme = sum(abs(total) >= abs(sum(differences)) for total in flipped)
    assert sign_flip_p(differences) == extreme / len(flipped)


def test_on_many_pairs_it_is_the_linearised_interval_of_a_ratio():
    """Cochran 1977, Sampling Techniques, 6.3."""
    rng = np.random.default_rng(5)
    y = rng.uniform(20, 60, 900)
    x = 0.5 * y + rng.normal(0, 10, 900)
    ratio = x.sum() / y.sum()
    half = 1.96 * (x - ratio * y).std(ddof=1) / 30 / y.mean()
    estimate = ratio_interval(list(zip(x, y, strict=True)), 900)
    assert estimate.mean == pytest.approx(ratio)
    assert estimate.low == pytest.approx(ratio - half, abs=0.1 * half)
    assert estimate.high == pytest.approx(ratio + half, abs=0.1 * half)
