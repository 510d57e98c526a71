"""A run whose right answers are known: how well uncertainty predicts them, and what may be shown."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import browser
import pytest
from app_page import clean, clean_everywhere, opened
from app_server import serving
from hostile import PAYLOADS

from selfreflect.logprobs import AnswerTokens
from selfreflect.records import AnswerSet, Question
from selfreflect.store.run import Run

pytestmark = pytest.mark.usefixtures("quick_figures")

SURE, TORN = (-0.01, -6.0, -7.0), (-1.4, -1.4, -1.4)


def write_labelled(path: Path, questions: int, right: str = "Oslo") -> None:
    """Write a run whose answers are right the more often, the more of them agree."""
    with Run.open(path, {}) as run:
        for number in range(questions):
            share = number % 8
            answers = [right] * share + [f"{PAYLOADS[number % 8]} {place}" for place in range(8 - share)]
            run.append(
                Question(
                    id=f"q{number}", text=f"{PAYLOADS[number % 20]} {number}", gold=(right,) if right else ()
                )
            )
            tokens = [
                AnswerTokens((text[:2], text[2:]), (-0.1, -1.5), None, (SURE, TORN)) for text in answers
            ]
            run.append(
                AnswerSet(
                    question_id=f"q{number}",
                    masked_out=tuple(answers[:4]),
                    conditioning=tuple(answers[4:]),
                    model="tiny",
                    logprobs=tuple(tokens),
                )
            )


def test_the_curve_its_bound_and_one_slider_are_those_of_the_report(chromium: Any, tmp_path: Path) -> None:
    write_labelled(tmp_path / "labelled", 240)
    write_labelled(tmp_path / "unlabelled", 3, right="")
    with serving(tmp_path, work=lambda job: None) as client, browser.watched(chromium, client.url) as watched:
        opened(watched, client)
        shown = watched.page
        shown.click("#runs li:has-text('· unlabelled') a")
        shown.wait_for_selector(".run")
        assert shown.locator(".uncertainty-of").count() == 0
        shown.click("#runs li:has-text('· labelled') a")
        summary = shown.locator(".uncertainty-of > summary")
        assert shown.locator(".uncertainty-part").count() == 0
        summary.focus()
        shown.keyboard.press("Enter")
        panel = shown.locator(".estimator-panel:visible")
        panel.locator("svg").first.wait_for()
        assert panel.count() == 1
        assert panel.locator(".risks input").count() == 1
        sentence = panel.locator(".risk:visible")
        assert sentence.inner_text().startswith("10\xa0%: ")
        panel.locator(".risks input").focus()
        for _ in range(6):
            shown.keyboard.press("ArrowRight")
        assert sentence.inner_text().startswith("30\xa0%: show answers where ")
        assert sentence.count() == 1
        marks = panel.locator("[data-choice]")
        assert marks.count() > 1
        assert (
            marks.locator("xpath=self::*[not(contains(@class, 'faint'))]").get_attribute("data-choice")
            == "0.3"
        )
        chosen = shown.locator("select.estimator option").nth(1).inner_text()
        shown.select_option("select.estimator", label=chosen)
        assert panel.get_attribute("data-estimator") == f"uncertainty-{chosen}"
        assert shown.locator(".shaded-answers .card").count() == 20
        with shown.expect_download() as download:
            panel.get_by_role("button", name="CSV").nth(1).click()
        rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
        assert [row["answered"] for row in rows][-1] == "240"
        clean_everywhere(watched)
        summary.click()
        summary.click()
        assert shown.locator(".uncertainty-part").count() == 1, "it is fetched once"
        clean(watched)
