"""Ranked sets padded to equal length: what is added, which pairs count, and what filler does on its own."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import studies
from hypothesis import given, settings
from hypothesis import strategies as st
from studies import rows, table

from selfreflect.sources.items import Item
from selfreflect.validate.base import Better, Group, MetricInfo, Value, digest
from selfreflect.validate.ranked.length import FILLERS, fill_up, pad_items
from selfreflect.validate.ranked.pairs import Pair, known_order
from selfreflect.validate.ranked.study import RankedSets

LOWER = MetricInfo(name="distance", better="lower", group="selfreflect", about="")
OTHER = MetricInfo(name="other", better="higher", group="competitor", about="")


def metric(name: str, group: Group = "competitor") -> MetricInfo:
    return MetricInfo(name=name, better="lower", group=group, about="")


def item(id_: str, **summaries: str) -> Item:
    return Item(id=id_, question="Why?", masked_out=("x",), conditioning=("y",), summaries=summaries)


def items(n: int, good: int = 12, bad: int = 5) -> list[Item]:
    return [
        item(f"i{place}", good=" ".join(["yes"] * good), bad=" ".join(["no"] * bad)) for place in range(n)
    ]


def measured(study: RankedSets, info: MetricInfo, rule: Callable[[str], float]) -> list[Value]:
    return studies.measured(study, info, lambda one, name: rule(one.summaries[name]))


def words(text: str) -> float:
    return float(len(text.split()))


def test_the_shorter_one_gets_filler_to_the_word_and_its_name_says_so():
    one = item("a", good="Most likely peas, or else beans.", mid="Perhaps peas", bad="No idea, sorry.")
    [padded], names = pad_items([one], known_order([one]).pairs, seed=0)
    assert list(padded.summaries)[3:] == [
        "mid: padded to 6 words",
        "bad: padded to 6 words",
        "mid: padded to 3 words",
    ]
    assert {
        len(padded.summaries[name].split()) for name in ("mid: padded to 6 words", "bad: padded to 6 words")
    } == {6}
    assert padded.summaries["mid: padded to 3 words"].startswith("Perhaps peas. ")
    assert names[Pair("a", "mid", "bad")] == ("mid: padded to 3 words", "bad")
    assert names[Pair("a", "good", "bad")] == ("good", "bad: padded to 6 words")


@given(st.text(min_size=1).filter(lambda text: bool(text.split())), st.integers(1, 300), st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_filler_follows_the_text_and_fills_up_to_the_word(text: str, more: int, seed: int):
    count = len(text.split())
    found = fill_up(text, count + more, random.Random(seed))
    assert len(found.split()) == count + more
    assert found.startswith(text.rstrip())
    known = {word.strip(".,") for line in FILLERS for word in line.split()}
    assert {word.strip(".,") for word in found.split()[count:]} <= known
    assert found.endswith(".")
    longer = fill_up(text, count + more + 5, random.Random(seed))
    assert longer.startswith(found[:-1])  # a text padded further continues the same filler


def test_the_seed_decides_on_the_filler_and_one_text_has_one_filler():
    one = item("a", good="x " * 30, mid="y " * 20, bad="no")
    pairs = known_order([one]).pairs
    assert pad_items([one], pairs, 1) == pad_items([one], pairs, 1)
    texts = {pad_items([one], pairs, seed)[0][0].summaries["bad: padded to 20 words"] for seed in range(12)}
    assert len(texts) > 3
    [alone], _ = pad_items(
        [item("a", **{name: one.summaries[name] for name in ("good", "bad")})], [Pair("a", "good", "bad")], 1
    )
    assert (
        alone.summaries["bad: padded to 30 words"]
        == pad_items([one], pairs, 1)[0][0].summaries["bad: padded to 30 words"]
    )


def test_equal_lengths_need_no_filler_and_a_blank_text_cannot_be_padded():
    padded, names = pad_items(
        [item("a", good="a b", bad="c d"), item("b", good="a b", bad=" ")],
        [Pair("a", "good", "bad"), Pair("b", "good", "bad")],
        0,
    )
    assert [list(one.summaries) for one in padded] == [["good", "bad"]] * 2
    assert names == {Pair("a", "good", "bad"): ("good", "bad")}


def test_a_summary_of_the_same_name_is_never_overwritten():
    one = item("a", good="a b c", bad="d", **{"bad: padded to 3 words": "mine"})
    [made], _ = pad_items([one], [Pair("a", "good", "bad")], 0)
    assert made.summaries["bad: padded to 3 words"] == "mine"
    assert len(made.summaries["bad: padded to 3 words*"].split()) == 3


def test_what_is_not_padded_is_measured_as_before():
    plain, padded = RankedSets(items(3)), RankedSets(items(3), pad=True)
    for before, after in zip(plain.items, padded.items, strict=True):
        assert before.summaries.items() <= after.summaries.items()
        assert {digest(before, name) for name in before.summaries} <= {
            digest(after, name) for name in after.summaries
        }
    assert plain.order == padded.order


def test_padding_takes_the_wins_of_length_away_and_leaves_those_of_content():
    study = RankedSets(
        [*items(10), *[item(f"s{place}", good="yes yes yes", bad="no " * 9) for place in range(10)]], pad=True
    )
    long = metric("long", "control")
    values = [
        *measured(study, LOWER, lambda text: float("no" in text.split())),
        *measured(study, long, lambda text: -words(text)),
    ]
    found = study.finding(values, [LOWER, long])
    title = "After matching for length: padded to equal length"
    assert [(row["metric"], row["win rate"], row["n"]) for row in rows(table(found, title))] == [
        ("distance", 1, 20),
        ("long", 0, 20),
    ]
    (own,) = rows(table(found, "How often the better summary wins"), metric="long", worse="bad")
    assert (own["win rate"], own["n equal"], own["padded"], own["n padded"]) == (0.5, 0, 0, 20)
    filled = "All pairs, padded to equal length with neutral filler: prefer the"
    assert f"{filled} better summary more often than a coin would: distance." in found.says
    assert f"{filled} worse summary, or neither, more often than not: long." in found.says


def test_wins_that_padding_takes_away_are_named():
    study = RankedSets(items(20), pad=True)
    found = study.finding(measured(study, metric("long"), lambda text: -words(text)), [metric("long")])
    said = "\n".join(found.says)
    assert "All pairs: prefer the better summary more often than a coin would: long." in said
    assert "neutral filler: prefer the worse summary, or neither, more often than not: long." in said


@pytest.mark.parametrize(("good", "bad"), [(12, 5), (5, 12)])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("better", ["lower", "higher"])
def test_what_filler_does_on_its_own_is_reported(good: int, bad: int, sign: int, better: Better):
    fillers = {word.strip(".,") for line in FILLERS for word in line.split()}
    study = RankedSets(items(12, good, bad), pad=True)
    info = MetricInfo(name="distance", better=better, group="competitor", about="")

    def rule(text: str) -> float:
        filled = bool(fillers & {word.strip(".,") for word in text.split()})
        return (1 if better == "lower" else -1) * sign * 0.5 * filled

    found = study.finding(measured(study, info, rule), [info])
    (row,) = rows(table(found, "What filler alone changes"))
    padded = "worse" if good > bad else "better"
    assert (row["padded"], row["change"], row["items"], row["of"]) == (padded, sign * 0.5, 12, 12)
    assert row["95% low"] == row["95% high"] == sign * 0.5


def test_without_padding_nothing_is_said_of_it():
    study = RankedSets(items(10))
    found = study.finding(measured(study, LOWER, words), [LOWER])
    assert not any("padded" in one.title or "filler" in one.title for one in found.tables)
    assert "padded" not in "\n".join(found.says).lower()


def test_a_padded_text_without_a_value_leaves_its_pair_out():
    study = RankedSets(items(10), pad=True)
    values = [
        one
        for one in measured(study, LOWER, words)
        if (one.item, one.summary) != ("i0", "bad: padded to 12 words")
    ]
    found = study.finding(values, [LOWER])
    (row,) = rows(table(found, "How often the better summary wins"), worse="bad")
    assert (row["n"], row["n padded"]) == (10, 9)
    (change,) = rows(table(found, "What filler alone changes"))
    assert (change["items"], change["of"]) == (9, 10)


def test_usable_information_is_tested_against_all_others():
    study = RankedSets(items(20))
    by_place = {f"i{place}": place for place in range(20)}

    def right_in(first: int) -> Callable[[Item, str], float]:
        return lambda one, name: float((name == "bad") == (by_place[one.id] < first))

    infos = [metric("information", "information"), metric("half"), metric("none"), metric("same")]
    rules = dict(zip((info.name for info in infos), map(right_in, (20, 10, 0, 20)), strict=True))
    values = [
        Value(metric=name, item=one.id, summary=summary, digest="", value=rule(one, summary))
        for name, rule in rules.items()
        for one in study.items
        for summary in ("good", "bad")
    ]
    finding = study.finding(values, infos)
    found = rows(table(finding, "Usable information against the other metrics on the same pairs"))
    others = {row["other"]: row for row in found}
    assert {row["metric"] for row in found} == {"information"}
    assert set(others) == {"half", "none", "same"}
    most, least = others["none"], others["half"]
    assert (most["difference"], most["n"], most["only metric"], most["only other"]) == (1, 20, 20, 0)
    assert most["p"] == pytest.approx(2 / 2**20)
    # of three metrics one wins the same pairs, which is no test
    assert others["same"]["p"] is None
    assert most["p (Holm)"] == pytest.approx(2 * 2 / 2**20)
    assert least["p (Holm)"] == pytest.approx(2 / 2**10)
    assert any("Usable information that show no clear difference" in said for said in finding.says)
    assert not any(made.title.startswith("SelfReflect against") for made in finding.tables)


def test_every_two_metrics_are_compared_and_clear_differences_shown():
    study = RankedSets(items(20))
    by_place = {f"i{place}": place for place in range(20)}

    def right_in(first: int) -> Callable[[Item, str], float]:
        return lambda one, name: float((name == "bad") == (by_place[one.id] < first))

    infos = [metric("all"), metric("half"), metric("none"), metric("same")]
    rules = dict(zip(("all", "half", "none", "same"), map(right_in, (20, 10, 0, 20)), strict=True))
    values = [
        Value(metric=name, item=one.id, summary=summary, digest="", value=rule(one, summary))
        for name, rule in rules.items()
        for one in study.items
        for summary in ("good", "bad")
    ]
    found = table(study.finding(values, infos), "All metrics against each other on the same pairs")
    pairs = {(row["metric"], row["other"]): row for row in rows(found)}
    assert set(pairs) == {
        ("all", "half"),
        ("all", "none"),
        ("half", "none"),
        ("same", "half"),
        ("same", "none"),
    }
    most, least = pairs["all", "none"], pairs["half", "none"]
    assert (most["difference"], most["n"], most["only metric"], most["only other"]) == (1, 20, 20, 0)
    assert most["p"] == pytest.approx(2 / 2**20)
    # of six pairs one wins the same, which is no test
    assert most["p (Holm)"] == pytest.approx(5 * 2 / 2**20)
    assert least["p (Holm)"] == pytest.approx(3 * 2 / 2**10)
    assert "of the 6 pairs of metrics" in found.notes[0]
    # its own tests say as much of two metrics
    with_selfreflect = study.finding(values, [metric("all", "selfreflect"), metric("none")])
    nothing_clear = study.finding(values, [metric("all"), metric("same")])
    for one in (with_selfreflect, nothing_clear):
        assert not any(made.title.startswith("All metrics against") for made in one.tables)
