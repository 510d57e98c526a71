"""Data sets to train on, as commands write them and as other programs load them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import run
from learnable_run import write_learnable

from selfreflect.records import Question, Summary
from selfreflect.store.run import Run

HOSTILE = "![x](y)<script>\x1b[2J{0}%s\ud800 'a,b\""
TEXTS = {
    "basic#1": ("Paris or Lyon, maybe.", [8.0, 7.0, 8.0, 6.0, 7.0]),
    "basic#2": (f"It is {HOSTILE}", [1.0, 2.0, 1.0, 2.0, 1.0]),
    "greedy": ("Paris.", [3.0] * 5),
    "long": ("One of a great many cities.", [2.0] * 5),
}
QUESTIONS = {f"q{number}": f"Which city is number {number}?" for number in range(12)}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run [x](y)"
    return write_learnable(path, TEXTS, questions={**QUESTIONS, "hostile": HOSTILE})


@pytest.mark.parametrize("kind", ["sft", "dpo", "grpo"])
def test_a_data_set_loads_as_its_card_says(directory: Path, tmp_path: Path, kind: str) -> None:
    from datasets import load_dataset

    out = tmp_path / "set"
    outcome = run("dataset", kind, directory, "--output", out, "--json")
    assert outcome.code == 0, outcome.stderr
    splits = json.loads((out / "splits.json").read_text("utf-8"))["splits"]
    loaded = load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    rows = {name: [json.loads(line) for line in (out / f"{name}.jsonl").open("rb")] for name in splits}
    assert sum(map(len, rows.values())) == outcome.json[0]["rows"] > 0
    for name in loaded:
        assert loaded[name].to_list() == rows[name]
        assert {row["question_id"] for row in rows[name]} <= set(splits[name])
    assert {name for name, part in rows.items() if part} == set(loaded)
    [every] = {tuple(rows["train"][0]["prompt"][-1])}
    assert every == ("role", "content")
    card = (out / "README.md").read_text("utf-8")
    assert "[x](y)" not in card
    assert "tiny student" in card


def test_a_row_keeps_hostile_text_as_data(directory: Path, tmp_path: Path) -> None:
    outcome = run("dataset", "sft", directory, "--output", tmp_path / "s", "--strategies", "basic#2")
    assert outcome.code == 0, outcome.stderr
    [row] = [
        row
        for name in ("train", "dev", "test")
        for row in map(json.loads, (tmp_path / "s" / f"{name}.jsonl").open("rb"))
        if row["question_id"] == "hostile"
    ]
    expected = HOSTILE.replace("\ud800", "\\ud800")
    assert row["completion"] == [{"role": "assistant", "content": f"It is {expected}"}]
    assert expected in row["prompt"][-1]["content"]
    assert "\x1b" not in outcome.stderr


def test_the_card_says_how_the_rows_were_made(directory: Path, tmp_path: Path) -> None:
    out = tmp_path / "set"
    options = ("--pairs", 2, "--margin", 0.5, "--length-ratio", 5, "--max-words", 4)
    outcome = run("dataset", "dpo", directory, "--output", out, *options)
    assert outcome.code == 0, outcome.stderr
    record = json.loads((out / "splits.json").read_text("utf-8"))
    assert record["percentages"] == [70, 10, 20]
    stated = {
        "measure": "recovered",
        "judge": "tiny",
        "reader": "informed",
        "zero": "empty",
        "margin": 0.5,
        "max_words": 4,
    }
    assert stated.items() <= record.items()
    card = (out / "README.md").read_text("utf-8")
    for line in ("judge: tiny", "length ratio: 5.0", "longer than 4 words", "on average", "| train |"):
        assert line in card
    assert "longer than 4 words" in outcome.said
    by_score = run("dataset", "sft", directory, "--measure", "selfreflect", "--output", tmp_path / "score")
    assert by_score.code == 0, by_score.stderr
    record = json.loads((tmp_path / "score" / "splits.json").read_text("utf-8"))
    assert not {"reader", "zero", "scale"} & record.keys(), "those of another measure"


@pytest.mark.parametrize("command", [["dataset", "sft"], ["export"], ["export", "--format", "items"]])
def test_files_never_go_into_a_run_directory(directory: Path, command: list[str]) -> None:
    before = sorted(directory.rglob("*"))
    outcome = run(*command, directory, "--output", directory, "--overwrite")
    assert (outcome.code, "is a run directory" in outcome.said) == (2, True)
    assert sorted(directory.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sft", "RUN", "--margin", 2], "--margin belongs to dpo, not to sft"),
        (["grpo", "RUN", "--select", "best"], "--select belongs to sft, not to grpo"),
        (["sft", "RUN", "--select", "worst"], "'worst' is not one of 'best', 'random', 'longest'"),
        (["sft", "RUN", "--strategies", "cot"], "'cot'. It has: greedy, basic#1, basic#2, long"),
        (["sft", "RUN", "--parts", "70,30"], "percentages"),
        (["dpo", "RUN", "--length-ratio", 0.5], "must be 1 or more"),
        (["sft", "RUN", "--instruction", " "], "instruction is blank"),
        (["sft", "RUN", "--judge", "other"], "has scores by"),
        (["hedge", "RUN"], "is no longer"),
        (["sft", "RUN", "--classes", "exact"], "is no longer"),
        (["dpo", "RUN", "--margin", 99], "no pairs. 13 questions: no pair"),
        (["dpo", "RUN", "--strategies", "greedy"], "only one summary, so no pair. Draw more summaries"),
        (["sft", "RUN", "--max-words", 0], "--max-words"),
        (["sft", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_said_and_writes_nothing(
    directory: Path, tmp_path: Path, arguments: list[object], message: str
) -> None:
    arguments = [directory if argument == "RUN" else argument for argument in arguments]
    outcome = run("dataset", *arguments, "--output", tmp_path / "set")
    assert outcome.code == 2
    assert message in outcome.said
    assert not (tmp_path / "set").exists()


def test_an_unfinished_run_says_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with Run.open(path, {}) as stored:
        stored.append(Question(id="q", text="Who?"))
    assert (
        "Draw answers: selfreflect answers" in run("dataset", "grpo", path, "--output", tmp_path / "s").said
    )
    answered = write_learnable(tmp_path / "answered", {})
    outcome = run("dataset", "sft", answered, "--output", tmp_path / "s")
    assert "Draw summaries: selfreflect summarize --strategies basic#1-8" in outcome.said
    with Run.open(answered, {}) as stored:
        stored.append(Summary(question_id="q0", name="mine", text="Paris."))
    outcome = run("dataset", "sft", answered, "--output", tmp_path / "s")
    assert "no rows. 1 question: no summary can be used; 1 text: not measured. Score them" in outcome.said


def test_a_run_whose_summaries_were_cut_off_says_what_to_change(tmp_path: Path) -> None:
    path = write_learnable(tmp_path / "run", TEXTS, cut=("basic#1", "basic#2", "greedy"))
    advice = "3 of 4 summaries were cut off: sample them in a new run, with a higher --summary-tokens"
    outcome = run("dataset", "dpo", path, "--output", tmp_path / "pairs")
    assert outcome.code == 2
    assert f"only one summary, so no pair; 3 texts: cut off at the limit of tokens. {advice}" in outcome.said
    outcome = run("dataset", "sft", path, "--output", tmp_path / "best")
    assert outcome.code == 0
    assert advice in outcome.said


def test_an_existing_data_set_is_kept_unless_told_otherwise(directory: Path, tmp_path: Path) -> None:
    command = ("dataset", "sft", directory, "--output", tmp_path / "set")
    assert run(*command).code == 0
    before = (tmp_path / "set" / "splits.json").read_bytes()
    again = run(*command, "--select", "longest")
    assert (again.code, "already there" in again.said) == (2, True)
    assert (tmp_path / "set" / "splits.json").read_bytes() == before
    assert run(*command, "--select", "longest", "--overwrite").code == 0
    assert b"longest" in (tmp_path / "set" / "splits.json").read_bytes()
