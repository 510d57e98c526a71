"""Study 6: ratings from a CSV, agreement among raters against worked examples, and agreement of metrics with
them."""

from __future__ import annotations

import math
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from studies import shown, table

from selfreflect.errors import DataError
from selfreflect.sources.items import Item
from selfreflect.table import to_csv, to_markdown
from selfreflect.validate.agreement import (
    HumanAgreement,
    alpha_estimate,
    order_units,
    paired_units,
    rating_units,
)
from selfreflect.validate.base import MetricInfo, Undefined, Value
from selfreflect.validate.ratings import Ratings, read_ratings, summary_orders
from selfreflect.validate.statistics import kendall


@pytest.fixture(autouse=True)
def _fewer_resamples(monkeypatch):
    """Most of these tests are about other things than the interval of alpha."""
    monkeypatch.setattr("selfreflect.validate.statistics.RESAMPLES", 300)


LOWER = MetricInfo(name="selfreflect", better="lower", group="selfreflect", about="")
HIGHER = MetricInfo(name="length", better="higher", group="control", about="")
NAMES = ("good", "mid", "bad")


def item(id_: str, names=NAMES, **fields) -> Item:
    given = {
        "id": id_,
        "question": "What?",
        "masked_out": ("a",),
        "conditioning": ("b",),
        "summaries": {name: f"{name} one" for name in names},
    }
    return Item(**{**given, **fields})


ITEMS = [item(f"q{number}") for number in range(1, 9)]


def written(tmp_path: Path, text: str, name: str = "ratings.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def row(finding, metric):
    """Cells of one metric: two estimates and the two counts of pairs."""
    titles = ("Agreement of metrics with raters", "Agreement of metrics with the majority")
    [alphas], [majority] = (
        [row for row in table(finding, title).rows if row[0] == metric] for title in titles
    )
    return {"each": alphas[1:4], "majority": majority[1:4], "pairs": majority[5:]}


# --- the file


def test_ratings_are_read_and_blank_cells_are_missing(tmp_path):
    path = written(
        tmp_path,
        "rater,item,summary,rating,note\nann,q1,good,5,x\nann,q1,bad,1.5,\nbob,q1,good, ,\ncat,q2,mid,,\n"
        "bob,q1,bad,-2e0,\n",
    )
    assert read_ratings(path, ITEMS) == Ratings(
        raters=("ann", "bob", "cat"),
        orders={"ann": {("q1", "bad", "good"): -1}, "bob": {}},
        rated={"ann": {("q1", "good"): 5.0, ("q1", "bad"): 1.5}, "bob": {("q1", "bad"): -2.0}},
        missing=2,
    )


@pytest.mark.parametrize("column", ["preferred", "preference"])
def test_preferences_are_read_whichever_summary_comes_first(tmp_path, column):
    lines = [
        "ann,q1,good,bad,good",
        "ann,q1,mid,good,good",
        "ann,q2,bad,mid,Tie",
        "bob,q1,bad,good,",
        "bob,q1,bad,mid,bad",
    ]
    found = read_ratings(written(tmp_path, f"rater,item,summary,other,{column}\n" + "\n".join(lines)), ITEMS)
    assert found.orders == {
        "ann": {("q1", "bad", "good"): -1, ("q1", "good", "mid"): 1, ("q2", "bad", "mid"): 0},
        "bob": {("q1", "bad", "mid"): 1},
    }
    assert found.missing == 1
    assert not found.rated


RATING = "rater,item,summary,rating\n"
PAIRWISE = "rater,item,summary,other,preferred\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            RATING + "ann,q1,good,four",
            "line 2: the field 'rating' must be a number such as 3 or 2.5, or blank if it is missing; it is "
            "'four'",
        ),
        (RATING + "ann,q1,good,4\nann,q1,bad,nan", "line 3: the field 'rating' must be a number"),
        (RATING + "ann,q1,good,inf", "must be a number"),
        (RATING + 'ann,q1,good,"4,5"', "it is '4,5'"),
        (RATING + ",q1,good,4", "line 2: the field 'rater' is blank"),
        (RATING + "ann,,good,4", "line 2: the field 'item' is blank"),
        (RATING + "ann,q1,,4", "line 2: the field 'summary' is blank"),
        (RATING + "ann,q1,good", "line 2: 3 cells, but the header has 4 columns"),
        (RATING, "holds no records"),
        (RATING + "ann,q1,good,\nbob,q1,bad, ", "all ratings are blank"),
        (
            RATING + "ann,q1,good,1\nann,q1,bad,2\nann,q1,good,1",
            "line 4: rater 'ann' has rated 'good' of item 'q1' before, in line 2",
        ),
        (
            RATING + "ann,q1,good,1\nann,p1,good,1\nann,p2,bad,2\nann,p1,bad,2",
            "line 3: there is no item 'p1'; the items are 'q1', 'q2', 'q3', 'q4', 'q5'",
        ),
        (
            RATING + "ann,q1,good,1\nann,q2,best,1",
            "line 3: item 'q2' has no summary 'best', only 'good', 'mid', 'bad'",
        ),
        ("rater,item,summary\nann,q1,good", "the columns must be rater, item, summary, rating, or"),
        ("rater,item,rating\nann,q1,4", "they are 'rater', 'item', 'rating'"),
        (
            "rater,item,summary,preferred\nann,q1,good,good",
            "they are 'rater', 'item', 'summary', 'preferred'",
        ),
        ("rater,item,summary,other,rating,preferred\nann,q1,good,bad,4,good", "the columns must be"),
        (
            PAIRWISE + "ann,q1,good,bad,mid",
            "line 2: the field 'preferred' must name 'bad' or 'good', or say 'tie'; it is 'mid'",
        ),
        (PAIRWISE + "ann,q1,good,good,good", "line 2: the fields 'summary' and 'other' both name 'good'"),
        (
            PAIRWISE + "ann,q1,good,bad,good\nann,q1,bad,good,good",
            "line 3: rater 'ann' has rated 'bad, good' of item 'q1' before, in line 2",
        ),
        (
            PAIRWISE + "ann,q1,good,best,good",
            "line 2: item 'q1' has no summary 'best', only",
        ),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_its_place(tmp_path, text, said):
    with pytest.raises(DataError, match=re.escape(said)) as caught:
        read_ratings(written(tmp_path, text), ITEMS)
    assert "ratings.csv" in str(caught.value)


