"""Files that people have: what differs between programs, locales and versions, and means the same."""

from __future__ import annotations

import json
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from command import run, written
from round_trip import assert_converted_alike

from selfreflect.errors import DataError
from selfreflect.sources.items import read_item_file
from selfreflect.sources.questions import load_questions
from selfreflect.uncertainty.reading import read_answered_questions

OZ = {"question": "Oz?", "answers": ["a", "b"]}
TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Oz?"}]
FRAME = {"prompt": "Oz?", "response": "a", "sampled_responses": ["a", "b"], "exact_match": 0.5}


def choices(*texts: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}} for text in texts]}


def cell(text: str) -> str:
    return 'question,answers\nOz?,"' + text.replace('"', '""') + '"\n'


FILES: dict[str, Any] = {
    # records around records
    "in a field": {"version": 1, "results": [OZ]},
    "of a server of data sets": {"features": [], "rows": [{"row_idx": 0, "row": OZ}]},
    "in fields": {"run": {"data": [OZ]}},
    "columns in a field": {"data": {"question": ["Oz?"], "answers": [["a", "b"]]}, "metadata": {}},
    "uqlm by pandas": {name: {"0": value} for name, value in FRAME.items()},
    "lm-polygraph by pandas": {
        "input_texts": {"0": "Oz?"},
        "greedy_texts": {"0": "a"},
        "sample_texts": {"0": ["a", "b"]},
    },
    "ragas in columns": {"user_input": ["Oz?", "Oz?"], "response": ["a", "b"]},
    "uqlm in capitals": {name.replace("_", " ").title(): value for name, value in FRAME.items()},
    "deepeval on disk": {"testCases": [{"input": "Oz?", "actualOutput": text} for text in "ab"]},
    # answers in objects
    "generated_text in lists": {"question": "Oz?", "answers": [[{"generated_text": "a"}], [{"output": "b"}]]},
    "content in parts": {"question": "Oz?", "answers": ["a", {"content": [{"type": "text", "text": "b"}]}]},
    "a response": {"prompt": "Oz?", "response": choices("a", "b")},
    # questions in turns
    "messages": {"messages": TURNS, "answers": ["a", "b"]},
    "question of turns": {"question": TURNS, "answers": ["a", "b"]},
    "one output in each row": [{"question": "Oz?", "outputs": text} for text in "ab"],
    "texts of NumPy 2": cell("[np.str_('a'), np.str_('b')]"),
    "columns beside a value": {"prompts": ["Oz?"], "completions": [["a", "b"]], "model": "m", "seed": 1},
    "columns of pandas by names": {"question": {"x": "Oz?"}, "answers": {"x": ["a", "b"]}},
    "prompt of turns": {"prompt": TURNS, "completions": ["a", "b"]},
    "an output of texts": {"question": "Oz?", "output": ["a", "b"], "incomplete_details": "none"},
    "an id of a batch": {"custom_id": "q", "question": "Oz?", "answers": ["a", "b"]},
    "batch with its input": {
        "custom_id": "q",
        "body": {"messages": TURNS},
        "response": {"body": choices("a", "b")},
    },
    "turns with answers": [{"messages": [*TURNS, {"role": "assistant", "content": text}]} for text in "ab"],
    "turns of ShareGPT": [
        {"conversations": [{"from": "human", "value": "Oz?"}, {"from": "gpt", "value": text}]}
        for text in "ab"
    ],
    "turns of a dialog": [
        {"dialog": [{"speaker": "Customer", "text": "Oz?"}], "candidates": ["a", "b"], "chosen": "a"}
    ],
    "spans beside answers": [
        {"question": "Oz?", "answers": {"text": ["a"], "answer_start": [0]}, "response": text}
        for text in "ab"
    ],
    "a row with its place": {"question": "Oz?", "answers": ["a", "b"], "order": 3},
    # lists in cells
    "repr": cell("['a','b']"),
    "repr with missing ones": cell("['a', None, nan, 'b']"),
    "tuple": cell("('a', 'b')"),
    "array": cell("['a'\n 'b']"),
    "array with its name": cell("array(['a', 'b'], dtype=object)"),
    # tables
    "sep quoted": '"sep=;"\nquestion;answer_1;answer_2\nOz?;a;b\n',
    "sep in capitals": "SEP=;\r\nquestion;answer_1;answer_2\r\nOz?;a;b\r\n",
    "blanks after commas": 'question, answer, note\n"Oz?", "a", "x, y"\n"Oz?", "b", "x, y"\n',
    "bars": "question|answer_1|answer_2\nOz?|a|b\n",
    "comma in the header": 'question;answer_1;answer_2;"note, if any"\nOz?;a;b;none, or so\n',
    "comma in a name": "question;answer_1;answer_2;note, if any\nOz?;a;b;none\n",
    "two spellings of a question": "question,answer\nOz?,a\nOz? ,b\n",
}


