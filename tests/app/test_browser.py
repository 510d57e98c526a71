"""The page in a real browser: asking, stopping, reloading, the keyboard, a phone, and text that would like to
be code."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import browser
import pytest
import tiny
from app_server import ANSWERS, Client, process, serving
from fault_server import FaultServer, answers, status
from finished_run import write_run
from hostile import PAYLOADS, flat
from hostile import shown as label
from synthetic import informed_run, save

from selfreflect.app.jobs import Job
from selfreflect.app.meaning import Meaning
from selfreflect.config import Price
from selfreflect.records import (
    AnswerSet,
    Guess,
    Information,
    Question,
    Score,
    Summary,
    WordBits,
    WordDistance,
)
from selfreflect.render.text import printable
from selfreflect.store.run import Run

DANGEROUS = "script, img, svg, iframe, style, base, meta, math, form, a[href^=javascript]"
RADISHES = {
    "question": "What first?",
    "judge": "model",
    "answers": ANSWERS,
    "summaries": {"good": "Radishes or lettuce.", "bad": "Not clear."},
    "measures": ["selfreflect"],
}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def api() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, api: FaultServer) -> Iterator[Client]:
    import torch

    torch.set_num_threads(1)
    model = tiny.save(tmp_path_factory.mktemp("models") / "model", "llama")
    second = Path(shutil.copytree(model, model.with_name("second")))
    prices = {"openai:paid": Price(input_per_million=1.0, output_per_million=2.0)}
    root = tmp_path_factory.mktemp("root")
    with serving(root, model=model, others=[second], base_url=api.url, prices=prices) as served:
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


def start(
    page: Any,
    question: str,
    *,
    answers: int = 2,
    strategies: Sequence[str] = ("greedy",),
    measures: Sequence[str] = ("selfreflect",),
) -> None:
    """Ask, by default for scores alone: to a model made of chance a summary tells nothing."""
    page.fill("#question", question)
    for name in ("selfreflect", "information"):
        page.set_checked(f"input[value={name}]", name in measures)
    for name in ("greedy", "sample_and_summarize"):
        page.set_checked(f"input[value={name}]", name in strategies)
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


def test_the_context_box_is_sent_cleared_by_an_example_and_reached_with_the_keyboard(
    page: Any, client: Client
) -> None:
    shown = page.page
    shown.click("#examples button >> nth=0")
    assert "Emma" in shown.input_value("#context")
    shown.click("#examples button >> nth=1")
    assert shown.input_value("#context") == ""
    shown.focus("#question")
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.id") == "context"
    shown.fill("#context", PAYLOADS[0] + " <|im_end|>")
    shown.fill("#num-answers", "1")
    shown.press("#context", "Control+Enter")
    shown.wait_for_selector("button.word")
    run_id = shown.get_attribute("[data-run]", "data-run")
    [question] = client.get(f"/api/runs/{run_id}/export").json()["questions"]
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
        shown.wait_for_selector("input[name=strategy]")
        assert (shown.input_value("#model"), shown.input_value("#judge")) == ("smollm2", "smollm2")
        shown.fill("#question", "What is the capital of France?")
        shown.uncheck("input[value=information]")
        shown.check("input[value=greedy]")
        shown.uncheck("input[value=sample_and_summarize]")
        shown.fill("#num-answers", "1")
        shown.press("#question", "Control+Enter")
        shown.wait_for_selector(".groups > li")
        shown.wait_for_selector("button.word")
        assert shown.locator(".card .summary-text").inner_text() != ""
        assert 0 < float(shown.inner_text(".card .score")) < 1
        assert watched.serious() == []
        clean(watched)


def test_a_reload_in_the_middle_finds_the_job_again_and_it_can_be_stopped(
    chromium: Any, tmp_path: Path
) -> None:
    def work(job: Job) -> None:
        job.events.add("begun", run="0" * 16, question=job.question)
        job.events.add("answers", texts=["Rome", "Lyon"], groups=[0, 1])
        while True:
            job.check()
            time.sleep(0.01)

    with serving(tmp_path, work=work) as client, browser.watched(chromium, client.url) as watched:
        opened(watched, client)
        shown = watched.page
        start(shown, "Something long?")
        shown.wait_for_selector(".groups > li")
        shown.wait_for_selector("#queue a")
        assert len(client.events(shown.url.partition("job=")[2][:16], limit=3)) == 3
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


def test_a_second_question_waits_and_says_so(page: Any, client: Client) -> None:
    first = client.ask("A long one?", num_answers=200)
    start(page.page, "The next?")
    page.page.wait_for_selector(".live .line:has-text('Waiting for 1 other question')")
    client.post(f"/api/jobs/{first}/cancel")
    page.page.wait_for_selector("button.word")


def test_the_keyboard_is_enough(page: Any) -> None:
    shown = page.page
    shown.evaluate("document.querySelector('input[value=information]').checked = false")
    for _ in range(12):
        shown.keyboard.press("Tab")
        if shown.evaluate("document.activeElement.id") == "question":
            break
    shown.keyboard.type("By hand?")
    for _ in range(4):
        shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.value") == "greedy"
    shown.keyboard.press("Space")
    for _ in range(6):
        shown.keyboard.press("Tab")
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


def test_what_a_summary_tells_is_asked_for_and_shown(page: Any, client: Client) -> None:
    shown = page.page
    shown.fill("#context", "Anna says red. Tom says blue.")
    start(shown, "What colour?", measures=("information",))
    shown.wait_for_selector(".question .sentence")
    run = shown.get_attribute(".question", "data-run")
    [summary] = client.get(f"/api/runs/{run}/questions/0").json()["summaries"]
    assert shown.inner_text(".sentence") == summary["information"]["sentence"]
    assert summary["information"]["reader"] == "informed"  # the context is news to the judge
    assert "Anna says red. Tom says blue." in shown.inner_text(".context")
    assert shown.locator(".card .score").count() == 1


def test_sentences_appear_while_a_job_runs(chromium: Any, tmp_path: Path) -> None:
    go = threading.Event()
    said = {"sentence": "greedy tells 56 %.", "reader": "informed", "recovered": 0.56, "interval": [0.4, 0.7]}

    def work(job: Job) -> None:
        job.events.add("begun", run="0" * 16, question=job.question)
        warnings = ["The limit of tokens <b>cut</b> this summary off."]
        job.events.add("summary", name="greedy", text="Red or blue.", warnings=warnings)
        job.events.add("information", name="greedy", bits=2.0, available=4.0, undefined=None, **said)
        assert go.wait(60)

    with serving(tmp_path, work=work) as client, browser.watched(chromium, client.url) as watched:
        opened(watched, client)
        start(watched.page, "What colour?")
        watched.page.wait_for_selector(".live .sentence:has-text('greedy tells 56 %.')")
        assert watched.page.inner_text(".card .score") == "56 %"
        assert "tokens <b>cut</b> this" in watched.page.inner_text(".card .warning")
        go.set()
        watched.page.wait_for_selector(".live .line:has-text('Done')")
        clean(watched)


def clean_everywhere(watched: Any) -> None:
    """What is shown fits, and axe finds nothing, on a dark phone and on a light desktop."""
    for width, scheme in ((390, "dark"), (1200, "light")):
        watched.page.set_viewport_size({"width": width, "height": 900})
        watched.page.emulate_media(color_scheme=scheme)
        assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert watched.serious() == []


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
            ["−10", "%", "0.0900"],
        ]
        clean_everywhere(watched)
        row.locator("a").click()
        shown.wait_for_selector("button.word")
        kinds = shown.locator("button.word").evaluate_all("all => all.map(word => word.dataset.kind)")
        assert kinds == ["missed", "told"]
        assert "tells more than bad" in shown.inner_text(".beside")
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


def test_answers_are_grouped_by_spelling_or_by_meaning(page: Any, client: Client) -> None:
    run = scored(client, question="Grouped how?")
    shown = page.page
    groups = shown.locator(".groups .what")
    shown.goto(f"{client.url}/#run={run}")
    shown.wait_for_selector("button.word")
    assert groups.all_inner_texts() == ANSWERS  # in the order in which they were drawn
    assert "No two of 4 answers agree" in shown.locator(".agreement").inner_text()
    shown.get_by_role("radio", name="meaning").check()
    shown.wait_for_selector(".groups li:has-text('2 spellings')")
    assert groups.all_inner_texts() == ["Radishes, quickly.", "Lettuce.", "Tomatoes and basil."]
    agreement = shown.locator(".agreement").inner_text()
    assert "2 of 4 answers agree" in agreement
    assert "sampled confidence 50% (share of the largest of 3 groups by meaning, M = 4)" in agreement
    assert "not how often it is right" in agreement
    assert page.serious() == []
    shown.reload()
    shown.wait_for_selector(".groups li:has-text('2 spellings')")
    with shown.expect_download() as download:
        shown.click("button:has-text('answers as CSV')")
    assert (
        Path(download.value.path())
        .read_text()
        .splitlines()[1]
        .startswith('1,"Radishes, quickly.",2,0.5,1 3,')
    )
    shown.get_by_role("radio", name="spelling").check()
    assert groups.count() == 4


def counted(groups: Any) -> dict[str, str]:
    """What each group says, and its count."""
    counts = (text.split()[0] for text in groups.locator(".count").all_inner_texts())
    return dict(zip(groups.locator(".what").all_inner_texts(), counts, strict=True))


def test_groups_by_meaning_grow_while_answers_come(chromium: Any, tmp_path: Path) -> None:
    more, go = threading.Event(), threading.Event()

    def work(job: Job) -> None:
        job.events.add("begun", run="0" * 16, question=job.question)
        job.events.add("answers", texts=["Rome", "Lyon"], groups=[0, 1])
        assert more.wait(60)
        job.events.add("answers", texts=["Reims", "Lyon."], groups=[2, 1])
        assert go.wait(60)

    with serving(tmp_path, work=work) as client, browser.watched(chromium, client.url) as watched:
        opened(watched, client)
        shown = watched.page
        groups = shown.locator(".groups > li")
        start(shown, "Which city?")
        groups.nth(1).wait_for()
        shown.get_by_role("radio", name="meaning").check()
        assert counted(groups) == {"Lyon": "1", "Rome": "1"}
        more.set()
        shown.wait_for_selector(".groups li:has-text('2 spellings') >> nth=1")
        assert counted(groups) == {"Lyon": "2", "Reims": "2"}
        assert shown.evaluate("document.activeElement.value") == "meaning"
        go.set()
        shown.wait_for_selector(".live .line:has-text('Done')")


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
    monkeypatch.setattr("selfreflect.models.embedder._NEEDED", ("not_there",))
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


def test_a_model_that_is_not_there_is_said_above_the_form_before_anything_starts(
    page: Any, client: Client
) -> None:
    shown = page.page
    shown.fill("#question", "Who answers?")
    shown.fill("#model", "nobody/no-such-model")
    shown.click("#start")
    box = shown.locator("#form-problem .problem").first
    box.wait_for()
    assert "Model: Could not load the model 'nobody/no-such-model'. Check its name" in box.inner_text()
    assert "transformers" not in box.inner_text()  # one click away
    assert box.evaluate("box => box.getBoundingClientRect().bottom") < shown.locator("#question").evaluate(
        "field => field.getBoundingClientRect().top"
    )
    assert shown.get_attribute("#model", "aria-invalid") == "true"
    assert "Who answers?" not in [job["question"] for job in client.get("/api/jobs").json()["jobs"]]
    box.locator("summary").click()
    assert box.locator("details").inner_text() != ""
    assert page.serious() == []


def test_a_server_that_refuses_is_said_above_the_form_without_flags(
    page: Any, client: Client, api: FaultServer
) -> None:
    shown = page.page
    api.script = lambda call: status(404, "<b>no such model</b>")
    shown.fill("#question", "Who refuses?")
    shown.fill("#model", "openai:gone")
    shown.fill("#judge", "model")
    shown.click("#start")
    box = shown.locator("#form-problem .problem")
    box.wait_for()
    api.script = lambda call: answers()
    assert "knows no such model. Check its name, or start the app with another --base-url" in box.inner_text()
    box.locator("summary").click()
    assert "<b>no such model</b>" in box.inner_text()
    assert shown.locator("#start:not([aria-disabled])").count() == 1


def test_a_question_that_costs_money_is_agreed_to_first(page: Any, client: Client) -> None:
    shown = page.page
    shown.set_viewport_size({"width": 390, "height": 844})
    shown.fill("#model", "openai:paid")
    shown.fill("#judge", "model")
    shown.fill("#summary-tokens", "32")
    shown.wait_for_selector("#estimate:has-text('in the currency of your prices')")
    start(shown, "What does it cost?")
    shown.wait_for_selector("#confirm[open]")
    said = shown.inner_text("#confirm")
    assert "This run costs money." in said
    assert "answers with openai:paid at http://127.0.0.1" in said
    rows = shown.locator("#confirm tr", has_text="completion tokens").all_inner_texts()
    assert [row.split()[-1] for row in rows] == ["256", "32"]
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.serious() == []
    shown.keyboard.press("Escape")
    shown.wait_for_selector("#start:not([aria-disabled])")
    assert "What does it cost?" not in [job["question"] for job in client.get("/api/jobs").json()["jobs"]]
    shown.keyboard.press("Enter")  # the focus is back on the button
    shown.wait_for_selector("#confirm[open]")
    shown.keyboard.press("Enter")
    shown.wait_for_selector("button.word")
    assert "What does it cost?" in shown.inner_text(".question h2")


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


def test_a_failed_question_is_marked_in_the_list_and_has_nothing_to_export(page: Any, client: Client) -> None:
    job = client.finished(client.ask("Who fails?", model="nobody/no-such-model", judge="model"))
    shown = page.page
    shown.goto(f"{client.url}/#job={job['id']}")
    box = shown.locator("#main .problem").first
    box.wait_for()
    assert "Could not load the model 'nobody/no-such-model'. Check its name" in box.inner_text()
    shown.reload()
    entry = shown.locator("#runs > li", has_text="Who fails?")
    entry.locator(".tag.lacks", has_text="failed: no answers").wait_for()
    assert box.evaluate("box => box.getBoundingClientRect().top >= 0")
    assert shown.locator(".question .exports").count() == 0


def test_problems_are_said_where_they_arise(chromium: Any, client: Client) -> None:
    with browser.watched(chromium, client.url) as watched:
        opened(watched, client)
        shown = watched.page
        shown.fill("#question", "What?")
        for name in ("greedy", "sample_and_summarize"):
            shown.uncheck(f"input[value={name}]")
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


def test_a_phone_needs_no_sideways_scrolling(page: Any, client: Client) -> None:
    run = scored(client, question="On a phone? " + "x" * 300)
    shown = page.page
    shown.set_viewport_size({"width": 390, "height": 844})
    for at in ("", f"#run={run}", "docs"):
        shown.goto(f"{client.url}/{at}")
        shown.wait_for_selector({"": "#runs a", "docs": "table"}.get(at, "button.word"))
        assert shown.evaluate("document.documentElement.scrollWidth") <= 390
        for scheme in ("light", "dark"):
            shown.emulate_media(color_scheme=scheme)
            assert page.serious() == []


def test_a_token_comes_from_the_address_and_leaves_it(chromium: Any, tmp_path: Path) -> None:
    with (
        serving(tmp_path, work=lambda job: None, token="a-token-of-this-test") as locked,
        browser.watched(chromium, locked.url) as watched,
    ):
        opened(watched, locked, "#token=a-token-of-this-test")
        assert "token" not in watched.page.url
        watched.page.reload()
        watched.page.wait_for_selector("input[name=strategy]")
        clean(watched)
        other = watched.page.context.new_page()  # as a link that is opened in a tab of its own
        other.goto(locked.url)
        other.wait_for_selector("input[name=strategy]")
        watched.page.evaluate("localStorage.clear()")
        for malformed in ("%E0%A4%A", "%E2%82%AC", ""):
            watched.page.goto(f"{locked.url}/#token={malformed}")
            watched.page.reload()
            watched.page.wait_for_selector("#form-problem:has-text('token is missing or wrong')")
            assert "token" not in watched.page.url
        assert not [text for text in watched.problems if "401" not in text]


def hostile_name(number: int) -> str:
    """The name of a directory; the last one is not UTF-8."""
    text = "".join(letter for letter in PAYLOADS[number][:60] if letter not in "/\x00")
    broken = b"\xff\xfe" if number == len(PAYLOADS) - 1 else b""
    return os.fsdecode(f"{number} {text}".encode("utf-8", "ignore") + broken)


def test_hostile_text_is_shown_and_never_run(chromium: Any, tmp_path: Path) -> None:
    """As question, context, answer, word, summary, strategy, reason, model and directory name."""
    for number, text in enumerate(PAYLOADS):
        with Run.open(tmp_path / hostile_name(number), {}) as run:
            name = text[:2000]
            run.append(Question(id="q", text=text, context=text))
            run.append(AnswerSet(question_id="q", masked_out=(text,), conditioning=(text,), model=name))
            bits = tuple(WordBits(text, -5.0, 9.0) for _ in text.split())
            run.append(
                Information(
                    question_id="q",
                    summary=name,
                    reader="informed",
                    bits=None,
                    bits_available=None,
                    recovered=None,
                    undefined="unmeasured",
                    why=name,
                    answers=(bits,),
                )
            )
            run.append(Summary(question_id="q", name=name, text=text, model=name))
            guesses = ((Guess(text[:1000], 0.5, 0.1, 0.5, 0.1),),)
            word = WordDistance(answer=0, word=0, text=text.split()[0], distances=(0.5,), guesses=guesses)
            run.append(
                Score(
                    question_id="q",
                    summary=name,
                    value=0.5,
                    stderr=None,
                    token_tasks=1,
                    judge=name,
                    words=(word,),
                    warnings=(name,),
                )
            )
            run.update_manifest(models={"answers": {"name": name}})
    with serving(tmp_path, work=lambda job: None) as client, browser.watched(chromium, client.url) as watched:
        shown = watched.page
        runs = client.get("/api/runs", params={"limit": 100}).json()["runs"]
        assert len(runs) == len(PAYLOADS) >= 30
        opened(watched, client)
        shown.click("#more-runs")
        shown.wait_for_selector(f"#runs > li:nth-child({len(PAYLOADS)})")
        listed = [flat(text) for text in shown.locator("#runs > li").all_inner_texts()]
        for run, entry in zip(runs, listed, strict=True):
            number = int(run["name"].split()[0])
            payload = PAYLOADS[number]
            assert entry.startswith(label(payload[:300], 120))
            assert entry.endswith(flat(printable(hostile_name(number))))
            shown.goto(f"{client.url}/#run={run['id']}")
            words = f".question[data-run='{run['id']}'] button.word"
            shown.wait_for_selector(words)
            shown.locator(f"{words}.misled").first.click()
            assert flat(shown.inner_text(".sentence")).startswith(
                "What this summary tells was not measured: "
            )
            shown.get_by_role("radio", name="distance").check()
            shown.locator(words).first.click()
            assert flat(shown.locator(".guesses .token").inner_text()) == label(payload[:1000], 60)
            assert flat(shown.inner_text(".question > h2")) == label(payload, 500)
            assert [flat(text) for text in shown.locator(".groups .what").all_inner_texts()] == [
                label(payload, 80)
            ]
            assert flat(shown.inner_text(".card h4")) == label(payload[:2000])
            assert flat(shown.inner_text("p.warning")) == label(payload[:2000], 500)
            summary = shown.inner_text(".summary-text bdi")
            assert flat(summary) == (
                flat(printable(payload)) if len(payload) <= 4000 else f"{payload[:3999]}…"
            )
            assert shown.evaluate("window.pwned === undefined")
            assert shown.locator(f"#result :is({DANGEROUS})").count() == 0
        assert watched.foreign == []
        assert watched.problems == []


def test_hostile_text_in_the_form_is_only_text(page: Any, client: Client) -> None:
    shown = page.page
    for payload in (PAYLOADS[0], PAYLOADS[5], "{{7*7}}"):
        start(shown, payload)
        shown.wait_for_selector("button.word")
        assert payload in shown.inner_text(".question h2")
        shown.goto(f"{client.url}/")
        shown.wait_for_selector("input[name=strategy]")
    assert shown.evaluate("window.pwned === undefined")
    run = scored(
        client,
        question=PAYLOADS[2],
        summaries={PAYLOADS[3]: PAYLOADS[4], PAYLOADS[5]: json.dumps(PAYLOADS[:8])},
    )
    shown.goto(f"{client.url}/#run={run}")
    shown.wait_for_selector("button.word")
    assert PAYLOADS[3] in shown.inner_text(".cards")
    assert shown.evaluate("window.pwned === undefined")
