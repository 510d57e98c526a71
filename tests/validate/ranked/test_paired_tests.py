"""Ranked sets: tests of metrics against each other on the same pairs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import studies
from studies import rows, table

from selfreflect.sources.items import Item
from selfreflect.validate.base import Group, MetricInfo, Value
from selfreflect.validate.ranked.study import RankedSets


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