@pytest.mark.parametrize("name", FILES)
def test_they_hold_the_same_question(name: str, tmp_path: Path) -> None:
    content = FILES[name]
    path = written(tmp_path / f"f.{'csv' if isinstance(content, str) else 'json'}", content)
    [question] = read_answered_questions(path).questions
    assert (question.text, sorted(question.answers)) == ("Oz?", ["a", "b"])
    [item] = read_item_file(path).items
    assert (item.question, sorted(item.answer_set.answers)) == ("Oz?", ["a", "b"])
    assert item.context == ("system: Be brief." if TURNS[0]["content"] in str(content) else "")
    assert_converted_alike(path)


@pytest.mark.parametrize("suffix", ["json", "jsonl", "ndjson", "jsonlines"])
@pytest.mark.parametrize("kind", ["lines", "list", "objects on several lines"])
def test_one_object_per_line_and_a_list_are_told_apart_by_what_they_are(
    suffix: str, kind: str, tmp_path: Path
) -> None:
    rows = [OZ, {**OZ, "question": "Nod?"}]
    indent = None if kind == "lines" else 1
    text = "".join(json.dumps(row, indent=indent) + "\n" for row in rows)
    text = json.dumps(rows, indent=1) if kind == "list" else text
    items = read_item_file(written(tmp_path / f"f.{suffix}", text)).items
    assert [item.question for item in items] == ["Oz?", "Nod?"]


CONFIDENT = 'question,response,{0},{1}\nOz?,E,"{2}",{3}\nNod?,C,"{4}",{5}\n'


@pytest.mark.parametrize(
    ("columns", "confidences", "labels"),
    [
        (("confidence", "correct"), ("0,85", "0,4"), ("ja", "nein")),
        (("Confidence", "Is Correct"), ("85,0 %", "40 per cent"), ("WAHR", "FALSCH")),
        (("confidence (%)", "correctness"), ("85", "40"), ("1.0", "0.0")),
        (("Model certainty (%)", "correct"), ("85", "40"), ("yes", "no")),
        (("LLM confidence score", "correct"), (".85", ".4"), ("yes", "no")),
        (("conf (0-100)", "correct"), ("85", "40"), ("yes", "no")),
        (("stated_confidence", "grade"), (".85", "4e-1"), ("Yes.", "No.")),
        (("confidence", "verdict"), ("85％", "0.40 "), ("✓", "✗")),
    ],
)
def test_confidences_and_labels_as_people_write_them(
    columns: tuple[str, str], confidences: tuple[str, str], labels: tuple[str, str], tmp_path: Path
) -> None:
    rows = [part for pair in zip(confidences, labels, strict=True) for part in pair]
    path = written(tmp_path / "f.csv", CONFIDENT.format(*columns, *rows))
    found = [(question.confidence, question.correct) for question in read_answered_questions(path).questions]
    assert found == [(0.85, True), (0.4, False)]


@pytest.mark.parametrize("text", ["85", "high", "1,200", "120%", "nan"])
def test_a_confidence_that_may_mean_something_else_is_refused(text: str, tmp_path: Path) -> None:
    path = written(tmp_path / "f.csv", CONFIDENT.format("confidence", "correct", text, "yes", "1", "no"))
    outcome = run("uncertainty", path)
    assert (outcome.code, "line 2" in outcome.said) == (2, True)


def test_a_missing_confidence_costs_its_question_only(tmp_path: Path) -> None:
    path = written(tmp_path / "f.csv", CONFIDENT.format("confidence", "correct", "0.85", "yes", "", "no"))
    file = read_answered_questions(path)
    assert [question.confidence for question in file.questions] == [0.85, None]
    assert any(note.startswith("1 question") for note in file.notes)


def test_grades_of_letters_or_numbers_and_scores_are_no_labels(tmp_path: Path) -> None:
    for grades in ("AB", "31"):
        path = written(
            tmp_path / "f.csv", CONFIDENT.format("confidence", "grade", 1, grades[0], 0, grades[1])
        )
        assert [question.correct for question in read_answered_questions(path).questions] == [None, None]


@pytest.mark.parametrize("name", ["target", "expected", "possible_answers", "Golden Answers", "reference"])
def test_right_answers_under_another_name(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "f.json", [{**OZ, name: ["b", "c"]}])
    assert read_answered_questions(path).questions[0].gold == ("b", "c")


def test_names_of_columns_fold(tmp_path: Path) -> None:
    path = written(tmp_path / "f.csv", 'Frage,Model Drafts\nOz?,"[""a"", ""b""]"\n')
    columns = ("--column", "question=frage", "--column", "answer=model_drafts")
    assert run("convert", path, "--json", *columns).json[0]["answers"] == 2


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        ({"question": {"en": "Oz?", "de": "Oz"}, "answers": ["a", "b"]}, "--column question=question.NAME"),
        ({"data": {"q": "Oz", "drawn": ["a"]}}, "'data.q', 'data.drawn'"),
        ({"question": "Oz?", "answers": {"text": ["a", "b"], "start": 1}}, "--column answer=answers.text"),
        ({"custom_id": "q", "response": {"body": choices("a", "b")}}, "--read-batch"),
        ({"h1": {"response": "a", "judge_response": {"correct": "no", "confidence": 1}}}, "uncertainty FILE"),
    ],
)
def test_a_near_miss_is_told_the_one_change(content: Any, remedy: str, tmp_path: Path) -> None:
    outcome = run("convert", written(tmp_path / "f.json", content))
    assert (outcome.code, remedy in outcome.said) == (2, True)