def test_ratings_are_no_other_format(tmp_path):
    with pytest.raises(DataError, match=r"ratings come as CSV"):
        read_ratings(written(tmp_path, '[{"rater": "ann"}]', "ratings.json"), ITEMS)


def test_a_summary_may_be_called_tie(tmp_path):
    items = [item("q1", names=("tie", "other"))]
    found = read_ratings(written(tmp_path, PAIRWISE + "ann,q1,tie,other,tie"), items)
    assert found.orders == {"ann": {("q1", "other", "tie"): -1}}


def test_orders_come_from_ratings_within_an_item():
    values = {("q1", "mid"): 3.0, ("q1", "good"): 5.0, ("q2", "good"): 1.0, ("q1", "bad"): 3.0}
    assert summary_orders(values) == {
        ("q1", "bad", "good"): -1,
        ("q1", "bad", "mid"): 0,
        ("q1", "good", "mid"): 1,
    }


# --- alpha

_ = None
# Krippendorff (2011), Computing Krippendorff's Alpha-Reliability, section C: 4 observers, 12 units
FOUR_OBSERVERS = (
    (1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _),
    (1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3),
    (_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _),
    (1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _),
)
THREE_CODERS = (
    (_, _, _, _, _, 3, 4, 1, 2, 1, 1, 3, 3, _, 3),
    (1, _, 2, 1, 3, 3, 4, 3, _, _, _, _, _, _, _),
    (_, _, 2, 1, 3, 4, 4, _, 2, 1, 1, 3, 3, _, 4),
)


def rated(observers):
    return [
        {(f"q{unit}", "s"): float(value) for unit, value in enumerate(one) if value is not None}
        for one in observers
    ]


@pytest.mark.parametrize(
    ("observers", "level", "expected"),
    [
        (FOUR_OBSERVERS, "ordinal", 0.815),
        (FOUR_OBSERVERS, "interval", 0.849),
        (THREE_CODERS, "interval", 0.811),
    ],
)
def test_alpha_of_worked_examples_with_missing_ratings(observers, level, expected):
    assert alpha_estimate(rating_units(rated(observers)), level).mean == pytest.approx(expected, abs=5e-4)


def test_items_that_fewer_than_two_have_rated_do_not_count():
    found = alpha_estimate(rating_units(rated(FOUR_OBSERVERS)), "interval")
    assert (found.n, found.total) == (11, 12)
    assert found.low < found.mean <= found.high <= 1


