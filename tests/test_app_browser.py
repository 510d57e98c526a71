"""The page in a real browser: asking, stopping, reloading, the keyboard, a phone, and text that would like to be code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import browser
import tiny
from app_server import ANSWERS, Client, process, serving
from hostile import PAYLOADS
from selfreflect.records import AnswerSet, Question, Score, Summary, WordDistance
from selfreflect.store import Run
from test_app_library import made

RADISHES = {
    "question": "What first?",
    "judge": "model",
    "answers": ANSWERS,
    "summaries": {"good": "Radishes or lettuce.", "bad": "Not clear."},
}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    import torch

    torch.set_num_threads(1)
    model = tiny.save(tmp_path_factory.mktemp("models") / "model", "llama")
    with serving(tmp_path_factory.mktemp("root"), model=model) as served:
        yield served


@pytest.fixture
def page(chromium: Any, client: Client) -> Iterator[Any]:
    with browser.watched(chromium, client.url) as watched:
        opened(watched, client)
        yield watched
        clean(watched)


def opened(watched: Any, client: Client, at: str = "") -> None:
    watched.page.goto(f"{client.url}/{at}")
    watched.page.wait_for_selector("input[name=strategy]")


def clean(watched: Any) -> None:
    assert watched.problems == []
    assert watched.foreign == []


def start(page: Any, question: str, *, answers: int = 2) -> None:
    page.fill("#question", question)
    page.check("input[value=greedy]")
    page.fill("#num-answers", str(answers))
    page.click("button.primary")


def scored(client: Client, **changes: Any) -> str:
    """The run of summaries that were scored."""
    answer = client.post("/api/score", json={**RADISHES, **changes})
    assert answer.status_code == 202, answer.text
    job = client.finished(answer.json()["id"])
    assert job["status"] == "done", job
    return str(job["run"])


def test_a_question_is_asked_and_everything_about_it_is_shown(page: Any) -> None:
    shown = page.page
    start(shown, "What should I plant first?", answers=3)
    shown.wait_for_selector(".groups > li")
    shown.wait_for_selector("button.word", timeout=60_000)
    assert "What should I plant first?" in shown.inner_text("h2 >> nth=1")
    assert shown.locator(".card").count() == 2
    assert all(float(text) > 0 for text in shown.locator(".card .score").all_inner_texts())
    colours = {shown.evaluate("e => getComputedStyle(e).backgroundColor", word) for word in shown.query_selector_all("button.word")[:40]}
    assert len(colours) > 3
    assert shown.locator("#runs a", has_text="What should I plant first?").count() == 1
    shown.locator("button.word").first.click()
    assert shown.locator(".guesses tbody tr").count() >= 5
    assert page.serious() == []


def test_the_command_starts_with_the_embedded_model_and_nothing_else(chromium: Any, tmp_path: Path) -> None:
    with process(tmp_path / "runs") as (_, url), browser.watched(chromium, url) as watched:
        shown = watched.page
        shown.goto(url)
        shown.wait_for_selector("input[name=strategy]")
        assert (shown.input_value("#model"), shown.input_value("#judge")) == ("smollm2", "smollm2")
        shown.fill("#question", "Which planet has the most moons?")
        shown.fill("#num-answers", "2")
        shown.press("#question", "Control+Enter")
        shown.wait_for_selector(".groups > li", timeout=120_000)
        shown.wait_for_selector("button.word", timeout=120_000)
        assert shown.locator(".card .summary-text").inner_text() != ""
        assert 0 < float(shown.inner_text(".card .score")) < 1
        assert watched.serious() == []
        clean(watched)


def test_a_reload_in_the_middle_finds_the_job_again_and_it_can_be_stopped(page: Any, client: Client) -> None:
    shown = page.page
    start(shown, "Something long?", answers=200)
    shown.wait_for_selector(".groups > li")
    shown.wait_for_selector("#queue a")
    before = len(client.events(shown.url.partition("job=")[2][:16], limit=6))
    assert before == 6
    shown.reload()
    shown.wait_for_selector(".groups > li")
    assert "Something long?" in shown.inner_text(".live h2")
    shown.click(".live button:has-text('Stop')")
    shown.wait_for_selector(".live .line:has-text('Stopped')")
    assert shown.locator(".groups > li").count() > 0
    assert shown.locator(".live button:has-text('Stop')").is_hidden()
    shown.reload()
    shown.wait_for_selector(".live .line:has-text('Stopped')")


def test_a_second_question_waits_and_says_so(page: Any, client: Client) -> None:
    first = client.ask("A long one?", num_answers=200)
    start(page.page, "The next?")
    page.page.wait_for_selector(".live .line:has-text('Waiting for 1 other question')")
    client.post(f"/api/jobs/{first}/cancel")
    page.page.wait_for_selector("button.word", timeout=60_000)


def test_the_keyboard_is_enough(page: Any) -> None:
    shown = page.page
    for _ in range(12):
        shown.keyboard.press("Tab")
        if shown.evaluate("document.activeElement.id") == "question":
            break
    shown.keyboard.type("By hand?")
    for _ in range(3):
        shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.value") == "greedy"
    shown.keyboard.press("Space")
    for _ in range(6):
        shown.keyboard.press("Tab")
    shown.keyboard.press("Control+A")
    shown.keyboard.type("2")
    shown.keyboard.press("Enter")
    shown.wait_for_selector("button.word", timeout=60_000)
    assert shown.evaluate("document.activeElement.id") == "main"
    for _ in range(40):
        shown.keyboard.press("Tab")
        if shown.evaluate("document.activeElement.classList.contains('word')"):
            break
    shown.keyboard.press("ArrowRight")
    assert shown.evaluate("document.activeElement.ariaLabel").partition(", distance 0.")[1]
    shown.keyboard.press("Enter")
    assert shown.locator(".guesses").count() == 1


def test_an_earlier_run_is_opened_compared_and_exported(page: Any, client: Client) -> None:
    run = scored(client, question="Earlier?")
    shown = page.page
    shown.reload()
    shown.click("#runs a:has-text('Earlier?')")
    shown.wait_for_selector("button.word")
    assert run in shown.url
    shown.select_option("select", index=2)
    assert shown.locator(".under").count() == 2
    for form, start_of in (("JSON", '{"questions"'), ("CSV", "question_id,")):
        with shown.expect_download() as download:
            shown.click(f"button:has-text('{form}')")
        assert download.value.suggested_filename == f"selfreflect-{run}.{form.lower()}"
        assert Path(download.value.path()).read_text().startswith(start_of)


def test_problems_are_said_where_they_arise(chromium: Any, client: Client) -> None:
    with browser.watched(chromium, client.url) as watched:
        opened(watched, client)
        shown = watched.page
        shown.fill("#question", "What?")
        shown.uncheck("input[value=sample_and_summarize]")
        shown.click("button.primary")
        assert "at least one strategy" in shown.inner_text("#form-problem")
        shown.check("input[value=greedy]")
        shown.fill("#model", "/etc/passwd")
        shown.click("button.primary")
        shown.wait_for_selector("#form-problem:has-text('unknown model')")
        shown.goto(f"{client.url}/#job=0123456789abcdef")
        shown.wait_for_selector("#result:has-text('no job of that id')")
        shown.goto(f"{client.url}/#run=0123456789abcdef")
        shown.wait_for_selector("#result:has-text('no run of that id')")
        assert all("status of 4" in problem for problem in watched.problems)


def test_a_run_of_many_questions_is_paged(chromium: Any, tmp_path: Path) -> None:
    made(tmp_path / "many", "Which one?", count=120)
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


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling(chromium: Any, client: Client, dark: bool) -> None:
    run = scored(client, question="On a phone? " + "x" * 300)
    with browser.watched(chromium, client.url, width=390, height=844, dark=dark) as watched:
        for at in ("", f"#run={run}", "docs"):
            watched.page.goto(f"{client.url}/{at}")
            watched.page.wait_for_selector({"": "#runs a", "docs": "table"}.get(at, "button.word"))
            assert watched.page.evaluate("document.documentElement.scrollWidth") <= 390
            assert watched.serious() == []
        clean(watched)


def test_a_token_comes_from_the_address_and_leaves_it(chromium: Any, tmp_path: Path) -> None:
    with serving(tmp_path, work=lambda job: None, token="a-token-of-this-test") as locked, browser.watched(chromium, locked.url) as watched:
        opened(watched, locked, "#token=a-token-of-this-test")
        assert "token" not in watched.page.url
        watched.page.reload()
        watched.page.wait_for_selector("input[name=strategy]")
        clean(watched)
        watched.page.evaluate("sessionStorage.clear()")
        watched.page.reload()
        watched.page.wait_for_selector("#form-problem:has-text('token is missing or wrong')")


def test_hostile_text_is_shown_and_never_run(chromium: Any, tmp_path: Path) -> None:
    """As question, answer, summary, strategy, model and directory name."""
    for number, text in enumerate(PAYLOADS):
        cut = "".join(letter for letter in text[:60] if letter not in "/\x00").encode("utf-8", "ignore").decode()
        with Run.open(tmp_path / f"{number} {cut}", {}) as run:
            name = text[:2000]
            run.append(Question(id="q", text=text))
            run.append(AnswerSet(question_id="q", masked_out=(text,), conditioning=(text,), model=name))
            run.append(Summary(question_id="q", name=name, text=text, model=name))
            word = WordDistance(answer=0, word=0, text=text.split()[0], distances=(0.5,))
            run.append(
                Score(question_id="q", summary=name, value=0.5, stderr=None, token_tasks=1, judge=name, words=(word,), warnings=(name,))
            )
            run.update_manifest(models={"answers": {"name": name}})
    with serving(tmp_path, work=lambda job: None) as client, browser.watched(chromium, client.url) as watched:
        shown = watched.page
        runs = client.get("/api/runs", params={"limit": 100}).json()["runs"]
        assert len(runs) == len(PAYLOADS) >= 30
        opened(watched, client)
        shown.click("#more-runs")
        shown.wait_for_selector(f"#runs > li:nth-child({len(PAYLOADS)})")
        for run in runs:
            shown.goto(f"{client.url}/#run={run['id']}")
            words = f".question[data-run='{run['id']}'] button.word"
            shown.wait_for_selector(words)
            shown.locator(words).first.click()
            shown.wait_for_selector(".guesses")
            told = client.get(f"/api/runs/{run['id']}/questions/0").json()
            assert told["answers"][0] in PAYLOADS or "\ufffd" in told["answers"][0] or "\ud800" in told["answers"][0]
            assert shown.evaluate("window.pwned === undefined")
            assert shown.locator("#result :is(script, img, svg, iframe, style, base, meta, math, form, a[href^=javascript])").count() == 0
            assert len(shown.inner_text(".summary-text")) > 0
        assert watched.foreign == []
        assert watched.problems == []


def test_hostile_text_in_the_form_is_only_text(page: Any, client: Client) -> None:
    shown = page.page
    for payload in (PAYLOADS[0], PAYLOADS[5], "{{7*7}}"):
        start(shown, payload)
        shown.wait_for_selector("button.word", timeout=60_000)
        assert payload in shown.inner_text(".question h2")
        shown.goto(f"{client.url}/")
        shown.wait_for_selector("input[name=strategy]")
    assert shown.evaluate("window.pwned === undefined")
    run = scored(client, question=PAYLOADS[2], summaries={PAYLOADS[3]: PAYLOADS[4], PAYLOADS[5]: json.dumps(PAYLOADS[:8])})
    shown.goto(f"{client.url}/#run={run}")
    shown.wait_for_selector("button.word")
    assert PAYLOADS[3] in shown.inner_text(".cards")
    assert shown.evaluate("window.pwned === undefined")