def test_grades_are_named_where_no_person_gave_a_label(tmp_path: Path) -> None:
    path = written(tmp_path / "f.json", [{**OZ, "grades": {"g": [1, 0]}}])
    assert "--correctness graded" in run("uncertainty", path, "--correctness", "human").said


def test_folders_of_arrow_streams(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [{"question": f"Q{n}?", "answers": ["a", "b"], "gold": ["a"]} for n in range(5)]
    data = datasets.Dataset.from_list(rows)
    data.save_to_disk(tmp_path / "one", num_shards=2)
    datasets.DatasetDict(train=data, test=data.select([1])).save_to_disk(tmp_path / "two")
    file = read_answered_questions(tmp_path / "one")
    assert [(q.text, q.answers, q.gold) for q in file.questions] == [
        (row["question"], ("a", "b"), ("a",)) for row in rows
    ]
    outcome = run("convert", tmp_path / "two")
    assert (outcome.code, "'train', 'test'" in outcome.said) == (2, True)
    assert len(read_item_file(tmp_path / "two" / "test").items) == 1
    [question] = load_questions(str(tmp_path / "two"), split="test").questions
    assert question.text == "Q1?"
    (tmp_path / "one" / "data-00001-of-00002.arrow").unlink()
    assert run("uncertainty", tmp_path / "one").code == 2
    (tmp_path / "one" / "state.json").write_text('{"_data_files": [{"filename": "../../secret"}]}')
    assert run("uncertainty", tmp_path / "one").code == 2


@pytest.mark.parametrize(
    ("index", "entries"),
    [
        (name, entries)
        for name in ("state.json", "dataset_dict.json")
        for entries in ([""], [".."], 5, "a", [3])
    ],
)
def test_an_index_that_leads_elsewhere_is_refused(index: str, entries: Any, tmp_path: Path) -> None:
    key = "splits" if index == "dataset_dict.json" else "_data_files"
    written(tmp_path / index, {key: entries})
    for command in (("convert",), ("uncertainty",), ("questions", "--questions")):
        assert run(*command, tmp_path).code == 2


BROKEN: dict[str, Any] = {
    "nested": json.loads('{"a": ' * 250 + "1" + "}" * 250),
    "no rows": {"data": {"prompts": [], "responses": []}, "metadata": {}},
    "fewer prompts than responses": {"data": {"prompts": ["Oz?"], "responses": ["a", "b"]}, "metadata": {}},
    "a column twice": {"columns": ["question", "answers", "answers"], "data": [["Oz?", ["a"], ["b"]]]},
    "a message that is a text": {"question": "Oz?", "choices": [{"message": "a"}, {"message": "b"}]},
}


@pytest.mark.parametrize("name", BROKEN)
def test_files_that_hold_no_questions_are_refused(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "f.json", BROKEN[name])
    assert run("convert", path).code == 2


@pytest.mark.parametrize("whole", [None, [], [1, 2], "text"])
def test_facts_of_a_whole_result_cost_no_rows(whole: Any, tmp_path: Path) -> None:
    texts = {"responses": ["a"], "sampled_responses": [["a", "b"]], "seconds": whole}
    for data in (texts, {"prompts": ["Oz?"], **texts}):
        path = written(tmp_path / "u.json", {"data": data, "metadata": {}})
        assert [q.answers for q in read_answered_questions(path).questions] == [("a", "b")]
    [item] = read_item_file(path).items
    assert item.question == "Oz?"
    estimations = {"stats": {"input_texts": ["Oz?"], "greedy_texts": ["a"]}, "estimations": [whole]}
    assert run("convert", written(tmp_path / "p.json", estimations)).code in (0, 2)


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("question,answer\nOz?,\"['a', 'b']\"\n", ("a", "b")),
        ('question,answer\nOz?,"[""a"", ""b""]"\n', ("a", "b")),
        ('question,answer\nOz?,"[a] or b"\n', ("[a] or b",)),
    ],
)
def test_right_answers_in_a_cell_are_a_list(text: str, gold: tuple[str, ...], tmp_path: Path) -> None:
    [question] = load_questions(str(written(tmp_path / "q.csv", text))).questions
    assert question.gold == gold


def test_no_picture_is_none_and_one_of_several_is_one(tmp_path: Path) -> None:
    rows = [
        {"question": "Oz?", "images": [None], "bleu": float("nan")},
        {"question": "?", "image_1": "x.png"},
    ]
    found = load_questions(str(written(tmp_path / "q.json", rows)))
    assert ([question.text for question in found.questions], found.with_images) == (["Oz?"], 1)


