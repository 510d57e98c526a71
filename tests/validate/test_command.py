"""``selfreflect validate`` as people and scripts use it."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
from command import Outcome, environment, run, written
from fault_server import FaultServer, chat, choice, status

from selfreflect.records import AnswerSet, Question, Summary
from selfreflect.run.records import run_items
from selfreflect.store.run import Run
from selfreflect.validate.base import METRICS

BOTH = "selfreflect,length"


def item(number: int, **summaries: str) -> dict[str, Any]:
    return {
        "id": f"i{number}",
        "question": f"What grows first in bed {number}?",
        "answers": ["Radishes.", "Lettuce.", "Radishes.", "Tomatoes and basil."],
        "summaries": summaries
        or {"good": "Radishes or lettuce.", "mid": "Radishes.", "bad": f"It is not clear, {number}."},
    }


ITEMS = [item(number) for number in range(4)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("model"), "llama")


def validate(model: Path, items: object, folder: Path, *more: object) -> Outcome:
    metrics = () if "--metrics" in more else ("--metrics", BOTH)
    return run(
        "validate",
        written(folder / "items.json", items),
        "--judge",
        model,
        "--device",
        "cpu",
        *metrics,
        *more,
    )


def stored(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "values.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_ranked_set_is_measured_shown_and_kept(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    outcome = validate(model, ITEMS, tmp_path, "--out", out, "--no-controls", "--json")
    assert outcome.code == 0
    assert {(one["metric"], one["item"], one["summary"]) for one in stored(out)} == {
        (metric, f"i{number}", name)
        for metric in BOTH.split(",")
        for number in range(4)
        for name in ("good", "mid", "bad")
    }
    finding = json.loads((out / "ranked" / "finding.json").read_text(encoding="utf-8"))
    assert finding["study"] == "ranked"
    assert finding["made_with"]["metrics"] == "selfreflect, length"
    assert str(model) in finding["made_with"]["models"]
    told = (out / "ranked" / "finding.md").read_text(encoding="utf-8")
    assert all(f"### {table['title']}" in told for table in finding["tables"])
    tables = [list(csv.reader(path.open(encoding="utf-8"))) for path in (out / "ranked").glob("*.csv")]
    assert sorted(len(rows) for rows in tables) == sorted(
        1 + len(table["rows"]) for table in finding["tables"]
    )
    assert [line["says"] for line in outcome.json if "says" in line] == finding["says"]
    rows = [
        dict(zip(table["columns"], row, strict=True)) for table in finding["tables"] for row in table["rows"]
    ]
    assert [line["row"] for line in outcome.json if "row" in line] == rows


def test_what_is_kept_is_not_measured_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    first = validate(model, ITEMS, tmp_path, "--out", out)
    before = (out / "values.jsonl").stat().st_mtime_ns, (out / "values.jsonl").read_bytes()
    monkeypatch.setattr(
        "selfreflect.validate.judged.JudgeMeasures.score", lambda *_: pytest.fail("measured again")
    )
    again = validate(model, ITEMS, tmp_path, "--out", out)
    assert (again.code, again.stdout) == (first.code, first.stdout)
    assert ((out / "values.jsonl").stat().st_mtime_ns, (out / "values.jsonl").read_bytes()) == before


KILLED = """
import os, signal
from selfreflect.cli import main
from selfreflect.store.journal import Journal

def append_all(journal, records, right=Journal.append_all):
    right(journal, records)
    if len(journal.records) >= 10:
        os.kill(os.getpid(), signal.SIGKILL)

