"""Scores that differ by less than 1e-6 are ties, wherever they are compared."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import measured_run

from selfreflect.report.comparison import Contender, compare
from selfreflect.report.document import comparison_line
from selfreflect.report.judges import same_order
from selfreflect.report.results import INFORMATION, SELFREFLECT, best_first, best_strategy, sorted_results
from selfreflect.report.sentences import findings
from selfreflect.stats import TIE, paired_difference, settled
from selfreflect.validate.agreement import summary_orders
from selfreflect.validate.base import MetricInfo

CLOSE = 3e-7
BITS = [5.0, 6.0, 7.0, 4.0, 5.5, 6.5, 3.0]
SCORES = [0.1, 0.09, 0.08, 0.11, 0.1, 0.07, 0.12]


def twins(by: float):
    """Two strategies, of which the second is better by a little on most questions and worse on some."""
    signs = [1, 1, 1, 1, 1, -1, 1]
    bits = [value + 10 * by * sign for value, sign in zip(BITS, signs, strict=True)]
    scores = [value - by * sign for value, sign in zip(SCORES, signs, strict=True)]
    return measured_run({"cot": BITS, "mine": bits}, scores={"cot": SCORES, "mine": scores})


@pytest.mark.parametrize("measure", [SELFREFLECT, INFORMATION])
@pytest.mark.parametrize(("by", "counts"), [(CLOSE, (0, 7, 0)), (1e-3, (6, 0, 1))])
def test_wins_and_losses_are_differences_above_the_eighth_digit(measure, by, counts):
    run = twins(by)
    paired = compare(Contender(run, "cot"), Contender(run, "mine"), measure).paired
    assert (paired.wins, paired.ties, paired.losses) == counts


def test_texts_that_tie_keep_their_order_and_share_the_lead():
    run = twins(CLOSE)
    results = sorted_results(run)
    assert [result.strategy for result in results] == ["cot", "mine"]
    assert best_strategy(results, INFORMATION) == "cot"
    assert [outcome.strategy for outcome in best_first(run.outcomes("q0"))] == ["cot", "mine"]
    line = comparison_line(Contender(run, "cot"), Contender(run, "mine"))
    assert (line["verdict"], line["difference"], line["p_value"]) == ("unclear", 0.0, 1.0)
    assert len(findings(run)) == 1  # no sentence on who is ahead
    assert [result.strategy for result in sorted_results(twins(1e-3))] == ["mine", "cot"]


def test_validation_counts_no_win_of_a_tie():
    metric = MetricInfo(name="m", better="lower", group="control", about="")
    assert not metric.wins(0.1, 0.1 + CLOSE)
    assert metric.wins(0.1, 0.1 + 2 * TIE)
    assert summary_orders({("q", "a"): 0.1, ("q", "b"): 0.1 + CLOSE}) == {("q", "a", "b"): 0}


def test_judges_agree_only_on_pairs_that_both_tell_apart():
    first = {"a": {"q": 0.1, "r": 0.1}, "b": {"q": 0.1 + CLOSE, "r": 0.2}}
    second = {"a": {"q": 0.1, "r": 0.1}, "b": {"q": 0.3, "r": 0.3}}
    assert (same_order(first, second).mean, same_order(first, second).n) == (1.0, 1)


def test_differences_that_are_shares_tie_as_shares():
    paired = paired_difference({"q": 0.0}, {"q": 2e-6}, 1, scale={"q": 10.0}, higher_is_better=True)
    assert (paired.wins, paired.ties) == (0, 1)


@given(st.lists(st.floats(-1, 1)))
def test_settled_values_keep_their_order_and_differ_by_more_than_a_tie(values):
    found = settled(values)
    assert all(0 <= value - low < TIE for value, low in zip(values, found, strict=True))
    kept = sorted(set(found))
    assert all(b - a >= TIE for a, b in pairwise(kept))
