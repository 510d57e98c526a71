"""Summaries against texts that say nothing and against raw answers: exact texts, shares between known ends,
and the place against a paste curve that is known."""

from __future__ import annotations

import pytest
from studies import measured, rows

from selfreflect.errors import DataError
from selfreflect.metric import information
from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo
from selfreflect.validate.ranked.controls import ALL_PASTED, EMPTY, NONSENSE, QUESTION, AgainstControls
from selfreflect.validate.study import Finding

BITS = MetricInfo(name="information", better="higher", group="information", about="")
SCORE = MetricInfo(name="selfreflect", better="lower", group="selfreflect", about="")
ONE, TWO = "control: 1 answer pasted", "control: 2 answers pasted"
ONE_MORE, TWO_MORE = "control: 1 answer pasted, subset 2", "control: 2 answers pasted, subset 2"
# two words per answer; each answer pasted tells 10, 5 and 1 bits more
LEVELS = {EMPTY: -2.0, QUESTION: -1.0, NONSENSE: -3.0, ONE: 10.0, TWO: 15.0, ALL_PASTED: 16.0}
SUBSETS = {ONE: 8.0, ONE_MORE: 12.0, TWO: 14.5, TWO_MORE: 15.5}
OWN = {"good": 12.0, "bad": -1.0}


def item(number: int, **summaries: str) -> Item:
    summaries = summaries or {"good": "three plain words", "bad": "one two three"}
    return Item(
        id=f"i{number}",
        question="Why is it so?",
        masked_out=("x",),
        conditioning=("first answer", "second answer", "third answer"),
        summaries=summaries,
    )


def finding(study: AgainstControls, *metrics: MetricInfo) -> Finding:
    values = []
    for metric in metrics:
        sign = 1 if metric.better == "higher" else -1
        levels = {**LEVELS, **OWN, **SUBSETS}
        values += measured(
            study, metric, lambda one, name, s=sign, at=levels: s * (at[name] + int(one.id[1:]) / 100)
        )
    return study.finding(values, metrics)


def test_the_texts_of_an_item():
    study = AgainstControls([item(0)])
    assert study.items[0].summaries == {
        "good": "three plain words",
        "bad": "one two three",
        EMPTY: "",
        QUESTION: "Why is it so?",
        NONSENSE: information.NONSENSE,
        ONE: "first answer",
        ONE_MORE: "second answer",
        TWO: "first answer\nsecond answer",
        TWO_MORE: "second answer\nthird answer",
        ALL_PASTED: "first answer\nsecond answer\nthird answer",
    }
    assert study.controls == [EMPTY, QUESTION, NONSENSE, ONE, TWO, ALL_PASTED]


def test_values_words_and_shares_of_what_all_answers_reach():
    study = AgainstControls([item(number) for number in range(8)])
    table = finding(study, BITS, SCORE).tables[0]
    by_text = {(row["metric"], row["summary"]): row for row in rows(table)}
    assert list(by_text) == [(m, s) for m in ("information", "selfreflect") for s in (*OWN, *LEVELS)]
    good = by_text["information", "good"]
    assert (good["words"], good["value"], good["n"], good["of"]) == (3, pytest.approx(12.035), 8, 8)
    for metric in (
        "information",
        "selfreflect",
    ):  # every value stands between the empty summary and all answers
        assert by_text[metric, "good"]["of all pasted"] == pytest.approx((12 + 2) / (16 + 2))
        assert by_text[metric, EMPTY]["of all pasted"] == 0
        assert by_text[metric, NONSENSE]["of all pasted"] < 0
        assert by_text[metric, ALL_PASTED]["of all pasted"] == 1


def test_a_judge_that_likes_nothing_better_than_the_answers_gives_no_share():
    study = AgainstControls([item(number) for number in range(8)])
    values = measured(study, SCORE, lambda one, name: 0.5 if name == ALL_PASTED else 0.1)
    shares = {row["of all pasted"] for row in rows(study.finding(values, [SCORE]).tables[0])}
    assert shares == {None}


def test_texts_that_say_nothing_and_win_are_named_and_pasted_answers_are_not():
    study = AgainstControls([item(number) for number in range(8)])
    result = finding(study, BITS)
    good, bad = rows(result.tables[1])
    assert (good["empty"], good["1 answer pasted"], good["all answers pasted"]) == (1, 1, 0)
    assert (bad["question repeated"], bad["nonsense"], bad["n"]) == (0, 1, 8)
    [sentence] = [sentence for sentence in result.says if "says nothing" in sentence]
    assert sentence.endswith("half of the items or more: bad beats 'question repeated' in 0%.")


def test_a_summary_stands_above_the_paste_curve_by_what_its_words_do_not_explain():
    study = AgainstControls([item(number) for number in range(8)])
    result = finding(study, BITS, SCORE)
    good, bad = rows(result.tables[2])  # of information alone
    # three words of pasted answers stand halfway between one and two of them
    assert good["curve"] == pytest.approx(12.5 + 0.035)
    assert (good["above the curve"], good["items above"]) == (pytest.approx(-0.5), 0)
    assert good["as answers"] == pytest.approx(1.4)
    assert good["as words"] == pytest.approx(2.8)
    assert (bad["as answers"], bad["as words"]) == (None, None)
    assert any(
        "good tells as much in 3 words as pasting 1.4 answers (3 words). Below the paste curve: -0.5" in says
        for says in result.says
    )
    assert any("bad tells nothing, in 3 words. Below" in says for says in result.says)
    [plot] = result.plots
    line, *dots = plot.curves
    assert (line.x, line.y) == ((0, 2, 4, 6), pytest.approx((-1.965, 10.035, 15.035, 16.035)))
    assert [(dot.label, dot.x) for dot in dots] == [("good", (3,)), ("bad", (3,))]


def test_items_without_all_values_are_no_part_of_the_curve():
    study = AgainstControls([item(0), item(1)])
    levels = {**LEVELS, **OWN, **SUBSETS}
    for lost in (TWO, ONE_MORE):
        values = measured(
            study, BITS, lambda one, name, lost=lost: None if (one.id, name) == ("i1", lost) else levels[name]
        )
        finding = study.finding(values, [BITS])
        assert [row["n"] for row in rows(finding.tables[2])] == [1, 1]


def test_items_that_make_no_sense_are_refused():
    with pytest.raises(DataError, match="none of the 1 items has a conditioning answer"):
        AgainstControls([Item(id="i", question="Why?", masked_out=("x",), conditioning=(" ",), summaries={})])
    with pytest.raises(DataError, match="is that of a control"):
        AgainstControls([item(0, **{EMPTY: "mine"})])