@pytest.mark.parametrize(
    "row",
    [
        {"question": "Which bird sings?", "audio": {"path": "a.wav", "bytes": None}},
        {"question": "Who is it?", "photo_url": "https://x.test/y"},
        {"question": "Who is it?", "source": "data:image/png;base64,AA"},
        {"question": "Who is it?", "scan": [{"bytes": "AA", "path": None}]},
        {"question": "Compare <image 1> and <image 2>."},
        {"question": "<image>\nWhat is in it?"},
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is on it?"},
                        {"type": "image_url", "image_url": {"url": "https://x.test/y.png"}},
                    ],
                }
            ]
        },
    ],
)
def test_what_a_model_of_texts_does_not_perceive_is_left_out(row: dict[str, object], tmp_path: Path) -> None:
    text_only = {
        "question": "What does the <image> element of SVG do?",
        "file": {"bytes": None, "path": None},
        "source": {"type": "document", "name": "SVG 2"},
    }
    turns = {"messages": [{"role": "user", "content": "What does the <image> element of SVG do?"}]}
    found = load_questions(
        str(written(tmp_path / "q.json", [row, turns if "messages" in row else text_only]))
    )
    assert found.with_images == 1
    assert [question.text for question in found.questions] == ["What does the <image> element of SVG do?"]


def test_a_picture_is_looked_for_in_a_long_text_at_once(tmp_path: Path) -> None:
    rows = [{"question": "Oz?", "note": "\n" * 100_000 + "x", "1" * 20_000 + "x": 1}]
    began = time.perf_counter()
    assert load_questions(str(written(tmp_path / "q.json", rows))).with_images == 0
    assert time.perf_counter() - began < 3


def test_lists_of_values_travel_and_columns_of_objects_are_named(tmp_path: Path) -> None:
    rows = [
        {"question": "How many?", "valid": [204, 205.5], "spans": ["a", {"text": "b"}], "metadata": {"x": {}}}
    ]
    found = load_questions(str(written(tmp_path / "q.json", rows)))
    assert found.questions[0].metadata == {"valid": "[204, 205.5]"}
    assert found.left_behind == ("spans",)


def test_values_that_are_no_numbers_are_refused_where_they_matter(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="record 1"):
        load_questions(str(written(tmp_path / "g.json", [{"question": "Oz?", "answer": float("nan")}])))


def test_a_turn_that_calls_a_tool_is_an_answer_that_is_missing(tmp_path: Path) -> None:
    turns = ({"role": "assistant", "content": text} for text in (None, "a", "b"))
    file = read_item_file(written(tmp_path / "t.json", [{"messages": [*TURNS, turn]} for turn in turns]))
    assert sorted(file.items[0].answer_set.answers) == ["a", "b"]
    assert file.notes


def test_a_role_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read_item_file(written(tmp_path / "t.json", [{**OZ, "question": [{**TURNS[1], "role": ["user"]}]}]))


def test_a_response_with_reasoning_has_the_text_of_its_message(tmp_path: Path) -> None:
    parts = [{"type": "reasoning", "summary": []}, {"type": "message", "content": [{"text": "a"}]}]
    line = {"custom_id": "q", "question": "Oz?", "response": {"body": {"output": parts}}}
    [question] = read_answered_questions(written(tmp_path / "b.jsonl", line)).questions
    assert (question.id, question.answers) == ("q", ("a",))


def test_a_list_of_labels_has_one_for_each_answer(tmp_path: Path) -> None:
    row = {"question": "Oz?", "answers": ["a", None, "b"], "correct": ["C", "I", "I"]}
    path = written(tmp_path / "f.jsonl", row)
    [question] = read_answered_questions(path).questions
    assert [right for _, right in question.grades["correct"]] == [True, False]
    [item] = read_item_file(path).items
    assert sorted(zip(item.answer_set.answers, item.grades["correct"], strict=True)) == [
        ("a", True),
        ("b", False),
    ]
    with pytest.raises(DataError):
        read_answered_questions(written(path, {**row, "correct": ["C"]}))


def test_labels_that_are_neither_right_nor_wrong_are_counted(tmp_path: Path) -> None:
    rows = [{"question": f"{n}?", "response": "a", "correct": label} for n, label in enumerate(["C", "N"])]
    file = read_answered_questions(written(tmp_path / "f.json", rows))
    assert [question.correct for question in file.questions] == [True, None]
    assert any(note.startswith("1 label of 2") for note in file.notes)


def test_several_lists_of_records_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError) as raised:
        read_item_file(written(tmp_path / "f.json", {"train": [OZ], "test": [OZ]}))
    assert all(name in raised.value.message for name in ("f.json", "train", "test"))


def test_utf_16_needs_no_mark(tmp_path: Path) -> None:
    for encoding in ("utf-16-le", "utf-16-be"):
        (tmp_path / "f.csv").write_bytes("question,answer_1,answer_2\nÖz?,a,b\n".encode(encoding))
        [question] = read_answered_questions(tmp_path / "f.csv").questions
        assert (question.text, question.answers) == ("Öz?", ("a", "b"))


def test_a_list_in_a_cell_keeps_the_line_ends_of_its_texts(tmp_path: Path) -> None:
    text = 'question,answers\nOz?,"[""a\n"",""b, c""]"\n'
    [question] = read_answered_questions(written(tmp_path / "f.csv", text)).questions
    assert question.answers == ("a\n", "b, c")


