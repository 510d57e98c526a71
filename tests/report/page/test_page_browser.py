"""The report page in a real browser: what a reader sees and does, and what nobody's text gets to do."""

from __future__ import annotations

import collections
import csv
import dataclasses
import io
import itertools
import re
import resource
import sys
import time

import browser as b
import pytest
from command import process
from hostile import PAYLOADS, flat
from hostile import shown as label
from hostile_run import hostile_run
from msgspec.structs import replace
from synthetic import informed_run, save, synthetic_run

from selfreflect.records import (
    AnswerSet,
    Failure,
    Guess,
    Question,
    Sampled,
    Score,
    Summary,
    WordDistance,
)
from selfreflect.report.document import question_columns
from selfreflect.report.page import build
from selfreflect.report.page.build import report_page
from selfreflect.report.page.frame import packed
from selfreflect.report.run_records import RunRecords
from selfreflect.text import printable

pytestmark = pytest.mark.usefixtures("quick_figures")

GUESSES = ((Guess(" Lyon", 0.75, 0.0001, 0.25, 0.0002), Guess(" Nice", 0.000001, 0.0001, 0.5, 0.0002)),)


def known_run():
    """One question with everything there is, and one without anything."""
    answers = AnswerSet(
        question_id="city",
        masked_out=("Paris is\nthe city.", "paris is the city", "Lyon"),
        conditioning=("Nice", "Lyon", "Rome"),
    )
    words = [WordDistance(answer=0, word=0, text="Paris", distances=(0.2,), guesses=GUESSES)]
    words += [
        WordDistance(answer=a, word=w, text="x", distances=(d,))
        for a, w, d in ((0, 3, 0.05), (1, 0, 0.1), (1, 3, 0.0), (2, 0, 0.4))
    ]
    fields = {
        "stderr": 0.05,
        "token_tasks": 5,
        "judge": "j",
        "judge_dtype": "float32",
        "answer_means": (0.1, 0.05, 0.4),
    }
    plain = tuple(WordDistance(answer=w.answer, word=w.word, text=w.text, distances=(0.3,)) for w in words)
    return RunRecords(
        label="known",
        strategies=("honest", "short", "failed"),
        questions={
            "city": Question(id="city", text="Which city?", kind="several answers"),
            "none": Question(id="none", text="Nothing here?"),
        },
        answers={"city": answers},
        summaries={
            ("city", "honest"): Summary(question_id="city", name="honest", text="Paris, or perhaps Lyon."),
            ("city", "short"): Summary(question_id="city", name="short", text="Paris."),
        },
        scores={
            ("city", "honest"): Score(
                question_id="city", summary="honest", value=0.15, words=tuple(words), **fields
            ),
            ("city", "short"): Score(question_id="city", summary="short", value=0.3, words=plain, **fields),
        },
        failures=(
            Failure(
                question_id="city",
                stage="summaries",
                kind="cut_off",
                message="no summary in time",
                name="failed",
            ),
        ),
    )


@pytest.fixture(scope="module")
def known_page():
    return report_page([[known_run()]])


@pytest.fixture
def opened(chromium, known_page, tmp_path):
    """``opened(run)`` shows a run's report, ``opened()`` that of the known run; a list is one run as several
    judges scored it. At the end the page must have been quiet and have asked for nothing.
    """
    shown = []

    def show(run=None, hash_=""):
        path = tmp_path / "report.html"
        runs = [run if isinstance(run, list) else [run]]
        path.write_text(known_page if run is None else report_page(runs), encoding="utf-8", newline="")
        context = b.watched(chromium, path.as_uri())
        watched = context.__enter__()
        shown.append((context, watched))
        watched.page.goto(path.as_uri() + hash_)
        watched.page.wait_for_selector("html[data-ready=yes]")
        return watched

    yield show
    for context, watched in shown:
        problems, foreign = watched.problems, watched.foreign
        context.__exit__(None, None, None)
        assert problems == []
        assert foreign == []


