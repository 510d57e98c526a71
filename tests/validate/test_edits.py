"""Edits of statements and summaries: exact texts, that each does what its label says, and what the studies
find in known values."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from studies import HIGHER, LOWER, measured, rows

from selfreflect.errors import DataError
from selfreflect.grouping import group_indices
from selfreflect.sources.items import Item
from selfreflect.table import Table, to_csv, to_markdown
from selfreflect.validate.base import MetricInfo
from selfreflect.validate.edits import (
    BASE,
    FILLER,
    OWN,
    PAD,
    QUESTION,
    STATEMENT_EDITS,
    Interventions,
    Statement,
    short,
)
from selfreflect.validate.edits import stated as state

CAPITAL = Item(
    id="capital",
    question="What is the capital? ",
    masked_out=("Paris.", "paris", "Lyon", "Nice"),
    conditioning=("Paris.", "Lyon", "", "Paris.", "the Paris", "Lyon", "Lille"),
    summaries={"mine": "Probably it has been Paris since 987.", "blank": " "},
)
PRIZE = Item(
    id="prize",
    question="Who won?",
    masked_out=("It was Henri Becquerel.",),
    conditioning=("It was Henri Becquerel.",),
    summaries={"mine": "nobody knows"},
)


def stated(one: Item) -> Statement | None:
    return state(one, group_indices)


def item(answers: Sequence[str], id_: str = "i", **summaries: str) -> Item:
    middle = len(answers) // 2
    return Item(
        id=id_,
        question="Why?",
        masked_out=tuple(answers[:middle]),
        conditioning=tuple(answers[middle:]),
        summaries=summaries,
    )


def made(study: Interventions, place: int = 0) -> dict[str, str]:
    return study.items[place].summaries


def by_edit(table: Table) -> dict[tuple[object, object], dict[str, object]]:
    return {(row["metric"], row["edit"]): row for row in rows(table)}


def test_the_edits_of_a_small_item_word_by_word():
    summaries = made(Interventions([CAPITAL, PRIZE]))
    start = "I would say "
    assert summaries[BASE] == start + "“Paris.” (50%), “Lyon” (30%), “Lille” (10%) or “Nice” (10%)."
    assert summaries["template: drop most frequent"] == start + "“Lyon” (60%), “Lille” (20%) or “Nice” (20%)."
    assert (
        summaries["template: drop least frequent"] == start + "“Paris.” (56%), “Lyon” (33%) or “Lille” (11%)."
    )
    assert (
        summaries["template: swap two frequencies"]
        == start + "“Paris.” (10%), “Lyon” (30%), “Lille” (10%) or “Nice” (50%)."
    )
    assert summaries["template: add a possibility"] == (
        start + "“Paris.” (40%), “Lyon” (24%), “Lille” (8%), “Nice” (8%) or “It was Henri Becquerel.” (20%)."
    )
    assert summaries["template: cut to the majority"] == start + "“Paris.” (100%)."
    assert summaries["template: pad with filler"] == f"{summaries[BASE]} {FILLER}"
    assert summaries["template: repeat the question"] == "What is the capital?"
    assert summaries["mine"] == CAPITAL.summaries["mine"]
    assert summaries["mine: pad with filler"] == f"{CAPITAL.summaries['mine']} {FILLER}"
    assert len(summaries) == 10


def test_what_cannot_be_edited_is_counted_with_its_reason():
    study = Interventions([CAPITAL, PRIZE])
    assert study.skipped == {
        ("drop most frequent", "it names one possibility only"): 1,
        ("drop least frequent", "it names one possibility only"): 1,
        ("swap two frequencies", "it names one possibility only"): 1,
        ("cut to the majority", "it names one possibility only"): 1,
        ("all" + OWN, "it is blank"): 1,
    }
    table = study.finding([], [LOWER]).tables[-1]
    assert ("all" + OWN, "it is blank", 1) in table.rows


def test_the_seed_and_the_item_decide_and_nothing_else():
    others = [
        item([f"{name} in 19{place}1"] * 2, f"o{place}")
        for place, name in enumerate(["Rome", "Oslo", "Bonn", "Kyiv"])
    ]
    first = Interventions([CAPITAL, *others])
    assert [
        re.findall(r"“([^”]*)” \(20%\)", one.summaries["template: add a possibility"]) for one in first.items
    ] == [
        ["Kyiv in 1931"],
        ["Bonn in 1921"],
        ["Kyiv in 1931"],
        ["Paris."],
        ["Oslo in 1911"],
    ]  # in any process: sets of texts have another order in each
    assert made(Interventions([*reversed(others), CAPITAL]), -1) == made(first)
    assert any(made(Interventions([CAPITAL, *others], seed)) != made(first) for seed in range(1, 5))
    assert all(made(Interventions([CAPITAL, *others], seed))[BASE] == made(first)[BASE] for seed in range(5))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  It is\n\nParis.  It is big. ", "It is Paris. It is big."),
        ("Dr. " + "word " * 30, "Dr. " + "word " * 18 + "word…"),
        ("字" * 500, "字" * 160 + "…"),
    ],
)
def test_long_answers_are_cut_to_one_short_line(text: str, expected: str):
    assert short(text) == expected


def test_a_metric_that_notices_every_edit_is_told_from_one_that_is_blind_and_one_that_is_contrary():
    items = [
        item(["pea"] * 5 + ["leek"] * 3 + ["kale in 1950"], f"i{place}", own="Peas from Kent.")
        for place in range(12)
    ]
    study = Interventions(items)
    good = measured(study, LOWER, lambda one, name: 1.0 if ": " in name else 0.0)
    blind = measured(study, HIGHER, lambda one, name: 3.0)
    contrary = MetricInfo(name="contrary", better="higher", group="control", about="")
    finding = study.finding(
        [*good, *blind, *measured(study, contrary, lambda one, name: float(":" in name))],
        [LOWER, HIGHER, contrary],
    )
    rows = by_edit(finding.tables[0])
    edits = {edit for _, edit in rows}
    assert edits == {*STATEMENT_EDITS, PAD, QUESTION, PAD + OWN}
    for edit in edits:
        noticed = rows["distance", edit]
        assert (noticed["worse"], noticed["change"], noticed["n"], noticed["of"]) == (1.0, 1.0, 12, 12)
        assert 0.7 < float(str(noticed["worse low"])) < 0.8  # 12 of 12: Clopper and Pearson say 73.5 %
        assert (rows["agreement", edit]["worse"], rows["agreement", edit]["change"]) == (0.0, 0.0)
        assert (rows["contrary", edit]["worse"], rows["contrary", edit]["change"]) == (0.0, -1.0)


def test_own_summaries_of_one_item_are_one_vote():
    study = Interventions([item(["pea", "leek"], "i", a="x", b="y"), item(["pea", "leek"], "j", a="x")])
    found = measured(study, LOWER, lambda one, name: 1.0 if name == "a: pad with filler" else 0.0)
    row = by_edit(study.finding(found, [LOWER]).tables[0])["distance", PAD + OWN]
    assert (row["worse"], row["change"], row["n"], row["of"]) == (0.75, 0.75, 2, 2)


def test_items_that_make_no_sense_are_refused():
    for items in ([], [item(["", " "])]):
        with pytest.raises(DataError) as caught:
            Interventions(items)
        assert caught.value.code == "nothing_to_edit"


def test_hostile_texts_reach_the_summary_as_they_are_and_tables_stay_whole():
    hostile = "{x} %s | <b> [LIST] \x1b[31m"
    study = Interventions([item([hostile] * 3 + ["pea"])])
    assert made(study)[BASE] == f"I would say “{hostile}” (75%) or “pea” (25%)."
    for table in study.finding([], [LOWER]).tables:
        assert "\x1b" not in to_markdown(table) + to_csv(table)