def test_the_columns_that_are_likely_answers_are_named(tmp_path: Path) -> None:
    for header, option in (("hint1,hint2", "answer=hint1..hint2"), ("draft,note", "answer=draft")):
        path = written(tmp_path / "f.csv", f"question,{header}\nOz?,a,b\n")
        for read in (read_item_file, read_answered_questions):
            with pytest.raises(DataError) as raised:
                read(path)
            assert option in raised.value.remedy


def test_a_file_of_another_kind_is_told_by_its_beginning(tmp_path: Path) -> None:
    for suffix, data in (
        (".gz", b"\x1f\x8b\x08\xff"),
        (".xlsx", b"PK\x03\x04\xff"),
        (".parquet", b"PAR1\xff"),
    ):
        (tmp_path / "f.csv").write_bytes(data)
        with pytest.raises(DataError) as raised:
            read_item_file(tmp_path / "f.csv")
        assert suffix in raised.value.remedy


def test_a_blank_cell_among_lists_is_a_missing_answer(tmp_path: Path) -> None:
    path = written(tmp_path / "f.csv", 'question,answers\nOz?,\nNod?,"[""a"",""b""]"\n')
    for file in (read_item_file(path), read_answered_questions(path)):
        assert any(note.startswith("1 ") for note in file.notes)
    assert [len(item.answer_set.answers) for item in read_item_file(path).items] == [0, 2]


@pytest.mark.parametrize("names", [("Actual Output", "actual_output"), ("expectedOutput", "expected_output")])
def test_two_columns_of_one_name_are_refused_by_name(names: tuple[str, str], tmp_path: Path) -> None:
    path = written(tmp_path / "f.json", [{"input": "Oz?", "actual_output": "a"} | dict.fromkeys(names, "b")])
    for read in (read_item_file, read_answered_questions):
        with pytest.raises(DataError) as raised:
            read(path)
        assert all(name in raised.value.message for name in names)


@pytest.mark.parametrize("name", ["question", "User question", "Frage"])
def test_a_sheet_that_explains_the_columns_is_left_out_by_name(name: str, tmp_path: Path) -> None:
    book = pytest.importorskip("openpyxl").Workbook()
    sheets = {"Sheet": [name, "answer_1", "answer_2"], "Legend": ["column", "text", "x"]}
    for title, header in sheets.items():
        sheet = book.active if title == "Sheet" else book.create_sheet(title)
        for row in (header, ["Oz?", "a", "b"]):
            sheet.append(row)
    book.create_sheet("Read me").append(["Made in May."])
    book.create_sheet("Blank")
    book.save(tmp_path / "f.xlsx")
    file = read_item_file(tmp_path / "f.xlsx")
    assert [item.question for item in file.items] == ["Oz?"]
    [note] = [note for note in file.notes if "sheets" in note]
    assert ("Legend" in note, "Read me" in note, "Blank" in note) == (True, True, False)


def test_a_sample_that_is_stored_in_both_ways_counts_once(tmp_path: Path) -> None:
    sample = {
        "id": 1,
        "epoch": 1,
        "input": "Oz?",
        "output": {"choices": [{"message": {"role": "assistant", "content": "a"}}]},
    }
    with zipfile.ZipFile(tmp_path / "l.eval", "w") as archive:
        for name in ("1_epoch_1.json", "1_epoch_1/sample.json", "1_epoch_2.json"):
            archive.writestr(f"samples/{name}", json.dumps(sample))
    file = read_answered_questions(tmp_path / "l.eval")
    assert [question.answers for question in file.questions] == [("a", "a")]
    assert any(note.startswith("1 file") for note in file.notes)


@pytest.mark.parametrize("name", ["Is Correct", "grade", "verdict"])
@pytest.mark.parametrize("kind", ["list", "cell", "rows", "columns"])
def test_labels_of_each_answer_under_another_name(name: str, kind: str, tmp_path: Path) -> None:
    if kind == "list":
        path = written(tmp_path / "f.jsonl", {**OZ, name: ["C", 0]})
    elif kind == "cell":
        path = written(tmp_path / "f.csv", f'question,answers,{name}\nOz?,"[""a"",""b""]","[1, 0]"\n')
    elif kind == "rows":
        path = written(tmp_path / "f.csv", f"question,answer,{name}\nOz?,a,Yes.\nOz?,b,no\n")
    else:
        header = ",".join(f"answer {number},{name} {number}" for number in (1, 2, 3))
        path = written(tmp_path / "f.csv", f"question,{header}\nOz?,a,yes,b,no,,\n")
    [question] = read_answered_questions(path).questions
    assert [(text, right) for text, right in question.grades["correct"]] == [("a", True), ("b", False)]
    converted = tmp_path / "c.jsonl"
    run("convert", path, "--output", converted)
    [question] = read_answered_questions(converted).questions
    assert dict(question.grades["correct"]) == {"a": True, "b": False}


