"""Figures: what stands beside their axes."""

from __future__ import annotations

import pytest

from selfreflect.plots import Interval, intervals_figure


@pytest.mark.parametrize(("percent", "label"), [("%", "50%"), ("", "50"), (None, "0.5")])
def test_shares_are_labelled_as_the_tables_write_them(percent: str | None, label: str) -> None:
    drawn = intervals_figure("tells", [Interval("basic", 0.5, 0.0, 1.1)], "share", "page", percent=percent)
    assert label in drawn
    assert ("%" in drawn.partition("<g")[2]) == (percent == "%")
