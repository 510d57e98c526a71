"""What a record may hold: whatever a file says, no number in it is beyond what the reports can show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec.inspect as inspect
import pytest

from selfreflect.errors import StoreError
from selfreflect.records import (
    AnswerSample,
    AnswerSet,
    Controls,
    Failure,
    Information,
    Question,
    SamplingCheck,
    Score,
    Summary,
)
from selfreflect.store.run import Run

STORED = (AnswerSample, AnswerSet, Controls, Failure, Information, Question, SamplingCheck, Score, Summary)
ANY = {"AnswerSet.seed", "Summary.seed", "Sampled.seed", "Question.metadata"}
"""Numbers with which nothing is computed."""


def unbounded(kind: Any, place: str) -> Iterator[str]:
    """Fields of a record, and of the records in it, that take any number."""
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        if kind.ge is None or kind.le is None:
            yield place
    elif isinstance(kind, inspect.StructType):
        for field in kind.fields:
            yield from unbounded(field.type, f"{kind.cls.__name__}.{field.name}")
    for part in (*getattr(kind, "types", ()), *getattr(kind, "item_types", ())):
        yield from unbounded(part, place)
    for name in ("item_type", "value_type"):
        if hasattr(kind, name):
            yield from unbounded(getattr(kind, name), place)


@pytest.mark.parametrize("record", STORED)
def test_every_number_has_a_range(record: type) -> None:
    assert {*unbounded(inspect.type_info(record), "")} <= ANY


@pytest.mark.parametrize(
    ("field", "value"),
    [("value", 1e308), ("value", -1), ("stderr", -0.5), ("token_tasks", -1), ("token_tasks", 10**400)],
)
def test_a_number_out_of_range_is_named_with_file_and_line(tmp_path: Path, field: str, value: float) -> None:
    score = {"question_id": "q", "summary": "s", "value": 0.5, "stderr": None, "token_tasks": 3, "judge": "j"}
    Run.open(tmp_path / "r", {}).close()
    lines = [score, {**score, "summary": "t", field: value}]
    (tmp_path / "r" / "scores.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(StoreError, match=r"scores\.jsonl, line 2: .*" + field):
        _ = Run.load(tmp_path / "r").scores
