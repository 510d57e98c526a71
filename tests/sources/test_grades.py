"""Grades that files hold: verdicts on answers become labels, and none disappears without a count."""

from __future__ import annotations

import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import pytest
from command import run, written
from hypothesis import given, settings
from hypothesis import strategies as st
from round_trip import assert_converted_alike

from selfreflect.errors import ConfigError
from selfreflect.run.records import run_questions, run_records
from selfreflect.sources.answer_values import label, verdict
from selfreflect.sources.items import read_item_file, to_plain
from selfreflect.store.run import Run
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.question import AnsweredQuestion, Graded
from selfreflect.uncertainty.reading import read_answered_questions

LOGS = Path(__file__).parents[1] / "data" / "logs"
TOWNS = ["Emerald City", "the Emerald City"]


def epoch(number: int, answer: str, value: Any, **fields: Any) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": answer}, "stop_reason": "stop"}
    sample = {"id": 1, "epoch": number, "input": "Capital of Oz?", "target": TOWNS, **fields}
    return {**sample, "output": {"choices": [choice]}, "scores": {"model_graded_qa": {"value": value}}}


def archive(path: Path, members: dict[str, Any]) -> Path:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as writer:
        for name, value in members.items():
            writer.writestr(name, json.dumps(value))
    path.write_bytes(data.getvalue())
    return path


def log(path: Path, *epochs: tuple[str, Any]) -> Path:
    samples = {
        f"samples/1_epoch_{number}.json": epoch(number, answer, value)
        for number, (answer, value) in enumerate(epochs, 1)
    }
    return archive(path, samples)


def labels(path: Path, *options: str) -> list[Any]:
    rows = run("uncertainty", path, "--estimators", "modal_share", "--json", *options).json
    return [row["correct"] for row in rows if "id" in row]


@pytest.mark.parametrize(
    ("right", "wrong", "neither"), [("C", "I", "P"), (1, 0, 0.5), (True, False, None), ("yes", "no", "N")]
)
def test_verdicts_of_a_log_are_labels_without_gold(
    right: Any, wrong: Any, neither: Any, tmp_path: Path
) -> None:
    path = log(tmp_path / "t.eval", ("Emerald City", right), ("Ruby Town", wrong), ("Ruby Town", neither))
    file = read_answered_questions(path)
    [question] = file.questions
    assert question.gold == tuple(TOWNS)
    pairs = (("Emerald City", True), ("Ruby Town", False), ("Ruby Town", None))
    assert question.grades == {"model_graded_qa": pairs}
    assert any(note.startswith("1 grade of 3 by 'model_graded_qa'") for note in file.notes)
    assert labels(path) == [{"graded": False}], "two of three answers say so"
    assert labels(path, "--correctness", "graded:model_graded_qa,contains") == [
        {"graded:model_graded_qa": False, "contains": False}
    ]


def test_a_score_between_right_and_wrong_is_no_grade(tmp_path: Path) -> None:
    path = log(tmp_path / "t.eval", ("Emerald City", 1.0), ("Ruby Town", 0.31))
    assert read_answered_questions(path).questions[0].grades == {}


def test_every_graded_answer_counts_as_right_or_wrong(tmp_path: Path) -> None:
    grades = [("Oz?", "a", 1.0), ("Oz?", "b", 0.0), ("Nod?", "a", 1.0), ("Nod?", "c", 0.0), ("Uz?", "b", 0.0)]
    names = ("user_input", "response", "exact_match")
    rows = [dict(zip(names, values, strict=True)) for values in grades]
    options = ("--estimators", "modal_share", "--json")
    lines = run("uncertainty", written(tmp_path / "r.json", rows), *options).json
    [line] = [line for line in lines if "counts" in line]
    assert line["counts"] == {"right": 2, "labelled": 5, "wrong_with_gold": 0}
    assert (line["conclusion"]["accuracy"], line["conclusion"]["answers"]) == (0.4, 5)


def test_grades_by_an_unknown_grader_are_refused_with_those_there_are(tmp_path: Path) -> None:
    path = log(tmp_path / "t.eval", ("Emerald City", "C"), ("Ruby Town", "I"))
    outcome = run("uncertainty", path, "--correctness", "graded:match", "--json")
    assert outcome.code == 2
    assert "model_graded_qa" in outcome.said


