"""What studies share: tables from rows, values by metric, and numbers in words."""

from __future__ import annotations

import pytest

from selfreflect.errors import ConfigError
from selfreflect.render.table import to_csv
from selfreflect.stats import Estimate
from selfreflect.validate.base import Undefined, Value
from selfreflect.validate.study import (
    counted,
    dot_plot,
    interval,
    joined,
    listing,
    make_table,
    tallied,
    values_by_metric,
    with_interval,
)

SURE = Estimate(0.5, 0.25, 0.75, 8, 8)
ALONE = Estimate(0.5, None, None, 1, 1)
NOTHING = Estimate(None, None, None, 0, 0)


def value(metric: str, by: str, number: float | None = 1.0) -> Value:
    why = Undefined(reason="blank", message="nothing") if number is None else None
    return Value(metric=metric, item="i", summary="s", digest="", by=by, value=number, undefined=why)


def test_a_table_takes_its_columns_from_its_rows():
    rows = [
        {"metric": "m", **interval("rate", SURE), "n": 8, "p": 0.01},
        {"metric": "o", **interval("rate", NOTHING), "n": 0, "p": None},
    ]
    table = make_table("t", rows, ".1%", ("a note",), {"p": ".2g"})
    assert {column.heading: column.form for column in table.columns} == {
        "metric": "",
        "rate": ".1%",
        "95% low": ".1%",
        "95% high": ".1%",
        "n": "d",
        "p": ".2g",
    }
    assert to_csv(table).splitlines()[1:] == ["m,0.5,0.25,0.75,8,0.01", "o,,,,0,"]


def test_a_table_without_rows_renders():
    assert to_csv(make_table("t", [], "", ())) == "\r\n"


def test_values_are_sorted_by_metric_and_undefined_ones_left_out():
    values = [value("a", "x"), value("b", "", 2.0), value("c", "x", None)]
    assert values_by_metric(values) == {"a": {("i", "s"): 1.0}, "b": {("i", "s"): 2.0}}


def test_two_models_of_one_metric_are_refused():
    values = [value("a", "x"), value("b", "y"), value("a", "z")]
    with pytest.raises(ConfigError, match="a has values by 'x' and by 'z'"):
        values_by_metric(values)


def test_only_estimates_with_a_mean_become_dots():
    [plot] = dot_plot("p", "title", "label", [("a", NOTHING), ("b", ALONE), ("c", SURE)], against=0.5)
    assert [(curve.label, curve.x, curve.low) for curve in plot.curves] == [
        ("b", (1.0,), ()),
        ("c", (2.0,), (0.25,)),
    ]
    assert dot_plot("p", "title", "label", [("a", NOTHING)], against=0.5) == ()


def test_numbers_and_names_in_words():
    assert [with_interval(each, ".0%") for each in (SURE, ALONE, NOTHING)] == [
        "50% [25%, 75%]",
        "50%",
        "undefined",
    ]
    assert [counted(number, "item") for number in (0, 1, 2)] == ["0 items", "1 item", "2 items"]
    assert [joined(list(names)) for names in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]
    assert [*listing("These fail:", ["{}", "b"]), *listing("Those:", [])] == ["These fail: {} and b."]
    assert tallied({"Pairs": 9, "ties": 0, "items": 3}) == "Pairs: 9; items: 3."