def assert_good_looks(watched):
    """What is shown fits, and axe finds nothing, on a light desktop and on a dark phone."""
    for width, scheme in ((1200, "light"), (390, "dark")):
        watched.page.set_viewport_size({"width": width, "height": 900})
        watched.page.emulate_media(color_scheme=scheme)
        assert watched.serious() == []
        assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_reader_finds_a_question_and_what_a_summary_missed(opened):
    page = opened().page
    page.get_by_label("Search").fill("WHICH")
    assert page.locator(".list tbody tr").count() == 1
    page.get_by_role("link", name="Which city?").click()
    groups = page.locator(".groups > li")
    groups.first.wait_for()
    assert groups.all_inner_texts()[1].split() == ["Lyon", "2", "·", "33", "%", "0.400"]
    assert "2 spellings" in groups.nth(0).inner_text()
    agreement = page.locator(".agreement").inner_text()
    assert "2 of 6 answers agree" in agreement
    assert "3.8 (entropy 1.33)" in agreement
    assert page.locator(".card .score").all_inner_texts() == ["0.1500", "0.3000", "no score"]
    assert "cut_off: no summary in time" in page.locator(".card").nth(2).inner_text()
    words = page.locator("button.word")
    assert words.evaluate_all("all => all.map(w => [w.textContent, w.dataset.distance])") == [
        ["Paris", "0.200"],
        ["city.", "0.050"],
        ["paris", "0.100"],
        ["city", "0.000"],
        ["Lyon", "0.400"],
    ]
    page.get_by_role("radio", name="short").check()
    assert set(words.evaluate_all("all => all.map(w => w.dataset.distance)")) == {"0.300"}
    page.go_back()
    page.locator(".list").wait_for()
    assert page.get_by_label("Search").input_value() == "WHICH"
    assert page.evaluate("document.activeElement.textContent") == "Which city?"


def test_everything_is_within_reach_of_the_keyboard(opened):
    page = opened(hash_="#r0q0").page
    page.wait_for_selector("button.word")
    assert page.locator("button.word[tabindex='0']").count() == 1
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('button.word')"):
            break
    focused = "document.activeElement.textContent + ' ' + document.activeElement.dataset.distance"
    assert page.evaluate(focused) == "Paris 0.200"
    assert "0.200" in page.locator(".tip:visible").inner_text()
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == "paris 0.100"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused) == "city 0.000"
    page.keyboard.press("Escape")
    assert page.locator(".tip:visible").count() == 0
    page.keyboard.press("Home")
    assert page.evaluate(focused) == "Paris 0.200"
    page.keyboard.press("End")
    assert page.evaluate(focused) == "Lyon 0.400"
    page.keyboard.press("Enter")
    assert "--guesses 5" in page.locator(".guesses").inner_text()


def test_a_click_shows_what_the_judge_expected(opened):
    page = opened(hash_="#r0q0").page
    word = page.locator("button.word", has_text=re.compile("^Paris$"))
    word.click()
    rows = page.locator(".guesses tbody tr").all_inner_texts()
    assert [row.split() for row in rows] == [
        ["Lyon", "75.0", "%", "0.010", "%", "25.0", "%", "0.020", "%"],
        ["Nice", "<", "0.001", "%", "0.010", "%", "50.0", "%", "0.020", "%"],
    ]
    assert word.get_attribute("aria-expanded") == "true"
    word.click()
    assert page.locator(".guesses").count() == 0


def test_the_list_sorts_by_score_spread_and_difference(opened):
    run = synthetic_run(60, num_answers=3)
    page = opened(run).page
    assert page.locator(".list tbody tr").count() == 25
    number = "all => all.map(cell => Number(cell.textContent))"

    def column(name):
        place = page.locator(".list thead th").all_inner_texts().index(name) + 1
        return page.locator(f".list tbody td:nth-child({place})").evaluate_all(number)

    page.get_by_label("Sort by").select_option("spread")
    assert column("spread") == sorted(column("spread"), reverse=True)
    assert "grouped by a rule for the same answer" in page.locator("#browser .note").inner_text()
    page.get_by_role("button", name="highest first").click()
    page.get_by_label("Sort by").select_option(label="SelfReflect score of basic")
    assert column("basic")[0] == pytest.approx(
        max(score.value for score in run.by_question(run.scores, "basic").values()), abs=1e-4
    )
    page.locator("[data-key='Difference of']").select_option(label="cot")
    page.get_by_label("minus").select_option(label="basic")
    page.get_by_label("Sort by").select_option("difference")
    differences = [run.scores[id_, "cot"].value - run.scores[id_, "basic"].value for id_ in run.questions]
    assert column("cot − basic") == pytest.approx(sorted(differences, reverse=True)[:25], abs=1e-4)
    page.get_by_role("button", name="next").click()
    assert "26–50 of 60" in page.locator(".pager").inner_text()