Journal.append_all = append_all
main()
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_stopped(model: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    many = [item(number) for number in range(6)]
    source = written(tmp_path / "items.json", many)
    arguments = ["validate", str(source), "--judge", str(model), "--device", "cpu", "--metrics", BOTH]
    command = [sys.executable, "-c", KILLED, *arguments, "--out", str(out)]
    killed = subprocess.run(command, env=environment(), capture_output=True, timeout=200)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    values = out / "values.jsonl"
    kept = values.read_bytes()
    assert 10 <= kept.count(b"\n") < len(many) * 2 * 3
    outcome = run(*arguments, "--out", out)
    assert outcome.code in (0, 1)
    assert values.read_bytes().startswith(kept)
    assert run(*arguments, "--out", whole).stdout == outcome.stdout

    def known(folder: Path) -> dict[tuple[str, str, str], float | None]:
        return {(one["metric"], one["item"], one["summary"]): one.get("value") for one in stored(folder)}

    assert known(out).keys() == known(whole).keys()
    assert known(out) == pytest.approx(known(whole), rel=1e-5)


def test_an_interrupted_run_says_what_is_kept(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from selfreflect.validate.texts import Length

    right = Length.score

    def stopped(self: Length, one: Any) -> Any:
        if one.id == "i2":
            raise KeyboardInterrupt
        return right(self, one)

    monkeypatch.setattr(Length, "score", stopped)
    outcome = validate(model, ITEMS, tmp_path, "--out", tmp_path / "out", "--metrics", "length")
    assert outcome.code == 130
    assert "Finished measurements are kept in" in outcome.said
    assert {one["item"] for one in stored(tmp_path / "out")} == {"i0", "i1"}
    assert "Nothing is kept without --out" in validate(model, ITEMS, tmp_path, "--metrics", "length").said


def test_an_api_judge_that_answers_nonsense_gives_typed_failures(model: Path, tmp_path: Path) -> None:
    with FaultServer(lambda call: chat(choice("0 of them, banana"))) as server:
        asked = ("--metrics", "llm_judge", "--model", "openai:m", "--base-url", server.url)
        outcome = validate(model, ITEMS, tmp_path, *asked, "--no-controls", "--out", tmp_path / "out")
    assert outcome.code == 1
    assert "12 x llm_judge (unparsed)" in outcome.said
    assert [one.get("value") for one in stored(tmp_path / "out")] == [None] * 12


def test_a_server_that_ends_everything_ends_the_command_and_what_was_measured_is_kept(
    model: Path, tmp_path: Path
) -> None:
    asked = (
        "--metrics",
        "llm_judge,length",
        "--model",
        "openai:m",
        "--no-controls",
        "--out",
        tmp_path / "out",
        "--base-url",
    )
    with FaultServer(lambda call: chat(choice("5")) if call.number < 6 else status(401, "no")) as server:
        outcome = validate(model, ITEMS, tmp_path, *asked, server.url)
        assert outcome.code == 2
        assert "does not accept the key" in outcome.said
        assert "are kept in" in outcome.said
        assert {one["item"] for one in stored(tmp_path / "out")} == {"i0", "i1"}
        server.script = lambda call: chat(choice("5"))
        server.calls.clear()
        assert validate(model, ITEMS, tmp_path, *asked, server.url).code == 0
        # What the first command had given up may reach the server only now: it is among what the second one
        # asks.
        assert len({json.dumps(call.body, sort_keys=True) for call in server.calls}) == 6
    assert len(stored(tmp_path / "out")) == 2 * 4 * 3


def test_servers_that_call_different_models_the_same_share_no_values(model: Path, tmp_path: Path) -> None:
    asked = (
        "--metrics",
        "llm_judge",
        "--model",
        "openai:m",
        "--no-controls",
        "--out",
        tmp_path / "out",
        "--base-url",
    )
    with (
        FaultServer(lambda call: chat(choice("5"))) as one,
        FaultServer(lambda call: chat(choice("8"))) as other,
    ):
        for server in (one, other, one):
            assert (
                validate(model, ITEMS, tmp_path, *asked, server.url.replace("://", "://me:pa55word@")).code
                == 0
            )
    assert len(one.calls) == len(other.calls) == 4 * 3
    found = {(value["by"].split(", ")[0], value["value"]) for value in stored(tmp_path / "out")}
    assert found == {(f"openai:m at {one.url}", 5.0), (f"openai:m at {other.url}", 8.0)}


def test_undefined_values_are_counted_and_explained(model: Path, tmp_path: Path) -> None:
    items = [*ITEMS, {**item(9), "answers": [" ", " "]}]
    outcome = validate(model, items, tmp_path, "--json", "--no-controls")
    assert outcome.code == 1
    [found] = [line["row"] for line in outcome.json if line.get("table") == "Undefined values"]
    assert (found["metric"], found["count"]) == ("selfreflect", 3)
    assert "i9" in found["example"]
    assert f"3 x selfreflect ({found['reason']})" in outcome.said


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("{", (), "not JSON"),
        ("[]", (), "contains no records"),
        ([{"question": "What?"}], (), "items.json"),
        ([item(1, one="Radishes.", two="Lettuce.")], (), "known order"),
        ([item(1, good="Radishes.", bad="Radishes.")], (), "identical texts"),
        (ITEMS, ("--metrics", "selfreflct"), "Did you mean 'selfreflect'"),
        (ITEMS, ("--metrics", "llm_judge"), "--model"),
        (ITEMS, ("--metrics", "competitors"), "rouge_l"),
        (ITEMS, ("--study", "rankde"), "Did you mean 'ranked'"),
        (ITEMS, ("--study", "choice"), "takes no SOURCE"),
        (ITEMS, ("--study", "raters"), "--ratings FILE"),
        (ITEMS, ("--study", "judges"), "two or more judges"),
        (ITEMS, ("--judge", "other"), "--study judges"),
        (ITEMS, ("--study", "convergence", "--order", "good>bad"), "--order"),
        (ITEMS, ("--study", "interventions", "--groups", "colour"), "not one of 'spelling', 'meaning'"),
        (ITEMS, ("--study", "length"), "of --study ranked"),
        (ITEMS, ("--study", "dose"), "Use --study choice"),
        (ITEMS, ("--pad",), "--pad is no longer an option"),
        (ITEMS, ("--order", "good>terse"), "'terse'"),
        (ITEMS, ("--revision", "v1"), "--judge-revision"),
        (ITEMS, ("--limit", "0"), "--limit"),
        (ITEMS, ("--column", "summary=texts"), "has no column 'texts'"),
    ],
)
def test_bad_input_is_refused_before_a_model_is_loaded(
    tmp_path: Path, content: object, options: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "selfreflect.run.models.ConfiguredModels.judge", lambda _: pytest.fail("loaded a judge")
    )
    outcome = validate(tmp_path / "absent", content, tmp_path, "--out", tmp_path / "out", *options)
    assert outcome.code == 2
    assert message in outcome.said
    assert not (tmp_path / "out" / "values.jsonl").exists()


