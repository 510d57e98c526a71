"""Batch files: nothing is lost between requests and responses, and nothing foreign is taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import Outcome, run
from fault_server import choice
from served import questions

from selfreflect.store.run import Run

Line = dict[str, Any]


def answers(folder: Path, *more: object, count: int = 3) -> Outcome:
    asked = questions(folder / "asked.txt", count)
    line = (
        f"answers --questions {asked} --model openai:m --num-answers 2 --max-new-tokens 5 --out {folder}/run"
    )
    return run(*line.split(), *more)


def requests(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def output(request: Line, text: Callable[[int], str] = "text {}".format) -> Line:
    """What a server writes for a line: as many choices as it asks for."""
    choices = [choice(text(number)) for number in range(request["body"].get("n", 1))]
    body = {"object": "chat.completion", "choices": choices, "usage": {"completion_tokens": len(choices)}}
    response = {"status_code": 200, "request_id": "r", "body": body}
    return {"id": "b", "custom_id": request["custom_id"], "response": response, "error": None}


def written(folder: Path, lines: list[Line | str]) -> Path:
    path = folder / "output.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def test_answers_come_through_files_without_a_server(tmp_path: Path) -> None:
    batch = tmp_path / "batch.jsonl"
    assert answers(tmp_path, "--write-batch", batch).code == 0
    lines = requests(batch)
    run_ids = set(Run.load(tmp_path / "run").questions)
    assert {line["custom_id"].partition("#")[0] for line in lines} == run_ids
    assert {(line["method"], line["url"], line["body"]["n"]) for line in lines} == {
        ("POST", "/v1/chat/completions", 4)
    }
    standard = {"model", "messages", "temperature", "top_p", "max_tokens", "n", "seed"}
    assert all(line["body"].keys() == standard for line in lines)
    store = Run.load(tmp_path / "run")
    assert (len(store.answers), len(store.failures)) == (0, 0)  # nothing has failed

    out = answers(tmp_path, "--read-batch", written(tmp_path, [output(line) for line in reversed(lines)]))
    assert out.code == 0, out.stderr
    for record in Run.load(tmp_path / "run").answers.values():
        assert (*record.masked_out, *record.conditioning) == ("text 0", "text 1", "text 2", "text 3")


def test_what_is_missing_is_counted_and_asked_for_again(tmp_path: Path) -> None:
    batch = tmp_path / "batch.jsonl"
    answers(tmp_path, "--write-batch", batch)
    whole, half, failed = requests(batch)
    two = output(half)
    two["response"]["body"]["choices"] = two["response"]["body"]["choices"][:2]
    refusal = {"custom_id": failed["custom_id"], "response": {"status_code": 500, "body": {"error": "boom"}}}
    foreign = output({**whole, "custom_id": "other#0"})
    path = written(tmp_path, [output(whole), output(whole), two, refusal, foreign, '{"custom_id": "q', ""])
    out = answers(tmp_path, "--read-batch", path)
    assert out.code == 1
    assert "1 unreadable, 1 doubled, 1 failed, 1 of other requests" in out.stderr
    store = Run.load(tmp_path / "run")
    assert (len(store.answers), len(store.failures)) == (1, 2)

    again = tmp_path / "again.jsonl"
    assert answers(tmp_path, "--write-batch", again).code == 0
    sizes = {line["custom_id"]: line["body"]["n"] for line in requests(again)}
    assert sizes == {failed["custom_id"]: 4, half["custom_id"].removesuffix("#0") + "#2": 2}
    lines: list[Line | str] = [output(line, "later {}".format) for line in requests(again)]
    assert answers(tmp_path, "--read-batch", written(tmp_path, lines)).code == 0
    texts = {
        (*record.masked_out, *record.conditioning) for record in Run.load(tmp_path / "run").answers.values()
    }
    assert ("text 0", "text 1", "later 0", "later 1") in texts


def refused(request: Line, message: str) -> Line:
    response = {"status_code": 400, "body": {"error": {"message": message}}}
    return {"id": "b", "custom_id": request["custom_id"], "response": response, "error": None}


def test_the_next_file_is_written_without_what_was_refused_in_every_line(tmp_path: Path) -> None:
    batch = tmp_path / "batch.jsonl"
    answers(tmp_path, "--write-batch", batch)
    for message in (
        "Unsupported parameter: 'max_tokens' is not supported with this model.",
        "Unsupported parameter: 'top_p'.",
        "n must be at most 3",
    ):
        output_path = written(tmp_path, [refused(line, message) for line in requests(batch)])
        assert answers(tmp_path, "--read-batch", output_path).code == 1
        assert answers(tmp_path, "--write-batch", batch).code == 0
    lines = requests(batch)
    assert [line["body"].get("n", 1) for line in lines] == [3, 1] * 3
    standard = {"model", "messages", "temperature", "max_completion_tokens", "n", "seed"}
    assert {*lines[0]["body"]} == standard
    known = Run.load(tmp_path / "run").manifest.models["answers"]["refused"]
    assert known == {
        "max_tokens": "sent as max_completion_tokens",
        "n": "at most 3 per call",
        "top_p": "left out",
    }
    whole = written(tmp_path, [output(line) for line in lines])
    assert answers(tmp_path, "--read-batch", whole).code == 0
    before = batch.read_bytes()
    assert answers(tmp_path, "--write-batch", batch).code == 0
    assert batch.read_bytes() == before, "nothing is missing"


def test_one_refused_line_changes_no_other(tmp_path: Path) -> None:
    batch = tmp_path / "batch.jsonl"
    answers(tmp_path, "--write-batch", batch)
    first, *others = requests(batch)
    lines: list[Line | str] = [refused(first, "Unsupported parameter: 'seed'."), *map(output, others)]
    assert answers(tmp_path, "--read-batch", written(tmp_path, lines)).code == 1
    answers(tmp_path, "--write-batch", batch)
    assert [line["body"]["seed"] for line in requests(batch)] == [first["body"]["seed"]]


def test_a_refused_value_that_makes_the_distribution_ends_with_the_choice(tmp_path: Path) -> None:
    batch = tmp_path / "batch.jsonl"
    answers(tmp_path, "--write-batch", batch)
    answers(tmp_path, "--read-batch", written(tmp_path, [output(line) for line in requests(batch)]))
    summarize = ["summarize", "--strategies", "basic", "--out", tmp_path / "run"]
    assert run(*summarize, "--write-batch", batch).code == 0
    lines: list[Line | str] = [refused(line, "'temperature' must be 1 here") for line in requests(batch)]
    ended = run(*summarize, "--read-batch", written(tmp_path, lines))
    assert ended.code == 2
    assert "basic#1-2" in ended.said


def test_texts_that_did_not_end_are_no_answers(tmp_path: Path) -> None:
    batch = tmp_path / "batch.jsonl"
    answers(tmp_path, "--write-batch", batch, count=1)
    [line] = requests(batch)
    torn = output(line)
    torn["response"]["body"]["choices"][1]["finish_reason"] = "error"
    assert answers(tmp_path, "--read-batch", written(tmp_path, [torn]), count=1).code == 1
    assert not Run.load(tmp_path / "run").answers
    answers(tmp_path, "--write-batch", batch, count=1)
    assert [(one["custom_id"][-2:], one["body"].get("n", 1)) for one in requests(batch)] == [("#1", 1)]


def test_answers_of_other_settings_are_not_taken(tmp_path: Path) -> None:
    batch = tmp_path / "batch.jsonl"
    answers(tmp_path, "--write-batch", batch)
    lines: list[Line | str] = [output(line) for line in requests(batch)]
    other = tmp_path / "other"
    other.mkdir()
    assert answers(other, "--temperature", "0.5", "--read-batch", written(tmp_path, lines)).code == 1
    assert not Run.load(other / "run").answers


def test_summaries_come_through_files_too(tmp_path: Path) -> None:
    batch = tmp_path / "batch.jsonl"
    answers(tmp_path, "--write-batch", batch)
    answers(tmp_path, "--read-batch", written(tmp_path, [output(line) for line in requests(batch)]))
    summarize = ["summarize", "--strategies", "greedy,basic", "--out", tmp_path / "run"]
    assert run(*summarize, "--write-batch", batch).code == 0
    lines = requests(batch)
    assert len(lines) == len({line["custom_id"] for line in lines}) == 6
    out = run(*summarize, "--read-batch", written(tmp_path, [output(line) for line in lines]))
    assert out.code == 0, out.stderr
    assert len(Run.load(tmp_path / "run").summaries) == 6


@pytest.mark.parametrize(
    "content",
    [
        '{"custom_id": "q#a#0", "method": "POST", "body": {}}',
        "",
        "\x00\xff",
        "[1]\n2\n",
        '{"question": "x"}\n',
    ],
)
def test_a_file_that_is_no_output_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "wrong.jsonl"
    path.write_text(content, "latin-1")
    assert answers(tmp_path, "--read-batch", path).code == 2
    assert answers(tmp_path, "--read-batch", tmp_path / "missing").code == 2
    assert answers(tmp_path, "--write-batch", tmp_path).code == 2


def test_only_models_with_batches_take_them(tmp_path: Path) -> None:
    asked = questions(tmp_path / "asked.txt", 1)
    line = f"answers --questions {asked} --model smollm2 --out {tmp_path}/run --write-batch b.jsonl"
    assert run(*line.split()).code == 2
    assert answers(tmp_path, "--write-batch", "b", "--read-batch", "c").code == 2
