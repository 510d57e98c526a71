"""The report page as text: what is embedded, what is refused, and what no text of a run can do to it."""

from __future__ import annotations

import base64
import csv
import dataclasses
import gzip
import html
import io
import json
import os
import random
import re
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from command import process
from command import run as run_command
from hostile import PAYLOADS
from hostile_run import hostile_run
from measured import measured_run
from msgspec.structs import replace
from synthetic import informed_run, synthetic_run

from selfreflect.errors import DataError
from selfreflect.grouping import spread
from selfreflect.prompts import load_prompts
from selfreflect.records import (
    AnswerSet,
    Information,
    Question,
    Score,
    Summary,
    WordBits,
    WordDistance,
)
from selfreflect.report.figures import paper_figures
from selfreflect.report.length import run_pasted
from selfreflect.report.page import build
from selfreflect.report.page.build import judge_part, prompt_texts, report_page, stage_facts
from selfreflect.report.page.frame import packed
from selfreflect.report.page.view import question_view
from selfreflect.report.run_records import RunRecords, SummaryOutcome
from selfreflect.run.records import run_records
from selfreflect.stats import FEWEST_TESTED
from selfreflect.store.run import Run

pytestmark = pytest.mark.usefixtures("quick_figures")


def unpacked(text):
    return json.loads(gzip.decompress(base64.b64decode(text)))


csv.field_size_limit(10_000_000)


def embedded(page):
    """What the page holds for its script, by the id of the block."""
    return {
        match[1]: unpacked(match[2])
        for match in re.finditer(r'<script type="text/plain" id="([^"]*)">([^<]*)</script>', page)
    }


@pytest.fixture(scope="module")
def small():
    return synthetic_run(5, strategies=("greedy", "basic"), num_answers=3)


@pytest.fixture(scope="module")
def page(small):
    return report_page([[small]])


def view(words=(), *, masked_out=("Paris is big", "  "), conditioning=("Lyon",), **fields):
    question = Question(id="q", text="Where?")
    answers = AnswerSet(question_id="q", masked_out=masked_out, conditioning=conditioning)
    fields = {
        "value": 0.123456789,
        "stderr": 0.01,
        "token_tasks": 3,
        "judge": "j",
        "answer_means": (0.1, 0.2),
        **fields,
    }
    score = Score(question_id="q", summary="basic", words=words, **fields)
    summary = Summary(question_id="q", name="basic", text="Paris.")
    return question_view(
        question,
        answers,
        [SummaryOutcome("basic", summary, score, None), SummaryOutcome("cot", None, None, None)],
    )


def word(answer, index, *distances, **fields):
    return WordDistance(answer=answer, word=index, text="x", distances=distances, **fields)


def test_a_word_outside_the_answers_has_no_place():
    shown = view((word(0, 3, 0.5), word(7, 0, 0.5), word(-1, 0, 0.5), word(0, 1), word(0, 0, 0.2)))
    assert (shown["words"], shown["summaries"][0]["distances"]) == ([[0], []], [[200], []])


def test_spread_counts_kinds_by_how_even_they_are():
    assert spread([]) is None
    assert spread([[0, 1, 2]]) == 1
    assert spread([[0], [1], [2], [3]]) == pytest.approx(4)
    assert 1 < spread([[0, 1, 2, 3, 4, 5, 6, 7, 8], [9]]) < 1.5


def test_the_page_holds_every_question(small, page):
    blocks = embedded(page)
    views = blocks["chunk-0-0"]
    assert [one["id"] for one in views] == list(small.questions)
    names = [summary["name"] for summary in views[0]["summaries"]]
    assert [summary["score"] for summary in views[0]["summaries"]] == [
        small.scores["q0", name].value for name in names
    ]
    means = [small.by_question(small.scores, name).values() for name in names]
    means = [sum(score.value for score in scores) / len(scores) for scores in means]
    assert means == sorted(means)  # the best strategy first
    assert views[0]["answers"] == list(small.answers["q0"].answers)
    [index] = blocks["index"]["runs"]
    assert [row[0] for row in index["questions"]] == [question.text for question in small.questions.values()]