def test_out_is_neither_a_run_nor_anything_else(model: Path, tmp_path: Path) -> None:
    run_directory, other = tmp_path / "run", tmp_path / "other"
    with Run.open(run_directory, {}):
        pass
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    for out, message in (
        (run_directory, "is a run directory"),
        (other, "was not made by validate"),
        (other / "notes.txt", "not a directory"),
    ):
        outcome = validate(model, ITEMS, tmp_path, "--out", out, "--metrics", "length")
        assert outcome.code == 2
        assert message in outcome.said
    assert sorted(path.name for path in other.iterdir()) == ["notes.txt"]


def test_hostile_names_are_shown_as_they_are(model: Path, tmp_path: Path) -> None:
    names = {"good": "[red]Radishes.[/red]", "[bold]bad|\x1b[31m<b>": "It is not clear."}
    out = tmp_path / "out"
    outcome = validate(model, [item(number, **names) for number in range(3)], tmp_path, "--out", out)
    assert outcome.code in (0, 1)
    assert "\x1b" not in outcome.stdout
    told = (out / "ranked" / "finding.md").read_text(encoding="utf-8")
    assert "<b>" not in told
    assert "\x1b" not in told
    assert all(path.parent == out / "ranked" for path in out.rglob("*.csv"))


def test_a_run_directory_gives_interventions(model: Path, tmp_path: Path) -> None:
    answers = ("Radishes.", "Radishes.", "Lettuce.")
    with Run.open(tmp_path / "run", {}) as filled:
        filled.append_all(Question(id=f"q{number}", text="What first?") for number in range(3))
        filled.append_all(
            AnswerSet(question_id=f"q{number}", masked_out=answers, conditioning=answers)
            for number in range(2)
        )
        filled.append(Summary(question_id="q0", name="greedy", text="Radishes, 1 row."))
        [first, second] = run_items(filled)
    assert (first.id, first.masked_out, first.conditioning, first.summaries) == (
        "q0",
        answers,
        answers,
        {"greedy": "Radishes, 1 row."},
    )
    assert (second.id, second.summaries) == ("q1", {})
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    outcome = run(
        "validate", tmp_path / "run", "--judge", model, "--device", "cpu", "--metrics", "length", "--json"
    )
    assert outcome.code == 0
    assert {line["study"] for line in outcome.json} == {"interventions"}
    assert "1 of 3 questions of the run have no answers" in outcome.said
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_two_judges_are_measured_apart(model: Path, tmp_path: Path) -> None:
    other = tiny.save(tmp_path / "other", "llama", seed=3)
    source = written(tmp_path / "items.json", ITEMS)
    outcome = run(
        *("validate", source, "--study", "judges", "--judge", f"{model},{other}", "--metrics", "selfreflect"),
        *("--device", "cpu", "--json", "--out", tmp_path / "out"),
    )
    assert outcome.code == 0
    assert len({one["by"] for one in stored(tmp_path / "out")}) == 2
    assert len(stored(tmp_path / "out")) == 2 * 4 * 3


