"""Claims of long answers in a real browser: on a page of their own, and beside a question of a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import browser as b
import pytest
from command import run, written
from hostile import PAYLOADS

FIRST = "The tower was built in 1889 by Gustave Eiffel."
SECOND = "It weighs about 7300 tonnes and is repainted regularly."
ANSWERS = [
    f"{FIRST} {SECOND} {PAYLOADS[0]} \U0001f5fc stands tall there.",
    f"{FIRST} {SECOND} Lightning strikes the tower several times every summer.",
    f"{FIRST.replace('1889', '1898')} Lightning strikes the tower several in summer. {PAYLOADS[1]} fin.",
    f"{FIRST} Nobody lives in the small flat at the top, which has a piano.",
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    summaries = {"good": f"{FIRST} It is an oak.", PAYLOADS[2]: PAYLOADS[3]}
    row = {"question": f"What about the tower? {PAYLOADS[4]}", "answers": ANSWERS, "summaries": summaries}
    return written(tmp_path_factory.mktemp("claims") / "long.json", [row])


def read_claims(page: Any) -> None:
    """Choose the first answer's first claim by keyboard, and then a summary."""
    order = sorted(option.strip() for option in page.locator(".claims option").all_inner_texts())
    assert [name for name in order if name.startswith("answer")] == [f"answer {n}" for n in range(1, 5)]
    for name in ("answer 1", "answer 2", "answer 3", "answer 4"):
        page.get_by_label("Text").select_option(label=name)
        if page.locator(".claim", has_text="built in 1889").count():
            break
    claim = page.get_by_role("button", name="built in 1889")
    assert claim.locator(".count").inner_text().strip() == "3/4"  # legible without colour
    claim.focus()
    page.keyboard.press("Enter")
    assert claim.get_attribute("aria-pressed") == "true"
    detail = page.locator(".claim-detail")
    assert "3 of 4 answers say so" in detail.inner_text()
    assert detail.locator("ul").nth(0).locator("li").count() == 3
    assert "built in 1898" in detail.locator("ul").nth(1).inner_text()
    page.get_by_label("Text").select_option(label="good")
    assert page.get_by_role("button", name="built in 1889").is_visible()
    assert page.get_by_text("It is an oak.", exact=True).last.is_visible()


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)])
def test_a_reader_sees_who_says_a_claim(
    chromium: Any, source: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    page_file = tmp_path / "claims.html"
    assert run("claims", source, "--output", page_file).code == 0
    with b.watched(chromium, page_file.as_uri(), width=width, dark=dark) as watched:
        page = watched.page
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        read_claims(page)
        page.locator(".claims details summary").click()
        assert page.locator(".claims tbody tr").count() >= 5
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert (watched.problems, watched.foreign, watched.serious()) == ([], [], [])


def test_a_report_shows_claims_where_answers_are_long(chromium: Any, source: Path, tmp_path: Path) -> None:
    page_file = tmp_path / "report.html"
    assert run("score", "--items", source, "--measures", "claims", "--output", page_file).code == 0
    with b.watched(chromium, page_file.as_uri()) as watched:
        page = watched.page
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        read_claims(page)
        assert (watched.problems, watched.foreign, watched.serious()) == ([], [], [])


def test_a_report_says_why_it_shows_no_claims(chromium: Any, tmp_path: Path) -> None:
    answers = [" ".join(f"Village {n} has {n} {kind}." for n in range(800)) for kind in ("cows", "sheep")]
    row = {"question": f"What? {PAYLOADS[0]}", "answers": answers, "summary": FIRST}
    page_file = tmp_path / "report.html"
    source = written(tmp_path / "many.json", [row])
    assert run("score", "--items", source, "--measures", "claims", "--output", page_file).code == 0
    with b.watched(chromium, page_file.as_uri()) as watched:
        page = watched.page
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        page.get_by_role("heading", name="Claims, and how many").wait_for()
        assert page.get_by_text("1,600 different claims").is_visible()
        assert (watched.problems, watched.foreign, watched.serious()) == ([], [], [])


def test_a_page_has_a_name_that_ends_in_html(source: Path, tmp_path: Path) -> None:
    assert run("claims", source, "--output", tmp_path / "claims.csv").code == 2
