"""Study 4: how many questions, answers and words a ranking needs, against what is known of made-up scores."""

from __future__ import annotations

import math
import re
from statistics import NormalDist, fmean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from studies import rows, shown, table

from selfreflect.errors import DataError
from selfreflect.sources.items import Item
from selfreflect.stats import FEWEST_TESTED
from selfreflect.table import to_csv, to_markdown
from selfreflect.validate.base import MetricInfo, Undefined, Value
from selfreflect.validate.catalogue import MASKED
from selfreflect.validate.convergence import (
    DRAWS,
    Convergence,
    counts_up_to,
    draw_questions,
    draw_units,
    questions_needed,
    same_ranking,
    spreads,
    stable_from,
    unit_sums,
)
from selfreflect.validate.measure import measure
from selfreflect.validate.metrics.judged import Masked

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


@st.composite
def same_words(draw, summaries=3):
    """Parts of several summaries of one question, with the same words."""
    shape = draw(st.lists(st.lists(st.integers(1, 3), max_size=4), min_size=1, max_size=5).filter(any))
    return [
        tuple(tuple(tuple(draw(DISTANCES) for _ in range(size)) for size in answer) for answer in shape)
        for _ in range(summaries)
    ]


def by_answer(parts):
    return unit_sums(parts)[0]


def by_word(parts):
    return unit_sums(parts)[1]


@given(st.lists(same_words(), min_size=1, max_size=3))
@settings(max_examples=30, deadline=None)
def test_all_answers_and_all_words_give_the_value_itself(questions):
    expected = np.mean([[flat_mean(parts) for parts in summaries] for summaries in questions], axis=0)
    for units in (by_answer, by_word):
        last = draw_units([units(summaries) for summaries in questions], [100], 0)[0]
        assert last == pytest.approx(np.tile(expected, (DRAWS, 1)))


def test_units_know_the_sums_and_the_number_of_their_token_tasks():
    other = tuple(tuple(tuple(one + 0.25 for one in word) for word in answer) for answer in PARTS)
    (answers, answer_sizes), (words, word_sizes) = unit_sums([PARTS, other])
    assert answer_sizes.tolist() == [3, 5]  # the answer between them has no words
    assert word_sizes.tolist() == [2, 1, 1, 1, 3]
    assert answers[:, 0].tolist() == pytest.approx([0.9, 2.3])
    assert words[:, 0].tolist() == pytest.approx([0.3, 0.6, 0.4, 0.5, 1.4])
    assert (words[:, 1] - words[:, 0]).tolist() == pytest.approx([0.5, 0.25, 0.25, 0.25, 0.75])


def test_the_spread_of_scores_from_some_answers_is_that_of_draws_without_replacement():
    rng = np.random.default_rng(3)
    scores = rng.random((40, 12))  # questions, answers of one token each
    units = [by_answer([tuple(((float(one),),) for one in row)]) for row in scores]
    for drawn, draws in zip((1, 4, 11), draw_units(units, [1, 4, 11], 0), strict=True):
        variances = scores.var(axis=1, ddof=1) / drawn * (1 - drawn / 12)
        sd = draws.std(ddof=1)
        assert sd == pytest.approx(math.sqrt(variances.sum()) / 40, rel=0.15)
        assert draws.mean() == pytest.approx(scores.mean(), abs=4 * sd / math.sqrt(DRAWS) + 1e-12)


def test_all_summaries_are_compared_on_the_same_answers():
    """Two summaries that differ by a constant on every answer, however noisy the answers are, are never
    ordered otherwise."""
    rng = np.random.default_rng(0)
    noise = rng.random(30)
    parts = [tuple(((float(one + shift),),) for one in noise) for shift in (0, 0.001)]
    means = np.array([np.mean(noise), np.mean(noise) + 0.001])
    assert [same_ranking(draws, means) for draws in draw_units([by_answer(parts)], [1, 2, 5], 0)] == [1, 1, 1]


def test_the_spread_of_scores_over_questions_falls_with_their_root():
    scores = np.random.default_rng(5).random((200, 2))
    for count in (1, 25, 200):
        draws = draw_questions(scores, count, 0)[:, 0]
        assert draws.std() == pytest.approx(scores[:, 0].std() / math.sqrt(count), rel=0.15)


