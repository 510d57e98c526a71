"""Study 4: how many questions, answers and words a ranking needs, against what is known of made-up scores."""

from __future__ import annotations

import math
import re
from statistics import fmean

import numpy as np
import pytest
from hypothesis import strategies as st
from studies import rows, shown, table

from selfreflect.errors import DataError
from selfreflect.sources.items import Item
from selfreflect.stats import FEWEST_TESTED
from selfreflect.table import to_csv, to_markdown
from selfreflect.validate.base import MetricInfo, Undefined, Value
from selfreflect.validate.convergence import (
    Convergence,
    answer_sums,
    counts_up_to,
    questions_needed,
    same_ranking,
    stable_from,
)

LOWER = MetricInfo(name="selfreflect", better="lower", group="selfreflect", about="")
HIGHER = MetricInfo(name="rouge_l", better="higher", group="competitor", about="")
PARTS = (((0.1, 0.2), (0.6,)), (), ((0.4,), (0.5,), (0.9, 0.3, 0.2)))


def flat_mean(parts):
    return fmean([distance for answer in parts for word in answer for distance in word])


def made(number: int, answers: int = 6, names=("good", "mid", "bad"), **fields) -> Item:
    given = {
        "id": f"q{number}",
        "question": f"What is {number}?",
        "masked_out": tuple(f"masked {place}" for place in range(answers)),
        "conditioning": tuple(f"shown {place}" for place in range(answers)),
        "summaries": {name: f"{name} summary" for name in names},
    }
    return Item(**{**given, **fields})


def value(item: str, summary: str, number: float | None, parts=(), metric="selfreflect", by="judge") -> Value:
    undefined = Undefined(reason="backend", message="no") if number is None else None
    return Value(
        metric=metric,
        item=item,
        summary=summary,
        digest="",
        by=by,
        value=number,
        undefined=undefined,
        parts=parts,
    )


def noisy(items, levels, *, between=0.02, within=0.05, answers=6, seed=1):
    """Scores of answers of one word each: a level of the summary, an effect of the question on it, and noise
    of each answer."""
    rng = np.random.default_rng(seed)
    values = []
    for item in items:
        for name in item.summaries:
            mean = 0.5 + levels[name] + rng.normal(0, between / math.sqrt(2))
            drawn = mean + rng.normal(0, within / math.sqrt(2), answers)
            values.append(value(item.id, name, float(drawn.mean()), tuple(((float(one),),) for one in drawn)))
    return values


LEVELS = {"good": 0.0, "mid": 0.02, "bad": 0.1}


# --- fewer answers, words, questions


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (1, [1]),
        (2, [1, 2]),
        (3, [1, 2, 3]),
        (10, [1, 2, 5, 10]),
        (60, [1, 2, 5, 10, 20, 50, 60]),
        (100, [1, 2, 5, 10, 20, 50, 100]),
    ],
)
def test_counts_rise_and_end_with_all(most, expected):
    assert counts_up_to(most) == expected


DISTANCES = st.floats(0, 1, allow_subnormal=False)


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


# --- how many questions


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


def test_answers_know_the_sums_and_the_number_of_their_token_tasks():
    other = tuple(tuple(tuple(one + 0.25 for one in word) for word in answer) for answer in PARTS)
    sums, sizes = answer_sums([PARTS, other])
    assert sizes.tolist() == [3, 5]  # the answer between them has no words
    assert sums[:, 0].tolist() == pytest.approx([0.9, 2.3])
    assert (sums[:, 1] - sums[:, 0]).tolist() == pytest.approx([0.75, 1.25])


def test_so_many_questions_do_separate_in_four_of_five_experiments():
    needed = questions_needed(0.25, 1.0)
    experiments = np.random.default_rng(4).normal(0.25, 1, (4000, needed))
    lower = experiments.mean(axis=1) - 1.959964 * experiments.std(axis=1, ddof=1) / math.sqrt(needed)
    assert np.mean(lower > 0) == pytest.approx(0.8, abs=0.02)


# --- the items


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([], "0 of 0 hold all of none"),
        ([made(0)], "1 of 1 hold all of 'good', 'mid', 'bad'"),
        ([made(0, names=("good",)), made(1, names=("good",))], "2 of 2 hold all of 'good'"),
        (
            [made(0, names=("good", "bad")), made(1, names=("this", "that"))],
            "0 of 2 hold all of 'good', 'bad', 'this', 'that'",
        ),
    ],
)
def test_items_that_rank_nothing_are_refused(items, said):
    with pytest.raises(DataError, match=re.escape(said)):
        Convergence(items)


# --- the finding


@pytest.fixture(scope="module")
def clear():
    study = Convergence([made(number) for number in range(80)])
    return study.finding(noisy(study.items, LEVELS), [LOWER])


def test_the_advice_is_the_closed_form_of_the_table(clear):
    pairs = table(clear, "What separates two strategies")
    by_names = {(row["better"], row["worse"]): row for row in rows(pairs)}
    assert list(by_names) == [("good", "mid"), ("good", "bad"), ("mid", "bad")]
    row = by_names["good", "mid"]
    needed = math.ceil(((1.959964 + 0.841621) * row["sd of a question"] / row["difference"]) ** 2)
    assert row["questions needed"] == needed
    assert f"about {needed} questions separate 'good' and 'mid'" in clear.says[1]
    assert clear.says[1].endswith("on 80 questions.")
    # what the scores were made with
    assert row["difference"] == pytest.approx(0.02, abs=0.012)
    assert row["sd of a question"] == pytest.approx(math.hypot(0.02, 0.05 / math.sqrt(6)), rel=0.2)


