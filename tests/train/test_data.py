"""What is read of data sets, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from selfreflect.errors import DataError
from selfreflect.train.folder import data_facts, read_rows

PROMPT = [{"role": "user", "content": "What should I plant?"}]
ROW = {"question_id": "q1", "prompt": PROMPT, "completion": [{"role": "assistant", "content": "Peas"}]}


def folder(path: Path, **splits: list[dict[str, Any]]) -> Path:
    for name, rows in splits.items():
        (path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_of_a_file_and_of_a_folder(tmp_path: Path) -> None:
    folder(tmp_path, train=[ROW], dev=[], test=[{**ROW, "question_id": "q2"}])
    assert read_rows(tmp_path, "sft") == read_rows(tmp_path / "train.jsonl", "sft") == [ROW]
    assert read_rows(tmp_path, "grpo") == [ROW]


@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_question_in_two_splits_is_refused(tmp_path: Path, split: str) -> None:
    folder(tmp_path, train=[ROW], **{split: [ROW]})
    with pytest.raises(DataError, match=rf"shares 1 question with {split}\.jsonl, for example 'q1'"):
        read_rows(tmp_path, "sft")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no rows to train on"),
        ("\n[1]\n", "line 2: expected an object"),
        ("{", "line 1: not JSON"),
        ('{"prompt": "What?"}', "line 1: 'prompt' must be a list of messages"),
        (json.dumps({"prompt": PROMPT}), "line 1: 'completion' must be a list of messages"),
        (json.dumps({**ROW, "prompt": []}), "line 1: 'prompt' must be a list of messages"),
        (json.dumps({**ROW, "prompt": [{"role": "root", "content": "x"}]}), "line 1: 'prompt' must be"),
        (json.dumps({**ROW, "prompt": [{"role": "user", "content": None}]}), "line 1: 'prompt' must be"),
    ],
)
def test_lines_that_are_no_rows_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "rows.jsonl").write_text(text)
    with pytest.raises(DataError, match=message):
        read_rows(tmp_path / "rows.jsonl", "sft")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train\.jsonl.*: there is no such file"):
        read_rows(tmp_path, "sft")
    (tmp_path / "rows.jsonl").write_bytes(b"\xff\xfe{}")
    with pytest.raises(DataError, match=r"rows\.jsonl.* is not UTF-8"):
        read_rows(tmp_path / "rows.jsonl", "sft")
    (tmp_path / "splits.json").write_text("{")
    with pytest.raises(DataError, match=r"splits\.json cannot be read"):
        data_facts(tmp_path)


def test_facts_of_a_folder(tmp_path: Path) -> None:
    assert data_facts(tmp_path) == {}
    (tmp_path / "splits.json").write_text('{"judge": "smollm2"}')
    assert data_facts(tmp_path) == {"judge": "smollm2"}


def test_every_turn_of_every_conversation_is_checked(tmp_path: Path) -> None:
    answer = [{"role": "assistant", "content": "Peas"}]
    system = [{"role": "system", "content": "Be brief."}, *PROMPT]
    pair = {"prompt": system, "chosen": answer, "rejected": answer}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(pair))
    assert read_rows(path, "dpo") == [pair]
    for column, bad in (("chosen", "Peas"), ("rejected", [*answer, 7]), ("prompt", {"role": "user"})):
        path.write_text(json.dumps({**pair, column: bad}))
        with pytest.raises(DataError, match=f"line 1: '{column}' must be a list of messages"):
            read_rows(path, "dpo")
    path.write_text(json.dumps({**pair, "rejected": [*answer, {"role": "assistant"}]}))
    with pytest.raises(DataError, match="'rejected' must be a list"):
        read_rows(path, "dpo")
    assert read_rows(path, "grpo")


def test_a_folder_with_rows_of_no_question_is_read(tmp_path: Path) -> None:
    """Rows that other tools made have no ids, so nothing is known of their questions."""
    plain = {name: value for name, value in ROW.items() if name != "question_id"}
    folder(tmp_path, train=[plain], test=[plain])
    assert read_rows(tmp_path, "sft") == [plain]
    with pytest.raises(DataError, match="has no rows to train on"):
        read_rows(folder(tmp_path, train=[]), "sft")


def test_facts_that_are_no_object_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "splits.json").write_text("[1]")
    assert data_facts(tmp_path) == {}