def two_scorings(first="small judge", second="large judge"):
    """The informed run as two judges scored it; the second likes the bad summary better."""
    run = informed_run()
    swapped = {"good": "bad", "bad": "good"}
    scores = {key: replace(run.scores[key[0], swapped[key[1]]], summary=key[1]) for key in run.scores}
    return [
        dataclasses.replace(run, label=f"informed, judge {first}", judge=first),
        dataclasses.replace(
            run, label=f"informed, judge {second}", judge=second, scores=scores, information={}, controls={}
        ),
    ]


def test_texts_are_stored_once_for_all_judges():
    blocks = embedded(report_page([two_scorings()]))
    assert blocks["index"]["judges"] == [[0], [1]]
    [main], [run] = blocks["chunk-0-0"][:1], blocks["index"]["runs"]
    assert {"words", "summaries", "controls"} == blocks["scoring-0-1-0"][0].keys() < main.keys()
    other = blocks["scoring-0-1-0"][0]["summaries"]
    assert [(one["name"], one["score"]) for one in other] == [("bad", 0.07), ("good", 0.09)]
    assert not any("text" in one for one in other)
    assert run["scorings"][1]["strategies"] == ["bad", "good"]  # its own order
    assert {name for name in blocks["index"]["csv"] if "overview" in name} == {
        "overview-0",
        "judge-2-overview-0",
    }


@pytest.fixture(scope="module")
def tags_of_two_judges():
    return tags(report_page([two_scorings("one", "two")]))


@pytest.mark.parametrize("payload", [*filter(None, PAYLOADS)][::20], ids=lambda payload: repr(payload[:9]))
def test_no_name_of_a_judge_becomes_markup(payload, tags_of_two_judges):
    assert tags(report_page([two_scorings(payload, f"{payload}2")])) == tags_of_two_judges


def test_the_same_run_gives_the_same_page(small, page):
    assert report_page([[small]]) == page


def test_the_policy_names_the_only_script_and_style(page):
    [policy] = map(html.unescape, re.findall(r'Content-Security-Policy" content="([^"]*)"', page))
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert not re.search(
        r"<(?!script)[^>]*\s(?:style|on\w+)=",
        re.sub(r"<script.*?</script>|<style>.*?</style>", "", page, flags=re.DOTALL),
    )


def test_nothing_is_fetched(page):
    static = re.sub(r'<script type="text/plain".*?</script>', "", page, flags=re.DOTALL)
    assert re.findall(r"""(?:src|href)=["']?(?!#)[^"'>\s]+""", static) == []
    assert "@import" not in static
    assert "url(" not in re.sub(r"url\(#\w+\)", "", static)


def hostile_page(payloads):
    named = dict(zip(payloads, payloads, strict=True))
    manifest = {"config": {"answers": named}, "packages": named}
    run = hostile_run(payloads)
    return report_page([[dataclasses.replace(run, manifest=manifest, strategies=[*payloads, "other"])]])


def tags(page):
    """How often each tag and attribute occurs in what a parser reads as markup; within a figure, whose ticks
    vary, whether it occurs."""
    counts, figures, inside = Counter(), set(), [False]

    class Counting(HTMLParser):
        def handle_starttag(self, tag, attributes):
            inside[0] |= tag == "svg"
            (figures if inside[0] else counts).update([tag, *(f"{tag} {name}" for name, _ in attributes)])

        def handle_endtag(self, tag):
            inside[0] &= tag != "svg"

    Counting().feed(page)
    return counts, figures


@cache
def plain_tags(count):
    return tags(hostile_page([f"plain {number}" for number in range(count)]))


@pytest.mark.parametrize("payloads", [PAYLOADS[start::6] for start in range(6)], ids=range(6))
def test_no_text_of_a_run_becomes_markup(payloads):
    made = hostile_page(payloads)
    made.encode("utf-8")
    assert tags(made) == plain_tags(len(payloads))
    for view, payload in zip(embedded(made)["chunk-0-0"], payloads, strict=True):
        assert (view["answers"][0], view["context"]) == (payload, payload)
        assert any(summary["bits"] is not None for summary in view["summaries"])
    for written in embedded(made)["index"]["csv"].values():
        assert not any(
            cell.lstrip()[:1] in ("=", "@")
            for row in csv.reader(io.StringIO(written, newline=""))
            for cell in row
        )


