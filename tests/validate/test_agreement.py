"""Studies ``raters`` and ``judges``: ratings from a CSV, alpha of worked examples, and made-up judges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from studies import made_value, table

from selfreflect.errors import ConfigError, DataError
from selfreflect.sources.items import Item
from selfreflect.validate.agreement import (
    HumanAgreement,
    JudgeAgreement,
    Ratings,
    alpha_estimate,
    order_units,
    paired_units,
    rating_units,
    read_ratings,
    summary_orders,
)
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.statistics import kendall
from selfreflect.validate.study import Finding


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
        orders={"ann": {("q1", "bad", "good"): -1}, "bob": {}, "cat": {}},
        rated={"ann": {("q1", "good"): 5.0, ("q1", "bad"): 1.5}, "bob": {("q1", "bad"): -2.0}, "cat": {}},
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
    ("text", "where"),
    [
        (RATING + "ann,q1,good,four", "line 2"),
        (RATING + "ann,q1,good,4\nann,q1,bad,nan", "line 3"),
        (RATING + 'ann,q1,good,"4,5"', "'4,5'"),
        (RATING + ",q1,good,4", "'rater'"),
        (RATING + "ann,,good,4", "'item'"),
        (RATING + "ann,q1,,4", "'summary'"),
        (RATING + "ann,q1,good", "line 2"),
        (RATING, "no records"),
        (RATING + "ann,q1,good,\nbob,q1,bad, ", "all ratings are blank"),
        (RATING + "ann,q1,good,1\nann,q1,bad,2\nann,q1,good,1", "line 4.*line 2"),
        (RATING + "ann,q1,good,1\nann,p1,good,1", "line 3.*'p1'"),
        (RATING + "ann,q1,good,1\nann,q2,best,1", "line 3.*'q2'.*'best'"),
        ("rater,item,summary\nann,q1,good", "columns"),
        ("rater,item,summary,preferred\nann,q1,good,good", "'preferred'"),
        ("rater,item,summary,other,rating,preferred\nann,q1,good,bad,4,good", "columns"),
        (PAIRWISE + "ann,q1,good,bad,mid", "line 2.*'mid'"),
        (PAIRWISE + "ann,q1,good,good,good", "line 2.*'good'"),
        (PAIRWISE + "ann,q1,good,bad,good\nann,q1,bad,good,good", "line 3.*line 2"),
        (PAIRWISE + "ann,q1,good,best,good", "line 2.*'best'"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_its_place(tmp_path, text, where):
    with pytest.raises(DataError, match=f"ratings.csv.*{where}"):
        read_ratings(written(tmp_path, text), ITEMS)


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


@pytest.mark.parametrize(("observers", "expected"), [(FOUR_OBSERVERS, 0.849), (THREE_CODERS, 0.811)])
def test_alpha_of_worked_examples_with_missing_ratings(observers, expected):
    found = alpha_estimate(rating_units(rated(observers)))
    assert found.mean == pytest.approx(expected, abs=5e-4)
    assert found.n < found.total  # items that fewer than two have rated do not count
    assert found.low < found.mean <= found.high <= 1


@pytest.mark.parametrize(
    "observers",
    [((1, 2, 3),), ((1, 1, 1), (1, 1, 1)), ((1, _, 2), (_, 1, _)), ((1, _, 2), (1, _, _))],
    ids=["one rater", "all the same", "no unit in common", "one unit in common, the same"],
)
def test_alpha_is_undefined_where_nothing_tells_agreement_from_chance(observers):
    found = alpha_estimate(rating_units(rated(observers)))
    assert (found.mean, found.low, found.high) == (None, None, None)


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
    found = alpha_estimate(order_units(orders_of([one, other]))).mean
    expected = 1 - (1 - tau) * (2 * units - 1) / (2 * units)
    assert found == pytest.approx(expected)


def test_agreement_with_raters_one_at_a_time_is_not_thinned_by_their_number():
    truth, wrong = [(3, 2, 1)] * 6, [(1, 2, 3)] * 6
    [metric, *raters] = orders_of([wrong, *[truth] * 9])
    each = alpha_estimate(paired_units(metric, raters)).mean
    joined = alpha_estimate(order_units([*raters, metric])).mean
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
    return Ratings(orders, found)


def scores(metric, numbers, items=ITEMS, by="judge"):
    values = []
    for one in items:
        for name, number in zip(NAMES, numbers, strict=True):
            values.append(made_value(metric, one.id, name, number, by))
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


def test_missing_values_are_shown_beside_the_pairs_that_raters_decided():
    values = scores("selfreflect", (0.1, None, 0.3))
    found = HumanAgreement(ITEMS, AGREED).finding(values, [LOWER, HIGHER])
    assert row(found, "selfreflect")["pairs"] == (8, 24)
    assert row(found, "length") == {"each": (None,) * 3, "majority": (None,) * 3, "pairs": (0, 24)}


@pytest.mark.parametrize("ratings", [{"ann": {"q1": (5, None, None)}}, {"ann": {"elsewhere": (5, 3, 1)}}])
def test_ratings_that_compare_nothing_are_refused(ratings):
    with pytest.raises(DataError) as caught:
        HumanAgreement(ITEMS, said_by(ratings))
    assert caught.value.code == "nothing_compared"


JUDGED = MetricInfo(
    name="selfreflect", better="lower", group="selfreflect", about="made up", needs=("judge",)
)
STRATEGIES = ("greedy", "basic", "cot", "sampled")


def judged_items(n: int, names: tuple[str, ...] = STRATEGIES) -> list[Item]:
    texts = {name: name for name in names}
    return [
        Item(id=f"i{number}", question="Why?", masked_out=("x",), conditioning=("y",), summaries=texts)
        for number in range(n)
    ]


def value_by(item: Item, summary: str, by: str, number: float | None, metric: MetricInfo = JUDGED) -> Value:
    return made_value(metric.name, item.id, summary, number, by)


def agreement_of(made: list[Item], **judges) -> Finding:
    values = [
        value_by(item, name, by, score(number, place))
        for by, score in judges.items()
        for number, item in enumerate(made)
        for place, name in enumerate(item.summaries)
    ]
    return JudgeAgreement(made).finding(values, [JUDGED])


def judge_rows(found: Finding) -> list[dict[str, object]]:
    """One for each two judges, of all three tables on how they agree."""
    made = []
    for cells in zip(*(one.rows for one in found.tables[:3]), strict=True):
        row: dict[str, object] = {"judge": cells[0][1], "other judge": cells[0][2]}
        assert {of[:3] for of in cells} == {cells[0][:3]}
        for name, n, of in zip(
            ("names", "summaries", "same order"), ("n names", "n summaries", "items"), cells, strict=True
        ):
            row |= dict(zip((name, f"{name} low", f"{name} high", n), of[3:], strict=True))
        made.append(row)
    return made


def rule(number: int, place: int) -> float:
    return 0.1 * place + 0.01 * (number * 7 % 5)


def test_a_judge_agrees_with_a_rescaled_copy_of_itself():
    (row,) = judge_rows(
        agreement_of(judged_items(10), a=rule, b=lambda number, place: 3 * rule(number, place) + 1)
    )
    assert (row["judge"], row["other judge"]) == ("a", "b")
    assert (row["names"], row["n names"], row["n summaries"], row["items"]) == (pytest.approx(1), 4, 40, 10)
    assert row["summaries"] == pytest.approx(1)
    assert row["same order"] == 1
    assert row["same order low"] == pytest.approx(0.025 ** (1 / 10))


def test_metrics_by_one_judge_are_named_and_left_out():
    other = MetricInfo(name="length", better="higher", group="control", about="made up")
    made = judged_items(6)
    values = [
        value_by(item, name, by, rule(0, place))
        for by in "ab"
        for item in made
        for place, name in enumerate(item.summaries)
    ]
    values += [value_by(item, name, "", 1.0, other) for item in made for name in item.summaries]
    found = JudgeAgreement(made).finding(values, [JUDGED, other])
    assert {row[0] for table in found.tables for row in table.rows} == {"selfreflect"}
    assert "Left out, because fewer than two judges computed them: length." in found.says


def test_one_judge_or_metrics_without_a_model_cannot_be_compared():
    one_item, elsewhere = judged_items(2)[0], judged_items(9)[3:]
    for values in (
        [value_by(one_item, "greedy", "a", 1.0)],
        [value_by(one_item, "greedy", "", 1.0)],
        [value_by(one_item, "greedy", by, 1.0) for by in ("", "a")],
        [value_by(item, "greedy", by, 1.0) for item in elsewhere for by in "ab"],
    ):
        with pytest.raises(ConfigError) as caught:
            JudgeAgreement(judged_items(2)).finding(values, [JUDGED])
        assert caught.value.code == "one_judge"