@pytest.mark.parametrize(
    ("target", "choices"),
    [
        ("B", ["no", "yes"]),
        ("2", {"text": ["no", "yes"], "label": ["1", "2"]}),
        ("1", {"text": ["no", "yes"], "label": ["1", "2"]}),
        ("yes", ["no", "yes"]),
        ("1", ["no", "yes"]),
    ],
)
def test_the_right_choice_is_a_text_a_number_or_a_letter(target: str, choices: Any, tmp_path: Path) -> None:
    sample = {
        "doc_id": 0,
        "doc": {"question": "Is ice cold?", "choices": choices},
        "target": target,
        "resps": [[["-2.3", "False"]], [["-0.4", "True"]]],
    }
    [question] = read_answered_questions(written(tmp_path / "s.jsonl", sample)).questions
    assert (question.answer, question.gold, round(question.confidence or 0, 2)) == ("yes", ("yes",), 0.87)


@pytest.mark.parametrize(
    ("doc", "contexts", "texts", "gold"),
    [
        ({"tags": ["geo", "easy"], "choices": ["no", "yes"]}, ("Q", "Q"), ("no", "yes"), ("yes",)),
        ({"CONTEXTS": ["Ice.", "Is."]}, ("Q", "Q"), ("no", "yes"), ("yes",)),
        ({}, ("It is no", "It is yes"), ("x", "x"), ("yes",)),
        ({"mc2": {"choices": ["no", "yes"], "labels": [1, 1]}}, ("Q", "Q"), ("no", "yes"), ("no", "yes")),
    ],
)
def test_choices_are_no_other_list_of_a_document(
    doc: Any, contexts: Any, texts: Any, gold: tuple[str, ...], tmp_path: Path
) -> None:
    sample = {
        "doc_id": 0,
        "doc": {"question": "Is ice cold?", **doc},
        "target": 1,
        "arguments": [[context, f" {text}"] for context, text in zip(contexts, texts, strict=True)],
        "resps": [[[-2.3, False]], [[-0.4, True]]],
    }
    [question] = read_answered_questions(written(tmp_path / "s.jsonl", sample)).questions
    assert (question.answer, question.gold) == ("yes", gold)


def test_several_right_answers_in_a_cell_are_divided_where_the_column_is_called_so(tmp_path: Path) -> None:
    text = "question,answer_1,answer_2,{}\nOz?,a,b,a; the a\nNod?,c,d,c\n"
    file = read_answered_questions(written(tmp_path / "f.csv", text.format("Correct Answers")))
    assert [question.gold for question in file.questions] == [("a", "the a"), ("c",)]
    assert any(note.startswith("1 cell") for note in file.notes)
    file = read_answered_questions(written(tmp_path / "f.csv", text.format("target")))
    assert [question.gold for question in file.questions] == [("a; the a",), ("c",)]


def test_a_question_that_is_merged_over_the_rows_of_its_answers_belongs_to_each(tmp_path: Path) -> None:
    book = pytest.importorskip("openpyxl").Workbook()
    for row in (["Question", "Answer"], ["Oz?", "a"], [None, "b"], [" ", "  "], ["Nod?", "c"], [None, "d"]):
        book.active.append(row)
    book.active.merge_cells("A2:A3")
    book.active.merge_cells("A5:A6")
    book.save(tmp_path / "f.xlsx")
    questions = read_answered_questions(tmp_path / "f.xlsx").questions
    assert [(q.text, q.answers) for q in questions] == [("Oz?", ("a", "b")), ("Nod?", ("c", "d"))]


def test_an_answer_may_be_a_turn_and_right_answers_an_object(tmp_path: Path) -> None:
    row = {"question": "Oz?", "gold": {"value": "a", "aliases": ["A"]}}
    rows = [{**row, "output": {"role": "assistant", "content": text}} for text in ("a", "b", None)]
    path = written(tmp_path / "f.json", rows)
    assert run("convert", path, "--output", tmp_path / "c.jsonl").code == 0
    for source in (path, tmp_path / "c.jsonl"):
        [question] = read_answered_questions(source).questions
        assert (sorted(question.answers), question.gold) == (["a", "b"], ("a", "A"))


@pytest.mark.parametrize("name", ["answer", "response", "output", "answer_1"])
@pytest.mark.parametrize(("values", "texts"), [((4, 5.5), ["4", "5.5"]), ((True, False), ["false", "true"])])
def test_answers_that_are_numbers_or_truth_values_are_texts(
    name: str, values: tuple[Any, Any], texts: list[str], tmp_path: Path
) -> None:
    rows = [{"question": "How many?", name: value} for value in (*values, float("nan"))]
    if name == "answer_1":
        rows = [{"question": "How many?", "answer_1": values[0], "answer_2": values[1]}]
    path = written(tmp_path / "f.json", rows)
    assert sorted(read_answered_questions(path).questions[0].answers) == texts
    assert sorted(read_item_file(path).items[0].answer_set.answers) == texts
    judged = [{"question": "How many?", "answers": texts, "response": value} for value in values[:1]]
    [question] = read_answered_questions(written(path, judged)).questions
    assert question.answer in texts


