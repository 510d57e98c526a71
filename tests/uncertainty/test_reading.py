"""Files of stored answers as people have them: every layout that items have gives the same questions."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from command import piped, written

from selfreflect.errors import ConfigError, DataError
from selfreflect.sources.items import read_item_file, to_plain
from selfreflect.uncertainty.assess import Assessment, Method
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue
from selfreflect.uncertainty.reading import AnsweredFile, read_answered_questions

SAMPLES = {"Capital of France?": ["Paris", "Lyon", "Paris"], "Capital of Turkey?": ["Ankara", "Izmir"]}
GOLD = {"Capital of France?": "Paris", "Capital of Turkey?": "Ankara"}


def read(rows: list[dict[str, Any]], **options: Any) -> AnsweredFile:
    with piped(json.dumps(rows).encode()):
        return read_answered_questions("-", **options)


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def known(questions: list[AnsweredQuestion]) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [(one.text, one.answers, one.gold) for one in questions]


EVERY = [(text, tuple(answers), (GOLD[text],)) for text, answers in SAMPLES.items()]
WIDE = [{"prompt": text, "samples": answers, "gold": GOLD[text]} for text, answers in SAMPLES.items()]
LONG = [
    {"query": text, "response": answer, "gold": GOLD[text]} for text in SAMPLES for answer in SAMPLES[text]
]
NUMBERED = [
    {"question": text, "gold": GOLD[text], **{f"answer_{place}": one for place, one in enumerate(answers)}}
    for text, answers in SAMPLES.items()
]


@pytest.mark.parametrize("rows", [WIDE, LONG, NUMBERED], ids=["wide", "long", "numbered"])
def test_every_layout_gives_the_same_questions(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    assert known(read(rows).questions) == EVERY
    names = {name: None for row in rows for name in row}
    cells = []
    for row in rows:
        values = {name: row.get(name, "") for name in names}
        cells.append({name: str(v) if isinstance(v, list) else v for name, v in values.items()})
    assert known(read_answered_questions(table(tmp_path / "a.csv", cells)).questions) == EVERY


def test_what_convert_writes_keeps_right_answers_and_labels(tmp_path: Path) -> None:
    rows = [{**row, "confidence": 0.5, "correct": True} for row in WIDE]
    items = read_item_file(written(tmp_path / "a.json", rows)).items
    written_again = read([to_plain(item) for item in items]).questions
    shuffled = [(text, tuple(sorted(answers)), gold) for text, answers, gold in known(written_again)]
    assert shuffled == [(text, tuple(sorted(answers)), gold) for text, answers, gold in EVERY]
    assert [(one.confidence, one.correct) for one in written_again] == [(0.5, True)] * 2


def test_rows_of_single_answers_have_log_probabilities_of_their_own(tmp_path: Path) -> None:
    rows = [{**row, "logprobs": [-0.1 * place]} for place, row in enumerate(LONG)]
    for questions in (
        read(rows).questions,
        read_answered_questions(table(tmp_path / "a.csv", rows)).questions,
    ):
        assert [one.token_values.logprobs for one in questions] == [
            ((0.0,), (-0.1,), (-0.2,)),
            ((-0.1 * 3,), (-0.4,)),
        ]
    del rows[1]["logprobs"]
    with pytest.raises(DataError, match="entry 2 of the field 'logprobs'"):
        read(rows)


def test_labels_of_single_answers_are_their_grades() -> None:
    rows = [{**row, "correct": row["response"] == "Paris"} for row in LONG]
    file = read(rows)
    assert [question.correct for question in file.questions] == [None, None]
    assert [question.grades for question in file.questions] == [
        {"correct": (("Paris", True), ("Lyon", False), ("Paris", True))},
        {"correct": (("Ankara", False), ("Izmir", False))},
    ]
    assert file.notes == []
    with pytest.raises(DataError, match="different right answers in the field 'gold': 'Paris'"):
        read([{**row, "gold": row["response"]} for row in LONG])


def test_a_mark_for_an_unknown_log_probability_is_no_number() -> None:
    with pytest.raises(DataError, match="entry 1 of the field 'logprobs' contains -9999"):
        read([{"question": "q", "answers": ["Paris"], "logprobs": [[-0.5, -9999.0]]}])


def test_a_response_beside_samples_or_a_confidence_is_the_judged_answer() -> None:
    [beside] = read([{"question": "q", "answers": ["a", "b"], "response": "c"}]).questions
    assert (beside.answers, beside.answer) == (("a", "b"), "c")
    [stated] = read([{"question": "q", "response": "c", "confidence": 0.3}]).questions
    assert (stated.answers, stated.answer, stated.confidence) == ((), "c", 0.3)


def test_a_right_answer_may_be_a_number_and_is_taken_only_where_it_is_named() -> None:
    rows = [{"question": "6 * 7?", "answer": 42, "samples": ["42", "41"]}]
    file = read(rows)
    assert (file.questions[0].gold, file.notes) == (
        (),
        ["'answer' may hold the right answers; if so, add --gold answer"],
    )
    assert read(rows, gold="answer").questions[0].gold == ("42",)


def test_columns_can_be_named_and_are_asked_for() -> None:
    rows = [{"x": "q", "y": ["a", "b"]}]
    [question] = read(rows, columns={"question": "x", "answer": "y"}).questions
    assert (question.text, question.answers) == ("q", ("a", "b"))
    with pytest.raises(DataError, match="'x', 'y'") as unnamed:
        read(rows)
    assert "{column} question=x" in unnamed.value.remedy
    assert read(rows, columns={"question": "x"}).questions == [question]
    with pytest.raises(DataError, match="'x', 'y'") as unanswered:
        read([{"x": "q", "y": "a"}], columns={"question": "x"})
    assert "{column} answer=y" in unanswered.value.remedy
    with pytest.raises(ConfigError, match="has no column 'z'"):
        read(rows, columns={"answer": "z"})


LOGPROBS = [[-0.1], [-0.2], [-0.3], [-0.4]]


@pytest.mark.parametrize(
    ("answers", "left", "places"),
    [
        (["a", None, "b", "a"], "1 answer left out: null", [0, 2, 3]),
        (["a", " ", "\n", "b"], "2 answers left out: blank", [0, 3]),
        ([None, "", "a", "b"], "1 answer left out: null", [2, 3]),
    ],
)
def test_null_and_blank_answers_are_counted_and_take_nothing_along(
    answers: list[Any], left: str, places: list[int]
) -> None:
    row = {"question": "Q?", "answers": answers, "logprobs": LOGPROBS, "gold": "a"}
    file = read([row, {"question": "R?", "answers": ["a"], "logprobs": [[-1.0]]}])
    assert file.questions[0].answers == tuple(answers[place] for place in places)
    assert file.questions[0].token_values.logprobs == tuple(tuple(LOGPROBS[place]) for place in places)
    assert any(note.startswith(left) for note in file.notes)


@pytest.mark.parametrize("empty", [[], None, [None], [""], ["", " "]])
def test_a_question_without_an_answer_is_undefined_and_the_others_are_read(empty: Any) -> None:
    rows = [{"question": "Q?", "answers": empty, "gold": "a"}, {"question": "R?", "answers": ["a", "b"]}]
    file = read(rows)
    assert [len(question.answers) for question in file.questions] == [0, 2]
    assert any("without any answer" in note for note in file.notes)
    assessment = Assessment(file.questions, ["modal_share"], Method(ClassRule(), correctness=("exact",)))
    undefined, value = assessment.values["modal_share"]
    assert isinstance(undefined, NoValue)
    assert undefined.reason == "too_few_samples"
    assert value == 0.5
    assert assessment.judged.labels["exact"] == [None, None]


def test_equal_answers_and_grades_of_many_questions_are_in_memory_once() -> None:
    row = {"answers": ["A", "B"], "correct": [True, False], "gold": "A"}
    first, second = read([{"question": "One?", **row}, {"question": "Two?", **row}]).questions
    assert first.answers is second.answers
    assert first.gold is second.gold
    assert first.grades is second.grades
    assert first.token_values is second.token_values
