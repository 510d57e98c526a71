"""Study ``ranked``: known orders, win rates of known values, controls, length, and tests of two metrics."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from command import piped
from msgspec.structs import replace
from studies import measured, rows, table

from selfreflect.errors import ConfigError, DataError
from selfreflect.sources.items import Item, read_item_file
from selfreflect.validate.base import Better, Group, MetricInfo
from selfreflect.validate.ranked import EMPTY, NONSENSE, PASTED, QUESTION, Pair, RankedSets, known_order
from selfreflect.validate.study import Finding

Rule = Callable[[Item, str], float | None]


def metric(name: str, group: Group = "competitor", better: Better = "lower") -> MetricInfo:
    return MetricInfo(name=name, better=better, group=group, about="made up")


SELFREFLECT = metric("selfreflect", "selfreflect")
LENGTH = metric("length", "control", "higher")
OTHER = metric("other")


def text(words: int, tag: str) -> str:
    return " ".join([tag] * words)


def items(n: int, good: int = 8, bad: int = 4) -> list[Item]:
    return [item(f"i{number}", good=text(good, "yes"), bad=text(bad, "no")) for number in range(n)]


def item(id_: str, **summaries: str) -> Item:
    return Item(id=id_, question="Why is it so?", masked_out=("x",), conditioning=("y",), summaries=summaries)


def words(one: Item, summary: str) -> float:
    return float(len(one.summaries[summary].split()))


def right_in_first(n: int) -> Rule:
    """Lower for the good summary in the first n items, equal in the next one, higher in the rest."""

    def rule(one: Item, summary: str) -> float:
        number = int(one.id[1:])
        sign = 1 if number < n else 0 if number == n else -1
        return 0.5 + 0.1 * sign * {"good": -1, "bad": 1}.get(summary, 2)

    return rule


def finding(study: RankedSets, **rules: Rule) -> Finding:
    known = {"selfreflect": SELFREFLECT, "length": LENGTH, "other": OTHER}
    values = []
    for name, rule in rules.items():
        values += measured(study, known[name], rule)
    return study.finding(values, [known[name] for name in rules])


def test_win_rates_are_those_of_the_values_and_a_tie_is_a_loss():
    found = finding(RankedSets(items(20)), selfreflect=right_in_first(14))
    (row,) = rows(table(found, "How often"), better="good", worse="bad")
    assert (row["wins"], row["n"], row["undefined"]) == (14, 20, 0)
    assert row["win rate"] == pytest.approx(0.7)  # 14 won, 1 tied, 5 lost
    assert 0.4 < row["95% low"] < 0.55
    assert 0.8 < row["95% high"] < 0.9

    def gap(one: Item, summary: str) -> float | None:
        return None if (one.id, summary) == ("i0", "bad") else right_in_first(14)(one, summary)

    found = finding(RankedSets(items(20)), other=right_in_first(9), length=words, selfreflect=gap)
    assert [row[0] for row in found.tables[0].rows] == ["length", "selfreflect", "other"]
    (row,) = rows(table(found, "How often"), metric="selfreflect")
    assert (row["wins"], row["n"], row["undefined"]) == (13, 19, 1)


def test_controls_are_added_to_each_item_and_never_collide():
    study = RankedSets([*items(1), item("x", good="g", bad="b", **{QUESTION: "mine"})])
    names = list(study.items[0].summaries)
    assert names == ["good", "bad", QUESTION + "*", EMPTY, NONSENSE, PASTED]
    assert study.items[0].summaries[PASTED] == "y"
    assert study.items[0].summaries[QUESTION + "*"] == "Why is it so?"
    assert study.items[0].summaries[EMPTY] == ""
    assert study.items[1].summaries[QUESTION] == "mine"
    assert Pair("i0", "good", EMPTY) in study.control_pairs
    one, other = item("a", x="1", y="2"), item("b", x="1", y="2")
    ordered = RankedSets([replace(one, order=(("x", "y"),)), replace(other, order=(("y", "x"),))])
    assert {(pair.item, pair.better) for pair in ordered.control_pairs} == {("a", "x"), ("b", "y")}
    plain = RankedSets(items(2), controls=False)
    assert [list(one.summaries) for one in plain.items] == [["good", "bad"]] * 2


def test_texts_that_say_nothing_pasted_answers_and_length_are_columns():
    def rule(one: Item, summary: str) -> float | None:
        known = {"good": 0.5, "bad": 0.2, QUESTION: 0.6, EMPTY: 0.5, NONSENSE: 0.1, PASTED: 0.4}
        return 1 - known[summary] - (0.2 if summary == PASTED and one.id == "i0" else 0.0)

    study = RankedSets(items(4))  # good has more words than bad
    row = rows(table(finding(study, selfreflect=rule), "Metrics by win rate"))[0]
    assert row["beats empty"] == 0  # a tie is a loss
    assert row["beats question repeated"] == 0
    assert row["beats nonsense"] == 1
    assert row["pasted wins"] == 0.25
    assert row["prefers longer"] == 1
    bare = finding(RankedSets(items(4), controls=False), selfreflect=rule)
    assert not {"beats empty", "pasted wins"} & rows(table(bare, "Metrics by win rate"))[0].keys()


def mixed() -> list[Item]:
    """10 items whose better summary is twice as long, 10 of equal length, 10 where it is half as long."""
    sizes = [(8, 4)] * 10 + [(6, 6)] * 10 + [(4, 8)] * 10
    return [
        item(f"i{number}", good=text(good, "yes"), bad=text(bad, "no"))
        for number, (good, bad) in enumerate(sizes)
    ]


def test_pairs_of_one_item_are_not_counted_as_independent():
    three = [item(f"i{number}", good="a a a", mid="b b", bad="c") for number in range(10)]
    study = RankedSets(three)

    def all_or_nothing(one: Item, summary: str) -> float:
        sign = 1 if int(one.id[1:]) < 7 else -1
        return sign * {"good": 0.0, "mid": 1.0, "bad": 2.0}.get(summary, 3.0)

    (row,) = finding(study, selfreflect=all_or_nothing).tables[0].rows
    (single,) = finding(RankedSets(three, "good>bad"), selfreflect=all_or_nothing).tables[0].rows
    assert row[2:6] == single[2:6]  # thirty pairs tell no more than ten items
    assert (row[5], row[6]) == (10, 30)


def test_pairs_of_equal_length_take_the_wins_of_length_away():
    found = finding(RankedSets(mixed()), selfreflect=right_in_first(99), length=words)
    by_metric = {row["metric"]: row for row in rows(table(found, "Metrics by win rate"))}
    # the first are ties
    assert (by_metric["length"]["at equal length"], by_metric["length"]["equal items"]) == (0, 10)
    assert by_metric["selfreflect"]["at equal length"] == 1
    few = finding(RankedSets([*items(10), *mixed()[10:12]]), selfreflect=right_in_first(99))
    (row,) = rows(table(few, "How often"), worse="bad")
    assert (row["at equal length"], row["n equal"]) == (None, 2)
    blank = finding(RankedSets([item("i0", good="g g", bad=" ")]), selfreflect=right_in_first(1))
    assert rows(table(blank, "How often"))[0]["n equal"] == 0


def test_values_by_two_models_never_hide_one_another():
    study = RankedSets(items(6))
    values = measured(study, SELFREFLECT, right_in_first(4))
    with pytest.raises(ConfigError) as caught:
        study.finding([replace(value, by=by) for by in "ab" for value in values], [SELFREFLECT])
    assert caught.value.code == "two_models"


def kinds(*items: Item, order: str | None = None) -> list[tuple[str, str]]:
    return [pair.kind for pair in known_order(items, order).pairs]


FOUR = item("a", good="g", bad="b", mid="m", other="o")


def test_names_say_that_good_beats_all_and_mid_beats_bad():
    assert kinds(FOUR) == [("good", "bad"), ("good", "mid"), ("good", "other"), ("mid", "bad")]
    assert kinds(item("a", mid="m", bad="b", other="o")) == [("mid", "bad")]


def test_a_chain_gives_all_its_pairs_and_nothing_across_chains():
    assert kinds(FOUR, order="mid > good>bad, other>mid") == [
        ("mid", "good"),
        ("mid", "bad"),
        ("good", "bad"),
        ("other", "mid"),
    ]


def test_the_given_order_comes_before_the_item_and_the_item_before_the_names():
    own = replace(item("a", good="g", bad="b"), order=(("bad", "good"),))
    assert kinds(own) == [("bad", "good")]
    assert kinds(own, order="good>bad") == [("good", "bad")]


def test_identical_texts_are_counted_apart():
    known = known_order([item("a", good="same", bad="same", mid="m")])
    assert known.identical == (Pair("a", "good", "bad"),)
    assert [pair.kind for pair in known.pairs] == [("good", "mid"), ("mid", "bad")]
    with pytest.raises(DataError) as caught:
        known_order([item("a", good="same", bad="same")])
    assert caught.value.code == "same_texts"


@pytest.mark.parametrize(
    ("order", "code"),
    [
        ("goood>bad", "unknown_name"),
        ("good", "single_name"),
        ("good>>bad", "blank_name"),
        ("", "blank_name"),
        ("good>bad,bad>good", "contradiction"),
        ("good>mid, mid>bad, bad>good", "contradiction"),
        ("good>mid>good", "contradiction"),
    ],
)
def test_a_given_order_that_cannot_be(order, code):
    with pytest.raises(ConfigError) as caught:
        known_order([FOUR], order)
    assert caught.value.code == code


@pytest.mark.parametrize("items", [[], [item("a", a="1", b="2")], [item("a", good="1")]])
def test_without_any_order_there_is_advice(items):
    with pytest.raises(DataError) as caught:
        known_order(items)
    assert caught.value.code == "no_order"
    assert "{order}" in caught.value.remedy


def read(order: object) -> Item:
    plain = {"question": "Why?", "answers": ["a", "b"], "summaries": {"x": "1", "y": "2"}, "order": order}
    with piped(json.dumps([plain]).encode()):
        return read_item_file("-").items[0]


@pytest.mark.parametrize("order", ["y>x", [1, 2], [["x"], "y"], {"x": "y"}])
def test_items_bring_their_order_and_one_of_another_form_is_refused(order):
    assert read([["y", "x"], ["x", "y"]]).order == (("y", "x"), ("x", "y"))
    assert read(["y", "x"]).order == (("y", "x"),)
    assert read(None).order == ()
    assert read(3).order == ()  # the place of a row is called so, too
    with pytest.raises(DataError, match="record 1: the field 'order'"):
        read(order)
