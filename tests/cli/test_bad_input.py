"""What users get wrong: each through the real command, with a message that names the place and says what to
do, and no traceback."""

from __future__ import annotations

import resource
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny
from command import COMMAND, environment, process, refused, run, small, written

from selfreflect.store.run import Run

GOOD = {
    "id": "good",
    "question": "What first?",
    "answers": ["Radishes.", "Lettuce, I think."],
    "summaries": {"s": "Radishes or lettuce."},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("model"), "llama")


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return written(tmp_path / "q.txt", "What first?\n")


def item(**changes: Any) -> dict[str, Any]:
    return {**GOOD, **changes}


# --- files of items and questions


@pytest.mark.parametrize("command", [["score", "--items"], ["questions", "--questions"]])
def test_a_missing_file(command: Sequence[str], tmp_path: Path) -> None:
    refused(run(*command, tmp_path / "none.json"), tmp_path / "none.json")


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", []),
        ("{nonsense", ["line 1 column 2"]),
        ([item(), item(id="b", answers=["x", {"n": 1}])], ["record 2", "'answers'", "entry 2"]),
        ([item(summaries={})], ["selfreflect summarize"]),
        ([item(), item()], ["record 2", "'good'"]),
    ],
)
def test_a_file_of_items_that_is_none(content: object, parts: list[str], tmp_path: Path) -> None:
    path = written(tmp_path / "items.json", content)
    refused(run("score", "--items", path, "--json"), path, *parts)


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("q.jsonl", '{"id": "x", "question": "a?"}\n{"id": "x", "question": "b?"}\n', ["line 2", "'x'"]),
        ("q.csv", "name\nvalue\n", ["question", "'name'"]),
        ("q.doc", "what?", [".jsonl"]),
    ],
)
def test_a_file_of_questions_that_is_none(name: str, content: str, parts: list[str], tmp_path: Path) -> None:
    path = written(tmp_path / name, content)
    refused(run("run", "--questions", path, "--out", tmp_path / "r"), path, *parts)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (None, "no such file"),
        (b"\xc2\xa0", "blank"),
        (b"caf\xe9", "offset 3"),
    ],
)
def test_a_context_that_is_none(data: bytes | None, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "context.txt"
    if data is not None:
        path.write_bytes(data)
    refused(run("ask", "What?", "--context", path), path, problem)


# --- names


def test_an_unknown_strategy_is_said_before_anything_is_drawn(questions: Path, tmp_path: Path) -> None:
    for name, hint in (
        ("gredy", "Did you mean 'greedy'?"),
        ("no_such_module:f", "cannot import"),
        ("json:nothing", "no function"),
        (",", "--strategies"),
    ):
        refused(run("run", "--questions", questions, "--strategies", name, "--out", tmp_path / "r"), hint)
        assert not (tmp_path / "r").exists()
    refused(
        run("ask", "What?", "--strategies", "gredy"),
        "greedy, basic, cot, twostep_cot, sample_and_summarize, concatenated_answers",
    )
    refused(
        run("run", "--questions", questions, "--strategies", "cot,cot", "--out", tmp_path / "r"),
        "'cot' is named twice",
    )


def test_an_unknown_model_offline(questions: Path, tmp_path: Path) -> None:
    outcome = process("run", "--questions", questions, "--model", "smolm2", "--out", tmp_path / "r")
    refused(outcome, "'smolm2'", "smollm2", "Did you mean", "local directory")


@pytest.mark.parametrize("option", ["--model", "--judge"])
def test_a_model_directory_without_weights(option: str, model: Path, questions: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    written(bare / "config.json", {})
    outcome = run(*small(model, tmp_path / "r", questions), option, bare)
    refused(outcome, bare, "no safetensors weights", "save_pretrained")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--limit", "0"], "--limit"),
        (["--num-answers", "0"], "--num-answers"),
        (["--num-answers", "1000000000000"], "must be from 1 to 1,000,000, not 1000000000000"),
        (["--judge", "openai:gpt-4o"], "'openai:gpt-4o' cannot be a judge"),
        (["--device", "gpu"], "must be auto, cuda, cuda:N, mps or cpu"),
        (["--device-map", "balanced"], "'--device-map': 'balanced' is not one of 'auto'."),
        (["--batch-size", "0"], "--batch-size"),
        (
            ["--judge-dtype", "int8"],
            "'--judge-dtype': 'int8' is not one of 'auto', 'float32', 'bfloat16', 'float16'.",
        ),
        (["--compat", "no"], "'--compat': 'no' is not one of '', 'published'."),
        (["--config", "/nowhere.toml"], "/nowhere.toml: cannot be read"),
        (["--prompts", "/nowhere.toml"], "/nowhere.toml"),
    ],
)
def test_a_setting_out_of_range_leaves_no_directory(
    options: list[str], message: str, questions: Path, tmp_path: Path
) -> None:
    refused(run("run", "--questions", questions, "--out", tmp_path / "r", *options), message)
    assert not (tmp_path / "r").exists()


