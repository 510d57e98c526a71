"""The page on uncertainty, and the section of a report, in a real browser."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import browser as b
import pytest
from command import run, written
from finished_run import write_run
from hostile import PAYLOADS

from selfreflect.records import AnswerSet, Question
from selfreflect.store.run import Run

pytestmark = pytest.mark.usefixtures("quick_figures")

CITIES = ["Paris", "Rome", "Oslo"]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty questions whose share of the right answer varies, two kinds of correctness, and texts that would
    like to run."""
    folder = tmp_path_factory.mktemp("uncertainty")
    rows = [
        {
            "id": f"q{number}",
            "question": PAYLOADS[number % (len(PAYLOADS) - 1)],
            "answers": ["Paris"] * (1 + number % 9) + CITIES[1:] * 2 + [PAYLOADS[number % 20]],
            "gold": "Paris" if number % 4 else "Rome",
            "correct": number % 3 > 0,
        }
        for number in range(40)
    ]
    source = written(folder / "<img src=x onerror=alert(1)> \u202e.json", rows)
    path = folder / "page.html"
    options = ("--estimators", "modal_share,entropy", "--correctness", "exact,human")
    outcome = run("uncertainty", source, *options, "--output", path)
    assert outcome.code == 0, outcome.stderr
    return path


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)])
def test_a_reader_sorts_chooses_and_saves(chromium: Any, page_file: Path, width: int, dark: bool) -> None:
    with b.watched(chromium, page_file.as_uri(), width=width, dark=dark) as watched:
        page = watched.page
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        assert "(exact)" in page.locator("caption").first.inner_text()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("main img, main script").count() == 0
        assert "<img src=x onerror=alert(1)>" in page.locator(".headline").inner_text()
        table = page.locator("table.sortable").first
        heading = table.get_by_role("button", name="auroc", exact=True)
        heading.focus()
        page.keyboard.press("Enter")
        values = table.locator("tbody td:nth-child(3)").all_inner_texts()
        numbers = [float(value) for value in values if value != "–"]
        assert numbers == sorted(numbers, reverse=True)
        assert len(numbers) >= 4
        assert table.locator("th[aria-sort=descending]").inner_text() == "auroc"
        page.keyboard.press("Enter")
        assert table.locator("th[aria-sort=ascending]").inner_text() == "auroc"
        assert table.locator("tr.marked").count() >= 2
        menus = page.locator("select.estimator")
        assert menus.count() == 2
        for name in menus.first.locator("option").all_inner_texts():
            menus.first.select_option(label=name)
            panels = page.locator(".uncertainty-part").first.locator(".estimator-panel:visible")
            assert panels.count() == 1
            assert panels.first.get_attribute("data-estimator") == f"part-0-{name}"
            assert panels.locator("svg").count() == 2
        assert page.locator(".estimator-panel:visible").count() == 2
        risks = panels.locator(".risks")
        sentence = risks.locator(".risk:visible")
        at_ten = sentence.inner_text()
        risks.locator("input").focus()
        page.keyboard.press("ArrowLeft")
        assert sentence.count() == 1
        assert (at_ten[:4], sentence.inner_text()[:3]) == ("10\xa0%", "5\xa0%")
        with page.expect_download() as download:
            panels.get_by_role("button", name="CSV").first.click()
        text = Path(download.value.path()).read_text(encoding="utf-8")
        assert sum(int(row["n"]) for row in csv.DictReader(io.StringIO(text))) in (40, 80)
        assert watched.serious() == []
        assert (watched.problems, watched.foreign) == ([], [])


def test_unsure_words_are_marked_without_colour_or_mouse(chromium: Any, tmp_path: Path) -> None:
    hostile = PAYLOADS[0]
    sure, torn = [-0.01, -6.0, -7.0, -8.0], [-1.4, -1.4, -1.45, -1.5]
    rows = [
        {
            "question": f"{hostile} {number}",
            "answers": [f"It is {hostile} here"],
            "tokens": [["It", " is", f" {hostile[:3]}", hostile[3:], " here"]],
            "logprobs": [[-0.01, -0.01, -0.01, -1.4, -3.0]],
            "top_logprobs": [[sure, sure, sure, torn, sure]],
            "correct": number > 5,
        }
        for number in range(12)
    ]
    path = tmp_path / "page.html"
    outcome = run("uncertainty", written(tmp_path / "a.json", rows), "--output", path)
    assert outcome.code == 0, outcome.stderr
    with b.watched(chromium, path.as_uri(), width=390, dark=True) as watched:
        page = watched.page
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        card = page.locator(".shaded-answers .card").first
        shown = card.locator("p.shaded:visible")
        marked = shown.locator("span")
        assert shown.inner_text() == f"It is {hostile} here"
        assert marked.all_inner_texts() == [f" {hostile}"]
        lines = {
            page.locator(f".about .unsure-{level}").evaluate(
                "one => getComputedStyle(one).textDecorationStyle"
            )
            for level in (1, 2, 3)
        }
        assert lines == {"dotted", "dashed", "solid"}
        card.locator("summary").focus()
        page.keyboard.press("Enter")
        numbers = card.locator("tbody tr").nth(2).locator("td").all_inner_texts()
        assert numbers[:3] == [hostile, "0.244", "1.385"]
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert watched.serious() == []
        assert (watched.problems, watched.foreign) == ([], [])


def test_without_a_script_every_figure_is_shown(chromium: Any, page_file: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_file.as_uri())
    assert page.locator(".estimator-panel:visible").count() == 4
    assert page.locator("select.estimator:visible").count() == 0
    context.close()


def test_a_report_has_the_section_if_right_answers_are_known(chromium: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    plain = tmp_path / "plain.html"
    assert run("report", folder, "--output", plain, "--groups", "spelling").code == 0
    assert 'id="uncertainty"' not in plain.read_text(encoding="utf-8")
    with Run.open(folder, {}) as records:
        for number in range(12):
            answers = ("Paris",) * (1 + number % 3) + ("Rome",)
            gold = "Paris" if number % 2 else "Oslo"
            records.append(Question(id=f"gold{number}", text=f"Where is {number}?", gold=(gold,)))
            records.append(
                AnswerSet(question_id=f"gold{number}", masked_out=answers, conditioning=answers, model="tiny")
            )
    path = tmp_path / "report.html"
    assert run("report", folder, "--output", path, "--groups", "spelling").code == 0
    with b.watched(chromium, path.as_uri(), width=390) as watched:
        page = watched.page
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        page.get_by_role("link", name="Uncertainty").click()
        section = page.locator("#uncertainty")
        assert "right in 50\xa0% of 12 answers" in section.inner_text()
        assert "(contains)" in section.locator("caption").first.inner_text()
        section.locator("select.estimator").select_option(label="entropy")
        assert section.locator(".estimator-panel:visible svg").count() == 2
        assert page.locator(".list a").count() == 13
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert watched.serious() == []
        assert (watched.problems, watched.foreign) == ([], [])