@pytest.mark.parametrize("study", ["choice", "convergence", "interventions", "raters"])
def test_every_study_runs_by_its_name(model: Path, tmp_path: Path, study: str) -> None:
    ratings = "rater,item,summary,rating\n" + "".join(
        f"{rater},i{number},{name},{rating}\n"
        for rater in "ab"
        for number in range(2)
        for name, rating in (("good", 5), ("bad", 1))
    )
    source = {"choice": (), "raters": (written(tmp_path / "items.json", ITEMS),)}.get(study, ("bundled",))
    options: tuple[object, ...] = ("--seed", 1, "--metrics", "length", "--limit", 2, "--num-answers", 4)
    if study == "raters":
        options += ("--ratings", written(tmp_path / "ratings.csv", ratings))
    place = ("--judge", model, "--device", "cpu", "--out", tmp_path / "out")
    outcome = run("validate", *source, "--study", study, *options, *place)
    assert outcome.code == 0, outcome.said
    finding = json.loads((tmp_path / "out" / study / "finding.json").read_text(encoding="utf-8"))
    assert finding["study"] == study


def test_without_scipy_nothing_is_measured(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    outcome = validate(model, ITEMS, tmp_path, "--metrics", "length", "--out", tmp_path / "out")
    assert outcome.code == 2
    assert "pip install '.[validate]'" in outcome.said
    assert not (tmp_path / "out").exists()


def test_values_that_say_something_of_the_answers_are_no_failure(model: Path, tmp_path: Path) -> None:
    alike = {**item(9), "answers": ["Sow."] * 4}
    outcome = validate(model, [*ITEMS, alike], tmp_path, "--metrics", "information", "--no-controls")
    assert outcome.code == 0
    assert "x information (" in outcome.said
    assert validate(model, ITEMS, tmp_path, "--metrics", "rouge_l").code == 0
    outcome = validate(model, [*ITEMS, item(8, good="Radishes.", bad=" ")], tmp_path, "--metrics", "rouge_l")
    assert outcome.code == 1
    assert "rouge_l (blank)" in outcome.said


def test_the_metrics_are_listed_without_a_model() -> None:
    listed = [line["name"] for line in run("validate", "--list-metrics", "--json").json]
    assert listed == [info.name for info in METRICS]
    shown = " ".join(run("validate", "--list-metrics").stdout.split())
    assert all(info.name in shown for info in METRICS)


def test_one_process_writes_at_a_time(model: Path, tmp_path: Path) -> None:
    from selfreflect.validate.study import open_values

    with open_values(tmp_path / "out"):
        outcome = validate(model, ITEMS, tmp_path, "--out", tmp_path / "out", "--metrics", "length")
    assert outcome.code == 2
    assert f"pid {os.getpid()}" in outcome.said