def test_another_baseline_changes_plot_and_table(opened):
    page = opened().page
    assert (
        page.locator("caption", has_text="Difference in")
        .locator("visible=true")
        .inner_text()
        .endswith("strategy − honest (known): below 0 is better")
    )
    page.get_by_label("Difference from").select_option(label="short")
    assert (
        page.locator("caption", has_text="Difference in")
        .locator("visible=true")
        .inner_text()
        .endswith("strategy − short (known): below 0 is better")
    )


def two_judges(first="tiny", second="org/big, budget 99"):
    """The informed run, and the same as another judge scored it: without bits, and with the bad summary
    ahead."""
    run = informed_run()
    other = {("good", "bad")[name == "good"]: score.value for (_, name), score in run.scores.items()}
    scores = {(id_, name): replace(score, value=other[name]) for (id_, name), score in run.scores.items()}
    small = dataclasses.replace(run, label=f"informed, judge {first}", judge=first)
    large = dataclasses.replace(small, label=f"informed, judge {second}", judge=second, scores=scores)
    return [small, dataclasses.replace(large, information={}, controls={})]


def test_another_judge_changes_figures_tables_and_questions(opened):
    page = opened(two_judges()).page
    menu = page.get_by_label("Judge", exact=True)
    assert menu.locator("option").all_inner_texts() == ["tiny", "org/big, budget 99"]
    means = page.locator("caption", has_text="SelfReflect score: 0 is perfect").locator("visible=true")
    assert "(informed, judge tiny)" in means.first.inner_text()
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "judge":
            break
    page.keyboard.press("ArrowDown")
    assert menu.input_value() == "1"
    shown = page.locator("main").inner_text()
    assert "judge tiny" not in shown.replace("tiny and org/big", "")
    assert "(informed, judge org/big, budget 99)" in shown
    assert "This judge read no pasted answers" in shown
    assert page.locator(".list thead th").all_inner_texts() == ["question", "bad", "good", "bad − good"]
    page.get_by_label("Difference from").locator("visible=true").select_option(label="bad")
    captions = page.locator("caption", has_text="Difference in").locator("visible=true").all_inner_texts()
    assert [caption.split(" − ")[1].split(" (")[0] for caption in captions] == ["bad"]
    assert page.get_by_role("heading", name="Judges side by side").is_visible()
    rows = downloaded(page, page.get_by_role("button", name="CSV of all questions"))
    assert rows[1][0] == "informed, judge org/big, budget 99"
    assert [row[rows[0].index("summary")] for row in rows[1:3]] == ["The bad one.", "The good one."]
    page.locator(".list a").first.click()
    page.wait_for_selector("button.word")
    assert page.url.endswith("#j1r0q0")
    assert page.locator(".card h4").all_inner_texts() == ["bad", "good"]
    assert page.locator(".card .summary-text").all_inner_texts() == ["The bad one.", "The good one."]
    menu.select_option(label="tiny")
    page.locator(".card", has_text="60 %").wait_for()
    assert page.url.endswith("#r0q0")
    assert page.locator(".card h4").all_inner_texts() == ["good", "bad"]
    page.get_by_role("link", name="all questions").click()
    page.go_back()
    page.goto(page.url.replace("#r0q0", "#j1r0q1"))
    page.wait_for_selector("#browser [data-question='1']")
    assert menu.input_value() == "1"


def test_without_a_script_every_judge_is_shown(chromium, tmp_path):
    path = tmp_path / "two.html"
    path.write_text(report_page([two_judges()]), encoding="utf-8", newline="")
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator("caption", has_text="judge org/big, budget 99)").locator("visible=true").count() > 0
    assert page.locator("#judge").is_hidden()
    context.close()