@pytest.mark.parametrize(
    ("row", "gold"),
    [
        ({"choices": ["w", "x"], "answer": 1}, ("x",)),
        ({"choices": ["w", "x"], "answer": "B"}, ("x",)),
        ({"options": ["w", "x"], "answer": "x"}, ("x",)),
        ({"choices": {"text": ["w", "x"], "label": ["1", "2"]}, "answerKey": "2"}, ("x",)),
        ({"choices": {"text": ["w", "x"], "label": ["1", "2"]}, "answerKey": 1}, ("w",)),
        ({"choices": {"text": ["w", "x"], "label": [1, 2]}, "answerKey": "1"}, ("w",)),
        ({"choices": ["w", "x"], "answer": "AB"}, ("AB",)),
        ({"choices": ["w", "x"], "answer": 7}, ()),
        ({"answer": "B"}, ("B",)),
        ({"choices": [3, 4], "answer": 1}, ("4",)),
        ({"choices": ["w", "x"], "answer": [0, 1]}, ("w", "x")),
        ({"options": {"A": "w", "B": "x"}, "answer": "B"}, ("x",)),
        ({"choices": [{"text": "w", "label": "A"}, {"text": "x", "label": "B"}], "answer": "B"}, ("x",)),
        ({"answer": {"Value": "a", "Aliases": ["A."]}}, ("a", "A.")),
        ({"answers": {"input_text": ["a"], "answer_start": [1]}}, ("a",)),
        ({"gold": [{"text": "a"}]}, ("a",)),
        ({"answer": {"text": "a"}}, ("a",)),
        ({"answers": [{"answer": "a"}]}, ("a",)),
        (
            {"answers": "{'text': array(['a', 'b'], dtype=object), 'answer_start': array([1], dtype=int32)}"},
            ("a", "b"),
        ),
        ({"answer": "{'value': 'a', 'aliases': ['b']}"}, ("a", "b")),
        ({"answer": "{1, 2}"}, ("{1, 2}",)),
    ],
)
def test_right_answers_of_a_question_to_ask(row: Any, gold: tuple[str, ...], tmp_path: Path) -> None:
    [question] = load_questions(str(written(tmp_path / "q.json", [{"question": "Oz?", **row}]))).questions
    assert question.gold == gold


def test_samples_of_one_id_with_different_questions_stay_apart(tmp_path: Path) -> None:
    samples = [
        {
            "id": 1,
            "epoch": epoch,
            "input": text,
            "output": {"choices": [{"message": {"role": "assistant", "content": "a"}}]},
        }
        for text in ("Oz?", "Nod?")
        for epoch in (1, 2)
    ]
    log = {"version": 2, "status": "success", "eval": {}, "samples": samples}
    items = read_item_file(written(tmp_path / "l.json", log)).items
    assert [(item.question, len(item.answer_set.answers)) for item in items] == [("Oz?", 2), ("Nod?", 2)]


def test_the_judged_answer_of_a_table_in_capitals_survives_convert(tmp_path: Path) -> None:
    text = 'Prompt,Response,Sampled Responses,Confidence\nOz?,a,"[""a"", ""b""]",85%\n'
    converted = tmp_path / "c.jsonl"
    assert run("convert", written(tmp_path / "f.csv", text), "--output", converted).code == 0
    [question] = read_answered_questions(converted).questions
    assert (question.answer, question.confidence) == ("a", 0.85)


def test_a_path_into_the_judged_answer_names_the_answers(tmp_path: Path) -> None:
    results = [
        {
            "vars": {"question": "Oz?"},
            "prompt": {"raw": "Q"},
            "response": {"output": text},
            "success": text == "a",
        }
        for text in "ab"
    ]
    path = written(tmp_path / "f.json", {"results": {"results": results}})
    columns = {"question": "vars.question", "answer": "response.output", "correct": "success"}
    [question] = read_answered_questions(path, columns=columns).questions
    assert (question.text, question.answers) == ("Oz?", ("a", "b"))
    assert [right for _, right in question.grades["correct"]] == [True, False]


DOCUMENT = {"doc_id": 0, "doc": {"question": "Oz?"}, "resps": [["a", "b"]], "filtered_resps": ["a"]}
ASKED = [{"role": "user", "content": "Oz?"}]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda record: {"data": record},
        lambda record: {"id": record.pop("id", "oz"), "data": record, "model": "m 1.0 (old)"},
        lambda record: {"row_idx": 0, "row": {"item": record}},
    ],
)
@pytest.mark.parametrize(
    "record",
    [
        {"question": "Oz?", "answers": ["a", "b"]},
        {"user_input": "Oz?", "response": "a", "reference": "b"},
        {"messages": [*ASKED, {"role": "assistant", "content": "a"}]},
        {**DOCUMENT, "filter": "none", "target": "a"},
    ],
)
@pytest.mark.parametrize("name", ["f.jsonl", "f.json"])
def test_records_in_an_object_of_each_row_are_read(name: str, wrap: Any, record: Any, tmp_path: Path) -> None:
    records = [{**record}, json.loads(json.dumps(record).replace("Oz?", "Nod?"))]
    records[1] |= {"doc_id": 1} if "doc_id" in record else {}
    plain = read_answered_questions(written(tmp_path / "plain.json", records)).questions
    rows = [wrap(record) for record in records]
    if "id" in rows[0]:
        rows[1]["id"] = "nod"
    path = tmp_path / name
    path.write_text("\n".join(map(json.dumps, rows)) if name == "f.jsonl" else json.dumps(rows))
    found = read_answered_questions(path).questions
    assert [(question.text, question.answers, question.gold) for question in found] == [
        (question.text, question.answers, question.gold) for question in plain
    ]


