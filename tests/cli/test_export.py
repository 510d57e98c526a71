"""A run as files for other programs."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command import run, written

from selfreflect.logprobs import AnswerTokens
from selfreflect.records import AnswerSet, Question, Score, Summary
from selfreflect.report import export
from selfreflect.store.run import Run


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with Run.open(tmp_path / "run [x](y)", {}) as stored:
        for number in range(2):
            values = {"topic": "garden", "score": number} if number else {"topic": "\ud800"}
            stored.append(Question(id=f"q{number}", text="Why?" * (number + 1), metadata=values))
            halves = {"masked_out": ("a", "b"), "conditioning": ("c",)}
            stored.append(AnswerSet(question_id=f"q{number}", model="m", **halves))
            stored.append(Summary(question_id=f"q{number}", name="mine", text="<b>s</b>"))
        stored.append(
            Score(question_id="q0", summary="mine", value=0.5, stderr=None, token_tasks=3, judge="j")
        )
    return tmp_path / "run [x](y)"


def test_existing_files_are_kept_unless_asked(directory: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    precious = written(out / "summaries.json", "precious")
    refused = run("export", directory, "--output", out)
    assert (refused.code, f"already there in {out}: summaries.json" in refused.said) == (2, True)
    assert [path.name for path in out.iterdir()] == ["summaries.json"]
    assert precious.read_text() == "precious"
    assert run("export", directory, "--output", out, "--overwrite").code == 0
    assert json.loads(precious.read_text())


def test_a_data_set_loads_with_datasets(directory: Path, tmp_path: Path) -> None:
    from datasets import load_dataset

    out = tmp_path / "set"
    outcome = run("export", directory, "--format", "datasets", "--output", out)
    assert outcome.code == 0, outcome.stderr
    options = {"split": "train", "cache_dir": str(tmp_path / "cache")}
    summaries = load_dataset(str(out), "summaries", **options)
    assert summaries["score"] == [0.5, None]
    assert summaries["question"] == ["Why?", "Why?Why?"]
    assert summaries["summary"] == ["<b>s</b>"] * 2
    assert summaries["topic"] == ["\\ud800", "garden"]
    assert summaries["metadata.score"] == [None, 1]
    answers = load_dataset(str(out), "answers", **options)
    assert answers["masked_out"] == [["a", "b"]] * 2
    assert answers["score"] == [None, 1]
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "2 questions, 2 answer sets, 2 summaries" in card
    assert "Judge: j" in card
    assert "[x](y)" not in card
    again = run("export", directory, "--format", "datasets", "--output", out)
    assert (again.code, "already there" in again.said) == (2, True)


def test_exported_answers_and_items_are_items_again(directory: Path, tmp_path: Path) -> None:
    for format in ("datasets", "items"):
        assert run("export", directory, "--format", format, "--output", tmp_path / format).code == 0
    items = tmp_path / "items" / "items.jsonl"
    assert json.loads(items.read_text(encoding="utf-8").splitlines()[1])["metadata"] == {
        "topic": "garden",
        "score": 1,
    }
    for number, path in enumerate((items, tmp_path / "datasets" / "data" / "answers.parquet")):
        out = tmp_path / str(number)
        assert run("import", "--items", path, "--out", out).code == 0
        stored = Run.load(out)
        assert {key: one.answers for key, one in stored.answers.items()} == dict.fromkeys(
            ("q0", "q1"), ("a", "b", "c")
        )


def tokens(*texts: str) -> AnswerTokens:
    return AnswerTokens(texts, tuple(-0.5 - place for place in range(len(texts))), 1.5)


def test_log_probabilities_travel_in_items_and_data_sets(tmp_path: Path) -> None:
    known = (tokens("It ", "is", " \ud800a"), tokens("b"), tokens("c", "d"))
    with Run.open(tmp_path / "run", {}) as stored:
        for number, logprobs in enumerate((known, (*known[:2], "not_returned"), ())):
            stored.append(Question(id=f"q{number}", text="Why?" * (number + 1)))
            halves = {"masked_out": ("It is \ud800a",), "conditioning": ("b", "cd")}
            stored.append(AnswerSet(question_id=f"q{number}", logprobs=logprobs, **halves))
    lines = (tmp_path / "run" / "answers.jsonl").read_text().splitlines()
    assert ["logprobs" in line for line in lines] == [True, True, False]
    for format in ("datasets", "items"):
        assert run("export", tmp_path / "run", "--format", format, "--output", tmp_path / format).code == 0
    answers = tmp_path / "datasets" / "data" / "answers.parquet"
    table = pq.read_table(answers).to_pydict()
    assert table["logprobs"] == [[[-0.5, -1.5, -2.5], [-0.5], [-0.5, -1.5]], None, None]
    assert table["tokens"][0] == [["It ", "is", " \\ud800a"], ["b"], ["c", "d"]]
    items = tmp_path / "items" / "items.jsonl"
    outcome = run("convert", items, "--output", tmp_path / "again.jsonl")
    assert "of the tokens of each answer" in outcome.stdout
    assert (tmp_path / "again.jsonl").read_bytes() == items.read_bytes()
    assert run("import", "--items", items, "--out", tmp_path / "copy").code == 0
    copies = Run.load(tmp_path / "copy").answers
    assert [copies[f"q{number}"].logprobs for number in range(3)] == [known, (), ()]
    for path in (answers, items):
        outcome = run("uncertainty", path, "--estimators", "predictive_entropy,self_certainty", "--json")
        values = [line["values"] for line in outcome.json if "values" in line]
        assert values[0] == {"predictive_entropy": pytest.approx(7 / 3), "self_certainty": 1.5}
        assert values[1] == {"predictive_entropy": None, "self_certainty": None}


def test_columns_with_hostile_names_are_escaped_and_stay_apart(tmp_path: Path) -> None:
    names = ["\ud800", "\\ud800", "a\0b", "", "x" * 3000, "judge", "question", "two\nlines"]
    with Run.open(tmp_path / "run", {}) as stored:
        stored.append(Question(id="q", text="Why?", metadata=dict.fromkeys(names, "here")))
        stored.append(AnswerSet(question_id="q", masked_out=("a",), conditioning=("b",)))
        stored.append(Summary(question_id="q", name="s", text="t"))
    outcome = run("export", tmp_path / "run", "--format", "datasets", "--output", tmp_path / "set")
    assert outcome.code == 0, outcome.stderr
    [row] = pq.read_table(tmp_path / "set" / "data" / "answers.parquet").to_pylist()
    assert {name[:20] for name, value in row.items() if value == "here"} == {
        *("\\ud800", "metadata.\\ud800", "a\\x00b", "metadata", "x" * 20, "judge", "metadata.question"),
        "two lines",
    }


def test_a_run_with_nothing_yet_has_typed_columns(tmp_path: Path) -> None:
    written(tmp_path / "q.txt", "Why?\n")
    assert run("questions", "--questions", tmp_path / "q.txt", "--out", tmp_path / "r").code == 0
    assert run("export", tmp_path / "r", "--format", "datasets", "--output", tmp_path / "d").code == 0
    schema = pq.read_schema(tmp_path / "d" / "data" / "summaries.parquet")
    assert (str(schema.field("score").type), str(schema.field("summary").type)) == ("double", "string")


def test_a_data_set_without_its_package_names_the_extra(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = export.find_spec
    monkeypatch.setattr(export, "find_spec", lambda name: None if name == "pyarrow" else find(name))
    outcome = run("export", directory, "--format", "datasets", "--output", tmp_path / "d")
    assert (outcome.code, ".[parquet]" in outcome.said) == (2, True), outcome.said
    assert not (tmp_path / "d").exists()