def test_the_chance_of_the_same_ranking_is_that_of_a_normal_difference():
    rng = np.random.default_rng(8)
    gaps = rng.normal(0, 1, 400)
    gaps += 0.2 - gaps.mean()
    scores = np.stack([np.zeros(400), gaps], axis=1)
    for count in (4, 25, 100):
        assert same_ranking(draw_questions(scores, count, 0), scores.mean(axis=0)) == pytest.approx(
            NormalDist().cdf(0.2 * math.sqrt(count) / gaps.std()), abs=0.06
        )


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


def test_so_many_questions_do_separate_in_four_of_five_experiments():
    needed = questions_needed(0.25, 1.0)
    experiments = np.random.default_rng(4).normal(0.25, 1, (4000, needed))
    lower = experiments.mean(axis=1) - 1.959964 * experiments.std(axis=1, ddof=1) / math.sqrt(needed)
    assert np.mean(lower > 0) == pytest.approx(0.8, abs=0.02)


def test_spreads_between_and_within_questions_are_told_apart():
    rng = np.random.default_rng(11)
    effects = 0.05 + rng.normal(0, 0.03, 1500)
    tokens = effects[:, None] + rng.normal(0, 0.1, (1500, 8))
    differences = tokens.mean(axis=1).tolist()
    sd, between, within = spreads(differences, [[[one] for one in row] for row in tokens.tolist()])
    assert between == pytest.approx(0.03, rel=0.08)
    assert within == pytest.approx(0.1, rel=0.05)
    assert sd == pytest.approx(math.hypot(0.03, 0.1 / math.sqrt(8)), rel=0.05)
    for answers in (1, 3):  # what only so many answers would have shown
        spread = stdev(tokens[:, :answers].mean(axis=1))
        assert math.hypot(between, within / math.sqrt(answers)) == pytest.approx(spread, rel=0.08)


def test_noise_of_answers_alone_leaves_no_spread_between_questions():
    rows = [[[0.0], [1.0]], [[1.0], [0.0]], [[0.4], [0.6]]]
    sd, between, within = spreads([fmean(one for [one] in row) for row in rows], rows)
    assert (sd, between) == (0, 0)
    assert within > 0


def test_without_parts_the_spread_is_known_for_the_answers_at_hand_only():
    sd, between, within = spreads([0.1, 0.3, 0.2], [])
    assert (sd, between, within) == (pytest.approx(0.1), None, None)
    assert spreads([0.1], []) == (None, None, None)
    assert questions_needed(0.1, None) is None


def test_a_single_answer_tells_nothing_of_the_noise_of_answers():
    assert spreads([0.1, 0.3], [[[0.1]], [[0.3]]])[2] is None


# --- the items


def test_every_item_is_there_itself_and_the_first_ones_in_variants():
    items = [made(number, answers=4) for number in range(4)]
    study = Convergence(items, rescored=2)
    assert list(study.items[:4]) == items
    variants = [f"q{n} [{count} conditioning]" for n in (0, 1) for count in (1, 2)]
    assert [item.id for item in study.items[4:]] == variants
    by_id = {item.id: item for item in study.items}
    assert by_id["q1 [2 conditioning]"].conditioning == ("shown 0", "shown 1")
    for item in study.items[4:]:
        original = by_id[item.id.split(" ")[0]]
        assert (item.question, item.summaries) == (original.question, original.summaries)


def test_no_variant_is_made_that_changes_nothing():
    same = made(0, conditioning=("a", "a"), masked_out=("b", "b"))
    two = made(1, conditioning=("a", "b"), masked_out=("b",))
    study = Convergence([same, two])
    assert [item.id for item in study.items[2:]] == ["q0 [1 conditioning]", "q1 [1 conditioning]"]
    only = made(2, conditioning=("a",), masked_out=("b",))
    assert Convergence([only, only]).items == [only, only]


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
    study = Convergence([made(number) for number in range(80)], rescored=0)
    return study.finding(noisy(study.items, LEVELS), [LOWER])


