"""Files as other tools and spreadsheets write them: every answer, question and right answer is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import run, written
from fault_server import FaultServer
from served import command

from selfreflect.errors import DataError
from selfreflect.sources.items import read_item_file
from selfreflect.sources.questions import load_questions
from selfreflect.store.run import Run
from selfreflect.uncertainty.reading import read_answered_questions

FRAME = """prompt,response,sampled_responses,semantic_negentropy
Capital of Oz?,Emerald City,"['Emerald City', 'Ruby Town', 'Emerald City']",0.6
Capital of Nod?,Cair,"['Cair', 'Cair', 'Cair']",1.0
"""
OZ = ("Emerald City", "Ruby Town", "Emerald City")
RESULT = {
    "data": {
        "prompts": ["Capital of Oz?", "Capital of Nod?"],
        "responses": ["Emerald City", "Cair"],
        "sampled_responses": [OZ, ["Cair"] * 3],
    },
    "metadata": {"temperature": 1},
}


@pytest.mark.parametrize(("name", "content"), [("u.csv", FRAME), ("u.json", RESULT)])
def test_samples_beside_a_response_are_the_answers(name: str, content: Any, tmp_path: Path) -> None:
    path = written(tmp_path / name, content)
    items = read_item_file(path).items
    assert [item.answer_set.answers for item in items] == [OZ, ("Cair",) * 3]
    [oz, _] = read_answered_questions(path).questions
    assert (oz.answers, oz.answer) == (OZ, "Emerald City")
    if name == "u.csv":
        assert items[0].metadata["semantic_negentropy"] == "0.6"


@pytest.mark.parametrize("cell", ['["a", "b", "a"]', "['a', 'b', 'a']"])
def test_a_list_in_a_named_column_is_a_list(cell: str, tmp_path: Path) -> None:
    path = written(tmp_path / "d.csv", 'question,drafts\nOz?,"' + cell.replace('"', '""') + '"\n')
    columns = {"answer": "drafts"}
    of_json = written(tmp_path / "d.json", {"question": "Oz?", "drafts": cell})
    [item] = read_item_file(path, columns=columns).items
    [question] = read_answered_questions(path, columns=columns).questions
    assert question.answers == ("a", "b", "a")
    assert read_answered_questions(of_json, columns=columns).questions[0].answers == question.answers
    assert sorted(item.answer_set.answers) == ["a", "a", "b"]


def row(question: str, hash_: str | None, answers: list[str], filter_: str = "none") -> str:
    fields: dict[str, Any] = {
        "doc_id": 0,
        "doc": {"question": question},
        "resps": [answers],
        "filter": filter_,
    }
    return json.dumps(fields if hash_ is None else {**fields, "doc_hash": hash_})


@pytest.mark.parametrize("hashes", [("h1", "h2"), (None, None)])
def test_two_tasks_in_one_file_keep_their_questions(hashes: tuple[str | None, ...], tmp_path: Path) -> None:
    oz, nod = row("Oz?", hashes[0], ["a", "b"]), row("Nod?", hashes[1], ["c", "d"])
    again = row("Oz?", hashes[0], ["a", "b"], "strict")
    path = written(tmp_path / "both.jsonl", "\n".join([oz, nod, again]))
    items = read_item_file(path).items
    assert [(item.question, sorted(item.answer_set.answers)) for item in items] == [
        ("Oz?", ["a", "b"]),
        ("Nod?", ["c", "d"]),
    ]
    second_run = row("Oz?", hashes[0], ["e"])
    path = written(tmp_path / "runs.jsonl", "\n".join([oz, again, second_run]))
    assert sorted(read_item_file(path).items[0].answer_set.answers) == ["a", "b", "e"]


def test_right_answers_in_a_list_travel_with_a_run(tmp_path: Path) -> None:
    spellings = ["answer 0", "A. Stone"]
    asked = written(
        tmp_path / "g.jsonl", json.dumps({"question": "Who built it?", "ground_truths": spellings})
    )
    with FaultServer() as server:
        assert run(*command(tmp_path / "r", server.url, asked)).code == 0
    [question] = Run.load(tmp_path / "r").questions.values()
    assert json.loads(str(question.metadata["ground_truths"])) == spellings
    judged = run(
        "uncertainty", tmp_path / "r", "--gold", "ground_truths", "--estimators", "classes", "--json"
    )
    assert judged.json[0]["correct"] == {"contains": False}


PICTURE = {
    "id": "h1",
    "question": "What does it show?",
    "image": "data:image/png;base64,AAAA",
    "answer": "a ring",
}
TEXT = {"id": "h2", "question": "What is a ring?", "image": "", "answer": "gold"}


def test_a_question_with_a_picture_reaches_no_model_of_texts(tmp_path: Path) -> None:
    path = written(tmp_path / "h.json", [PICTURE, TEXT])
    with FaultServer() as server:
        done = run(*command(tmp_path / "r", server.url, path))
        assert "1 question with a picture left out" in done.said
        assert not any("What does it show" in str(call.body) for call in server.calls)
        again = run(*command(tmp_path / "r", server.url, path))
    assert (done.code, again.code) == (0, 0)
    stored = Run.load(tmp_path / "r")
    assert list(stored.questions) == ["h2"]
    assert stored.manifest.sources["questions"]["with_images"] == 1
    with pytest.raises(DataError, match="every question"):
        load_questions(str(written(tmp_path / "p.json", [PICTURE])))


def test_answers_with_a_judges_verdicts_have_labels_and_confidences(tmp_path: Path) -> None:
    verdicts = [
        {"correct": "yes", "confidence": 85},
        {"correct": "no", "confidence": 100},
        None,
        {"correct": "?"},
    ]
    records = {f"h{n}": {"response": "A ring", "judge_response": one} for n, one in enumerate(verdicts)}
    questions = read_answered_questions(written(tmp_path / "judged.json", records)).questions
    assert [(one.id, one.confidence, one.correct) for one in questions] == [
        ("h0", 0.85, True),
        ("h1", 1.0, False),
        ("h2", None, None),
        ("h3", None, None),
    ]


def test_a_value_that_is_no_number_costs_no_question(tmp_path: Path) -> None:
    path = written(tmp_path / "n.jsonl", '{"question":"Oz?","answers":["a","b"],"score":NaN}\n')
    file = read_item_file(path)
    assert "score" not in file.items[0].metadata
    assert any("'score'" in note for note in file.notes)
    log = row("Oz?", "h1", ["a", "b"]).replace("}", ', "bleu": NaN}').replace(', "bleu": NaN}', "}", 1)
    assert len(read_item_file(written(tmp_path / "l.jsonl", log)).items) == 1


def test_no_number_among_answers_is_a_missing_one(tmp_path: Path) -> None:
    path = written(tmp_path / "n.jsonl", '{"question":"Oz?","answers":["a",NaN,"b"]}\n')
    assert sorted(read_item_file(path).items[0].answer_set.answers) == ["a", "b"]
    assert read_answered_questions(path).questions[0].answers == ("a", "b")


@pytest.mark.parametrize("field", ["gold", "confidence", "logprobs"])
def test_a_value_that_is_needed_must_be_a_number(field: str, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"question": "Oz?", "answers": ["a", "b"]}
    value: Any = [[float("nan")], [-1.0]] if field == "logprobs" else float("nan")
    path = written(tmp_path / "n.jsonl", json.dumps({**fields, field: value}))
    with pytest.raises(DataError, match="line 1"):
        read_answered_questions(path)


def test_records_of_any_names_in_one_field_are_the_rows(tmp_path: Path) -> None:
    cases = [{"q": f"Who is {name}?", "attempts": ["A", "B"], "expected": "A"} for name in ("Oz", "Nod")]
    path = written(tmp_path / "a.json", {"meta": {"bot": "v3"}, "cases": cases})
    items = read_item_file(path, columns={"question": "q", "answer": "attempts"}).items
    assert [item.question for item in items] == ["Who is Oz?", "Who is Nod?"]