def test_a_choice_of_judges_fits_and_axe_finds_nothing_serious(opened):
    name = "</option><img src=x onerror=alert(1)> " + "org/a-very-long-name-of-a-judge-" * 6
    watched = opened(two_judges("tiny", name))
    page = watched.page
    for choice in ("1", "0"):
        page.locator("#judge").select_option(choice)
        assert_good_looks(watched)
    assert page.locator("main img").count() == 0


def downloaded(page, button):
    with page.expect_download() as waiting:
        button.click()
    return list(csv.reader(io.StringIO(waiting.value.path().read_text(encoding="utf-8"), newline="")))


def test_downloads_hold_every_digit_and_no_formula(opened):
    run = known_run()
    score = run.scores["city", "honest"]
    part = Sampled(
        words_scored=3, words_total=5, tokens_scored=3, tokens_total=6, stderr=0.1, stopped="budget"
    )
    fields = {"stderr": score.stderr, "token_tasks": 5, "judge": "j", "estimate": part}
    changed = Score(question_id="city", summary="honest", value=0.12345678901234567, **fields)
    run.scores["city", "honest"] = changed
    run.summaries["city", "short"] = Summary(question_id="city", name="short", text='=1+1;=2, "quoted"\nline')
    page = opened(run).page
    rows = downloaded(page, page.get_by_role("button", name="CSV of all questions"))
    assert rows[0] == [column.heading for column in question_columns(run)]
    first, second, third = (dict(zip(rows[0], row, strict=True)) for row in rows[1:4])
    assert rows[1][:6] == ["city", "Which city?", "several answers", "honest", repr(changed.value), "0.05"]
    assert (first["token_tasks"], first["estimated_from"]) == ("5", "3 of 5 words")
    assert (first["summary"], first["summary_words"]) == ("Paris, or perhaps Lyon.", "4")
    assert page.locator(".list tbody td.number").nth(1).inner_text() == "≈ 0.1235"
    assert (second["summary"], second["summary_words"]) == ("'=1+1;'=2, \"quoted\"\nline", "3")
    assert third["failure"] == "cut_off: no summary in time"
    assert downloaded(page, page.locator("button[data-csv^=overview]"))[1][0] == "honest"


def test_what_is_left_out_of_a_page_is_said_to_be(chromium, tmp_path, monkeypatch):
    path = tmp_path / "small.html"
    monkeypatch.setattr(build, "MOST_GUESSED", 0)
    path.write_text(report_page([[known_run()]]), encoding="utf-8", newline="")
    with b.watched(chromium, path.as_uri()) as watched:
        watched.page.goto(path.as_uri() + "#r0q0")
        watched.page.locator("button.word").first.click()
        assert "left out of this page" in watched.page.inner_text(".guesses")
        assert "--guesses" not in watched.page.inner_text(".guesses")
        assert (watched.problems, watched.foreign) == ([], [])


def test_words_are_split_as_the_metric_splits_them(opened):
    spaces = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()] + [
        "\ufeff",
        "\u200b",
        "\u180e",
        "\xad",
    ]
    text = "".join(f"w{space}" for space in spaces)
    run = known_run()
    run.answers["city"] = AnswerSet(question_id="city", masked_out=(text,), conditioning=("x",))
    words = tuple(
        WordDistance(answer=0, word=index, text="x", distances=(0.1,)) for index in range(len(text.split()))
    )
    run.scores["city", "honest"] = Score(
        question_id="city", summary="honest", value=0.1, stderr=None, token_tasks=1, judge="j", words=words
    )
    del run.scores["city", "short"]
    page = opened(run, hash_="#r0q0").page
    page.wait_for_selector("button.word")
    assert page.locator("button.word").count() == len(text.split())
    assert page.locator("button.word").evaluate_all("all => all.map(w => w.textContent[0])") == [
        word[0] for word in text.split()
    ]


def test_paper_shows_the_headings_of_tables_and_all_their_columns(opened):
    page = opened().page
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 between its margins
    assert all(text.strip() for text in page.locator(".list thead th").all_inner_texts())
    assert not page.locator("[data-csv]").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.emulate_media(media="screen")