def test_grades_travel_to_items_and_run_directories(tmp_path: Path) -> None:
    path = log(tmp_path / "t.eval", ("Emerald City", "C"), ("Ruby Town", "I"), ("Ruby Town", "C"))
    items = read_item_file(path).items
    expected = sorted([("Emerald City", True), ("Ruby Town", False), ("Ruby Town", True)])

    def pairs(path: Path) -> list[tuple[str | None, bool | None]]:
        [question] = read_answered_questions(path).questions
        return sorted(question.grades["model_graded_qa"])

    assert pairs(path) == expected
    assert pairs(written(tmp_path / "again.json", [to_plain(item) for item in items])) == expected
    assert run("import", "--items", path, "--out", tmp_path / "run").code == 0
    assert labels(tmp_path / "run") == [{"graded": None}] == labels(path), "a tie"


@pytest.mark.parametrize(
    "fields",
    [
        {"response": "c" * 2000, "correct": True},
        {"response": "c", "grades": {"g": True}},
        {"grades": {"g": [["a", 1], ["c", 0], ["a", 0], ["a", 1]]}},
        {"response": "c", "grades": {"g": [[None, 1], ["b", 0]]}},
    ],
)
def test_grades_of_other_texts_travel_to_run_directories(fields: dict[str, Any], tmp_path: Path) -> None:
    path = written(tmp_path / "g.json", [{"question": "Oz?", "samples": ["a", "b", "a"], **fields}])
    [expected] = read_answered_questions(path).questions
    assert run("import", "--items", path, "--out", tmp_path / "run").code == 0
    assert run("export", tmp_path / "run", "--output", tmp_path / "items", "--format", "items").code == 0
    again = Run.load(tmp_path / "run")
    [question] = run_questions(run_records(again), run_records(again), "gold")
    [exported] = read_answered_questions(tmp_path / "items" / "items.jsonl").questions
    for kept in (question, exported):
        assert (kept.answer, kept.correct) == (expected.answer, expected.correct)
        for name, verdicts in expected.grades.items():
            given = [pair for pair in kept.grades[name] if pair.right is not None]
            assert sorted(map(repr, given)) == sorted(map(repr, verdicts))
    assert labels(tmp_path / "run") == labels(path)


CHOICES = {"question": "Oz?", "choices": ["Ruby Town", "Emerald City"]}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"gold": 1, "answers": ["Emerald City", "ruby town."]}, ("Emerald City",)),
        ({"gold": "B", "answers": ["Emerald City.", "b"]}, ("Emerald City",)),
        ({"gold": "B", "answers": ["Emerald City", "B"]}, ("Emerald City", "B")),
        ({"gold": "B", "answers": ["B", "A"]}, ("B",)),
        ({"gold": 1, "answers": ["1", "0"]}, ("1",)),
        ({"gold": 7, "answers": ["Emerald City", "1"]}, ("7",)),
        ({"gold": {"value": "a", "aliases": ["c" * 2000]}, "answers": ["a", "b"]}, ("a", "c" * 2000)),
        ({"gold": ["a" * 2000, 7], "answers": ["a", "b"]}, ("a" * 2000, "7")),
    ],
)
def test_right_answers_of_any_kind_travel_to_run_directories(
    fields: dict[str, Any], expected: tuple[str, ...], tmp_path: Path
) -> None:
    path = written(tmp_path / "g.json", [{**CHOICES, **fields}])
    [question] = read_answered_questions(path).questions
    assert run("import", "--items", path, "--out", tmp_path / "run").code == 0
    again = run_records(Run.load(tmp_path / "run"))
    [imported] = run_questions(again, again, "gold")
    assert (question.gold, imported.gold) == (expected, expected)


SHELL = {"id": 1, "input": "attachment://1", "target": "Emerald City", "scores": {"match": {"value": "C"}}}


def chunked(answer: str) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": answer}, "stop_reason": "stop"}
    return {
        "sample.json": {**SHELL, "output": {"choices": [choice]}},
        "skeleton.json": {"spans": []},
        "messages/0.json": [{"role": "user", "content": "attachment://1"}],
        "events/stats.json": {},
        "metadata.json": {"topic": "towns"},
        "attachments/0.json": ["Emerald City"],
        "attachments/1.json": ["Capital of Oz?"],
    }


