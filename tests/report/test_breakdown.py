"""Results by a column of the question file: means with n for each value, and paired differences within it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from command import run, written

from selfreflect.errors import DataError
from selfreflect.records import AnswerSet, Question, Score, Summary
from selfreflect.report.results import MAX_VALUES, breakdown, by_value
from selfreflect.report.run_records import RunRecords
from selfreflect.run.records import run_records
from selfreflect.store.run import Run


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Six questions of two topics and one without; `b` is worse on gardens only."""
    topics = ["garden", "garden", "town", "town", "garden", None]
    with Run.open(tmp_path / "r", {}) as stored:
        for number, topic in enumerate(topics):
            id_ = f"q{number}"
            values = {"score": number, "=1+1": "x"} | ({"topic": topic} if topic else {})
            stored.append(Question(id=id_, text=f"Question {number}?", kind="plain", metadata=values))
            stored.append(AnswerSet(question_id=id_, masked_out=("a",), conditioning=("b",)))
            for name in ("a", "b"):
                worse = 0.25 if (name, topic) == ("b", "garden") else 0
                score = Score(
                    question_id=id_,
                    summary=name,
                    value=number / 16 + worse,
                    stderr=None,
                    token_tasks=1,
                    judge="j",
                )
                stored.append_all([Summary(question_id=id_, name=name, text="s"), score])
    return tmp_path / "r"


def records(values: list[str]) -> RunRecords:
    questions = {
        str(at): Question(id=str(at), text="?", metadata={"v": one}) for at, one in enumerate(values)
    }
    return RunRecords("r", [], questions, {}, {}, {}, [])


def test_means_by_topic_with_n(directory: Path) -> None:
    table = breakdown(run_records(Run.load(directory)), "topic")
    headings = [column.heading for column in table.columns]
    rows = [dict(zip(headings, row, strict=True)) for row in table.rows]
    assert [(row["topic"], row["strategy"], row["mean score"], row["n"]) for row in rows] == [
        ("garden", "a", pytest.approx((0 + 1 + 4) / 48), 3),
        ("garden", "b", pytest.approx((0 + 1 + 4) / 48 + 0.25), 3),
        ("town", "a", pytest.approx(5 / 32), 2),
        ("town", "b", pytest.approx(5 / 32), 2),
        ("(none)", "a", pytest.approx(5 / 16), 1),
        ("(none)", "b", pytest.approx(5 / 16), 1),
    ]
    assert all(row["95% low"] is None and row["95% high"] is None for row in rows)  # too few questions


def test_commands_break_down_and_keep_their_other_lines(directory: Path) -> None:
    plain, lines = (
        run("report", directory, "--json").json,
        run("report", directory, "--by", "topic", "--json").json,
    )
    assert lines[:2] == plain
    town = {"by": "topic", "value": "town", "strategy": "b", "score": 5 / 32, "n": 2, "questions": 2}
    assert town.items() <= lines[5].items()
    assert "garden" in run("report", directory, "--by", "topic").stdout
    compared = run("compare", directory, "--by", "topic", "--json").json
    assert [line.get("value") for line in compared] == [None, "garden", "town", "(none)"]
    assert [line["difference"] for line in compared[1:]] == [0.25, 0, 0]
    assert "By topic" in run("compare", directory, "--by", "topic").stdout
    output = directory.parent / "r.md"
    assert run("report", directory, "--by", "kind", "--output", output).code == 0
    assert "| plain | a |" in output.read_text()


def test_columns_appear_in_rows_and_frames_beside_ours(directory: Path) -> None:
    output = directory.parent / "rows.csv"
    assert run("report", directory, "--output", output).code == 0
    [first, *_] = csv.DictReader(io.StringIO(output.read_text()))
    assert (first["topic"], first["score"], first["metadata.score"]) == ("garden", "0.0", "0")
    assert "'=1+1" in first, "no spreadsheet runs a heading"
    frame = Run.load(directory).to_pandas()
    assert list(frame["topic"][:2]) == ["garden", "garden"]
    assert list(frame["metadata.score"][:3]) == [0, 0, 1]


def test_an_unknown_column_names_those_there_are(directory: Path) -> None:
    for command in ("report", "compare"):
        outcome = run(command, directory, "--by", "topik")
        assert (outcome.code, outcome.stdout) == (2, ""), "it is said before the results, not below them"
        assert "Did you mean 'topic'?" in outcome.said
    with pytest.raises(DataError, match="came with the questions: 'v'"):
        by_value(records(["x"]), "kind")


def test_many_values_share_a_row() -> None:
    values = [f"v{number}" for number in range(MAX_VALUES + 5)] + ["v3"]
    parts = by_value(records(values), "v")
    assert len(parts) == MAX_VALUES
    assert next(iter(parts)) == "v3"
    assert len(parts["(6 other values)"].questions) == 6
    assert sum(len(part.questions) for part in parts.values()) == len(values)
    assert "others" not in "".join(by_value(records(values[:MAX_VALUES]), "v"))


def test_a_question_file_hands_its_columns_on(tmp_path: Path) -> None:
    path = written(tmp_path / "q.csv", "question,topic,category,gold\nWhy?,garden,plain,so\n")
    [line] = run("questions", "--questions", path, "--json").json
    assert (line["metadata"], line["kind"]) == ({"topic": "garden", "category": "plain"}, "plain")
    assert (
        line["id"]
        == json.loads(run("questions", "--questions", written(tmp_path / "q.txt", "Why?"), "--json").stdout)[
            "id"
        ]
    )