def test_no_name_of_a_strategy_breaks_a_figure():
    run = hostile_run([payload for payload in PAYLOADS if len(payload) < 1000])
    run = dataclasses.replace(run, information={}, controls={})
    figures = [
        ElementTree.fromstring(text) for name, text in paper_figures([run]).items() if name.endswith(".svg")
    ]
    assert [figure.tag for figure in figures] == ["{http://www.w3.org/2000/svg}svg"] * 3


def test_packed_data_mean_nothing_to_a_parser():
    value = ["</script><!--", "\ud800", "\u2028", "é"]
    text = packed(value)
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", text)
    assert unpacked(text) == value


def test_runs_stand_beside_each_other(small):
    other = synthetic_run(5, strategies=("greedy",), num_answers=3, label="second")
    made = report_page([[small], [other]], baseline="basic")
    assert [run["label"] for run in embedded(made)["index"]["runs"]] == ["synthetic", "second"]
    assert re.findall(r"<option value=\"differences-0\">([^<]*)", made) == ["basic (synthetic)"]
    assert {"overview-0", "overview-1", "failures-1", "length-1"} <= embedded(made)["index"]["csv"].keys()


def test_an_unknown_baseline_is_refused(small):
    with pytest.raises(DataError, match=r"no strategy 'basics', only greedy, basic\. Did you mean 'basic'"):
        report_page([[small]], baseline="basics")


@pytest.mark.parametrize("strategies", [(), ("greedy",)])
def test_unfinished_runs_have_a_page_too(strategies):
    empty = RunRecords("empty", strategies, {"q": Question(id="q", text="Why?")}, {}, {}, {}, ())
    assert embedded(report_page([[empty]]))["chunk-0-0"][0]["answers"] == []


def test_what_was_run_is_told_by_stage(small):
    manifest = {
        "config": {"answers": {"model": "m", "seed": 7, "revision": None, "prompts": "/home/me/mine.toml"}},
        "models": {"answers": {"name": "m", "revision": "r1"}},
        "prompts": {"answers": "/home/me/mine.toml"},
        "packages": {"torch": "2"},
        "wall_time": {"answers": 61.25},
    }
    facts = {
        title: dict(pairs)
        for title, pairs in stage_facts(dataclasses.replace(small, manifest=manifest)).items()
    }
    assert facts["answers"] == {
        "model": "m",
        "seed": "7",
        "prompts": "…/mine.toml",
        "model name": "m",
        "model revision": "r1",
        "answers sampled": "30",
        "answers cut off": "0",
        "tokens generated": "2,000",
        "time": "61.2 s",
    }
    assert facts["packages"] == {"torch": "2"}


def test_a_page_of_many_words_does_without_guesses(monkeypatch):
    full = report_page([[hostile_run(["plain"])]])
    monkeypatch.setattr(build, "MOST_GUESSED", 0)
    smaller = report_page([[hostile_run(["plain"])]])
    summaries = [embedded(page)["chunk-0-0"][0]["summaries"][0] for page in (full, smaller)]
    assert [summary["guesses"] is None for summary in summaries] == [False, True]
    assert [summary["distances"] is None for summary in summaries] == [False, False]
    assert {summary["score"] for summary in summaries} == {0.5}
    assert ["Left out to keep this page small" in page for page in (full, smaller)] == [False, True]


def stored(run, path):
    with Run.open(path, {}) as opened:
        opened.append_all(
            [*run.questions.values(), *run.answers.values(), *run.summaries.values(), *run.scores.values()]
        )
    return path


def test_a_large_page_says_its_size(tmp_path):
    noise = base64.b64encode(random.Random(0).randbytes(3_000_000)).decode()
    run = hostile_run(["plain"])
    large = dataclasses.replace(run, answers={"plain": replace(run.answers["plain"], conditioning=(noise,))})
    path, page = stored(large, tmp_path / "run"), tmp_path / "page.html"

    def said(*arguments):
        done = run_command("report", path, "--output", page, "--groups", "spelling", *arguments)
        assert done.code == 0
        return done.said.partition(f"{page} is ")[2]

    assert re.match(r"\d+\.\d MB; pages above 3 MB open slowly on small machines\.", first := said())
    assert "fewer runs" not in first
    assert "fewer runs on one page" in said(stored(run, tmp_path / "other"))


