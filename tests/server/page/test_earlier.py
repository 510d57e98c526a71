"""Earlier runs in a real browser: listed, paged, compared, grouped, exported, and judged once more."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import browser
from app_page import clean, clean_everywhere, opened, scored
from app_server import ANSWERS, Client, serving
from finished_run import write_run
from synthetic import informed_run, save


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
    with shown.expect_download() as download:
        shown.click("button:has-text('answers as CSV')")
    assert len(Path(download.value.path()).read_text().splitlines()) == 1 + len(ANSWERS)


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
