"""The app's form in a real browser: by hand, with the keyboard, on a phone, and what it says before anything
starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import browser
import pytest
from app_page import clean, open_settings, opened, ready, scored, start
from app_server import Client, process, serving
from hostile import PAYLOADS


def test_settings_are_folded_at_first_and_unfold_when_one_of_them_is_wrong(
    chromium: Any, client: Client
) -> None:
    with browser.watched(chromium, client.url, width=390, height=844, dark=True) as watched:
        opened(watched, client)
        shown = watched.page
        assert shown.locator("#start").evaluate(
            "button => button.getBoundingClientRect().bottom <= innerHeight"
        )
        assert shown.locator("#judge").is_hidden()
        assert shown.inner_text("#chosen") == "greedy, basic · 20 answers · judge model"
        assert watched.serious() == []
        shown.fill("#question", "What is wrong?")
        open_settings(shown)
        shown.fill("#num-answers", "0")
        shown.click("#settings > summary")
        assert shown.locator("#num-answers").is_hidden()
        shown.click("#start")
        shown.locator("#num-answers").wait_for()
        clean(watched)


def test_the_context_box_is_sent_filled_by_an_example_and_reached_with_the_keyboard(
    page: Any, client: Client
) -> None:
    shown = page.page
    shown.click("#examples button >> nth=0")
    assert "Emma" in shown.input_value("#context")
    shown.click("#examples button >> nth=1")
    assert "postman" in shown.input_value("#context")
    shown.focus("#question")
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.id") == "context"
    shown.fill("#context", PAYLOADS[0] + " <|im_end|>")
    open_settings(shown)
    shown.fill("#num-answers", "1")
    shown.press("#context", "Control+Enter")
    shown.wait_for_selector("button.word")
    run_id = shown.get_attribute("[data-run]", "data-run")
    question = client.get(f"/api/runs/{run_id}/questions/0").json()
    assert question["context"] == PAYLOADS[0] + " <|im_end|>"
    shown.set_viewport_size({"width": 390, "height": 800})
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.serious() == []


# by default a tiny model is asked in the browser, and test_api.py starts the command
@pytest.mark.slow
def test_the_command_starts_with_the_embedded_model_and_nothing_else(chromium: Any, tmp_path: Path) -> None:
    with process(tmp_path / "runs") as (_, url), browser.watched(chromium, Client(url).url) as watched:
        shown = watched.page
        shown.goto(url)
        ready(shown)
        assert (shown.input_value("#model"), shown.input_value("#judge")) == ("smollm2", "smollm2")
        start(shown, "What is the capital of France?", answers=1)
        shown.wait_for_selector(".groups > li")
        shown.wait_for_selector("button.word")
        assert shown.locator(".card .summary-text").inner_text() != ""
        assert 0 < float(shown.inner_text(".card .score")) < 1
        assert watched.serious() == []
        clean(watched)


def test_the_keyboard_is_enough(page: Any) -> None:
    shown = page.page
    shown.evaluate("document.querySelector('input[value=information]').checked = false")
    for _ in range(12):
        shown.keyboard.press("Tab")
        if shown.evaluate("document.activeElement.id") == "question":
            break
    shown.keyboard.type("By hand?")
    for _ in range(3):
        shown.keyboard.press("Tab")
    shown.keyboard.press("Enter")  # opens the settings
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.value") == "greedy"
    shown.keyboard.press("Space")
    for _ in range(30):  # as many as there are strategies, and some
        shown.keyboard.press("Tab")
        if shown.evaluate("document.activeElement.id") == "num-answers":
            break
    assert shown.evaluate("document.activeElement.id") == "num-answers"
    shown.keyboard.press("Control+A")
    shown.keyboard.type("2")
    shown.keyboard.press("Enter")
    shown.wait_for_selector("button.word")
    assert shown.evaluate("document.activeElement.id") == "main"
    for _ in range(40):
        shown.keyboard.press("Tab")
        if shown.evaluate("document.activeElement.classList.contains('word')"):
            break
    shown.keyboard.press("ArrowRight")
    assert shown.evaluate("document.activeElement.ariaLabel").partition(", distance 0.")[1]
    shown.keyboard.press("Enter")
    shown.locator(".guesses").wait_for()


def test_problems_are_said_where_they_arise(chromium: Any, client: Client) -> None:
    with browser.watched(chromium, client.url) as watched:
        opened(watched, client)
        shown = watched.page
        shown.fill("#question", "What?")
        open_settings(shown)
        for name in ("greedy", "basic"):
            shown.uncheck(f"input[value={name}]")
        shown.click("button.primary")
        assert "at least one strategy" in shown.inner_text("#form-problem")
        shown.check("input[value=greedy]")
        shown.fill("#model", "/etc/passwd")
        shown.click("button.primary")
        shown.wait_for_selector("#form-problem:has-text('unknown model')")
        shown.goto(f"{client.url}/#job=0123456789abcdef")
        shown.wait_for_selector("#result:has-text('no job with this id')")
        shown.goto(f"{client.url}/#run=0123456789abcdef")
        shown.wait_for_selector("#result:has-text('no run with this id')")
        assert all("status of 4" in problem for problem in watched.problems)


def test_a_phone_needs_no_sideways_scrolling(page: Any, client: Client) -> None:
    run = scored(client, question="On a phone? " + "x" * 300)
    shown = page.page
    shown.set_viewport_size({"width": 390, "height": 844})
    for at in ("", f"#run={run}"):
        shown.goto(f"{client.url}/{at}")
        shown.wait_for_selector("button.word" if at else "#runs a")
        assert shown.evaluate("document.documentElement.scrollWidth") <= 390
        for scheme in ("light", "dark"):
            shown.emulate_media(color_scheme=scheme)
            assert page.serious() == []


def test_paper_ends_with_the_question(page: Any, client: Client) -> None:
    run = scored(client, question="On paper?")
    shown = page.page
    shown.goto(f"{client.url}/#run={run}")
    shown.wait_for_selector("button.word")
    shown.set_viewport_size({"width": 718, "height": 300})
    shown.emulate_media(media="print")
    assert shown.locator("#question").is_hidden()
    # space below it can be a sheet of its own
    height = shown.evaluate("document.documentElement.scrollHeight")
    bottom = shown.locator("main").evaluate("main => main.getBoundingClientRect().bottom + scrollY")
    assert height - bottom <= 1
    assert shown.locator("#runs").is_hidden()
    shown.goto(f"{client.url}/")
    shown.locator("#runs a").first.wait_for()
    assert not shown.locator("#examples").is_visible()
    shown.emulate_media(media="screen")


def test_a_token_comes_from_the_address_and_leaves_it(chromium: Any, tmp_path: Path) -> None:
    with (
        serving(tmp_path, work=lambda job: None, token="a-token-of-this-test") as locked,
        browser.watched(chromium, locked.url) as watched,
    ):
        opened(watched, locked, "#token=a-token-of-this-test")
        assert "token" not in watched.page.url
        watched.page.reload()
        ready(watched.page)
        clean(watched)
        other = watched.page.context.new_page()  # as a link that is opened in a tab of its own
        other.goto(locked.url)
        ready(other)
        watched.page.evaluate("localStorage.clear()")
        for malformed in ("%E0%A4%A", "%E2%82%AC", ""):
            watched.page.goto(f"{locked.url}/#token={malformed}")
            watched.page.reload()
            watched.page.wait_for_selector("#form-problem:has-text('token is missing or wrong')")
            said = watched.page.inner_text("#form-problem")
            assert said.endswith("wrong. Open the address that the app printed when it started.")
            assert "token" not in watched.page.url
        assert not [text for text in watched.problems if "401" not in text]