def test_samples_in_chunks_are_read_beside_whole_ones(tmp_path: Path) -> None:
    members = {f"samples/1_epoch_1/{name}": part for name, part in chunked("attachment://0").items()}
    members |= {f"samples/1_epoch_2/{name}": part for name, part in chunked("Ruby Town").items()}
    members["samples/1_epoch_3.json"] = epoch(3, "Silver Bay", "I")
    [item] = read_item_file(archive(tmp_path / "c.eval", members)).items
    assert sorted(item.answer_set.answers) == ["Emerald City", "Ruby Town", "Silver Bay"]
    assert (item.question, item.metadata["topic"]) == ("Capital of Oz?", "towns")
    del members["samples/1_epoch_2/sample.json"]
    outcome = run("convert", archive(tmp_path / "d.eval", members))
    assert (outcome.code, "sample.json" in outcome.said) == (2, True)


def lm_eval(**fields: Any) -> dict[str, Any]:
    doc = {"question": "Capital of Oz?"}
    sample = {"doc_id": 0, "doc": doc, "target": "Ruby Town", "resps": [["Ruby Town"]], "filter": "none"}
    return {**sample, "filtered_resps": ["Ruby Town"], "exact_match": 1.0, **fields}


def test_metrics_of_lm_eval_grade_what_each_filter_made(tmp_path: Path) -> None:
    rows = [lm_eval(filter="strict"), lm_eval(filter="loose", exact_match=0.0)]
    path = written(tmp_path / "s.json", rows)
    [question] = read_answered_questions(path).questions
    assert question.grades == {
        "exact_match": (("Ruby Town", True),),
        "exact_match:loose": (("Ruby Town", False),),
    }
    assert labels(path) == [{"graded": True}]
    assert labels(path, "--correctness", "graded:exact_match:loose") == [{"graded:exact_match:loose": False}]


def test_a_grade_of_several_repeats_is_of_the_filtered_text(tmp_path: Path) -> None:
    resps = [["It is Ruby Town.", "Emerald City", "Emerald City"]]
    rows = [lm_eval(resps=resps), lm_eval(resps=resps, filter="loose", exact_match=0.0)]
    [question] = read_answered_questions(path := written(tmp_path / "s.json", rows)).questions
    assert (question.answer, question.answers) == ("Ruby Town", tuple(resps[0]))
    assert labels(path) == [{"graded": True}]
    assert labels(path, "--correctness", "graded:exact_match:loose") == [{"graded:exact_match:loose": False}]
    assert assert_converted_alike(path)


LOGGED = sorted(LOGS.iterdir())


@pytest.mark.parametrize("log", LOGGED, ids=[log.name for log in LOGGED])
def test_a_log_that_is_converted_keeps_labels_and_right_answers(log: Path, tmp_path: Path) -> None:
    (tmp_path / log.name).write_bytes(log.read_bytes())
    assert_converted_alike(tmp_path / log.name)


TEXT = st.sampled_from(["a", "b", "A."])
REPEATS = st.lists(TEXT, min_size=1, max_size=3)
SAMPLES = st.lists(st.tuples(REPEATS, TEXT, st.sampled_from([1.0, 0.0])), min_size=1, max_size=4)