# --- places


@pytest.mark.parametrize("command", ["answers", "summarize", "score"])
def test_a_directory_that_is_not_there_is_not_made(command: str, tmp_path: Path) -> None:
    refused(
        run(command, "--out", tmp_path / "r"),
        f"There is no run directory {tmp_path / 'r'}",
        "selfreflect run",
    )
    assert not (tmp_path / "r").exists()


def test_a_stage_before_its_time_names_the_one_before(tmp_path: Path) -> None:
    assert run("questions", "--limit", 2, "--out", tmp_path / "r").code == 0
    refused(run("score", "--out", tmp_path / "r"), "has no summaries yet", "selfreflect summarize")
    refused(run("compare", tmp_path / "r"), "has no summaries yet", "selfreflect summarize")


def test_somebody_elses_directory_is_left_alone(questions: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    note = written(tmp_path / "mine" / "note.txt", "keep")
    refused(
        run("run", "--questions", questions, "--out", note.parent), note.parent, "not empty", "another --out"
    )
    refused(run("run", "--questions", questions, "--out", note.parent, "--fresh"), note.parent, "not empty")
    assert [path.name for path in note.parent.iterdir() if path.name != ".lock"] == ["note.txt"]


def test_a_place_that_cannot_be_written(questions: Path, model: Path, tmp_path: Path) -> None:
    file = written(tmp_path / "file", "text")
    refused(
        run("run", "--questions", questions, "--out", file / "r"),
        file / "r",
        "not a directory",
        "another --out",
    )
    refused(run("run", "--questions", questions, "--out", file), file, "another --out")
    assert run("questions", "--questions", questions, "--out", tmp_path / "r").code == 0
    assert "there is no directory" in run("report", tmp_path / "r", "--output", file / "r.md").said
    refused(run("report", tmp_path / "r", "--judge", "x"), "has no scores", "selfreflect score --out")
    refused(run("export", tmp_path / "r", "--output", file / "d"), file / "d", "written: File exists")


def _small_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def test_no_space_left_says_so_and_keeps_what_is_whole(tmp_path: Path) -> None:
    questions = written(
        tmp_path / "q.txt",
        "What first?\n" + "".join(f"Who is number {number} of these?\n" for number in range(200)),
    )
    refused(
        process("questions", "--questions", questions, "--out", tmp_path / "r", before=_small_files),
        "questions.jsonl",
        "free some disk space",
    )
    again = run("questions", "--questions", questions, "--out", tmp_path / "r")
    assert again.code == 0
    assert len(Run.load(tmp_path / "r").questions) == 201


# --- failures: recorded, with the scores of the others intact


@pytest.mark.parametrize(
    ("bad", "kind", "message"),
    [
        (item(answers=[]), "no_answers", "no reference answers"),
        (item(answers=[" ", "\n", "", "\t"]), "no_answers", "no test answers with words"),
        (item(summaries={"s": "word " * 6000}), "too_long", "the window of judge"),
    ],
)
def test_what_cannot_be_scored_spares_the_others(
    bad: dict[str, Any], kind: str, message: str, model: Path, tmp_path: Path
) -> None:
    path = written(tmp_path / "items.json", [{**bad, "id": "bad"}, GOOD])
    outcome = run("score", "--items", path, "--judge", model, "--json")
    assert outcome.code == 1
    assert "1 failure recorded" in outcome.said
    failed, scored = outcome.json
    assert (failed["id"], failed["summary"], failed["score"], failed["failure"]) == ("bad", "s", None, kind)
    assert message in failed["message"]
    [alone] = run(
        "score", "--items", written(tmp_path / "good.json", [GOOD]), "--judge", model, "--json"
    ).json
    assert scored == alone
    assert run("import", "--items", path, "--out", tmp_path / "r").code == 0
    assert run("score", "--out", tmp_path / "r", "--judge", model).code == 1
    stored = Run.load(tmp_path / "r")
    assert [(failure.question_id, failure.kind) for failure in stored.failures] == [("bad", kind)]
    assert [score.value for score in stored.scores.values()] == [alone["score"]]


@pytest.mark.parametrize("command", ["uncertainty", "calibrate", "validate", "report", "convert", "export"])
def test_a_name_that_is_too_long(command: str, tmp_path: Path) -> None:
    output = ("--output", tmp_path / "out") if command == "export" else ()
    refused(run(command, "x" * 300, *output), "x" * 100)


@pytest.mark.parametrize(
    "arguments", [("--b\u202ead\x1b[31m",), ("--limit", "\u202e5\x1b[31m"), ("x\u202e\x1b",)]
)
def test_what_was_typed_is_not_obeyed_by_the_terminal(arguments: tuple[str, ...]) -> None:
    for outcome in (run("run", *arguments), run(*arguments), run("sayself", *arguments)):
        assert outcome.code == 2
        assert set(outcome.stderr) & set("\x1b\u202e") == set()


def test_files_that_are_nested_too_deeply_or_hold_half_a_character(tmp_path: Path) -> None:
    deep = written(tmp_path / "deep.toml", "a = " + "[" * 5000 + "]" * 5000)
    for option in ("--config", "--prompts"):
        outcome = run("run", option, deep, "--questions", "bundled", "--out", tmp_path / "out")
        assert (outcome.code, "is nested too deeply" in outcome.said) == (2, True)
    flat = written(tmp_path / "flat.toml", "answers = 5")
    outcome = run("run", "--config", flat, "--questions", "bundled", "--out", tmp_path / "out")
    assert (outcome.code, "flat.toml" in outcome.said, "bug" in outcome.said) == (2, True, False)
    half = written(tmp_path / "half.json", '[{"\\ud800": 1}]')
    outcome = run("import", "--questions", half, "--out", tmp_path / "out")
    assert (outcome.code, "record 1" in outcome.said) == (2, True)


@pytest.mark.parametrize("value", ["9" * 5000, str(2**63)])
def test_an_integer_that_is_too_large_names_the_file(tmp_path: Path, value: str) -> None:
    file = written(tmp_path / "c.toml", f"[answers]\nseed = {value}\n")
    (tmp_path / "q.txt").write_text("Why?\n")
    outcome = run("run", "--questions", tmp_path / "q.txt", "--config", file, "--out", tmp_path / "r")
    assert (outcome.code, str(file) in outcome.stderr) == (2, True)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(("encoding", "more"), [("latin-1", ["--json"]), ("ascii", []), ("utf-8", [])])
def test_texts_are_shown_in_every_encoding(tmp_path: Path, encoding: str, more: list[str]) -> None:
    file = tmp_path / "q.txt"
    file.write_text("Wie „groß“ ist 東京 😀?\n", encoding="utf-8")
    command = [*COMMAND, "questions", "--questions", str(file), *more]
    variables = environment(PYTHONIOENCODING=encoding)
    done = subprocess.run(command, env=variables, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.decode(encoding)
    assert ("東京" if encoding == "utf-8" else "\\u6771\\u4eac") in shown


def test_a_context_that_is_no_file_is_the_text_itself(tmp_path: Path) -> None:
    outcome = run("ask", "What?", "--context", "The mill is blue.", "--model", tmp_path / "none")
    refused(outcome, "is not a directory with a model")
    assert "'The mill is blue.' is read as the context itself" in outcome.said