@pytest.mark.parametrize(
    "observers",
    [((1, 2, 3),), ((1, 1, 1), (1, 1, 1)), ((1, _, 2), (_, 1, _)), ((1, _, 2), (1, _, _))],
    ids=["one rater", "all the same", "no unit in common", "one unit in common, the same"],
)
def test_alpha_is_undefined_where_nothing_tells_agreement_from_chance(observers):
    found = alpha_estimate(rating_units(rated(observers)), "interval")
    assert (found.mean, found.low, found.high) == (None, None, None)


def test_what_a_rater_said_alone_does_not_save_alpha_from_being_undefined():
    assert alpha_estimate([("a", [1, 1]), ("b", [1, 1]), ("c", [2])], "interval").mean is None
    assert alpha_estimate([("a", [1, 1]), ("b", [2, 2]), ("c", [2])], "interval").mean == 1


def test_no_rating_at_all_has_no_alpha():
    assert alpha_estimate([], "interval").mean is None


def test_few_items_have_no_interval():
    found = alpha_estimate(rating_units(rated(((1, 2, 3), (1, 2, 2)))), "interval")
    assert found.mean is not None
    assert (found.low, found.high) == (None, None)


def test_a_scale_of_very_many_steps_has_alpha_and_interval():
    chance = np.random.default_rng(0)
    found = alpha_estimate(rating_units(rated(chance.permutation(2000).reshape(2, 1000))), "ordinal")
    assert found.low < 0 < found.high


def orders_of(rankings):
    """Per rater and item the values of its summaries."""
    return [
        summary_orders(
            {(f"q{i}", f"s{j}"): value for i, one in enumerate(items) for j, value in enumerate(one)}
        )
        for items in rankings
    ]


@given(st.lists(st.tuples(st.permutations(range(4)), st.permutations(range(4))), min_size=3, max_size=4))
@settings(max_examples=40, deadline=None)
def test_alpha_of_two_raters_orders_is_kendalls_tau_but_for_small_samples(rankings):
    one, other = zip(*rankings, strict=True)
    tau = np.mean([kendall(a, b) for a, b in rankings])
    units = 12 * len(rankings)
    found = alpha_estimate(order_units(orders_of([one, other])), "interval").mean
    expected = 1 - (1 - tau) * (2 * units - 1) / (2 * units)
    assert found == pytest.approx(expected)


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=2, max_size=5),
    st.permutations(range(3)),
)
@settings(max_examples=40, deadline=None)
def test_alpha_does_not_depend_on_the_names_of_summaries(values, names):
    raters = [{("q", f"s{j}"): float(value) for j, value in enumerate(one)} for one in values]
    renamed = [{("q", f"s{names[j]}"): float(value) for j, value in enumerate(one)} for one in values]
    found = [
        alpha_estimate(order_units([summary_orders(one) for one in given]), "interval").mean
        for given in (raters, renamed)
    ]
    assert found[0] == (None if found[1] is None else pytest.approx(found[1]))


def test_agreement_with_raters_one_at_a_time_is_not_thinned_by_their_number():
    truth, wrong = [(3, 2, 1)] * 6, [(1, 2, 3)] * 6
    [metric, *raters] = orders_of([wrong, *[truth] * 9])
    each = alpha_estimate(paired_units(metric, raters), "interval").mean
    joined = alpha_estimate(order_units([*raters, metric]), "interval").mean
    assert each == pytest.approx(-1, abs=0.01)
    assert joined > 0.5


# --- the study


def said_by(raters: dict[str, dict[str, tuple[float | None, ...]]]) -> Ratings:
    """Rater -> item -> ratings of good, mid and bad."""
    found = {
        rater: {
            (id_, name): value
            for id_, values in items.items()
            for name, value in zip(NAMES, values, strict=True)
            if value is not None
        }
        for rater, items in raters.items()
    }
    orders = {rater: summary_orders(values) for rater, values in found.items()}
    return Ratings(tuple(found), orders, found)


def scores(metric, numbers, items=ITEMS, by="judge"):
    values = []
    for one in items:
        for name, number in zip(NAMES, numbers, strict=True):
            undefined = Undefined(reason="backend", message="no") if number is None else None
            values.append(
                Value(
                    metric=metric,
                    item=one.id,
                    summary=name,
                    digest="",
                    by=by,
                    value=number,
                    undefined=undefined,
                )
            )
    return values


AGREED = said_by({rater: {one.id: (5, 3, 1) for one in ITEMS} for rater in ("ann", "bob", "cat")})


