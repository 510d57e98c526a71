"""Study ``convergence``: how many questions a ranking needs, against what is known of made-up scores."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from studies import made_value, rows, shown, table

from selfreflect.errors import DataError
from selfreflect.sources.items import Item
from selfreflect.stats import FEWEST_TESTED
from selfreflect.table import to_csv, to_markdown
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.convergence import Convergence, questions_needed, same_ranking, stable_from

LOWER = MetricInfo(name="selfreflect", better="lower", group="selfreflect", about="")
HIGHER = MetricInfo(name="rouge_l", better="higher", group="competitor", about="")


def made(number: int, names=("good", "mid", "bad")) -> Item:
    return Item(
        id=f"q{number}",
        question=f"What is {number}?",
        masked_out=("a",),
        conditioning=("b",),
        summaries={name: f"{name} summary" for name in names},
    )


def value(item: str, summary: str, number: float | None, metric="selfreflect") -> Value:
    return made_value(metric, item, summary, number)


def noisy(items, levels, sd=0.02, seed=1):
    """Scores: a level of the summary, and noise of a difference of ``sd``."""
    rng = np.random.default_rng(seed)
    return [
        value(item.id, name, 0.5 + levels[name] + rng.normal(0, sd / math.sqrt(2)))
        for item in items
        for name in item.summaries
    ]


LEVELS = {"good": 0.0, "mid": 0.02, "bad": 0.1}


def test_a_ranking_is_the_same_only_if_every_pair_is():
    means = np.array([[1, 2, 3], [2, 1, 3], [1, 1, 3], [3, 2, 1]], dtype=float)
    assert same_ranking(means, np.array([1.0, 2.0, 3.0])) == 0.25  # a tie is another order
    assert same_ranking(means, np.array([1.0, 1.0, 3.0])) == 0.75  # what ties in the reference is not ranked
    assert same_ranking(means, np.array([1.0, 1.0, 1.0])) is None


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([0.5, 0.95, 1.0], 2),
        ([0.96, 0.9, 1.0], 3),
        ([1.0, 1.0, 0.94], None),
        ([1.0, 1.0, 1.0], 1),
        ([None, None, None], None),
    ],
)
def test_stable_is_what_stays_stable_with_more(shares, expected):
    assert stable_from(dict(enumerate(shares, 1))) == expected


@pytest.mark.parametrize(
    ("effect", "expected"), [(0.5, 32), (0.2, 197), (0.1, 785), (-0.1, 785), (5.0, FEWEST_TESTED)]
)
def test_questions_needed_are_those_of_the_closed_form(effect, expected):
    """(1.959964 + 0.841621)^2 = 7.848880, over the squared effect."""
    assert questions_needed(effect * 0.03, 0.03) == expected


def test_no_number_of_questions_finds_a_difference_of_zero():
    assert questions_needed(0.0, 0.1) is None
    assert questions_needed(5e-324, 0.1) is None  # more than a float holds
    assert questions_needed(0.1, 0.0) == FEWEST_TESTED


@pytest.mark.parametrize(
    "items",
    [
        [],
        [made(0)],
        [made(0, names=("good",)), made(1, names=("good",))],
        [made(0, names=("good", "bad")), made(1, names=("this", "that"))],
    ],
)
def test_items_that_rank_nothing_are_refused(items):
    with pytest.raises(DataError) as caught:
        Convergence(items)
    assert caught.value.code == "too_few"


@pytest.fixture(scope="module")
def clear():
    study = Convergence([made(number) for number in range(80)])
    return study.finding(noisy(study.items, LEVELS), [LOWER])


def test_the_advice_is_the_closed_form_of_the_table(clear):
    by_names = {(row["better"], row["worse"]): row for row in rows(table(clear, "What separates"))}
    assert list(by_names) == [("good", "mid"), ("good", "bad"), ("mid", "bad")]
    row = by_names["good", "mid"]
    needed = math.ceil(((1.959964 + 0.841621) * row["sd of a question"] / row["difference"]) ** 2)
    assert row["questions needed"] == max(needed, FEWEST_TESTED)
    assert row["difference"] == pytest.approx(0.02, abs=0.012)
    assert row["sd of a question"] == pytest.approx(0.02, rel=0.2)
    # only neighbours in the ranking get advice
    assert [said for said in clear.says if "separate" in said] == clear.says[1:]
    assert f"about {row['questions needed']:.0f} questions" in clear.says[1]
    [ranking] = rows(table(clear, "Same ranking"))
    assert ranking["ranking, best first"] == "good > mid > bad"
    assert ranking["80"] >= ranking["1"]
    assert ranking["stable from"] is not None


def test_what_the_data_cannot_separate_is_said_so():
    study = Convergence([made(number) for number in range(12)])
    found = study.finding(noisy(study.items, {"good": 0.0, "mid": 0.001, "bad": 0.3}, sd=0.1), [LOWER])
    assert [bool(re.search(r"About \d+ would, if", said)) for said in found.says[1:]] == [True, False]
    assert rows(table(found, "Same ranking"))[0]["stable from"] is None


def test_questions_without_all_values_are_left_out_and_counted():
    study = Convergence([*(made(number) for number in range(6)), made(9, names=("good", "bad"))])
    values = [one for one in noisy(study.items, LEVELS) if (one.item, one.summary) != ("q3", "mid")]
    values.append(value("q3", "mid", None))
    strays = [value("elsewhere", "good", 0.1), value("q0", "control", 0.1)]
    found = study.finding([*values, *strays], [LOWER, HIGHER])
    assert shown(found) == shown(study.finding(values, [LOWER, HIGHER]))
    for count in ("of these: 1;", "selfreflect: 1;", "rouge_l: 6."):
        assert count in found.says[0]
    assert table(found, "What separates").rows[0][-1] == 5


def test_few_questions_give_no_advice_however_alike_they_are():
    study = Convergence([made(number) for number in range(FEWEST_TESTED - 1)])
    values = [
        value(item.id, name, 0.1 * rank) for item in study.items for rank, name in enumerate(item.summaries)
    ]
    found = study.finding(values, [LOWER])
    assert "too few" in found.says[1]
    assert rows(table(found, "Same ranking"))[0]["stable from"] is None


def test_identical_summaries_are_not_ranked():
    study = Convergence([made(number, names=("one", "other")) for number in range(5)])
    values = [
        value(item.id, name, 0.1 * number)
        for number, item in enumerate(study.items)
        for name in item.summaries
    ]
    found = study.finding(values, [LOWER])
    assert table(found, "Same ranking").rows[0][1:-1] == (None, None, None, None)
    assert rows(table(found, "What separates"))[0]["questions needed"] is None


def test_names_from_files_are_shown_as_they_are_and_do_no_harm():
    evil = "[red]{x}\x1b[2J|<b>%s"
    study = Convergence([made(number, names=(evil, "b")) for number in range(4)])
    found = study.finding(noisy(study.items, {evil: 0.0, "b": 0.1}), [LOWER])
    for one in found.tables:
        assert "\x1b" not in to_markdown(one) + to_csv(one)
    assert any(repr(evil) in said for said in found.says)