def test_the_advice_is_the_closed_form_of_the_table(clear):
    pairs = table(clear, "What separates two strategies")
    by_names = {(row["better"], row["worse"]): row for row in rows(pairs)}
    assert list(by_names) == [("good", "mid"), ("good", "bad"), ("mid", "bad")]
    row = by_names["good", "mid"]
    sd = math.hypot(row["between questions"], row["within, one answer"] / math.sqrt(10))
    needed = math.ceil(((1.959964 + 0.841621) * sd / row["difference"]) ** 2)
    assert row["needed x 10 answers"] == needed
    assert f"about {needed} questions x 10 answers separate 'good' from 'mid'" in clear.says[1]
    assert clear.says[1].endswith("on 80 questions.")
    # what the scores were made with
    assert row["difference"] == pytest.approx(0.02, abs=0.012)
    assert row["between questions"] == pytest.approx(0.02, rel=0.35)
    assert row["within, one answer"] == pytest.approx(0.05, rel=0.2)


def test_only_neighbours_in_the_ranking_get_advice(clear):
    assert sum("separate" in said for said in clear.says) == 2
    assert not any("'good' from 'bad'" in said for said in clear.says)


def test_each_axis_has_rows_and_a_sentence(clear):
    less = table(clear, "Same ranking with less of each question")
    for axis in ("masked-out answers", "masked words"):
        shares = {row["count"]: row["same ranking"] for row in rows(less, **{"number of": axis})}
        assert list(shares) == [1, 2, 5, 6]
        assert shares[6] == 1  # all of them give the scores themselves
        stable = stable_from(shares)
        said = f"Ranking by number of {axis} (80 questions): stable from {stable} on."
        assert (said if stable < 6 else said.replace("from 6 on", "only with all 6")) in clear.says
    said = r"Ranking by number of questions \(80 questions\): stable from \d+ on."
    assert any(re.fullmatch(said, one) for one in clear.says)
    [plot] = clear.plots
    assert plot.name == "convergence_ranking"


def test_what_the_data_cannot_separate_is_said_so():
    study = Convergence([made(number) for number in range(12)], rescored=0)
    found = study.finding(noisy(study.items, {"good": 0.0, "mid": 0.001, "bad": 0.3}, between=0.1), [LOWER])
    [advice] = [said for said in found.says if "do not separate" in said]
    assert re.match(
        r"These questions do not separate '(good|mid)' from '(good|mid)', which differ by", advice
    )
    assert re.search(r"About \d+ questions x 10 answers would, if the difference is as large as", advice)
    assert "Ranking by number of questions (12 questions): not stable even with 12." in found.says


def test_identical_summaries_are_not_ranked():
    study = Convergence([made(number, names=("one", "other")) for number in range(5)], rescored=0)
    values = [
        value(item.id, name, 0.1 * number, ((((0.1 * number),),),))
        for number, item in enumerate(study.items)
        for name in item.summaries
    ]
    found = study.finding(values, [LOWER])
    assert found.says[1] == "'one' and 'other' have the same mean score, which no questions separate."
    assert table(found, "Same ranking").rows[0][1:-1] == (None, None, None, None)


def test_a_metric_without_parts_takes_part_in_the_questions_axis_only():
    study = Convergence([made(number) for number in range(10)], rescored=0)
    values = noisy(study.items, LEVELS, between=0.001)
    values += [value(one.item, one.summary, 1 - one.value, metric="rouge_l", by="") for one in values]
    found = study.finding(values, [LOWER, HIGHER])
    rows = table(found, "Same ranking").rows
    assert [row[0] for row in rows] == ["selfreflect", "rouge_l"]
    assert [row[-1] for row in rows] == ["good > mid > bad"] * 2  # one is better low, the other high
    assert rows[0][1:-1] == rows[1][1:-1]
    assert {plot.name for plot in study.finding(values, [HIGHER]).plots} == {"convergence_ranking"}
    assert any(
        "There is no advice: selfreflect did not score" in said
        for said in study.finding(values, [HIGHER]).says
    )


def test_values_without_parts_still_give_advice_on_questions():
    study = Convergence([made(number) for number in range(10)], rescored=0)
    values = [value(one.item, one.summary, one.value) for one in noisy(study.items, LEVELS, between=0.001)]
    found = study.finding(values, [LOWER])
    assert re.search(r"about \d+ questions separate 'good' from 'mid'", found.says[1])
    assert not any("masked words" in said for said in found.says)


