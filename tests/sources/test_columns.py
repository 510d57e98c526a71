"""Columns of a file as estimators, folded names, and paths into objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import run, written

from selfreflect.errors import DataError
from selfreflect.sources.items import read_item_file
from selfreflect.sources.questions import load_questions
from selfreflect.uncertainty.reading import read_answered_questions

ROWS = [
    {
        "Prompt": f"Q{number}?",
        "Responses": ["a", "b"],
        "Correct": number % 2 == 0,
        "My Score": f"{number / 10}",
    }
    for number in range(10)
]


def lines(path: Path, *options: str) -> list[dict[str, Any]]:
    outcome = run("uncertainty", path, "--json", *options)
    assert outcome.code == 0, outcome.said
    return outcome.json


def test_a_column_is_an_estimator_with_the_direction_that_is_said(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", ROWS)
    auroc = {}
    for kind in ("confidence", "uncertainty", "probability"):
        found = lines(path, "--estimators", f"column:my_score:{kind}")
        assert [line["values"][f"column:my_score:{kind}"] for line in found if "id" in line][3] == 0.3
        [row] = [line for line in found if line.get("estimator") == f"column:my_score:{kind}"]
        assert row["needs"] == "column"
        assert ("brier" in row["measures"]) == (kind == "probability")
        auroc[kind] = row["measures"]["auroc"]["value"]
    assert auroc["confidence"] == auroc["probability"] == pytest.approx(1 - auroc["uncertainty"])


@pytest.mark.parametrize(
    ("estimator", "part"), [("column:my_score", "uncertainty"), ("column:mine:confidence", "My Score")]
)
def test_a_column_without_direction_or_of_another_name_is_asked_for(
    estimator: str, part: str, tmp_path: Path
) -> None:
    outcome = run("uncertainty", written(tmp_path / "a.json", ROWS), "--estimators", estimator)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert part in outcome.said


@pytest.mark.parametrize("answers", ["Run {}", "attempt_{}", "Regenerated reply {}", "Bot answer {}"])
@pytest.mark.parametrize("reply", ["Message sent to customer", "Bot says", "Reply sent", "Final response"])
def test_repeats_and_what_a_person_saw_are_told_by_name(answers: str, reply: str, tmp_path: Path) -> None:
    row = {
        "Question": "Oz?",
        answers.format(1): "Emerald City",
        answers.format(2): "Topeka",
        reply: "Oz is far.",
    }
    path = written(tmp_path / "a.json", [row | {"Sent at": "Monday", "Sent": "yes"}])
    [item] = read_item_file(path, need_summaries=True).items
    assert {*item.answer_set.answers} == {"Emerald City", "Topeka"}
    assert item.summaries == {reply: "Oz is far."}


TEXTS = ("In transit.", "At the depot.")


@pytest.mark.parametrize("question", ["Customer asked", "User message", "Inquiry", "Kundenfrage", "X"])
@pytest.mark.parametrize("answers", ["Versuch {}", "Resample {}", "Draft A|Draft B"])
def test_columns_are_told_by_their_values(question: str, answers: str, tmp_path: Path) -> None:
    names = answers.split("|") if "|" in answers else [answers.format(number) for number in (1, 2)]
    row = {
        "Ticket": "T 1",
        "Choice 1": "Yes",
        "Choice 2": "No",
        question: "Where is it?",
        **dict(zip(names, TEXTS, strict=True)),
    }
    file = read_item_file(written(tmp_path / "a.json", [row, {**row, question: "And this?"}]))
    assert [item.question for item in file.items] == ["Where is it?", "And this?"]
    assert [{*item.answer_set.answers} for item in file.items] == [{*TEXTS}] * 2
    assert file.columns[question] == "question"
    assert any(question in note for note in file.notes), "what values tell is said"
    loaded = load_questions(str(tmp_path / "a.json"))
    assert [record.text for record in loaded.questions] == ["Where is it?", "And this?"]


@pytest.mark.parametrize("answer", ["Sample", "Answer", "Model said", "Output text"])
@pytest.mark.parametrize("reply", ["Reply", "Answer sent", "Reply sent to customer"])
def test_what_varies_in_a_question_is_the_answer_and_the_rest_the_reply(
    answer: str, reply: str, tmp_path: Path
) -> None:
    rows = [
        {
            "question": f"{question}?",
            reply: f"It depends {question}.",
            answer: text,
            "Try": number,
            "OK?": "yes",
        }
        for question in "ab"
        for number, text in enumerate(TEXTS)
    ]
    file = read_item_file(written(tmp_path / "a.json", rows), need_summaries=True)
    assert [{*item.answer_set.answers} for item in file.items] == [{*TEXTS}] * 2
    assert [[*item.summaries.values()] for item in file.items] == [["It depends a."], ["It depends b."]]


def test_times_and_run_names_beside_drafts_are_no_answers(tmp_path: Path) -> None:
    rows = [
        {
            "Time": f"2026-10-0{day} 09:{number}0",
            "Trace": f"{day}f{number}",
            "Run": f"run-{number}",
            "Question": f"Where is part {day}?",
            "Draft": f"Shelf B{day}" if number else "In the basement",
            "Reply": f"Shelf B{day}",
        }
        for day in (1, 2, 3)
        for number in range(4)
    ]
    file = read_item_file(written(tmp_path / "a.json", rows), need_summaries=True)
    assert (file.columns["Draft"], file.columns["Reply"]) == ("answers", "summary")
    doubtful = [{**row, "Reviewer": ("Jo", "Mira", "Ann", "Ida")[at // 3]} for at, row in enumerate(rows)]
    read = read_item_file(written(tmp_path / "b.json", doubtful), allow_few=True)
    assert any("'Reviewer'" in note and "'Draft'" in note for note in read.notes), (
        "either may hold the answers"
    )


@pytest.mark.parametrize("prompt", ["System prompt", "Prompt", "Text"])
def test_one_text_in_all_rows_is_no_question(prompt: str, tmp_path: Path) -> None:
    rows = [
        {prompt: "You are a clerk.", "Issue": f"Where is {name}?", "answers": ["Here.", "There."]}
        for name in "ab"
    ]
    file = read_item_file(written(tmp_path / "a.json", rows))
    assert [item.question for item in file.items] == ["Where is a?", "Where is b?"]


@pytest.mark.parametrize("reply", ["What we sent", "Published", "message_envoyé", "An den Kunden gesendet"])
def test_a_reply_is_told_by_what_it_says(reply: str, tmp_path: Path) -> None:
    rows = [
        {"question": f"{name}?", "answers": [name, "Nice", name], reply: f"Il est à {name}.", "Agent": "Jo"}
        for name in ("Lyon", "Metz")
    ]
    path = written(
        tmp_path / "a.json", [{**row, "Explanation": f"C'est {row['answers'][0]}."} for row in rows]
    )
    [first, _] = read_item_file(path, need_summaries=True).items
    assert first.summaries == {reply: "Il est à Lyon."}


def test_a_column_that_asks_whether_it_is_right_holds_labels(tmp_path: Path) -> None:
    rows = [
        {
            "question": f"{number}?",
            "answers": ["a", "a"],
            "Right answer?": "yes" if number % 2 else "no",
            "Target": "x",
        }
        for number in range(12)
    ]
    read = read_answered_questions(written(tmp_path / "a.json", rows))
    assert [question.correct for question in read.questions] == [False, True] * 6
    assert not any(question.gold for question in read.questions), "no target is an answer"


@pytest.mark.parametrize(("yes", "no"), [("y", "n"), ("Y", "N"), ("yes", "no")])
def test_n_is_no_where_others_are_y(yes: str, no: str, tmp_path: Path) -> None:
    rows = [{"question": f"{at}?", "answers": ["a", "b"], "Label": yes if at else no} for at in range(3)]
    read = read_answered_questions(written(tmp_path / "a.json", rows), columns={"correct": "Label"})
    assert [question.correct for question in read.questions] == [False, True, True]
    [listed] = read_answered_questions(
        written(
            tmp_path / "b.json", [{"question": "Oz?", "answers": ["a", "b", "c"], "correct": [no, yes, no]}]
        )
    ).questions
    assert [right for _, right in listed.grades["correct"]] == [False, True, False]


def test_a_reply_in_each_row_of_a_question_is_told_by_what_it_says(tmp_path: Path) -> None:
    rows = [
        {"Id": name, "Question": f"{name}?", "Answer": answer, "Reply we mailed": f"It is {name}."}
        for name in ("Lyon", "Metz")
        for answer in (name, "Nice")
    ]
    path = written(tmp_path / "a.json", rows)
    [first, _] = read_item_file(path, need_summaries=True, columns={"id": "Id"}).items
    assert first.summaries == {"Reply we mailed": "It is Lyon."}


def test_right_answers_that_recur_among_the_answers_are_taken(tmp_path: Path) -> None:
    row = {
        "question": "Who?",
        "run1": "Sales",
        "run2": "Support",
        "Expected effort": "high",
        "Correct team": "sales",
    }
    read = read_answered_questions(written(tmp_path / "a.json", [row, {**row, "question": "And who?"}]))
    assert [question.gold for question in read.questions] == [("sales",), ("sales",)]


def test_a_value_that_is_no_number_is_undefined_with_its_reason(tmp_path: Path) -> None:
    rows = [{**row, "My Score": cell} for row, cell in zip(ROWS, ["high", "140%", "50%", 1.5], strict=False)]
    found = lines(written(tmp_path / "a.json", rows), "--estimators", "column:My Score:probability")
    name = "column:My Score:probability"
    assert [line["values"][name] for line in found if "id" in line] == [None, None, 0.5, None]
    reasons = [line["undefined"][name]["reason"] for line in found if line.get("undefined")]
    assert reasons == ["no_number_in_column", "out_of_range", "out_of_range"]


def test_scores_of_other_libraries_are_used_unasked(tmp_path: Path) -> None:
    text = "prompt,response,sampled_responses,semantic_negentropy\nOz?,a,\"['a', 'b']\",0.6\n"
    [first, *_] = lines(written(tmp_path / "u.csv", text))
    assert first["values"]["column:semantic_negentropy"] == 0.6


def test_names_fold_and_right_answers_are_found(tmp_path: Path) -> None:
    rows = [{"Question": "Oz?", "Answers": ["a", "b"], "Ground Truths": ["a", "A"], "Confidence": "70%"}]
    file = read_answered_questions(written(tmp_path / "a.json", rows))
    [question] = file.questions
    assert (question.gold, question.confidence) == (("a", "A"), 0.7)
    assert any("Ground Truths" in note for note in file.notes)
    [named] = read_answered_questions(tmp_path / "a.json", gold="ground_truths").questions
    assert named.gold == ("a", "A")


def test_a_path_into_objects_can_be_named(tmp_path: Path) -> None:
    rows = [{"doc": {"inner": {"asked": "Oz?"}}, "out": {"texts": ["a", "b"]}}]
    path = written(tmp_path / "a.json", rows)
    columns = {"question": "doc.inner.asked", "answer": "out.texts"}
    [question] = read_answered_questions(path, columns=columns).questions
    assert (question.text, question.answers) == ("Oz?", ("a", "b"))
    assert read_item_file(path, columns=columns).items[0].question == "Oz?"
    path = written(
        tmp_path / "flat.json", {"doc": {"question": "Oz?"}, "out": {"text": "", "all": ["a", "b"]}}
    )
    columns = {"question": "doc.question", "answer": "out.all"}
    assert read_item_file(path, columns=columns).items[0].question == "Oz?"
    sample = {"doc_id": 0, "doc": {"query": "no", "asked": "Oz?"}, "resps": [["a", "b"]], "filter": "none"}
    path = written(tmp_path / "s.json", [sample])
    [question] = read_answered_questions(path, columns={"question": "doc.asked"}).questions
    assert question.text == "Oz?"


@pytest.mark.parametrize(
    ("name", "beside", "answers"),
    [
        ("heat", "0.34", ("3", "4")),
        ("day", "2026-10-13", ("13", "4")),
        ("area", "abstract algebra", ("A", "B")),
        ("metadata", '{"right": true, "text": "A"}', ("A", "B")),
    ],
)
def test_what_shares_only_characters_with_the_answers_is_no_reply(
    name: str, beside: str, answers: tuple[str, str], tmp_path: Path
) -> None:
    row = {"question": "Oz?", "answer_1": answers[0], "answer_2": answers[1], name: beside}
    path = written(tmp_path / "a.json", [row])
    with pytest.raises(DataError) as refused:
        read_item_file(path, need_summaries=True)
    assert refused.value.code == "no_summaries"
    file = read_item_file(written(path, [{**row, name: f"It is {answers[0]}."}]), take_replies=True)
    assert file.summaries == ({} if name == "metadata" else {name: 1})
