"""Jobs in a real browser: what is shown while they run, stopping, reloading, and many tabs."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import browser
from app_page import clean, opened, start
from app_server import Client, serving

from selfreflect.server.jobs import Job


def test_a_question_is_asked_and_everything_about_it_is_shown(page: Any) -> None:
    shown = page.page
    start(shown, "What should I plant first?", answers=3, strategies=("greedy", "sample_and_summarize"))
    shown.wait_for_selector(".groups > li")
    shown.wait_for_selector("button.word")
    assert "What should I plant first?" in shown.inner_text("h2 >> nth=1")
    assert shown.locator(".card").count() == 2
    assert all(float(text) > 0 for text in shown.locator(".card .score").all_inner_texts())
    colours = {
        shown.evaluate("e => getComputedStyle(e).backgroundColor", word)
        for word in shown.query_selector_all("button.word")[:40]
    }
    assert len(colours) > 3
    shown.locator("#runs a", has_text="What should I plant first?").wait_for()
    shown.locator("button.word").first.click()
    shown.locator(".guesses tbody tr").nth(4).wait_for()
    assert page.serious() == []


def test_a_reload_in_the_middle_finds_the_job_again_and_it_can_be_stopped(
    chromium: Any, model: Path, tmp_path: Path
) -> None:
    def work(job: Job) -> None:
        job.show_answers(["Rome", "Lyon"])
        while True:
            job.check()
            time.sleep(0.01)

    with (
        serving(tmp_path, model=model, work=work) as client,
        browser.watched(chromium, client.url) as watched,
    ):
        opened(watched, client)
        shown = watched.page
        start(shown, "Something long?")
        shown.wait_for_selector(".groups > li")
        shown.wait_for_selector("#queue a")
        shown.reload()
        shown.wait_for_selector(".groups > li")
        assert "Something long?" in shown.inner_text(".live h2")
        shown.click(".live button:has-text('Stop')")
        shown.wait_for_selector(".live .line:has-text('Stopped')")
        assert shown.locator(".groups > li").count() == 2
        assert shown.locator(".live button:has-text('Stop')").is_hidden()
        shown.reload()
        shown.wait_for_selector(".live .line:has-text('Stopped')")
        clean(watched)


def test_many_tabs_follow_a_job_and_the_last_one_can_stop_it(
    chromium: Any, model: Path, tmp_path: Path
) -> None:
    """A browser opens six connections to a server. If every tab held one, the seventh would load nothing."""

    def work(job: Job) -> None:
        while True:
            job.check()
            time.sleep(0.01)

    with (
        serving(tmp_path, model=model, work=work) as client,
        browser.watched(chromium, client.url) as watched,
    ):
        job = client.ask("Something long?")
        tabs = [watched.page, *(watched.page.context.new_page() for _ in range(6))]
        for tab in tabs:  # which load at the same time
            tab.goto(f"{client.url}/#job={job}", wait_until="commit")
        for tab in tabs:
            tab.wait_for_selector(".live h2:has-text('Something long?')")
        tabs[-1].click(".live button:has-text('Stop')")
        for tab in tabs:
            tab.wait_for_selector(".live .line:has-text('Stopped')")
        clean(watched)


def test_a_second_question_waits_and_says_so(page: Any, client: Client) -> None:
    first = client.ask("A long one?", num_answers=200)
    start(page.page, "The next?")
    page.page.wait_for_selector(".live .line:has-text('Waiting for 1 other question')")
    client.post(f"/api/jobs/{first}/cancel")
    page.page.wait_for_selector("button.word")


def test_what_a_summary_tells_is_asked_for_and_shown(page: Any, client: Client) -> None:
    shown = page.page
    shown.fill("#context", "Anna says red. Tom says blue.")
    start(shown, "What colour?", measures=("information",))
    shown.wait_for_selector(".question .sentence")
    run = shown.get_attribute(".question", "data-run")
    [summary] = client.get(f"/api/runs/{run}/questions/0").json()["summaries"]
    assert shown.inner_text(".sentence").replace("\xa0", " ") == summary["information"]["sentence"]
    assert summary["information"]["reader"] == "informed"  # the context is news to the judge
    assert "Anna says red. Tom says blue." in shown.inner_text(".context")
    assert shown.locator(".card .score").count() == 1


def test_sentences_appear_while_a_job_runs(chromium: Any, model: Path, tmp_path: Path) -> None:
    go = threading.Event()
    said = {"sentence": "greedy tells 56 %.", "reader": "informed", "recovered": 0.56, "interval": [0.4, 0.7]}

    def work(job: Job) -> None:
        warnings = ["The limit of tokens <b>cut</b> this summary off."]
        information = {"bits": 2.0, "available": 4.0, "undefined": None, **said}
        summary = {"name": "greedy", "text": "Red or blue.", "warnings": warnings, "information": information}
        job.show(summaries=[summary])
        assert go.wait(200)

    with (
        serving(tmp_path, model=model, work=work) as client,
        browser.watched(chromium, client.url) as watched,
    ):
        opened(watched, client)
        start(watched.page, "What colour?")
        watched.page.wait_for_selector(".live .sentence:has-text('greedy tells 56 %.')")
        assert watched.page.inner_text(".card .score") == "56\xa0%"
        assert "tokens <b>cut</b> this" in watched.page.inner_text(".card .warning")
        go.set()
        watched.page.wait_for_selector(".live .line:has-text('Done')")
        clean(watched)


def test_a_failed_question_is_marked_in_the_list_and_has_nothing_to_export(page: Any, client: Client) -> None:
    job = client.finished(client.ask("Who fails?", model="nobody/no-such-model", judge="model"))
    shown = page.page
    shown.goto(f"{client.url}/#job={job['id']}")
    box = shown.locator("#main .problem").first
    box.wait_for()
    assert "'nobody/no-such-model'" in box.inner_text()
    shown.reload()
    entry = shown.locator("#runs > li", has_text="Who fails?")
    entry.locator(".tag.lacks", has_text="failed: no answers").wait_for()
    assert box.evaluate("box => box.getBoundingClientRect().top >= 0")
    assert shown.locator(".question .exports").count() == 0
