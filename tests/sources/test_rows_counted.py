"""No row, answer or grade disappears without a count, in any layout; and what `convert` says of a file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command import piped, run, written
from hypothesis import given, settings
from hypothesis import strategies as st

from selfreflect.errors import DataError
from selfreflect.sources import files, parsers
from selfreflect.uncertainty.reading import AnsweredFile, read_answered_questions

ANSWER = st.one_of(st.none(), st.just(" "), st.sampled_from(["a", "b", "It is a."]))
ANSWERS = st.lists(ANSWER, max_size=4)
VERDICT = st.sampled_from(["C", "I", "P", 1, 0, 0.5, None])
FILE = st.lists(st.tuples(ANSWERS, st.lists(VERDICT, min_size=4, max_size=4)), min_size=1, max_size=5)


def ours(questions: Any) -> Any:
    return [
        {"question": f"Q{number}?", "answers": answers, "grades": {"g": grades[: len(answers)]}}
        for number, (answers, grades) in enumerate(questions)
    ]


def by_row(questions: Any) -> Any:
    return [
        {"question": f"Q{number}?", "answer": answer, "correct": grade}
        for number, (answers, grades) in enumerate(questions)
        for answer, grade in zip(answers, grades, strict=False)
    ]


def inspect(questions: Any) -> Any:
    samples = [
        {
            "id": number,
            "epoch": epoch,
            "input": f"Q{number}?",
            "scores": {"g": {"value": grade}},
            "output": {"choices": [{"message": {"role": "assistant", "content": answer or ""}}]},
        }
        for number, (answers, grades) in enumerate(questions)
        for epoch, (answer, grade) in enumerate(zip(answers, grades, strict=False))
    ]
    return {"version": 2, "status": "success", "eval": {}, "samples": samples}


def columns(questions: Any) -> Any:
    return {
        "question": [f"Q{number}?" for number in range(len(questions))],
        "answers": [answers for answers, _ in questions],
        "grades": [{"g": grades[: len(answers)]} for answers, grades in questions],
    }


def chat(questions: Any) -> Any:
    return [
        {
            "id": str(number),
            "question": f"Q{number}?",
            "choices": [{"message": {"content": a}} for a in answers],
        }
        for number, (answers, _) in enumerate(questions)
        if answers
    ]


def read(content: Any) -> AnsweredFile:
    with piped(json.dumps(content).encode()):
        return read_answered_questions("-")


def said(file: AnsweredFile, word: str) -> int:
    """What the notes count of something."""
    counts = [re.match(rf"(\d+) .*{word}", note) for note in file.notes]
    return sum(int(count[1]) for count in counts if count)


@pytest.mark.parametrize("layout", [ours, by_row, inspect, columns, chat])
@settings(max_examples=40, deadline=None)
@given(questions=FILE)
def test_answers_in_the_file_are_answers_read_or_counted(layout: Any, questions: Any) -> None:
    content = layout(questions)
    written_down = [answer for answers, _ in questions for answer in answers]
    try:
        file = read(content)
    except DataError:
        assert not [answer for answer in written_down if answer and answer.strip()], "nothing to read"
        return
    read_answers = sum(len(question.answers) for question in file.questions)
    missing = [answer for answer in written_down if not (answer or "").strip()]
    assert read_answers == len(written_down) - len(missing)
    rows_without = said(file, "row.? without an answer") if layout is by_row else 0
    assert said(file, "left out: (?:null|blank)") + rows_without == len(missing)


@given(questions=FILE)
def test_grades_in_the_file_are_labels_or_counted(questions: Any) -> None:
    try:
        file = read(ours(questions))
    except DataError:
        return
    expected = [
        grade
        for answers, grades in questions
        for answer, grade in zip(answers, grades, strict=False)
        if answer is not None
    ]
    pairs = [pair for question in file.questions for pair in question.grades.get("g", ())]
    assert len(pairs) == len(expected)
    labelled = sum(right is not None for _, right in pairs)
    assert labelled == sum(grade in ("C", "I", 1, 0) for grade in expected)
    if labelled:
        assert said(file, "neither right nor wrong") == len(expected) - labelled


SHORT = st.lists(st.lists(st.sampled_from(["a", "b", " "]), min_size=0, max_size=3), min_size=1, max_size=6)


@given(answers=SHORT)
def test_rows_without_their_last_cells_are_read_and_counted(answers: list[list[str]]) -> None:
    lines = [",".join([f"Q{number}?", *cells]) for number, cells in enumerate(answers)]
    text = "question,answer_1,answer_2,answer_3\n" + "".join(line + "\n" for line in lines)
    with piped(text.encode()):
        content = files.read_content("-")._replace(suffix=".csv", notes=[])
    rows = parsers.parse_rows(content)
    assert [[cell for cell in row.fields.values() if cell is not None][1:] for row in rows] == answers
    short = sum(len(cells) < 3 for cells in answers)
    assert sum(int(note.split()[0]) for note in content.notes or ()) == short


def test_a_list_of_labels_beside_plain_ones_costs_none(tmp_path: Path) -> None:
    rows = [
        {"question": "Oz?", "answers": ["a", "b"], "correct": ["C", "I"]},
        {"question": "Nod?", "answers": ["a", "b"], "response": "a", "correct": "yes"},
        {"question": "Uz?", "answers": ["a", "b"], "response": "a", "correct": "P"},
    ]
    path = written(tmp_path / "l.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    converted = tmp_path / "c.jsonl"
    assert run("convert", path, "--output", converted).code == 0
    for source in (path, converted):
        file = read_answered_questions(source)
        labels = [[right for _, right in q.grades.get("correct", ())] for q in file.questions]
        assert [sorted(map(str, of_question)) for of_question in labels[:2]] == [["False", "True"], ["True"]]
        assert [question.correct for question in file.questions] == [None] * 3
    assert said(read_answered_questions(path), "neither right nor wrong") == 1


def test_convert_says_what_a_file_is_what_its_columns_are_and_what_is_ignored(tmp_path: Path) -> None:
    rows = [{"question": "Oz?", "answers": ["a", "b"], "gold": "a", "page": {"x": 1}}]
    path = written(tmp_path / "a.json", rows)
    [found] = run("convert", path, "--json").json
    assert found["ignored"] == ["page"]
    assert found["columns"]["gold"] == "right answers"
    first, second, third, *_ = run("convert", path).stdout.splitlines()
    assert ("items" in first, "answers" in second, "page" in third) == (True, True, True)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("stem,drafts\nOz?,a\n", ["question=stem", "answer=drafts"]),
        ('"question, as asked";answer_1;answer_2\nOz?;a;b\n', ["question='question, as asked'"]),
        ("x,y\nOz?,a\n", ["question=x", "answer=y"]),
    ],
)
def test_all_that_is_missing_is_named_at_once(text: str, options: list[str], tmp_path: Path) -> None:
    outcome = run("convert", written(tmp_path / "a.csv", text))
    assert outcome.code == 2
    assert [option for option in options if f"--column {option}" not in outcome.said] == []


def test_a_row_of_another_kind_in_a_stream_of_samples_is_named(tmp_path: Path) -> None:
    sample = {"doc": {"question": "Oz?"}, "resps": [["a", "b"]], "filter": "none"}
    lines = [{**sample, "doc_id": number} for number in range(1100)]
    path = tmp_path / "s.jsonl"
    path.write_text(
        "".join(json.dumps(line) + "\n" for line in [*lines, {"question": "?"}]), encoding="utf-8"
    )
    outcome = run("convert", path)
    assert (outcome.code, "line 1101" in outcome.said) == (2, True)