@settings(max_examples=25, deadline=None)
@given(samples=SAMPLES)
def test_grades_of_repeats_and_filters_survive_convert(
    samples: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [
        lm_eval(
            doc={"question": f"Q{number // 2}?"},
            doc_id=number // 2,
            filter=str(number),
            resps=[repeats],
            filtered_resps=[text],
            exact_match=grade,
        )
        for number, (repeats, text, grade) in enumerate(samples)
    ]
    assert_converted_alike(written(tmp_path_factory.mktemp("s") / "s.json", rows))


def test_another_run_adds_answers_once_and_another_task_a_question(tmp_path: Path) -> None:
    first, again = {"resps": [["a", "b"]]}, {"resps": [["c", "d"]]}
    filters = ("strict", "loose")
    runs = [lm_eval(filter=name, **resps) for resps in (first, again) for name in filters]
    [question] = read_answered_questions(written(tmp_path / "s.json", runs)).questions
    assert question.answers == ("a", "b", "c", "d")
    tasks = [lm_eval(**first), lm_eval(filter="other", **again)]
    both = read_answered_questions(written(tmp_path / "t.json", tasks)).questions
    assert [question.answers for question in both] == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize("written_as", [float, str])
def test_likelihoods_of_choices_are_a_confidence(written_as: type, tmp_path: Path) -> None:
    row = {
        "doc_id": 0,
        "doc": {"question": "Is ice cold?", "choices": ["no", "yes"]},
        "target": 1,
        "resps": [[[written_as(-2.3), "False"]], [[written_as(-0.4), "True"]]],
        "filtered_resps": [[-2.3, False], [-0.4, True]],
        "filter": "none",
        "acc": 1.0,
        "acc_norm": 0.0,
    }
    [question] = read_answered_questions(path := written(tmp_path / "m.json", [row])).questions
    assert question.confidence == pytest.approx(1 / (1 + math.exp(-1.9)))
    assert (question.answer, question.gold, list(question.grades)) == ("yes", ("yes",), ["acc"])
    [found] = [row for row in run("uncertainty", path, "--json").json if "id" in row]
    assert (round(found["values"]["stated"], 2), found["correct"]) == (0.87, {"graded": True})


def test_most_verdicts_on_a_spelling_decide_and_a_tie_does_not() -> None:
    verdicts = (Graded("a", True), Graded("A.", False), Graded("a", None), Graded("b", True))
    question = AnsweredQuestion("q", answers=("a", "A.", "a", "b"), grades={"g": verdicts})
    by_grader = Correctness("graded:g")
    assert (by_grader(question, "a"), by_grader(question, "b"), by_grader(question, "c")) == (
        None,
        True,
        None,
    )
    with pytest.raises(ConfigError):
        Correctness("graded:h").label_all([question], ["a"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [("C", True), ("incorrect", False), ("Yes", True), (0.0, False), (1, True), ("P", None), ("", None)],
)
def test_labels_are_read_in_words(value: Any, expected: bool | None) -> None:
    assert label(value) is expected
    assert verdict(value) is expected


CONFIDENCES = [("85%", 0.85), ("72 %", 0.72), (".85", 0.85), ("0.85", 0.85), ("100 per cent", 1.0)]


@pytest.mark.parametrize(("cell", "value"), CONFIDENCES)
def test_a_confidence_may_be_in_per_cent(cell: str, value: float, tmp_path: Path) -> None:
    path = written(tmp_path / "p.csv", f"question,response,confidence,correct\nOz?,Emerald,{cell},yes\n")
    [question] = read_answered_questions(path).questions
    assert (question.confidence, question.correct) == (pytest.approx(value), True)


OF_HUNDRED = [("72 per cent", 0.72), ("85％", 0.85), ("0,85", 0.0085), (85, 0.85), (None, None)]


@pytest.mark.parametrize(("cell", "value"), OF_HUNDRED)
@pytest.mark.parametrize("name", ["confidence_percent", "Confidence_Percent", "Confidence (%)", ""])
def test_a_number_from_0_to_100_is_read_once(
    name: str, cell: Any, value: float | None, tmp_path: Path
) -> None:
    """Without a name, in a judge's response; one that lacks it loses nothing."""
    rows: list[dict[str, Any]] = [
        {"question": "Oz?", "answers": ["a"]},
        {"question": "Nod?", "answers": ["b"]},
    ]
    rows[0] |= {name: cell} if name else {"judge_response": {"confidence": cell, "correct": "yes"}}
    questions = read_answered_questions(written(tmp_path / "p.json", rows)).questions
    assert [one.confidence for one in questions] == [value and pytest.approx(value), None]


@pytest.mark.parametrize("cell", ["85", "140%", "-3%", "85%%", "high"])
def test_a_confidence_out_of_range_is_refused(cell: str, tmp_path: Path) -> None:
    path = written(tmp_path / "p.csv", f"question,response,confidence,correct\nOz?,Emerald,{cell},C\n")
    outcome = run("calibrate", path)
    assert (outcome.code, "line 2" in outcome.said) == (2, True)
    assert ("'85%'" in outcome.said) == (cell == "85")


def choice(text: str | None, finish: str = "stop") -> dict[str, Any]:
    content = [{"token": text, "logprob": -0.5}]
    return {"message": {"content": text}, "finish_reason": finish, "logprobs": {"content": content}}


def test_a_batch_without_questions_is_read_by_its_ids_with_what_it_knows(tmp_path: Path) -> None:
    lines = [
        {"custom_id": "oz", "response": {"body": {"choices": [choice("a"), choice("b", "length")]}}},
        {"custom_id": "nod", "response": None, "error": {"message": "expired"}},
    ]
    path = tmp_path / "out.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    file = read_answered_questions(path)
    oz, nod = file.questions
    assert (oz.id, oz.answers, oz.token_values.logprobs, nod.id, nod.answers) == (
        "oz",
        ("a", "b"),
        ((-0.5,),) * 2,
        "nod",
        (),
    )
    assert len([note for note in file.notes if note.startswith("1 ")]) == 3, (
        "failed, cut off, without answers"
    )


def test_tasks_in_one_file_have_graders_of_their_own_and_grades_estimate_nothing(tmp_path: Path) -> None:
    logs = Path(__file__).parents[2] / "recipes" / "logs"
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(logs.glob("samples_*.jsonl")))
    lines = run("uncertainty", written(tmp_path / "both.jsonl", text), "--json").json
    [counts] = [line["counts"] for line in lines if "counts" in line]
    assert (counts["right"], counts["labelled"]) == (2, 10), "lm-eval reports 0 of 4 and 2 of 6"
    assert not [name for line in lines for name in line.get("values", ()) if name.startswith("column:")]


def test_a_file_that_an_archive_holds_twice_is_replaced_and_counted(tmp_path: Path) -> None:
    path = log(tmp_path / "t.eval", ("Emerald City", "C"), ("Ruby Town", "I"))
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as writer:
        writer.writestr("samples/1_epoch_2.json", json.dumps(epoch(2, "Silver Bay", "I")))
    file = read_answered_questions(path)
    assert file.questions[0].answers == ("Emerald City", "Silver Bay")
    assert any(note.startswith("1 file") for note in file.notes)


def test_a_second_run_of_multiple_choice_keeps_its_confidence_and_grade(tmp_path: Path) -> None:
    doc = {"doc_id": 0, "doc": {"question": "Oz?", "choices": ["a", "b"]}, "target": 0}
    runs = [
        {**doc, "resps": [[[first, False]], [[-1.0, False]]], "acc": acc}
        for first, acc in ((-0.5, 1.0), (-3.0, 0.0))
    ]
    file = read_answered_questions(written(tmp_path / "s.json", runs))
    assert [question.answer for question in file.questions] == ["a", "b"]
    assert [question.grades["acc"] for question in file.questions] == [(("a", True),), (("b", False),)]
    assert all(question.confidence for question in file.questions)


def test_labels_and_confidences_of_any_name_can_be_named(tmp_path: Path) -> None:
    text = "Frage;Antwort;Richtig;Sicher;correct\nOz?;a;wahr;0,9;x\nNod?;b;falsch;40 %;x\n"
    path = written(tmp_path / "f.csv", text)
    columns = {"question": "Frage", "answer": "Antwort", "correct": "richtig", "confidence": "Sicher"}
    questions = read_answered_questions(path, columns=columns).questions
    assert [(question.confidence, question.correct) for question in questions] == [(0.9, True), (0.4, False)]
    file = read_item_file(path, columns=columns, allow_few=True)
    assert [item.metadata["correct"] for item in file.items] == ["wahr", "falsch"]
    assert {"Richtig", "Sicher"} <= file.columns.keys()
    assert any("'correct'" in note and "'Richtig'" in note for note in file.notes)
    with pytest.raises(ConfigError):
        read_answered_questions(path, columns={**columns, "correct": "Rihtig"})


def test_several_targets_of_lm_eval_are_printed_into_one_text(tmp_path: Path) -> None:
    sample = {"doc_id": 0, "doc": {"question": "Oz?"}, "resps": [["b"]], "exact_match": 1.0}
    file = read_answered_questions(written(tmp_path / "s.jsonl", {**sample, "target": "['a', \"it's b\"]"}))
    assert file.questions[0].gold == ("a", "it's b")
    file = read_answered_questions(written(tmp_path / "s.jsonl", {**sample, "target": "[1, 2]"}))
    assert file.questions[0].gold == ("[1, 2]",)
