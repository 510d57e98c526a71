"""Two versions of a system on one page, and the page of one question, in a real browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import browser as b
import pytest
from measured import measured_run

from selfreflect.report.page.build import report_page, worse_lists
from selfreflect.report.run_records import RunRecords

OLD = [9.0, 5.0, 8.0, None, 6.0, 7.0]
NEW = [2.0, 5.0, 9.0, None, 5.0, 7.0]
"""Bits of the replies to six questions, of 10 that there are; None where the judge knows the answers."""


def version(label: str, bits: list[float | None]) -> RunRecords:
    run = measured_run({"summary": bits}, label=label)
    return replace(run, manifest={"config": {"scores": {}}})


@pytest.fixture(scope="module")
def runs() -> list[RunRecords]:
    return [version("old.csv", OLD), version("new.csv", NEW)]


def opened(path: Path, text: str, browser: Any) -> Any:
    path.write_text(text, encoding="utf-8")
    return b.watched(browser, path.as_uri())


def test_what_got_worse_comes_first_and_leads_to_both_replies(runs: list[RunRecords], tmp_path: Path) -> None:
    [worse] = worse_lists(runs)
    assert [row[0] for row in worse["rows"]] == ["#r1q0", "#r1q4"]
    assert [row[2:5] for row in worse["rows"]] == [
        ["90 %", "20 %", "-70.0 points"],
        ["60 %", "50 %", "-10.0 points"],
    ]
    page_file = tmp_path / "page.html"
    text = report_page([[run] for run in runs])
    with b.chromium() as browser, opened(page_file, text, browser) as watched:
        page = watched.page
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        assert page.locator(".list thead th").all_inner_texts()[-3:] == [
            "old.csv",
            "new.csv",
            "new.csv − old.csv",
        ]
        first = page.locator(".list tbody tr").first.inner_text()
        assert "20\xa0%" in first, "the lowest of the newest version, though the older one is at 90 %"
        last = page.locator(".list tbody tr").last
        assert last.locator(".quiet").first.inner_text() == "known"
        assert page.evaluate(
            "document.querySelector('#questions').offsetTop < document.querySelector('#overview').offsetTop"
        )
        assert page.locator("svg text", has_text="nonsense").count() == 1, "equal controls are drawn once"
        page.locator(".worse a").first.click()
        page.locator(".question-panel").wait_for()
        assert page.locator(".card .score").all_inner_texts() == ["90\xa0%", "20\xa0%"]
        assert not page.locator(".worse").is_visible()
        assert (watched.problems, watched.foreign) == ([], [])


def test_a_question_has_a_page_of_its_own(runs: list[RunRecords], tmp_path: Path) -> None:
    page_file = tmp_path / "one.html"
    text = report_page([[run.only("q2")] for run in runs])
    with b.chromium() as browser, opened(page_file, text, browser) as watched:
        page = watched.page
        page.set_viewport_size({"width": 390, "height": 800})
        page.goto(page_file.as_uri())
        page.locator(".question-panel").wait_for()
        assert page.locator(".card .score").all_inner_texts() == ["90\xa0%", "80\xa0%"]
        assert "0\xa0%" in page.locator(".reading").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert watched.serious() == []