@pytest.mark.parametrize("hash_", ["", "#r0q0"])
def test_no_sheet_ends_with_a_heading(opened, hash_):
    page = opened(informed_run(), hash_=hash_).page
    page.wait_for_selector("button.word" if hash_ else ".list")
    breaks = 0
    for height in range(400, 1000, 50):
        parts = b.sheets(
            page, "h2, h3, h4, thead, tr, p, li, figure, .card, dl > div", width="718px", height=f"{height}px"
        )
        for (tag, sheet), (_, following) in itertools.pairwise(parts):
            breaks += sheet != following
            assert sheet == following or tag not in ("h2", "h3", "h4", "thead"), (height, sheet)
    assert breaks > 20


def test_paper_is_white_and_has_nothing_to_choose(opened):
    page = opened(two_judges()).page
    page.set_viewport_size({"width": 718, "height": 1000})
    looks = []
    for scheme in ("light", "dark"):
        page.emulate_media(media="print", color_scheme=scheme)
        looks.append(
            page.evaluate(
                "() => ['color', 'background-color', 'color-scheme'].map("
                "name => getComputedStyle(document.documentElement).getPropertyValue(name))"
            )
        )
    assert looks[0] == looks[1]
    assert "dark" not in looks[0][2]
    boxes = page.locator("select").evaluate_all("all => all.map(one => getComputedStyle(one).appearance)")
    assert set(boxes) == {"none"}
    assert page.locator(".pager, .controls, input").locator("visible=true").count() == 0
    share = "table => table.rows[0].cells[0].offsetWidth / table.offsetWidth"
    assert page.locator(".list").evaluate(share) > 0.35
    page.emulate_media(media="screen", color_scheme="light")


def test_a_phone_shows_whole_tables_and_unbroken_shares(opened):
    watched = opened(informed_run())
    page = watched.page
    page.set_viewport_size({"width": 390, "height": 900})
    page.get_by_text("Controls, and what the numbers mean").click()
    assert page.locator(".scroll > table.pairs").count() > 3
    assert page.locator(".scroll").evaluate_all("all => all.every(one => one.scrollWidth <= one.clientWidth)")
    row = (
        page.locator("table", has=page.locator("caption", has_text="(informed)"))
        .first.get_by_role("row")
        .nth(1)
    )
    assert "failures" in row.locator("td").last.evaluate("cell => getComputedStyle(cell, '::before').content")
    assert watched.serious() == []
    page.locator("svg").evaluate_all("all => all.forEach(one => one.remove())")
    text = page.inner_text("main")
    page.goto(page.url + "#r0q0")
    page.wait_for_selector("button.word")
    text += page.inner_text("main")
    assert len(re.findall(r"\d\xa0%", text)) > 30
    assert re.findall(r"\d %", text) == []


def test_the_title_of_a_wide_table_stays_in_sight(opened):
    page = opened(informed_run()).page
    page.set_viewport_size({"width": 390, "height": 900})
    # a table that its reader can sort keeps its headings
    page.locator("table.pairs").evaluate_all("all => all.forEach(one => one.classList.remove('pairs'))")
    frames = page.locator(".scroll", has=page.locator("caption")).locator("visible=true")
    assert frames.evaluate_all("all => all.some(one => one.scrollWidth > one.clientWidth)")
    frames.evaluate_all("all => all.forEach(one => one.scrollTo(one.scrollWidth, 0))")
    boxes = frames.locator("caption bdi").evaluate_all("all => all.map(one => one.getBoundingClientRect())")
    assert min(box["left"] for box in boxes) >= 0
    assert max(box["right"] for box in boxes) <= 390


def test_axe_finds_nothing_serious(opened):
    watched = opened()
    assert_good_looks(watched)
    watched.page.goto(watched.page.url + "#r0q0")
    watched.page.locator("button.word", has_text=re.compile("^Paris$")).click()
    watched.page.get_by_text("Show as a table").click()
    assert_good_looks(watched)


