"""What `report` and `compare` say where there is nothing to report, or too little to tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import run
from finished_run import write_run

from selfreflect.records import AnswerSet, Question, Score, Summary
from selfreflect.store.run import Run

RECORDS = (
    Question(id="q", text="Why?"),
    AnswerSet(question_id="q", masked_out=("One.",), conditioning=("Two.",)),
    Summary(question_id="q", name="basic", text="One."),
)


@pytest.mark.parametrize(("stage", "count"), [("answers", 1), ("summarize", 2), ("score", 3)])
def test_the_next_step_is_the_stage_that_is_missing(tmp_path: Path, stage: str, count: int) -> None:
    path = tmp_path / "r"
    with Run.open(path, {}) as stored:
        stored.append_all(RECORDS[:count])
    said = run("report", path).said
    assert f"selfreflect {stage} --out {path}" in said
    assert "selfreflect report" not in said
    whole = write_run(tmp_path / "whole")
    assert f"selfreflect {stage} --out {path}" in run("report", whole, path).said
    assert f"Look at the results: selfreflect report {whole}" in run("report", whole).said


def two_strategies(path: Path, count: int, difference: float) -> Path:
    write_run(path, count=count)
    with Run.open(path, {}) as stored:
        for number in range(count):
            id_ = f"q{number}"
            value = 0.375 + (difference and difference + number / 1000)
            stored.append(Summary(question_id=id_, name="basic", text="x"))
            stored.append(
                Score(question_id=id_, summary="basic", value=value, stderr=None, token_tasks=2, judge="tiny")
            )
    return path


def test_results_of_several_runs_begin_with_their_names(tmp_path: Path) -> None:
    paths = [two_strategies(tmp_path / name, 3, 0.2) for name in ("first", "second")]
    lines = run("report", *paths).stdout.splitlines()
    starts = [line.partition(": ")[0] for line in lines]
    assert [name for name in starts if name in ("first", "second")] == ["first", "second"]
    assert not run("report", paths[0]).stdout.startswith("first: ")


def test_too_few_questions_are_said_and_can_fail_a_gate(tmp_path: Path) -> None:
    few = two_strategies(tmp_path / "few", 3, 0.2)
    done = run("compare", few, "--fail-if", "worse > 0")
    assert done.code == 2
    assert "basic against greedy: +0.2010 on 3 common questions" in done.said
    assert "--fail-if 'untestable > N'" in done.said
    assert run("compare", few, "--fail-if", "worse > 0", "--fail-if", "untestable > 1").code == 0
    done = run("compare", few, "--fail-if", "worse > 0", "--fail-if", "untestable > 0", "--json")
    assert (done.code, done.json[0]["testable"]) == (3, False)
    assert "untestable > 0 holds: untestable is 1" in done.said
    lines = [*done.json, *run("report", few, "--json").json]
    assert [(line["low"], line["high"]) for line in lines] == 3 * [(None, None)], "as on the screen"
    assert {line["no_interval"] for line in lines} == {"fewer than 6 questions"}
    [many] = run("compare", two_strategies(tmp_path / "many", 7, 0.2), "--json").json
    assert many["low"] < many["difference"] < many["high"]
    assert many["no_interval"] is None


@pytest.mark.parametrize(
    ("unnamed", "scale", "zero", "said"),
    [
        (
            ["zero", "anchor"],
            "question",
            "question",
            "0 % is the question alone, as in earlier versions",
        ),
        (["anchor"], "pasted", "empty", "0 % is an empty summary"),
    ],
)
def test_bits_of_an_earlier_version_stand_beside_no_others(
    tmp_path: Path, unnamed: list[str], scale: str, zero: str, said: str
) -> None:
    new = write_run(tmp_path / "new", count=6, informed=True)
    old = write_run(tmp_path / "old", count=6, informed=True)
    for name in ("information.jsonl", "controls.jsonl"):  # as before records named their ends
        records = [json.loads(line) for line in (old / name).read_text().splitlines()]
        for record in records:
            for end in unnamed:
                del record[end]
        (old / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    page = tmp_path / "old.html"
    done = run("report", old, "--json", "--output", page)
    [line] = done.json
    assert (line["zero"], line["scale"], line["recovered"]) == (zero, scale, 0.6)
    assert said in page.read_text().replace("\xa0", " ")
    [line] = run("report", new, "--json").json
    assert (line["zero"], line["scale"]) == ("empty", "distinct")
    done = run("compare", old, new, "--json")
    assert "recovered" not in done.json[0]
    assert f"To measure it again: selfreflect score --out {old}" in done.said
    done = run("compare", old, new, "--fail-if", "recovered.worse > 0")
    assert (done.code, "was not measured in all of these runs" in done.said) == (2, True)
