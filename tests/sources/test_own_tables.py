"""Tables as people keep them: any counter in a header, labels in words and marks, encodings, titles."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command import run, written

from selfreflect.errors import DataError, SelfReflectError
from selfreflect.sources.columns import assigned_columns
from selfreflect.sources.items import read_item_file
from selfreflect.sources.names import column_range
from selfreflect.sources.questions import load_questions
from selfreflect.uncertainty.reading import read_answered_questions

QUESTIONS = ("Where is the parcel?", "Who pays for returns?", "Is the lamp waterproof?")
TEXTS = ("In transit.", "At the depot.", "Nobody knows.")


def table(path: Path, header: Sequence[str], *rows: Sequence[object], encoding: str = "utf-8") -> Path:
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows([header, *rows])
    path.write_bytes(stream.getvalue().encode(encoding))
    return path


COUNTED = [
    "LLM output (seed {})",
    "answer [{}]",
    "Run #{}",
    "sample-{} text",
    "gen {} (t=0.7)",
    "{}. answer",
    "Réponse n°{}",
    "Antwort Nr. {}",
    "回答{}",
    "pred_{}",
    "run{}_text",
    "Code (pass {})",
]


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("first", [0, 1, 9])
def test_a_number_anywhere_in_the_name_counts_the_answers(name: str, first: int, tmp_path: Path) -> None:
    names = [name.format(first + number) for number in range(3)]
    # what is measured of each answer is counted, too
    times = [f"latency {number} (ms)" for number in range(3)]
    header = ["question", *(column for pair in zip(names, times, strict=True) for column in pair)]
    rows = [[question, *(cell for text in TEXTS for cell in (text, 812))] for question in QUESTIONS]
    file = read_item_file(table(tmp_path / "a.csv", header, *rows))
    assert [{*item.answer_set.answers} for item in file.items] == [{*TEXTS}] * 3
    assert column_range(f"{names[0]}..{names[2]}", header) == tuple(names)


def test_ordinals_are_numbers(tmp_path: Path) -> None:
    header = ["question", "1st answer", "2nd answer", "3rd answer"]
    file = read_item_file(table(tmp_path / "a.csv", header, ["Oz?", *TEXTS]))
    assert {*file.items[0].answer_set.answers} == {*TEXTS}


@pytest.mark.parametrize("name", ["LLM {}", "Model {} answer", "Bot {}"])
def test_numbered_models_are_no_answers_of_one(name: str, tmp_path: Path) -> None:
    header = ["question", *(name.format(number) for number in (1, 2, 3))]
    path = table(tmp_path / "a.csv", header, *([question, *TEXTS] for question in QUESTIONS))
    with pytest.raises(DataError):
        read_item_file(path)
    span = f"{header[1]}..{header[3]}"
    assert len(read_item_file(path, columns={"answer": span}).items) == 3


def test_runs_of_two_models_are_told_apart() -> None:
    names = [f"gpt-{model} run {number}" for model in (3, 4) for number in range(5)]
    assert column_range("gpt-4 run 0..gpt-4 run 3", names) == tuple(f"gpt-4 run {at}" for at in range(4))


LABELS = [
    ("Human check", "J", "N"),
    ("Correct? (y/n)", "y", "n"),
    ("Verdict", "ok", "wrong"),
    ("Label", "pass", "fail"),
    ("Test result passed", "P", "F"),
    ("Richtig", "W", "F"),
    ("Graded", "1", "0"),
    ("is it right", "ok", "fail"),
    ("Reviewer", "correct", "incorrect"),
    ("Bewertung", "Richtig", "Falsch"),
    ("Korrekt (ja/nein)", "Ja", "nein"),
    ("Correct ?", "oui", "non"),
    ("Jugement", "vrai", "faux"),
    ("¿Correcta?", "Sí", "No"),
    ("Thumbs", "👍", "👎"),
    ("User feedback", "thumbs up", "Thumbs-down"),
    ("Check", "✓", "✗"),
    ("Correct", "✔️", "❌"),
    ("判定", "○", "×"),
    ("Right or wrong", "right", "wrong"),
    ("R/W", "R", "W"),
    ("OK", "x", ""),
    ("correct", "✓", ""),
]


@pytest.mark.parametrize(("name", "right", "wrong"), LABELS)
@pytest.mark.parametrize("is_long", [True, False])
def test_labels_are_told_by_their_words(
    name: str, right: str, wrong: str, is_long: bool, tmp_path: Path
) -> None:
    rows: list[list[object]]
    if is_long:
        header = ["question", "answer", name]
        rows = [
            [question, text, right if text == TEXTS[0] else wrong] for question in QUESTIONS for text in TEXTS
        ]
    else:
        header = ["question", "answer_1", "answer_2", "answer_3", name]
        rows = [[question, *TEXTS, right if question == QUESTIONS[0] else wrong] for question in QUESTIONS]
    read = read_answered_questions(table(tmp_path / "a.csv", header, *rows))
    if is_long:
        found = [[grade.right for grade in question.grades["correct"]] for question in read.questions]
        assert found == [[True, False, False]] * 3
    else:
        assert [question.correct for question in read.questions] == [True, False, False]
    is_usual = name.rstrip(" ?").lower() == "correct" and wrong
    assert is_usual or any(word in note for note in read.notes for word in ("wrong", "labels"))
    # what was labelled stays so in a file that is converted
    items = read_item_file(tmp_path / "a.csv")
    assert items.columns[name] in ("grades of the answers", "label of correctness")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Reviewed", ("yes", "no", "yes")),
        ("label", ("0", "1", "1")),
        ("Hallucination check", ("yes", "no", "yes")),
        ("Human answer", ("yes", "no", "yes")),
        ("Not correct", ("x", "", "x")),
        ("Reviewer", ("Anna", "Ben", "Anna")),
        ("Escalated", ("yes", "no", "yes")),
        ("Rating", ("A", "B", "C")),
    ],
)
def test_other_columns_of_yes_and_no_are_no_labels(name: str, values: Sequence[str], tmp_path: Path) -> None:
    rows = [[question, *TEXTS, value] for question, value in zip(QUESTIONS, values, strict=True)]
    path = table(tmp_path / "a.csv", ["question", "answer_1", "answer_2", "answer_3", name], *rows)
    assert {question.correct for question in read_answered_questions(path).questions} == {None}


def test_right_answers_of_yes_and_no_are_no_labels(tmp_path: Path) -> None:
    rows = [[question, "yes", "no", "yes", "yes"] for question in QUESTIONS]
    path = table(tmp_path / "a.csv", ["question", "answer_1", "answer_2", "answer_3", "label"], *rows)
    read = read_answered_questions(path)
    assert [(question.correct, question.gold) for question in read.questions] == [(None, ("yes",))] * 3


def test_of_two_reviewers_the_other_can_be_named(tmp_path: Path) -> None:
    header = ["question", "answer", "Reviewer A", "Reviewer B"]
    rows = [
        [question, text, "ok", "ok" if text == TEXTS[0] else "wrong"]
        for question in QUESTIONS
        for text in TEXTS
    ]
    path = table(tmp_path / "a.csv", header, *rows)
    [note] = [note for note in read_answered_questions(path).notes if "Reviewer A" in note]
    [option] = shlex.split(note.split(" --column ")[1])
    read = read_answered_questions(path, columns=assigned_columns([option]))
    assert [grade.right for grade in read.questions[0].grades["correct"]] == [True, False, False]


def test_numbered_raters_are_no_numbered_answers(tmp_path: Path) -> None:
    header = ["question", "answer_1", "answer_2", "rater_1_correct", "rater_2_correct"]
    rows = [[question, "In transit.", "In transit.", "yes", "no"] for question in QUESTIONS]
    read = read_answered_questions(table(tmp_path / "a.csv", header, *rows))
    # nor are the labels of the second one right answers
    assert [(question.correct, question.gold) for question in read.questions] == [(True, ())] * 3


WESTERN = "Wie lange gilt die Garantie für Zubehör?", "Où est ma commande déjà payée ?"


@pytest.mark.parametrize("copies", [1, 3000])
def test_a_table_in_windows_1252_is_read_and_said(copies: int, tmp_path: Path) -> None:
    """A large one is read in parts, if it is UTF-8."""
    rows = [[f"{text} {at}", "für", "d’après"] for at in range(copies) for text in WESTERN]
    path = table(tmp_path / "a.csv", ["Frage", "Antwort 1", "Antwort 2"], *rows, encoding="cp1252")
    file = read_item_file(path)
    assert file.items[0].question == f"{WESTERN[0]} 0"
    assert {*file.items[0].answer_set.answers} == {"für", "d’après"}
    assert file.sizes.total() == 2 * copies
    assert any("Windows-1252" in note and "'für'" in note for note in file.notes)
    assert any("Windows-1252" in note for note in load_questions(str(path)).notes)


OTHER_ENCODINGS = [
    ("cp1251", "Где мой заказ?"),
    ("cp1250", "Gdzie są moje zażółcone paczki, proszę?"),
    ("mac-roman", "Wie lange gilt die Garantie für Verspätungen?"),
    ("shift-jis", "保証期間はどのくらいですか？"),
    ("gbk", "保修期是多久？"),
    ("cp1253", "Πού είναι η παραγγελία μου;"),
]


@pytest.mark.parametrize(("encoding", "question"), OTHER_ENCODINGS)
def test_a_table_in_another_encoding_is_refused_with_what_converts_it(
    encoding: str, question: str, tmp_path: Path
) -> None:
    path = table(
        tmp_path / "a.csv", ["question", "answer_1", "answer_2"], [question, "a", "b"], encoding=encoding
    )
    with pytest.raises(DataError) as error:
        read_item_file(path)
    assert "iconv -f" in error.value.remedy


def test_a_damaged_byte_is_no_encoding(tmp_path: Path) -> None:
    data = "question,answer_1,answer_2\nWie spät ist es für Sie in Köln?,müde,ä\n".encode()
    (tmp_path / "a.csv").write_bytes(data + b"\xc3")
    with pytest.raises(DataError):
        read_item_file(tmp_path / "a.csv")


HEADER = ["Question", "Answer 1", "Answer 2", "Answer 3"]
ROWS = [[question, *TEXTS] for question in QUESTIONS]


@pytest.mark.parametrize(
    "above",
    [
        [["Evaluation of the bot, May"]],
        [["Evaluation of the bot, May", "", "", ""], ["", "", "", ""], ["drawn by", "Jo", "", ""]],
        [["", "Answers of the model", "", ""]],
        [["Input", "Model", "Model", "Model"]],
    ],
)
def test_lines_above_the_names_are_left_out_and_said(above: list[list[str]], tmp_path: Path) -> None:
    file = read_item_file(table(tmp_path / "a.csv", above[0], *above[1:], HEADER, *ROWS))
    assert [item.question for item in file.items] == [*QUESTIONS]
    assert any("above" in note for note in file.notes)


def test_a_line_of_units_is_no_question(tmp_path: Path) -> None:
    units = ["text", "text", "text", "text", "ms"]
    path = table(tmp_path / "a.csv", [*HEADER, "Latency"], units, *([*row, 812] for row in ROWS))
    file = read_item_file(path)
    assert [item.question for item in file.items] == [*QUESTIONS]
    assert any("'ms'" in note for note in file.notes)


def test_columns_of_one_name_are_numbered(tmp_path: Path) -> None:
    file = read_item_file(table(tmp_path / "a.csv", ["Question", "Answer", "Answer", "Answer"], *ROWS))
    assert {*file.items[0].answer_set.answers} == {*TEXTS}
    assert any("'Answer'" in note for note in file.notes)


@pytest.mark.parametrize(
    "header",
    [("question", "answer 1", "answer 2", "pages", "pages"), ("Question", "Answer", "Answer", "Note", "No.")],
)
def test_a_row_of_numbers_is_no_header_below_repeated_names(header: Sequence[str], tmp_path: Path) -> None:
    rows = [[question, *TEXTS[:2], number, number + 1] for number, question in enumerate(QUESTIONS)]
    path = table(tmp_path / "a.csv", header, *rows)
    assert [item.question for item in read_item_file(path).items] == [*QUESTIONS]
    assert [question.text for question in load_questions(str(path)).questions] == [*QUESTIONS]


def test_a_row_of_usual_words_is_no_header_below_repeated_names(tmp_path: Path) -> None:
    asked = ["Payment query", "Message failed", "Input"]
    rows = [[question, text, f"Jo {text}", text] for question, text in zip(asked, TEXTS, strict=True)]
    path = table(tmp_path / "a.csv", ["question", "answer", "note", "note"], *rows)
    assert [question.text for question in load_questions(str(path)).questions] == asked
    assert [question.text for question in read_answered_questions(path).questions] == asked


def test_repeated_names_below_a_title_are_the_header(tmp_path: Path) -> None:
    rows = [[question, text, text] for question, text in zip(("Input", *QUESTIONS), TEXTS, strict=False)]
    path = table(tmp_path / "a.csv", ["My survey"], ["question", "answer", "answer"], *rows)
    read = read_answered_questions(path)
    assert [question.text for question in read.questions] == [row[0] for row in rows]
    assert [question.answers for question in read.questions] == [(text, text) for text in TEXTS]


def test_a_row_with_repeated_answers_is_no_header(tmp_path: Path) -> None:
    rows = [[question, TEXTS[0], TEXTS[0]] for question in QUESTIONS]
    with pytest.raises(DataError, match="header"):
        read_item_file(table(tmp_path / "a.csv", rows[0], *rows[1:]))


@pytest.mark.parametrize("name", ["Comment", "verbatim", "Source", "Passage", "X"])
def test_the_only_text_beside_the_answers_is_the_question(name: str, tmp_path: Path) -> None:
    header = ["Respondent", "Date", name, "Code (run 1)", "Code (run 2)"]
    rows = [[f"r-{at}", f"2026-05-0{at} 10:00", text, "good", "bad"] for at, text in enumerate(TEXTS, 1)]
    path = table(tmp_path / "a.csv", header, *rows)
    assert [item.question for item in read_item_file(path).items] == [*TEXTS]
    questions = load_questions(str(path))
    assert [question.text for question in questions.questions] == [*TEXTS]
    assert any(name in note for note in questions.notes)


def test_a_log_of_answers_asks_each_question_once_and_says_so(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {
            "id": f"{at}-{number}",
            "input": question,
            "output": text,
            "latency": 10 * number,
            "topic": "parcels",
        }
        for at, question in enumerate(QUESTIONS)
        for number, text in enumerate(TEXTS)
    ]
    path = written(tmp_path / "log.json", rows)
    loaded = load_questions(str(path))
    assert [question.text for question in loaded.questions] == [*QUESTIONS]
    assert dict(loaded.questions[0].metadata) == {"topic": "parcels"}
    assert any("9 rows" in note and "'latency'" in note for note in loaded.notes)
    outcome = run("run", "--questions", path, "--dry-run", "--num-answers", 2, "--out", tmp_path / "run")
    assert all(part in outcome.said for part in ("9 rows", "4 answers, 2 in each half"))


def test_answers_beside_right_ones_are_no_gold_of_a_run(tmp_path: Path) -> None:
    row = {"question": "Oz?", "answers": [*TEXTS], "ground_truth": "In transit."}
    assert load_questions(str(written(tmp_path / "a.json", [row]))).questions[0].gold == ("In transit.",)


def test_numbers_of_tokens_are_no_tokens(tmp_path: Path) -> None:
    rows = [
        {"prompt": question, "completion": text, "tokens": 7, "passed": True}
        for question in QUESTIONS
        for text in TEXTS
    ]
    assert len(read_answered_questions(written(tmp_path / "a.json", rows)).questions) == 3


AMBIGUOUS = [
    (
        ["First text", "Second text", "Model 1", "Model 2"],
        ["Where is it now.", "It is late again.", "In Ulm.", "No."],
    ),
    (["Subject", "Body", "out A", "out B"], ["On returns.", "May I return it.", "Yes.", "No, never."]),
    (["question", "guess a", "guess b"], ["Where is it?", "In Ulm.", "In Bonn."]),
    (["Prompt", "What the model said"], ["Where is it?", "In Ulm. | In Bonn."]),
]


@pytest.mark.parametrize(("header", "row"), AMBIGUOUS)
def test_a_refusal_ends_with_options_that_work(header: list[str], row: list[str], tmp_path: Path) -> None:
    rows = [[f"{cell} {number}" for cell in row] for number in range(3)]
    path = table(tmp_path / "a.csv", header, *rows)
    with pytest.raises(SelfReflectError) as error:
        read_item_file(path)
    words = shlex.split(error.value.worded(lambda name: f"--{name}").rsplit("selfreflect ", 1)[1])
    outcome = run(*words)
    assert outcome.code == 0, outcome.said
    assert "3 questions; answers per question: 2" in outcome.stdout


def test_a_label_beside_several_answers_judges_the_reply(tmp_path: Path) -> None:
    replies = ("5 to 7 days", "Yes.", "DHL brings it")
    rows = [
        [question, "A week", "No.", reply, "right"]
        for question, reply in zip(QUESTIONS, replies, strict=True)
    ]
    path = table(
        tmp_path / "a.csv", ["question", "answer_1", "answer_2", "What we told them", "Verdict"], *rows
    )
    questions = read_answered_questions(path).questions
    assert [(question.answer, question.correct) for question in questions] == [(None, True)] * 3, "no reply"
    path = table(
        tmp_path / "b.csv",
        ["question", "answer_1", "answer_2", "What we told them", "Verdict"],
        *[[row[0], row[3], *row[2:]] for row in rows],
    )
    questions = read_answered_questions(path).questions
    assert [(question.answer, question.correct) for question in questions] == [
        (text, True) for text in replies
    ]


def test_a_text_among_the_answers_is_no_question(tmp_path: Path) -> None:
    row = {"talk": [{"who": "Ann", "words": "Oz?"}], "candidates": [*TEXTS], "chosen": TEXTS[0]}
    with pytest.raises(DataError) as error:
        read_item_file(written(tmp_path / "a.json", [row]))
    assert "question=NAME" in error.value.remedy


def test_a_label_judges_a_reply_within_an_object(tmp_path: Path) -> None:
    rows = [
        {"question": question, "samples": TEXTS, "final": {"text": f"Well: {TEXTS[0]}"}, "correct": True}
        for question in QUESTIONS
    ]
    path = written(tmp_path / "a.json", rows)
    assert {question.answer for question in read_answered_questions(path).questions} == {f"Well: {TEXTS[0]}"}


@pytest.mark.parametrize("command", ["import", "convert"])
def test_a_label_judges_the_reply_after_a_file_is_imported_or_converted(command: str, tmp_path: Path) -> None:
    header = ["question", "answer_1", "answer_2", "answer_3", "Final reply", "Verdict"]
    rows = [[question, "A week", "A week", "5 to 7 days", "5 to 7 days", "wrong"] for question in QUESTIONS]
    path = table(tmp_path / "a.csv", header, *rows)
    out = tmp_path / ("r" if command == "import" else "a.jsonl")
    options = ["--items", path, "--out", out] if command == "import" else [path, "--output", out]
    assert run(command, *options).code == 0
    lines = run("uncertainty", out, "--json").json
    judged = [(line["answer"], *line["correct"].values()) for line in lines if "answer" in line]
    assert judged == [("5 to 7 days", False)] * len(QUESTIONS)


def test_answer_beside_response_is_the_right_one(tmp_path: Path) -> None:
    rows = [
        {"question": question, "answer": "Nobody.", "response": text}
        for question in QUESTIONS
        for text in TEXTS
    ]
    path = written(tmp_path / "a.json", rows)
    read = read_answered_questions(path, "answer")
    assert [(question.answers, question.gold) for question in read.questions] == [(TEXTS, ("Nobody.",))] * 3
    # where it varies, it is what the model said beside the reply that was judged
    rows = [
        {"question": question, "answer": text, "response": "Soon."}
        for question in QUESTIONS
        for text in TEXTS
    ]
    read = read_answered_questions(written(tmp_path / "a.json", rows))
    assert [(question.answers, question.answer) for question in read.questions] == [(TEXTS, "Soon.")] * 3


@pytest.mark.parametrize("name", ["Correct answer {}", "gold_{}", "Reference {}"])
def test_numbered_right_answers_are_spellings_of_one(name: str, tmp_path: Path) -> None:
    header = ["question", "answer_1", "answer_2", name.format(1), name.format(2)]
    rows = [[question, *TEXTS[:2], TEXTS[number % 2], "Nobody."] for number, question in enumerate(QUESTIONS)]
    path = table(tmp_path / "a.csv", header, *rows)
    expected = [(TEXTS[number % 2], "Nobody.") for number in range(3)]
    assert [question.gold for question in read_answered_questions(path).questions] == expected
    assert [question.gold for question in load_questions(str(path)).questions] == expected
    assert read_item_file(path).columns["gold"] == "right answers"


def test_zero_is_a_right_answer_and_blanks_are_no_answers(tmp_path: Path) -> None:
    row = {"question": "How many?", "answers": ["0", "1"], "gold_1": 0, "gold_2": None}
    assert read_answered_questions(written(tmp_path / "a.json", [row])).questions[0].gold == ("0",)
    header = ["question", "answer_1", "correct_1", "answer_2", "correct_2"]
    path = table(tmp_path / "b.csv", header, ["Oz?", "a", "yes", "b", "no"], ["Nod?", "c", "no", " ", ""])
    grades = [[right for _, right in q.grades["correct"]] for q in read_answered_questions(path).questions]
    assert grades == [[True, False], [False]]


def test_reasoning_and_tags_are_no_part_of_a_stored_answer(tmp_path: Path) -> None:
    texts = ["<think>Hm.</think>\nIn Ulm.", "<answer>In Ulm.</answer>", "In Ulm.", "<think>Or in"]
    path = written(tmp_path / "a.json", [{"question": QUESTIONS[0], "answers": texts}])
    read = read_answered_questions(path)
    assert read.questions[0].answers == ("In Ulm.",) * 3
    for notes in (read.notes, read_item_file(path).notes):
        assert [note.split(" ")[0] for note in notes if "reasoning" in note] == ["2", "1"]
        assert not any("null" in note for note in notes)


def test_tables_one_behind_the_other_have_one_header(tmp_path: Path) -> None:
    header = ["question", "answer_1", "answer_2"]
    rows = [[question, *TEXTS[:2]] for question in QUESTIONS]
    file = read_item_file(table(tmp_path / "a.csv", header, *rows, header, ["Why?", *TEXTS[:2]]))
    assert [item.question for item in file.items] == [*QUESTIONS, "Why?"]
    assert any(note.startswith("1 line") for note in file.notes)


def test_numbers_that_are_no_confidences_are_named(tmp_path: Path) -> None:
    rows = [[question, TEXTS[0], 7, "yes"] for question in QUESTIONS]
    path = table(tmp_path / "a.csv", ["question", "answer", "Confidence (1-10)", "correct"], *rows)
    read = read_answered_questions(path)
    assert {question.confidence for question in read.questions} == {None}
    assert any("Confidence (1-10)" in note for note in read.notes)