def test_the_page_groups_answers_as_the_terminal_does(small, tmp_path):
    path, page = stored(small, tmp_path / "run"), tmp_path / "page.html"
    assert run_command("report", path, "--output", page).code == 0
    assert run_command("report", path, "--output", tmp_path / "same.html", "--groups", "same").code == 0
    assert page.read_bytes() == (tmp_path / "same.html").read_bytes()


@pytest.mark.parametrize("option", [("--groups", "meaning")])
def test_what_changes_the_page_needs_a_page(small, tmp_path, option):
    path = stored(small, tmp_path / "run")
    for output in ((), ("--output", tmp_path / "table.md")):
        done = run_command("report", path, *option, *output)
        assert done.code == 2
        assert "Add --output FILE.html" in done.said
    assert not (tmp_path / "table.md").exists()


def test_names_of_files_that_are_no_text_are_shown_escaped(small, tmp_path):
    path, page = (tmp_path / os.fsdecode(name) for name in (b"run \xff<b>", b"page \xfe<i>.html"))
    done = process("report", stored(small, path), "--output", page, "--groups", "spelling")
    assert done.code == 0
    assert r"page \udcfe<i>.html" in done.stderr
    text = page.read_text(encoding="utf-8")
    assert r"run \udcff&lt;b&gt;" in text
    assert embedded(text)["index"]["runs"][0]["label"] == path.name


def test_the_command_writes_the_page_and_the_figures(small, tmp_path):
    stored(small, tmp_path / "run")
    done = run_command(
        "report",
        tmp_path / "run",
        "--output",
        tmp_path / "page.html",
        "--figures",
        tmp_path / "figures",
        "--baseline",
        "basic",
    )
    assert done.code == 0
    assert f"wrote {tmp_path / 'page.html'}" in done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert [one["id"] for one in embedded(page)["chunk-0-0"]] == list(small.questions)
    assert sorted(path.name for path in (tmp_path / "figures").iterdir())[-1] == "means.svg"


def informed_view(*marks, undefined=None, conditioning=("Lyon",), **fields):
    """The view of the answers "Paris is big" and a blank one, with these (told, available) of the words."""
    answers = AnswerSet(question_id="q", masked_out=("  ", "Paris is big"), conditioning=conditioning)
    words = tuple(WordBits(text, *bits) for text, bits in zip(("Paris", "is", "big"), marks, strict=False))
    share = None if undefined else 0.5
    information = Information(
        question_id="q",
        summary="basic",
        zero="empty",
        anchor="distinct",
        reader="informed",
        bits=2.0,
        bits_available=4.0,
        recovered=share,
        undefined=undefined,
        answers=((), words),
        **fields,
    )
    outcome = SummaryOutcome("basic", None, None, None, information)
    return question_view(Question(id="q", text="Where?", context="A map."), answers, [outcome])


def test_bits_that_do_not_fit_the_answers_or_mean_nothing_are_not_shown():
    assert informed_view((1, 1))["summaries"][0]["bits"] is None
    known = informed_view((9, -9), (0, 0), (0, 0), undefined="known")["summaries"][0]
    assert known["bits"] is None
    assert known["information"]["recovered"] is None
    assert "already knows" in known["information"]["sentence"]
    assert informed_view((9, 9), (0, 0), (0, 0), undefined="unclear")["summaries"][0]["bits"] is not None


def test_controls_have_no_shares_where_the_summaries_have_none():
    run = informed_run()
    outcomes = [
        outcome._replace(information=replace(outcome.information, recovered=None, undefined="known"))
        for outcome in run.outcomes("q0")
    ]
    shown = question_view(run.questions["q0"], run.answers["q0"], outcomes, controls=run.controls["q0"])
    assert {control["recovered"] for control in shown["controls"]} == {None}
    assert {tuple(control["beats"]) for control in shown["controls"]} == {()}


def test_the_paste_curve_is_drawn_where_answers_were_pasted(page):
    made = report_page([[informed_run()]])
    assert "On average, good recovers as much in 3 words as 1.2 pasted answers" in made
    assert "pasted-0" in embedded(made)["index"]["csv"]
    assert "What the words are worth" not in page