def test_an_id_beside_a_record_with_an_id_is_left_out_with_a_note(tmp_path: Path) -> None:
    rows = [{"id": 7, "data": {**OZ, "id": "oz"}}]
    file = read_item_file(written(tmp_path / "f.json", rows))
    assert ([item.id for item in file.items], ["'id'" in note for note in file.notes]) == (["oz"], [True])


@pytest.mark.parametrize(
    "row",
    [
        {"Frage": "Was ist Oz?", "meta": {"prompt": "Be brief."}},
        {"user_question": "Oz", "meta": {"text": "Be brief."}},
        {"Aufgabe": "Nenne die Stadt von Oz", "meta": {"input": "t.csv"}},
    ],
)
def test_an_object_beside_the_question_is_no_record(row: dict[str, Any], tmp_path: Path) -> None:
    options = ("--json", "--column", f"question={next(iter(row))}")
    rows = [{**row, "answers": ["a", "b"]}] * 2
    assert run("convert", written(tmp_path / "f.json", rows), *options).json[0]["layout"] == "items"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input", {"text": "Oz?"}),
        ("prompt", {"content": "Oz?", "id": "3"}),
        ("question", {"text": "Oz?", "tokens": ["Oz", "?"]}),
        ("prompt", ASKED[0]),
        ("prompt", ASKED),
        ("prompt", json.dumps(ASKED)),
    ],
)
def test_a_question_may_be_an_object_with_a_text(name: str, value: Any, tmp_path: Path) -> None:
    rows = [{name: value, "answer": "a"}, {name: value, "answer": "b"}]
    path = written(tmp_path / "f.json", rows)
    file = read_item_file(path)
    assert [(item.question, len(item.answer_set.answers)) for item in file.items] == [("Oz?", 2)]
    is_named = isinstance(value, dict) and "role" not in value
    assert [f"{name}.{next(iter(value))}" in note for note in file.notes] == [True] * is_named
    assert [question.text for question in read_answered_questions(path).questions] == ["Oz?"]
    asked = written(tmp_path / "q.json", [{name: value, "gold": "a"}])
    [question] = load_questions(str(asked)).questions
    assert (question.text, question.gold) == ("Oz?", ("a",))


def test_the_log_probabilities_of_uqlm_are_those_of_its_samples(tmp_path: Path) -> None:
    data = {
        "prompts": ["Oz?"],
        "responses": ["a"],
        "sampled_responses": [["a", "b"]],
        "logprob": [[{"token": "a", "logprob": -0.1}]],
        "sampled_logprob": [[[{"token": "a", "logprob": -0.1}], [{"token": "b", "logprob": -2.0}]]],
    }
    path = written(tmp_path / "u.json", {"data": data, "metadata": {}})
    [question] = read_answered_questions(path).questions
    assert question.token_values.logprobs == ((-0.1,), (-2.0,))
    without = {**data, "sampled_logprob": [[None, None]]}
    path = written(tmp_path / "v.json", {"data": without, "metadata": {}})
    assert read_answered_questions(path).questions[0].token_values.logprobs == ()


@pytest.mark.parametrize("context", [["One.", "Two."], [["One.", ["Two."]]], '["One.", "Two."]'])
def test_passages_in_a_list_are_one_context(context: object, tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", [{**OZ, "context": context}])
    assert read_item_file(path).items[0].context == "One.\n\nTwo."
    assert load_questions(str(path)).questions[0].context == "One.\n\nTwo."


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"question": "What is in ![it](https://x.test/a.png)?"}, 1),
        ({"question": "Oz?", "img": "a.png"}, 1),
        ({"question": "Oz?", "image_b64": "iVBO"}, 1),
        ({"question": "Oz?", "image": "", "rationale_image": {"bytes": "x", "path": "p"}}, 0),
        ({"question": "What does ! mean in [a](b)?"}, 0),
    ],
)
def test_pictures_are_counted_wherever_they_stand(fields: dict[str, Any], count: int, tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", [fields, {"question": "Nod?"}])
    assert load_questions(str(path)).with_images == count


def test_wrong_choices_are_not_proposed_as_answers(tmp_path: Path) -> None:
    text = "Question,Correct Answer,Incorrect Answer 1,Incorrect Answer 2\nOz?,a,b,c\nNod?,d,e,f\n"
    outcome = run("convert", written(tmp_path / "a.csv", text))
    assert (outcome.code, "answer=NAME" in outcome.said) == (2, True)
