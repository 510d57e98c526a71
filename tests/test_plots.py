"""Figures: what stands beside their axes."""

from __future__ import annotations

import pytest

from selfreflect.plots import Interval, axis_name, intervals_figure


@pytest.mark.parametrize(("percent", "label"), [("%", "50%"), ("", "50"), (None, "0.5")])
def test_shares_are_labelled_as_the_tables_write_them(percent: str | None, label: str) -> None:
    drawn = intervals_figure("tells", [Interval("basic", 0.5, 0.0, 1.1)], "share", "page", percent=percent)
    assert label in drawn
    assert ("%" in drawn.partition("<g")[2]) == (percent == "%")


@pytest.mark.parametrize("name", ["control: question repeated", "sample_and_summarize", "x" * 300])
def test_a_name_beside_an_axis_is_whole_in_two_lines(name: str) -> None:
    text = axis_name(name, "released.csv", " (incomplete)")
    assert text.replace("\n", " ").endswith(" (incomplete)")
    assert max(map(len, text.split("\n"))) <= 28
    assert len(text.split("\n")) <= 2
    if len(name) < 30:
        assert axis_name(name, "released.csv").replace("\n", " ") == f"{name} (released.csv)"
