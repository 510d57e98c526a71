"""Which summary is known to be better, from which source, and what is refused."""

from __future__ import annotations

import json

import pytest
from command import piped

from selfreflect.errors import ConfigError, DataError
from selfreflect.sources.items import Item, read_item_file
from selfreflect.validate.ranked.pairs import Pair, known_order


def item(id_: str = "a", order: tuple[tuple[str, ...], ...] = (), **summaries: str) -> Item:
    return Item(
        id=id_, question="Why?", masked_out=("x",), conditioning=("y",), summaries=summaries, order=order
    )


def kinds(*items: Item, order: str | None = None) -> list[tuple[str, str]]:
    return [pair.kind for pair in known_order(items, order).pairs]


FOUR = item(good="g", bad="b", mid="m", other="o")


def test_names_say_that_good_beats_all_and_mid_beats_bad():
    assert kinds(FOUR) == [("good", "bad"), ("good", "mid"), ("good", "other"), ("mid", "bad")]
    assert kinds(item(mid="m", bad="b", other="o")) == [("mid", "bad")]


def test_a_chain_gives_all_its_pairs_and_nothing_across_chains():
    assert kinds(FOUR, order="mid > good>bad, other>mid") == [
        ("mid", "good"),
        ("mid", "bad"),
        ("good", "bad"),
        ("other", "mid"),
    ]


def test_the_given_order_comes_before_the_item_and_the_item_before_the_names():
    own = item(order=(("bad", "good"),), good="g", bad="b")
    assert kinds(own) == [("bad", "good")]
    assert kinds(own, order="good>bad") == [("good", "bad")]


def test_a_given_order_holds_where_an_item_has_both():
    known = known_order([item("a", x="1", y="2"), item("b", x="1", z="2")], "x>y")
    assert known.pairs == (Pair("a", "x", "y"),)
    assert known.without == ("b",)


def test_identical_texts_are_counted_apart():
    known = known_order([item("a", good="same", bad="same", mid="m")])
    assert known.identical == (Pair("a", "good", "bad"),)
    assert [pair.kind for pair in known.pairs] == [("good", "mid"), ("mid", "bad")]
    with pytest.raises(DataError, match=r"every pair in a known order \(1\), as in item 'a'"):
        known_order([item(good="same", bad="same")])


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("goood>bad", "there is no summary 'goood', only.*Did you mean 'good'"),
        ("good", "the single name 'good'"),
        ("good>>bad", "blank name"),
        ("", "blank name"),
        ("good>bad,bad>good", "contradicts itself: '(good' > 'bad' > 'good|bad' > 'good' > 'bad)'"),
        ("good>mid, mid>bad, bad>good", "contradicts itself"),
        ("good>mid>good", "contradicts itself"),
    ],
)
def test_a_given_order_that_cannot_be(order, said):
    with pytest.raises(ConfigError, match=said):
        known_order([FOUR], order)


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ((("good", "none"),), "there is no summary 'none'"),
        ((("good",),), "single name"),
        ((("good", "bad"), ("bad", "good")), "contradicts"),
    ],
)
def test_an_item_with_an_order_that_cannot_be_is_named(order, said):
    with pytest.raises(DataError, match=f"item 'z': .*{said}"):
        known_order([FOUR, item("z", order, good="g", bad="b")])


@pytest.mark.parametrize("items", [[], [item(a="1", b="2")], [item(good="1")]])
def test_without_any_order_there_is_advice(items):
    with pytest.raises(DataError, match=r"no item has two summaries in a known order.*--order"):
        known_order(items)


def read(order: object) -> Item:
    plain = {"question": "Why?", "answers": ["a", "b"], "summaries": {"x": "1", "y": "2"}, "order": order}
    with piped(json.dumps([plain]).encode()):
        return read_item_file("-").items[0]


def test_items_bring_their_order():
    assert read(["y", "x"]).order == (("y", "x"),)
    assert read([["y", "x"], ["x", "y"]]).order == (("y", "x"), ("x", "y"))
    assert read(None).order == read([]).order == ()


@pytest.mark.parametrize("order", ["y>x", 3, [1, 2], [["x"], "y"], {"x": "y"}])
def test_an_order_of_another_form_is_refused(order):
    with pytest.raises(DataError, match="record 1: the field 'order' must list names of summaries"):
        read(order)