# the app shows the others, and test_page.py parses all of them
@pytest.mark.parametrize("payloads", [PAYLOADS[::4], PAYLOADS[2::4]], ids=range(2))
def test_no_payload_runs_and_each_is_shown_as_text(opened, payloads):
    page = opened(hostile_run(payloads)).page
    for place, payload in enumerate(payloads):
        page.evaluate("hash => { location.hash = hash }", f"#r0q{place}")
        page.wait_for_function(
            "id => document.querySelector('#browser [data-question]')?.dataset.question === id",
            arg=str(place),
        )
        assert flat(page.locator("#browser h3").first.inner_text()) == label(payload, 2000)
        texts = [flat(text) for text in page.locator(".groups .what").all_inner_texts()]
        assert texts == [label(payload, 80), label(f"told: {payload}", 80)]
        cards = [flat(text) for text in page.locator(".card h4").all_inner_texts()]
        assert cards == [label(name) for name in payloads]
        context = page.locator(".context")
        if payload:
            context.evaluate("details => { details.open = true }")
            assert flat(context.locator("p").inner_text()).startswith(
                flat(printable(payload))[:3000] or "(blank)"
            )
        page.get_by_role("radio", name="bits").check()
        words = [*payload.split(), *f"told: {payload}".split()]
        misleading = page.locator("button.word.misleading")
        assert [flat(text) for text in misleading.all_inner_texts()] == [label(word, 300) for word in words]
        misleading.last.click()
        assert f"makes “{label(words[-1], 60)}” 32 times less" in flat(page.locator(".guesses").inner_text())
        page.get_by_role("radio", name="distance").check()
        summary = flat(page.locator(".card .summary-text").nth(place).inner_text())
        assert summary.startswith(flat(printable(payload))[:3000])
        page.locator("button.word").first.click()
        assert flat(page.locator(".guesses .token").inner_text()) == label(payload[:1000], 60)
        page.locator("button.word").last.hover()
    assert page.evaluate("window.pwned") is None
    assert (
        page.locator(
            "#browser img, #browser iframe, #browser svg, #browser a[href^='javascript'], #browser style"
        ).count()
        == 0
    )
    assert page.locator("script").count() == len(re.findall("<script", page.content()))


def question(opened, run, **options):
    page = opened(run, hash_="#r0q0", **options).page
    page.wait_for_selector("button.word")
    return page


def test_the_first_line_of_a_summary_is_a_sentence(opened):
    page = question(opened, informed_run())
    good, bad = (text.replace("\xa0", " ") for text in page.locator(".card").all_inner_texts())
    assert [line for line in good.split("\n") if line][:3] == [
        "good",
        "60 %",
        "This summary recovers 60 % of the information in two sampled answers (95 % CI 55 to 65 %).",
    ]
    assert "SelfReflect 0.0700: 50 % of the way from the empty summary" in good
    assert "This summary misleads" in bad


def test_words_say_what_is_covered_missed_and_misleading(opened):
    page = question(opened, informed_run())
    words = page.locator("button.word")
    kinds = "all => all.map(w => [w.textContent, w.dataset.kind, w.getAttribute('aria-label')])"
    assert words.evaluate_all(kinds) == [
        ["red.", "covered", "red., covered: 7.2 of 7.9 bits"],
        ["Blue", "missed", "Blue, missed: 4.6 of 11.8 bits"],
    ]
    words.first.hover()
    assert page.locator(".tip:visible").inner_text() == "covered: 7.2 of 7.9 bits"
    words.first.click()
    assert (
        page.locator(".guesses").inner_text()
        == "For the judge, the summary makes “red.” 147 times as likely; the sampled answers make it 239 "
        "times as likely."
    )
    page.get_by_role("radio", name="bad").check()
    assert words.first.get_attribute("aria-label") == "red., misleading: -6.6 bits; the answers 7.9"
    assert (
        page.locator("ul.legend").inner_text().split("\n")[0]
        == "covered the summary says it, or made it more believable"
    )


def test_the_distances_are_one_key_away_and_stay_chosen(opened):
    page = question(opened, informed_run())
    page.get_by_role("radio", name="bits").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.parentElement.textContent") == "distance"
    assert (
        page.locator("button.word").evaluate_all("all => all.map(w => w.dataset.distance)") == ["0.070"] * 2
    )
    assert "distance" in page.locator(".legend + *, .question-panel").first.inner_text()
    page.get_by_role("link", name="next").click()
    page.wait_for_selector("#browser [data-question='1']")
    assert page.get_by_role("radio", name="distance").is_checked()
    page.keyboard.press("Tab")
    assert page.locator("button.word").count() == 2


