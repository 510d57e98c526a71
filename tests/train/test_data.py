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


def test_facts_of_a_folder(tmp_path: Path) -> None:
    assert data_facts(tmp_path) == {}
    (tmp_path / "splits.json").write_text('{"judge": "smollm2"}')
    assert data_facts(tmp_path) == {"judge": "smollm2"}
