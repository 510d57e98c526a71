"""Adaptive sampling: the error is what the rule says, and it stops as soon as the evidence allows."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfreflect.server.stopping import StoppingRule, StopReason, log_wealth


def numbered(draws: list[int]) -> list[int]:
    """Classes numbered in the order of first samples."""
    seen: dict[int, int] = {}
    return [seen.setdefault(draw, len(seen)) for draw in draws]


def stop_of(rule: StoppingRule, draws: list[int], at_once: int = 1) -> tuple[StopReason, int]:
    """Why and after how many samples a rule stops."""
    labels = numbered(draws)
    for n in range(at_once, len(labels) + 1, at_once):
        if reason := rule(labels[:n]):
            return reason, n
    raise AssertionError("it never stopped")


def test_money_is_what_three_players_have() -> None:
    assert math.exp(log_wealth(6, 0, 0.5)) == pytest.approx(0.5 * 2**6 + 0.25 * 1.8**6 + 0.25 * 1.4**6)
    assert math.exp(log_wealth(2, 1, 0.5)) == pytest.approx(0.25 * 1.8**2 * 0.2 + 0.25 * 1.4**2 * 0.6)
    assert math.exp(log_wealth(1, 0, 0.2)) == pytest.approx(0.5 * 5 + 0.25 * 4.2 + 0.25 * 2.6)
    assert log_wealth(100_000, 40_000, 0.5) > 1000  # no overflow


@given(st.integers(0, 30), st.floats(0.05, 0.95), st.floats(0.1, 1.0))
def test_the_game_is_fair_at_the_chance_and_unfair_below_it(games: int, chance: float, part: float) -> None:
    def mean(of_winning: float) -> float:
        ways = [math.comb(games, wins) for wins in range(games + 1)]
        chances = [of_winning**wins * (1 - of_winning) ** (games - wins) for wins in range(games + 1)]
        money = [math.exp(log_wealth(wins, games - wins, chance)) for wins in range(games + 1)]
        return math.fsum(map(math.prod, zip(ways, chances, money, strict=True)))

    assert mean(chance) == pytest.approx(1)
    assert mean(part * chance) <= 1 + 1e-9


SHARES = {
    "two alike": [0.5, 0.5],
    "many alike": [0.05] * 20,
    "a tail": [0.3, 0.28, *[0.03] * 14],
    "near the share": [0.45, 0.15, *[0.04] * 10],
}


@pytest.mark.parametrize("share", [None, 0.4, 0.5])
@pytest.mark.parametrize("name", SHARES)
def test_claims_are_wrong_at_most_as_often_as_the_error(name: str, share: float | None) -> None:
    """With ties all but the first of the most likely classes count as wrong, which is the worst case."""
    chances = SHARES[name]
    rule = StoppingRule(most=30, error=0.1, share=share)
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(150):
        draws = rng.choice(len(chances), rule.most, p=chances).tolist()
        reason, n = stop_of(rule, draws, at_once=2)
        labels = numbered(draws[:n])
        leader = draws[labels.index(int(np.bincount(labels).argmax()))]
        too_low = share is not None and chances[leader] < share
        wrong += (reason == "ahead" and (leader != 0 or too_low)) + (
            reason == "below" and share is not None and chances[0] >= share
        )
    assert wrong <= 150 * 0.1  # the expected number is at most this, and in these cases far below


@pytest.mark.parametrize(("error", "n"), [(0.2, 5), (0.1, 6), (0.05, 7), (0.01, 10)])
def test_samples_that_agree_stop_it_soon(error: float, n: int) -> None:
    rule = StoppingRule(most=50, error=error)
    assert stop_of(rule, [0] * 50) == ("ahead", n)
    assert rule.soonest([]) == n
    assert rule.soonest([0, 0]) == n - 2


def test_a_share_is_decided_too() -> None:
    rule = StoppingRule(most=60, share=0.4)
    assert stop_of(rule, [0] * 60)[0] == "ahead"
    assert stop_of(rule, list(range(60)))[0] == "below"
    # one class leads clearly, and its share is just what is in question
    labels = numbered([0 if index % 5 in (0, 2) else index for index in range(50)])
    assert StoppingRule(most=60)(labels) == "ahead"
    assert rule(labels) is None


@given(st.lists(st.integers(0, 3), min_size=12, max_size=12), st.sampled_from([None, 0.3, 0.5]))
def test_what_is_settled_stays_whatever_comes(draws: list[int], share: float | None) -> None:
    rule = StoppingRule(most=12, error=1e-9, share=share)
    reason, n = stop_of(rule, draws)
    labels = np.array(numbered(draws))
    assert reason in ("settled", "limit")
    if reason == "settled":
        early, late = (np.bincount(labels[:end]) for end in (n, 12))
        if share is not None and late.max() < share * 12:
            assert early.max() + 12 - n < share * 12
        else:
            assert early.argmax() == late.argmax()
            assert share is None or early.max() >= share * 12


@given(st.lists(st.integers(0, 2), max_size=4), st.sampled_from([None, 0.4]))
@settings(max_examples=15)
def test_nothing_stops_it_sooner_than_it_says(draws: list[int], share: float | None) -> None:
    rule = StoppingRule(fewest=2, most=8, error=0.3, share=share)
    labels = numbered(draws)
    more = rule.soonest(labels)
    for fewer in range(more):
        assert not any(rule(numbered([*draws, *ending])) for ending in product(range(6), repeat=fewer))
    assert any(rule(numbered([*draws, *ending])) for ending in product(range(10), repeat=more))


def test_bounds_hold_whatever_the_samples_say() -> None:
    assert stop_of(StoppingRule(fewest=15), [0] * 20) == ("ahead", 15)
    assert stop_of(StoppingRule(most=9), [0, 1] * 5) == ("limit", 9)
    assert StoppingRule()([]) is None
    assert StoppingRule(fewest=1, most=1)([0]) == "limit"