def test_a_metric_that_orders_as_the_raters_do_agrees_with_them():
    study = HumanAgreement(ITEMS, AGREED)
    found = study.finding(
        [*scores("selfreflect", (0.1, 0.2, 0.3)), *scores("length", (1, 2, 3))], [LOWER, HIGHER]
    )
    alike, opposite = row(found, "selfreflect"), row(found, "length")
    assert alike["each"][0] == 1
    assert alike["majority"][0] == 1
    assert 0.5 < alike["majority"][1] < 1  # eight items cannot show that it always does
    assert alike["pairs"] == (24, 24)
    assert opposite["each"][0] == pytest.approx(-1, abs=0.02)
    assert opposite["majority"][0] == 0
    assert "Agree with the majority of raters more often than a coin would: selfreflect." in found.says
    assert "Agree with the majority of raters less often than a coin would: length." in found.says
    assert [(curve.label, curve.y) for curve in found.plots[0].curves] == [
        ("selfreflect", (1.0,)),
        ("length", (0.0,)),
    ]


def test_a_handful_of_items_shows_no_agreement_with_the_majority():
    items = ITEMS[:5]
    values = [
        value for value in scores("selfreflect", (0.1, 0.2, 0.3)) if value.item in {one.id for one in items}
    ]
    # not all items alike, so that the bootstrap has an interval of its own
    values[0] = replace(values[0], value=0.25)
    found = HumanAgreement(items, AGREED).finding(values, [LOWER])
    assert row(found, "selfreflect")["majority"][1] > 0.5
    assert "Not shown, with this number of items, to agree more often than a coin: selfreflect." in found.says


def test_ties_of_the_metric_are_disagreements_with_a_majority():
    found = HumanAgreement(ITEMS, AGREED).finding(scores("selfreflect", (0.1, 0.3, 0.3)), [LOWER])
    assert row(found, "selfreflect")["majority"][0] == pytest.approx(2 / 3)


def test_pairs_without_a_majority_are_left_out_and_counted():
    ratings = said_by(
        {"ann": {one.id: (5, 3, 1) for one in ITEMS}, "bob": {one.id: (3, 5, 1) for one in ITEMS}}
    )
    found = HumanAgreement(ITEMS, ratings).finding(scores("selfreflect", (0.1, 0.2, 0.3)), [LOWER])
    assert row(found, "selfreflect")["pairs"] == (16, 16)
    assert "pairs on which the raters have no majority: 8." in found.says[0]


def test_alpha_among_raters_is_that_of_their_ratings_and_of_their_orders():
    chance = np.random.default_rng(2)
    raters = {
        rater: {one.id: tuple(chance.integers(1, 6, 3).tolist()) for one in ITEMS} for rater in ("ann", "bob")
    }
    ratings = said_by(raters)
    rows = table(HumanAgreement(ITEMS, ratings).finding([], [LOWER]), "Agreement among raters").rows
    assert [one[:2] for one in rows] == [
        *(
            ("ratings as given", "interval"),
            ("ratings as given", "ordinal"),
            ("order of two summaries", "interval"),
        )
    ]
    pairs = [
        (raters["ann"][one.id][place], raters["bob"][one.id][place]) for one in ITEMS for place in range(3)
    ]
    flat = [value for pair in pairs for value in pair]
    observed = sum((a - b) ** 2 for a, b in pairs) / len(pairs)
    expected = sum((a - b) ** 2 for a, b in combinations(flat, 2)) / math.comb(len(flat), 2)
    assert rows[0][2] == pytest.approx(1 - observed / expected)
    assert all(one[3] < one[2] < one[4] for one in rows)


def test_a_rater_alone_has_no_alpha_but_a_metric_can_agree_with_them():
    ratings = said_by({"ann": {one.id: (5, 3, 1) for one in ITEMS}})
    found = HumanAgreement(ITEMS, ratings).finding(scores("selfreflect", (0.1, 0.2, 0.3)), [LOWER])
    assert {one[2] for one in table(found, "Agreement among raters").rows} == {None}
    assert "Agreement among raters is not defined: no two compared the same summaries" in found.says[1]
    assert row(found, "selfreflect")["each"][0] == 1


def test_preferences_need_no_scale():
    preferred = {rater: {(one.id, "bad", "good"): -1 for one in ITEMS} for rater in ("ann", "bob")}
    found = HumanAgreement(ITEMS, Ratings(("ann", "bob"), preferred)).finding(
        scores("selfreflect", (0.1, 0.2, 0.3)), [LOWER]
    )
    assert [(one[0], one[2]) for one in table(found, "Agreement among raters").rows] == [
        ("order of two summaries", 1)
    ]
    assert row(found, "selfreflect")["pairs"] == (8, 8)
    assert row(found, "selfreflect")["majority"][0] == 1


