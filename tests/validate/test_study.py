"""What studies share: tables from rows, values by metric, and numbers in words."""

from __future__ import annotations

import pytest

from selfreflect.errors import ConfigError
from selfreflect.stats import Estimate
from selfreflect.table import to_csv
from selfreflect.text import counted, listed
from selfreflect.validate.base import Undefined, Value
from selfreflect.validate.study import Finding, Layout, interval, values_by_metric, with_interval

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
    table = Layout("t", ".1%", ("a note",), {"p": ".2g"}).table(rows)
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
    assert to_csv(Layout("t", "").table([])) == "\r\n"


def test_values_are_sorted_by_metric_and_undefined_ones_left_out():
    values = [value("a", "x"), value("b", "", 2.0), value("c", "x", None)]
    assert values_by_metric(values) == {"a": {("i", "s"): 1.0}, "b": {("i", "s"): 2.0}}


def test_two_models_of_one_metric_are_refused():
    values = [value("a", "x"), value("b", "y"), value("a", "z")]
    with pytest.raises(ConfigError, match="a has values by 'x' and by 'z'"):
        values_by_metric(values)


def test_only_estimates_with_a_mean_become_dots():
    finding = Finding("s")
    finding.draw_dots("p", "title", "label", [("a", NOTHING), ("b", ALONE), ("c", SURE)], against=0.5)
    finding.draw_dots("q", "title", "label", [("a", NOTHING)], against=0.5)
    [plot] = finding.plots
    assert [(curve.label, curve.x, curve.low) for curve in plot.curves] == [
        ("b", (1.0,), ()),
        ("c", (2.0,), (0.25,)),
    ]


def test_tables_without_rows_are_shown_only_if_the_study_names_them():
    always, sometimes, never = (Layout(title, "") for title in ("always", "sometimes", "never"))
    finding = Finding("s", always)
    finding.add(sometimes, {"n": 1}, {"n": 2})
    tables = finding.tables
    assert never.title not in [table.title for table in tables]
    assert [(table.title, len(table.rows)) for table in tables] == [("always", 0), ("sometimes", 2)]


def test_numbers_and_names_in_words():
    assert [with_interval(each, ".0%") for each in (SURE, ALONE, NOTHING)] == [
        "50% [25%, 75%]",
        "50%",
        "undefined",
    ]
    assert [counted(number, "item") for number in (0, 1, 2)] == ["0 items", "1 item", "2 items"]
    assert [listed(list(names)) for names in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]


def test_sentences_name_what_there_is():
    finding = Finding("s")
    finding.list_names("These fail:", ["{}", "b"])
    finding.list_names("Those:", [])
    finding.tally({"Pairs": 9, "ties": 0, "items": 3})
    finding.give_verdicts({"a": 1, "b": None, "c": 1}, {1: "Good", -1: "Bad", None: "Unknown"})
    assert finding.says == [
        "These fail: {} and b.",
        "Pairs: 9; items: 3.",
        "Good: a and c.",
        "Unknown: b.",
    ]