def test_only_neighbours_in_the_ranking_get_advice(clear):
    assert sum("separate" in said for said in clear.says) == 2
    assert not any("'good' and 'bad'" in said for said in clear.says)


def test_each_axis_has_rows_and_a_sentence(clear):
    less = table(clear, "Same ranking with fewer masked-out answers")
    shares = {row["answers"]: row["same ranking"] for row in rows(less)}
    assert list(shares) == [1, 2, 5, 6]
    assert shares[6] == 1  # all of them give the scores themselves
    stable = stable_from(shares)
    said = f"Ranking by number of masked-out answers (80 questions): stable from {stable} on."
    assert (said if stable < 6 else said.replace("from 6 on", "only with all 6")) in clear.says
    said = r"Ranking by number of questions \(80 questions\): stable from \d+ on."
    assert any(re.fullmatch(said, one) for one in clear.says)


def test_what_the_data_cannot_separate_is_said_so():
    study = Convergence([made(number) for number in range(12)])
    found = study.finding(noisy(study.items, {"good": 0.0, "mid": 0.001, "bad": 0.3}, between=0.1), [LOWER])
    [advice] = [said for said in found.says if "do not separate" in said]
    assert re.match(r"These questions do not separate '(good|mid)' and '(good|mid)', which differ by", advice)
    assert re.search(r"About \d+ would, if the difference is as large as", advice)
    assert "Ranking by number of questions (12 questions): not stable even with 12." in found.says


def test_identical_summaries_are_not_ranked():
    study = Convergence([made(number, names=("one", "other")) for number in range(5)])
    values = [
        value(item.id, name, 0.1 * number, ((((0.1 * number),),),))
        for number, item in enumerate(study.items)
        for name in item.summaries
    ]
    found = study.finding(values, [LOWER])
    assert found.says[1] == "'one' and 'other' have the same mean score, which no questions separate."
    assert table(found, "Same ranking").rows[0][1:-1] == (None, None, None, None)


def test_a_metric_without_parts_takes_part_in_the_questions_axis_only():
    study = Convergence([made(number) for number in range(10)])
    values = noisy(study.items, LEVELS, between=0.001)
    values += [value(one.item, one.summary, 1 - one.value, metric="rouge_l", by="") for one in values]
    found = study.finding(values, [LOWER, HIGHER])
    rows = table(found, "Same ranking").rows
    assert [row[0] for row in rows] == ["selfreflect", "rouge_l"]
    assert [row[-1] for row in rows] == ["good > mid > bad"] * 2  # one is better low, the other high
    assert rows[0][1:-1] == rows[1][1:-1]
    assert any(
        "There is no advice: selfreflect did not score" in said
        for said in study.finding(values, [HIGHER]).says
    )


def test_values_without_parts_still_give_advice_on_questions():
    study = Convergence([made(number) for number in range(10)])
    values = [value(one.item, one.summary, one.value) for one in noisy(study.items, LEVELS, between=0.001)]
    found = study.finding(values, [LOWER])
    assert re.search(r"about \d+ questions separate 'good' and 'mid'", found.says[1])
    assert not any("masked-out answers" in said for said in found.says)


def test_questions_without_all_values_are_left_out_and_counted():
    study = Convergence([*(made(number) for number in range(6)), made(9, names=("good", "bad"))])
    values = [one for one in noisy(study.items, LEVELS) if (one.item, one.summary) != ("q3", "mid")]
    values.append(value("q3", "mid", None))
    found = study.finding(values, [LOWER, HIGHER])
    assert "Items that do not hold all of them were left out: 1." in found.says[0]
    assert "selfreflect has values for 5 of them. rouge_l has values for 0 of them." in found.says[0]
    assert table(found, "What separates").rows[0][-1] == 5


def test_values_of_other_items_change_nothing():
    study = Convergence([made(number) for number in range(6)])
    values = noisy(study.items, LEVELS)
    others = [value("elsewhere", "good", 0.1), value("q0", "control", 0.1)]
    assert shown(study.finding([*values, *others], [LOWER])) == shown(study.finding(values, [LOWER]))


def test_few_questions_give_no_advice_however_alike_they_are():
    study = Convergence([made(number) for number in range(FEWEST_TESTED - 1)])
    values = [
        value(item.id, name, 0.1 * place) for item in study.items for place, name in enumerate(item.summaries)
    ]
    found = study.finding(values, [LOWER])
    assert found.says[1].startswith(
        "Too few questions for advice on 'good' and 'mid', which differ by 0.1000"
    )
    assert {row[-2] for row in table(found, "Same ranking").rows} == {None}
    assert "Ranking by number of questions (5 questions): too few questions to tell." in found.says


def test_that_all_answers_agree_with_themselves_is_no_stability():
    study = Convergence([made(number, names=("good", "bad")) for number in range(6)])
    # one answer of three is for the bad one
    parts = {"good": (((0.0,),), ((0.9,),), ((0.0,),)), "bad": (((0.5,),), ((0.0,),), ((0.5,),))}
    values = [
        value(item.id, name, flat_mean(own), own) for item in study.items for name, own in parts.items()
    ]
    found = study.finding(values, [LOWER])
    assert "Ranking by number of masked-out answers (6 questions): stable only with all 3." in found.says


def test_names_from_files_are_shown_as_they_are_and_do_no_harm():
    evil = "[red]{x}\x1b[2J|<b>%s"
    study = Convergence([made(number, names=(evil, "b")) for number in range(4)])
    found = study.finding(noisy(study.items, {evil: 0.0, "b": 0.1}), [LOWER])
    for one in found.tables:
        assert "\x1b" not in to_markdown(one) + to_csv(one)
    assert any(repr(evil) in said for said in found.says)