def test_questions_without_all_values_are_left_out_and_counted():
    study = Convergence([*(made(number) for number in range(6)), made(9, names=("good", "bad"))], rescored=0)
    values = [one for one in noisy(study.items, LEVELS) if (one.item, one.summary) != ("q3", "mid")]
    values.append(value("q3", "mid", None))
    found = study.finding(values, [LOWER, HIGHER])
    assert "Items that do not hold all of them were left out: 1." in found.says[0]
    assert "selfreflect has values for 5 of them. rouge_l has values for 0 of them." in found.says[0]
    assert table(found, "What separates").rows[0][-1] == 5


def test_values_of_other_items_change_nothing():
    study = Convergence([made(number) for number in range(6)], rescored=0)
    values = noisy(study.items, LEVELS)
    others = [value("elsewhere", "good", 0.1), value("q0", "control", 0.1)]
    assert shown(study.finding([*values, *others], [LOWER])) == shown(study.finding(values, [LOWER]))


def test_fewer_conditioning_answers_are_compared_on_the_same_questions():
    study = Convergence([made(number, answers=3) for number in range(12)], rescored=6)
    values = []
    for item in study.items:
        # one answer turns the order round, and so do the questions that have no variants
        turned = "[1 conditioning]" in item.id or item.id in {f"q{number}" for number in range(6, 12)}
        for place, name in enumerate(item.summaries):
            values.append(value(item.id, name, 0.2 * (2 - place) if turned else 0.1 * (place + 1)))
    found = study.finding(values, [LOWER])
    less = rows(table(found, "Same ranking with less"), **{"number of": "conditioning answers"})
    shares = [(row["count"], row["same ranking"], row["questions"]) for row in less]
    assert shares == [(1, 0.0, 6), (2, 1.0, 6), (3, 1.0, 6)]  # of the rescored questions
    assert "Ranking by number of conditioning answers (6 questions): stable from 2 on." in found.says


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
    for axis in ("questions", "conditioning answers"):
        assert f"Ranking by number of {axis} (5 questions): too few questions to tell." in found.says


def test_that_all_answers_agree_with_themselves_is_no_stability():
    study = Convergence([made(number, names=("good", "bad")) for number in range(6)], rescored=0)
    # one answer of three is for the bad one
    parts = {"good": (((0.0,),), ((0.9,),), ((0.0,),)), "bad": (((0.5,),), ((0.0,),), ((0.5,),))}
    values = [
        value(item.id, name, flat_mean(own), own) for item in study.items for name, own in parts.items()
    ]
    found = study.finding(values, [LOWER])
    assert "Ranking by number of masked-out answers (6 questions): stable only with all 3." in found.says


def test_names_from_files_are_shown_as_they_are_and_do_no_harm():
    evil = "[red]{x}\x1b[2J|<b>%s"
    study = Convergence([made(number, names=(evil, "b")) for number in range(4)], rescored=0)
    found = study.finding(noisy(study.items, {evil: 0.0, "b": 0.1}), [LOWER])
    for one in found.tables:
        assert "\x1b" not in to_markdown(one) + to_csv(one)
    assert any(repr(evil) in said for said in found.says)


def test_a_real_judge_minds_the_number_of_conditioning_answers(tiny_judge):
    words = (
        "Radishes grow fast",
        "You can plant Lettuce or peas",
        "It is not clear",
        "basil or tomatoes in a pot",
    )
    items = [made(number, masked_out=words[number:], conditioning=words) for number in range(2)]
    study = Convergence(items)
    values = measure(study.items, [Masked(tiny_judge("llama"), MASKED[:1])])
    less = rows(table(study.finding(values, [LOWER]), "Same ranking with less"))
    assert [row["count"] for row in less if row["number of"] == "conditioning answers"] == [1, 2, 4]
    scores = {(one.item, one.summary): one.value for one in values}
    assert abs(scores["q0", "good"] - scores["q0 [1 conditioning]", "good"]) > 1e-3
    for one in values:
        assert flat_mean(one.parts) == pytest.approx(one.value, abs=1e-6)