def test_missing_ratings_leave_the_rest_in_place():
    raters = {
        rater: {one.id: (5, None, 1) if rater == "bob" else (5, 3, 1) for one in ITEMS}
        for rater in ("ann", "bob")
    }
    found = HumanAgreement(ITEMS, said_by(raters)).finding(scores("selfreflect", (0.1, 0.2, 0.3)), [LOWER])
    assert table(found, "Agreement among raters").rows[-1][2] == 1
    assert row(found, "selfreflect")["pairs"] == (24, 24)  # ann has compared them all


def test_missing_values_are_shown_beside_the_pairs_that_raters_decided():
    values = scores("selfreflect", (0.1, None, 0.3))
    found = HumanAgreement(ITEMS, AGREED).finding(values, [LOWER, HIGHER])
    assert row(found, "selfreflect")["pairs"] == (8, 24)
    assert row(found, "length") == {
        "each": (None,) * 3,
        "majority": (None,) * 3,
        "pairs": (0, 24),
    }
    assert "No value for two summaries that raters compared: length." in found.says


def test_identical_summaries_are_left_out():
    items = [item(one.id, summaries={"good": "same", "mid": "same", "bad": "other"}) for one in ITEMS]
    found = HumanAgreement(items, AGREED).finding(scores("selfreflect", (0.1, 0.1, 0.3)), [LOWER])
    assert "pairs left out because both texts are the same: 8." in found.says[0]
    assert row(found, "selfreflect")["majority"][0] == 1
    assert row(found, "selfreflect")["pairs"] == (16, 16)


def test_one_item_has_estimates_without_intervals():
    study = HumanAgreement(ITEMS[:1], AGREED)
    assert [one.id for one in study.items] == ["q1"]
    found = study.finding(scores("selfreflect", (0.1, 0.2, 0.3)), [LOWER])
    assert row(found, "selfreflect")["majority"] == (1, None, None)
    assert found.says[1].endswith("on the order of two summaries (n = 1 items).")
    assert "to agree more often than a coin: selfreflect." in found.says[-1]


def test_only_rated_items_are_measured_and_values_of_others_change_nothing():
    ratings = said_by({rater: {"q1": (5, 3, 1), "q2": (5, 3, 2)} for rater in ("ann", "bob")})
    study = HumanAgreement(ITEMS, ratings)
    assert [one.id for one in study.items] == ["q1", "q2"]
    values = scores("selfreflect", (0.1, 0.2, 0.3))
    control = Value(
        metric="selfreflect", item="q1", summary="control: empty", digest="", by="judge", value=0.9
    )
    rated = scores("selfreflect", (0.1, 0.2, 0.3), ITEMS[:2])
    assert shown(study.finding([*values, control], [LOWER])) == shown(study.finding(rated, [LOWER]))


@pytest.mark.parametrize("ratings", [{"ann": {"q1": (5, None, None)}}, {"ann": {"elsewhere": (5, 3, 1)}}])
def test_ratings_that_compare_nothing_are_refused(ratings):
    with pytest.raises(DataError, match="none of the 8 items has two summaries that a rater compared"):
        HumanAgreement(ITEMS, said_by(ratings))


def test_raters_by_chance_are_not_taken_for_a_standard():
    chance = np.random.default_rng(7)
    ratings = said_by(
        {
            rater: {one.id: tuple(chance.permutation(3).tolist()) for one in ITEMS}
            for rater in ("ann", "bob", "cat")
        }
    )
    found = HumanAgreement(ITEMS, ratings).finding([], [])
    assert "The raters cannot be shown to agree, so agreement with them says little" in found.says[1]


def test_a_file_goes_all_the_way_to_a_table(tmp_path):
    lines = [
        f"{rater},{one.id},{name},{rating}"
        for rater in ("=ann", "bob")
        for one in ITEMS
        for name, rating in zip(NAMES, "531", strict=True)
    ]
    ratings = read_ratings(written(tmp_path, RATING + "\n".join(lines)), ITEMS)
    found = HumanAgreement(ITEMS, ratings).finding(scores("selfreflect", (0.1, 0.2, 0.3)), [LOWER])
    for one in found.tables:
        assert "nan" not in (to_markdown(one) + to_csv(one)).lower()
    assert found.says[0] == "Raters: 2; items: 8; pairs of summaries compared: 24."