def test_a_run_without_scores_has_no_empty_figures(page):
    run = informed_run()
    run.scores.clear()
    made = report_page([[run]])
    for part in ("Mean SelfReflect score", "Length audit"):
        assert part not in made
        assert part in page
    assert made.count('id="baseline"') == page.count('id="baseline"') == 1
    assert "<bdi>j</bdi>" in made[made.index("<dt>judge") :][:60]


def test_the_page_shows_prompts_in_full_and_the_day(small):
    manifest = {
        "prompts": {"answers": "hash", "summaries": "unknown"},
        "prompt_texts": {"hash": {"answers": {"user": "<b>Say: {question}"}, "basic": {"user": "unused"}}},
        "finished": {"answers": "2026-01-02T03:04:05+00:00"},
    }
    page = report_page([[dataclasses.replace(small, manifest=manifest)]])
    assert "<pre><bdi>&lt;b&gt;Say: {question}</bdi></pre>" in page
    assert "unused" not in page
    assert "<dd><bdi>2026-01-02</bdi></dd>" in page


def test_the_bundled_prompts_of_an_older_run_are_known_by_their_hash(tmp_path):
    with Run.open(tmp_path / "run", {}) as run:
        run.update_manifest(prompts={"answers": load_prompts().hash})
    [(stage, texts)] = prompt_texts(run_records(Run.load(tmp_path / "run")).manifest)
    assert stage == "answers"
    assert ("answers: user", "{question}") in texts


@pytest.mark.parametrize(("same", "count"), [(True, "24"), (False, "48")])
def test_answers_that_two_versions_are_scored_against_count_once(same, count):
    released, new = (measured_run({"mine": [5.0, 6.0]}, label=label) for label in ("released", "new"))
    if not same:
        answers = {id_: replace(one, masked_out=("a", "b")) for id_, one in new.answers.items()}
        new = dataclasses.replace(new, answers=answers)
    page = report_page([[released], [new]])
    assert re.findall(r"sampled answers<\D*(\d+)", page) == [count]


@pytest.mark.parametrize("known", [3, 12])
def test_a_figure_without_a_value_is_left_out_with_its_reason(known):
    run = measured_run({"a": [None] * known, "b": [None] * known})
    part = judge_part([run], "", None, 1)
    [measure] = part.measures
    means = part.means[measure.name]
    assert measure.reason("known") in means.why
    [difference] = {baseline.panels[measure.name].drawn.figure for baseline in part.baselines}
    assert (means.figure, part.runs[0].length.drawn.figure, difference) == ("", "", "")
    assert "<svg" not in report_page([[run]])


def test_a_caption_says_which_values_have_an_interval():
    columns = ([5.0, 6.0, 7.0, 4.0, 3.0, 8.0], [5.0, 6.0, None, None, None, None], [5.0, 6.0])
    drawn = []
    for bits in columns:
        # one control without an interval would make a mixture of all
        runs = [measured_run({"a": bits, "b": columns[0][: len(bits)]}, controlled=False)]
        [means] = judge_part(runs, "", None, 1).means.values()
        assert means.figure
        drawn.append(means.ends)
    assert len(set(drawn)) == 3
    assert [str(FEWEST_TESTED) in ends.replace("95", "") for ends in drawn] == [False, False, True]


def test_two_questions_give_the_worth_of_words_no_interval():
    few, enough = (run_pasted(measured_run({"a": [5.0, 6.0] * half})) for half in (1, 3))
    assert [(points[0].bits.n, points[0].bits.low is None) for _, points in (few, enough)] == [
        (2, True),
        (6, False),
    ]


def test_what_a_file_does_not_say_is_not_counted_as_none():
    def names(**fields):
        run = measured_run({"a": [5.0]})
        answers = {id_: replace(one, **fields) for id_, one in run.answers.items()}
        facts = stage_facts(dataclasses.replace(run, answers=answers))
        return [[name for name, _ in facts[stage]] for stage in ("answers", "summaries")]

    assert names() == [["answers sampled"], ["summaries"]]
    assert names(truncated=1) == [["answers sampled", "answers cut off"], ["summaries"]]
    assert names(tokens=9)[0] == ["answers sampled", "answers cut off", "tokens generated"]