def test_controls_stand_beside_the_summaries(opened):
    page = question(opened, informed_run())
    rows = page.locator(".beside tbody tr")
    cells = rows.evaluate_all(
        "all => all.map(row => [...row.cells].map(cell => cell.innerText.split('\\n')[0]))"
    )
    assert cells == [
        ["all answers pasted control", "2", "100\xa0%", "0.0600"],
        ["good", "3", "60\xa0%", "0.0700"],
        ["1 answer pasted control", "1", "50\xa0%", "–"],
        ["nonsense control", "8", "10\xa0%", "–"],
        ["empty control", "0", "0\xa0%", "0.0800"],
        ["bad", "3", "-10\xa0%", "0.0900"],
    ]
    assert page.locator(".beside .warning").all_inner_texts() == ["recovers more than bad"] * 2


def test_downloads_hold_bits_if_they_were_measured(opened):
    page = opened(informed_run()).page
    rows = downloaded(page, page.get_by_role("button", name="CSV of all questions"))
    row = dict(zip(rows[0], rows[2], strict=True))
    bits = {name: row[name] for name in ("bits", "bits_available", "recovered", "reader") if name in row}
    assert bits in ({}, {"bits": "-1", "bits_available": "10", "recovered": "-0.1", "reader": "informed"})
    page.locator(".list a").first.click()
    page.wait_for_selector("button.word")
    rows = downloaded(page, page.get_by_role("button", name="CSV of the words"))
    assert rows[0] == [
        *["answer", "word", "text", "good", "bad"],
        *["bits told by good", "bits told by bad", "bits available to good", "bits available to bad"],
    ]
    assert rows[3] == ["1", "3", "red.", "0.07", "0.09", "7.2", "-6.6", "7.9", "7.9"]
    assert rows[1] == ["1", "1", "It", "", "", "0.1", "0.1", "0.2", "0.2"]


def unit_of_work():
    """Seconds of the processor for a fixed piece of Python: words found, counted and packed."""
    started = time.process_time()
    text = " ".join(f"word{number % 5000} of {number}" for number in range(150_000))
    for _ in range(3):
        counts = collections.Counter(re.findall(r"\w+", text.lower()))
        packed(list(counts.items())[:60_000])
    return time.process_time() - started


@pytest.mark.slow
def test_a_thousand_questions_fit_and_open_at_once(chromium, tmp_path):
    """The page is built in a number of units of work, so that neither a slow nor a busy machine decides; the
    other limits are those of an idle machine with two cores. What it prints is for
    ``benchmarks/RESULTS.md``."""
    run, path = synthetic_run(1000, informed=True), tmp_path / "report.html"
    save(run, tmp_path / "run")
    units = [unit_of_work()]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = process("report", tmp_path / "run", "--output", path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    units.append(unit_of_work())
    built = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    unit = sum(units) / 2
    assert done.code == 0
    assert f"wrote {path}" in done.said
    size = path.stat().st_size
    with b.watched(chromium, path.as_uri()) as watched:
        page = watched.page
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        interactive = page.evaluate("performance.getEntriesByType('navigation')[0].domInteractive")
        ready = page.evaluate("performance.getEntriesByName('ready')[0].startTime")
        started = time.monotonic()
        page.locator(".list a").first.click()
        page.wait_for_selector("button.word")
        question = time.monotonic() - started
        assert (watched.problems, watched.foreign) == ([], [])
    print(f"{size / 1e6:.2f} MB, built in {built:.1f} s of the processor, {built / unit:.1f} units of work")
    print(f"interactive after {interactive:.0f} ms, ready after {ready:.0f} ms")
    print(f"a question after {1000 * question:.0f} ms")
    assert size <= 5_600_000  # scripts of claims and reasons included
    assert built <= 30 * unit
    assert max(interactive, ready) <= 2000
    assert question <= 2
