"""Earlier runs in a real browser: listed, paged, compared, grouped, exported, and judged once more."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import browser
import pytest
from app_page import clean, clean_everywhere, opened, scored
from app_server import ANSWERS, Client, serving
from finished_run import write_run
from synthetic import informed_run, save

from selfreflect.records import (
    AnswerSet,
    Question,
)
from selfreflect.server.library import Meaning
from selfreflect.store.run import Run


def test_a_run_with_information_shows_shares_words_and_controls(chromium: Any, tmp_path: Path) -> None:
    save(informed_run(), tmp_path / "informed")
    with serving(tmp_path, work=lambda job: None) as client, browser.watched(chromium, client.url) as watched:
        opened(watched, client)
        shown = watched.page
        shown.click("#runs a")
        shown.wait_for_selector(".run tbody tr")
        row = shown.locator(".run tbody tr", has_text="What colour, q0?")
        assert [text.split() for text in row.locator("td").all_inner_texts()] == [
            ["60", "%", "0.0700"],
            ["-10", "%", "0.0900"],
        ]
        clean_everywhere(watched)
        row.locator("a").click()
        shown.wait_for_selector("button.word")
        kinds = shown.locator("button.word").evaluate_all("all => all.map(word => word.dataset.kind)")
        assert kinds == ["covered", "missed"]
        assert "recovers more than bad" in shown.inner_text(".beside")
        clean_everywhere(watched)
        shown.get_by_role("radio", name="distance").check()
        shown.locator("button.word").first.click()
        assert "not recorded" in shown.inner_text(".guesses")
        clean(watched)


def test_an_earlier_run_is_opened_compared_and_exported(page: Any, client: Client) -> None:
    run = scored(client, question="Earlier?")
    shown = page.page
    shown.reload()
    shown.click("#runs a:has-text('Earlier?')")
    shown.wait_for_selector("button.word")
    assert run in shown.url
    shown.select_option(".question-panel select", index=2)
    shown.locator(".under").nth(1).wait_for()
    assert shown.locator(".under").count() == 2
    for form, start_of in (("JSON", '{"questions"'), ("CSV", "question_id,")):
        with shown.expect_download() as download:
            shown.click(f"button:has-text('{form}')")
        assert download.value.suggested_filename == f"selfreflect-{run}.{form.lower()}"
        assert Path(download.value.path()).read_text().startswith(start_of)


def test_answers_are_grouped_by_a_rule_or_by_meaning(page: Any, client: Client) -> None:
    run = scored(client, question="Grouped how?")
    shown = page.page
    groups = shown.locator(".groups .what")
    shown.goto(f"{client.url}/#run={run}")
    shown.wait_for_selector("button.word")
    assert sorted(groups.all_inner_texts()) == sorted(ANSWERS)
    assert "No two of 4 answers agree" in shown.locator(".agreement").inner_text()
    shown.get_by_role("radio", name="meaning").check()
    shown.wait_for_selector(".groups li:has-text('2 spellings')")
    assert len(groups.all_inner_texts()) == 3
    assert groups.first.inner_text().startswith(("R", "r"))
    agreement = shown.locator(".agreement").inner_text()
    assert "2 of 4 answers agree" in agreement
    assert "50 %: the share of the largest of 3 groups in 4 answers" in agreement
    assert "not how often it is right" in agreement
    assert page.serious() == []
    shown.reload()
    shown.wait_for_selector(".groups li:has-text('2 spellings')")
    with shown.expect_download() as download:
        shown.click("button:has-text('answers as CSV')")
    line = Path(download.value.path()).read_text().splitlines()[1]
    assert line.casefold().replace('"', "").startswith("1,radishes")
    assert ",2,0.5," in line
    shown.get_by_role("radio", name="rule").check()
    assert groups.count() == 4


def test_two_groups_are_merged_by_hand_and_stay_so(page: Any, client: Client) -> None:
    run = scored(client, question="Merged how?")
    shown = page.page
    groups = shown.locator(".groups > li")
    shown.goto(f"{client.url}/#run={run}")
    button = shown.get_by_role("button", name="Merge checked groups")
    button.wait_for()
    boxes = shown.locator(".groups").get_by_role("checkbox")
    boxes.nth(0).check()
    assert button.is_disabled()
    boxes.nth(1).check()
    button.click()
    shown.wait_for_selector(".groups li:has-text('2 spellings')")
    assert groups.count() == 3
    assert "1 merge by hand" in shown.inner_text(".agreement")
    assert shown.evaluate("document.activeElement.textContent") == "Undo merges"
    assert page.serious() == []
    shown.reload()
    shown.wait_for_selector(".groups li:has-text('2 spellings')")
    shown.get_by_role("button", name="Undo merges").click()
    shown.wait_for_selector(".groups > li:nth-child(4)")


# by default models/test_embedder.py proves the embedding, and a stand-in the page
@pytest.mark.slow
def test_the_real_embedding_groups_what_means_the_same(chromium: Any, tmp_path: Path) -> None:
    with Run.open(tmp_path / "one", {}) as run:
        run.append(Question(id="q", text="Which capital?"))
        answers = ("Paris", "The capital of France is Paris.", "Lyon", "It's Paris.")
        run.append(AnswerSet(question_id="q", masked_out=answers[:2], conditioning=answers[2:]))
    with (
        serving(tmp_path, work=lambda job: None, meaning=Meaning()) as client,
        browser.watched(chromium, client.url) as watched,
    ):
        opened(watched, client)
        watched.page.click("#runs a")
        watched.page.get_by_role("radio", name="meaning").check()
        watched.page.locator(".groups li:has-text('3 spellings')").wait_for()
        assert watched.page.locator(".groups > li").count() == 2
        clean(watched)


def test_without_the_extra_the_page_says_what_to_install(
    chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selfreflect.models.embed._NEEDED", ("not_there",))
    write_run(tmp_path / "one")
    with (
        serving(tmp_path, work=lambda job: None, meaning=Meaning()) as client,
        browser.watched(chromium, client.url) as watched,
    ):
        opened(watched, client)
        watched.page.click("#runs a")
        watched.page.wait_for_selector("button.word")
        assert "pip install '.[embed]'" in watched.page.inner_text(".question-panel")
        assert watched.page.get_by_role("radio", name="meaning").count() == 0
        clean(watched)


def test_a_run_without_guesses_says_so_and_names_no_option(chromium: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "one")
    with serving(tmp_path, work=lambda job: None) as client, browser.watched(chromium, client.url) as watched:
        opened(watched, client)
        watched.page.click("#runs a")
        watched.page.locator("button.word").first.click()
        said = watched.page.inner_text(".guesses")
        assert "not recorded when this summary was scored" in said
        assert "--" not in said
        clean(watched)


def test_all_runs_can_be_reached(chromium: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "0")
    for number in range(1, 90):
        shutil.copytree(tmp_path / "0", tmp_path / str(number))
    with serving(tmp_path, work=lambda job: None) as client, browser.watched(chromium, client.url) as watched:
        opened(watched, client)
        for count in (20, 40, 80, 90):
            watched.page.wait_for_selector(f"#runs > li:nth-child({count})")
            assert watched.page.locator("#runs > li").count() == count
            if count < 90:
                watched.page.click("#more-runs")
        assert watched.page.locator("#more-runs").is_hidden()
        assert len(set(watched.page.locator("#runs a").evaluate_all("all => all.map(a => a.hash)"))) == 90
        clean(watched)


def test_a_judge_is_added_to_a_run_and_chosen(page: Any, client: Client) -> None:
    run = scored(client, question="Who judges?")
    shown = page.page
    shown.emulate_media(color_scheme="dark")
    shown.set_viewport_size({"width": 390, "height": 844})
    shown.goto(f"{client.url}/#run={run}")
    shown.focus(".add-judge summary")
    shown.keyboard.press("Enter")
    shown.keyboard.press("Tab")
    shown.keyboard.type("openai:any")
    shown.keyboard.press("Enter")
    shown.wait_for_selector(".add-judge .problem:has-text('cannot be a judge')")
    shown.fill(".add-judge input", "mistyped")
    shown.press(".add-judge input", "Enter")
    shown.click("text=Back to the run")
    shown.click(".add-judge summary")
    shown.fill(".add-judge input", "second")
    shown.press(".add-judge input", "Enter")
    shown.wait_for_selector(".judges select")
    choices = [text.rpartition("/")[2] for text in shown.locator(".judges option").all_inner_texts()]
    assert choices == ["model (main)", "second"]
    assert "judge=second-" in shown.url
    assert shown.locator(".judges option:checked").inner_text().endswith("second")
    assert shown.locator(".card .score").count() == 2
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.serious() == []
    shown.get_by_role("radio", name="distance").check()
    shown.locator("button.word").first.click()
    shown.locator(".guesses tbody tr").nth(4).wait_for()
    shown.select_option(".judges select", index=0)
    shown.wait_for_url(lambda url: "judge=" not in url)
    page.problems.clear()  # the refused judge


def test_a_run_of_many_questions_is_paged(chromium: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "many", "Which one?", count=120)
    with serving(tmp_path, work=lambda job: None) as client, browser.watched(chromium, client.url) as watched:
        opened(watched, client)
        shown = watched.page
        shown.click("#runs a")
        shown.wait_for_selector(".run tbody tr")
        assert shown.locator(".run table").first.inner_text().count("120 of 120") == 1
        shown.click("a:has-text('later')")
        shown.wait_for_selector(".pages:has-text('51 to 100 of 120')")
        assert watched.serious() == []
        shown.click("a:has-text('Which one? 75')")
        shown.wait_for_selector("button.word")
        assert "Which one? 75" in shown.inner_text(".question h2")
        clean(watched)
