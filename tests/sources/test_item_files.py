"""Files of items as people have them: every format and layout gives the same items, and what a file leaves
unclear is said."""

from __future__ import annotations

import csv
import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import piped
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.errors import ConfigError, DataError
from selfreflect.sources.items import Item, ItemFile, read_item_file

GARDEN = "What should I plant first?"
WATCH = "Who keeps the night watch?"
ITEMS = [
    Item.of(GARDEN, {"mine": "Radishes or peas."}, answers=["Radishes.", "Peas, I think.", "Radishes"]),
    Item.of(WATCH, {"mine": "Anna."}, answers=["Anna", "Tom"]),
]


def parse(text: str, **options: Any) -> ItemFile:
    with piped(text.encode()):
        return read_item_file("-", **options)


def read(values: object) -> list[Item]:
    return parse(json.dumps(values)).items


def table(*rows: list[str]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue()


LONG = [
    {"prompt": item.question, "response": answer, "mine_summary": item.summaries["mine"]}
    for item in ITEMS
    for answer in item.answer_set.answers
]
WIDE = [
    {"input": item.question, "samples": list(item.answer_set.answers), "summary_mine": item.summaries["mine"]}
    for item in ITEMS
]


def columns_of(rows: list[dict[str, Any]]) -> str:
    return table(
        list(rows[0]), *([json.dumps(x) if isinstance(x, list) else x for x in row.values()] for row in rows)
    )


@pytest.mark.parametrize("rows", [LONG, WIDE], ids=["long", "wide"])
def test_every_format_and_layout_gives_the_same_items(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    files = {
        "a.csv": columns_of(rows),
        "a.json": json.dumps(rows),
        "a.jsonl": "\n".join(map(json.dumps, rows)),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert read_item_file(tmp_path / name).items == ITEMS, name
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for name in ("a.parquet", "a.csv"):
        with piped((tmp_path / name).read_bytes()):
            assert read_item_file("-").items == ITEMS, name


def test_numbered_columns_end_with_their_last_text() -> None:
    names = ["question", "answer_10", "answer_2", "answer_1", "summary_mine"]
    rows = [
        [GARDEN, "Radishes", "Peas, I think.", "Radishes.", "Radishes or peas."],
        [WATCH, "", "Tom", "Anna", "Anna."],
    ]
    assert parse(table(names, *rows)).items == ITEMS
    [item] = parse(
        table(["question", "a", "answer_1", "answer_2", "answer_3"], ["Why?", "b", "", "so", "and so"])
    ).items
    assert sorted(item.answer_set.answers) == ["", "and so", "so"]


@pytest.mark.parametrize(
    ("fields", "summaries"),
    [
        ({"summary": "s"}, {"summary": "s"}),
        ({"summaries": "s"}, {"summary": "s"}),
        ({"summaries": ["s", "t"]}, {"summary_1": "s", "summary_2": "t"}),
        ({"summaries": {"a": "s", "b": ""}}, {"a": "s", "b": ""}),
        ({"Summary Basic": "s", "greedy_summary": "t"}, {"Basic": "s", "greedy": "t"}),
        ({"summary_1": "s", "summary_length": 3}, {"summary_1": "s"}),
        ({}, {}),
        ({"summary": None, "summary_a": " "}, {}),
    ],
)
def test_summaries_as_text_list_mapping_or_columns(fields: dict[str, Any], summaries: dict[str, str]) -> None:
    assert read([{"question": "Why?", "answers": ["a", "b"], **fields}])[0].summaries == summaries


@pytest.mark.parametrize("name", ["response", "reply", "output", "completion"])
def test_numbered_columns_win_and_what_stands_beside_may_be_a_summary(name: str) -> None:
    file = parse(table(["question", "sample_1", "sample_2", name], ["Why?", "b", "a", "a or b"]))
    assert sorted(file.items[0].answer_set.answers) == ["a", "b"]
    assert f"--column summary={name}" in " ".join(file.notes)


def test_a_number_is_a_summary_beside_texts_and_where_answers_are_numbers() -> None:
    texts = {"question": "Why?", "answers": ["a", "b"], "summary_mine": "Because.", "summary_length": 1}
    number = {
        "question": "When?",
        "answers": ["1971", "in 1971"],
        "summary_mine": "1971",
        "summary_length": 1,
    }
    assert [item.summaries for item in read([texts, number])] == [{"mine": "Because."}, {"mine": "1971"}]
    count = {"question": "How many?", "answers": ["204", "205"], "summary_mine": 204, "summary_other": "1e3"}
    assert [item.summaries for item in read([count])] == [{"mine": "204", "other": "1e3"}]


def test_a_question_with_another_context_is_another_question() -> None:
    rows = [["Why?", context, answer] for answer in "ab" for context in ("x", "y")]
    items = parse(table(["question", "context", "answer"], *rows)).items
    assert [(item.context, {*item.answer_set.answers}) for item in items] == [
        ("x", {"a", "b"}),
        ("y", {"a", "b"}),
    ]
    assert len({item.id for item in items}) == 2


def test_columns_travel_unless_they_differ_between_answers() -> None:
    rows = [["Why?", "a", "garden", "0.1", "1"], ["Why?", "b", "garden", "0.2", "2"]]
    file = parse(table(["question", "answer", "topic", "temperature", "id"], *rows))
    assert file.items[0].metadata == {"topic": "garden"}
    assert "'id', 'temperature'" in " ".join(file.notes)
    assert file.columns["topic"] == "kept with the question"
    assert file.columns["temperature"].startswith("left out: its values differ")
    long_text = read([{"question": "Why?", "answers": ["a", "b"], "page": "x" * 1001, "n": float("1e308")}])
    assert long_text[0].metadata == {"n": 1e308}


def test_answers_of_several_models_are_no_distribution() -> None:
    rows = [["Why?", "a", "small"], ["Why?", "b", "large"]]
    with pytest.raises(DataError, match=r"come from several models.*in a separate file"):
        parse(table(["question", "answer", "model"], *rows))


def test_blank_and_missing_answers_are_said() -> None:
    rows = [{"question": "Why?", "answer": text} for text in ("a", " ", None, "b")]
    file = parse(json.dumps(rows))
    assert sorted(file.items[0].answer_set.answers) == [" ", "a", "b"]
    said = " ".join(file.notes)
    assert "1 answer is blank, such as one to 'Why?'" in said
    assert "1 row without an answer left out" in said


def test_columns_can_be_named() -> None:
    text = table(["frage", "question", "text"], ["Warum?", "3", "darum"], ["Warum?", "3", "so"])
    file = parse(text, columns={"question": "frage", "answer": "text"})
    assert [(item.question, {*item.answer_set.answers}) for item in file.items] == [
        ("Warum?", {"darum", "so"})
    ]
    with pytest.raises(ConfigError, match="Did you mean 'text'"):
        parse(text, columns={"answer": "texd"})
    with pytest.raises(ConfigError, match=r"not a role of a column\. Known: question, answer"):
        parse(text, columns={"colour": "text"})
    with pytest.raises(ConfigError, match="Did you mean --column question=frage"):
        parse(text, columns={"frage": "question"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name,value\na,b\n", "line 2: the field 'question' is missing .it can be called problem, prompt"),
        ("question,text_\nWhy?,b\n", "its fields are 'question', 'text_'"),
        (
            "question,response,prediction\nWhy?,b,c\n",
            "'response', 'prediction' could each contain the model's answers",
        ),
        ("question,answer\nWhy?,b\n", "needs at least 2 answers, one for each half; the question has 1"),
        ("question,output,hint_1,hint_2\nWhy?,a or b,a,b\n", "--column answers=hint_1..hint_2"),
        ("question,answer\n,b\n", "line 2: the field 'question' is blank"),
    ],
)
def test_a_table_that_holds_no_items_names_the_place_and_the_columns(text: str, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        parse(text)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1).filter(
    lambda text: text.strip() and text.lstrip()[0] not in "[{"
)
tables = st.dictionaries(texts, st.lists(texts, min_size=2, max_size=5), min_size=1, max_size=4)


@given(tables, st.randoms())
def test_long_and_wide_tables_of_any_texts_are_read_alike(answers: dict[str, list[str]], random: Any) -> None:
    long = [[question, answer] for question, texts in answers.items() for answer in texts]
    wide = [[question, json.dumps(texts)] for question, texts in answers.items()]
    items = parse(table(["question", "answer"], *long)).items
    assert items == parse(table(["question", "answers"], *wide)).items
    assert {item.question: sorted(item.answer_set.answers) for item in items} == {
        question: sorted(texts) for question, texts in answers.items()
    }
    random.shuffle(long)
    shuffled = parse(table(["question", "answer"], *long)).items
    assert {item.id: item.answer_set for item in shuffled} == {item.id: item.answer_set for item in items}


@pytest.mark.parametrize(
    "header",
    [
        ["User Question", "Sample 1", "Sample 2", "Bot Reply"],
        ["question_text", "answer_1", "answer_2", "assistant response"],
        ["Frage", "Antwort 1", "Antwort 2", "Zusammenfassung"],
        ["Pregunta", "Respuesta 1", "Respuesta 2", "Resumen"],
    ],
)
def test_columns_may_say_whose_they_are_and_in_which_language(header: list[str]) -> None:
    file = parse(table(header, ["Oz?", "Emerald City", "Ruby Town", "Either."]), need_summaries=True)
    [item] = file.items
    assert sorted(item.answer_set.answers) == ["Emerald City", "Ruby Town"]
    assert list(item.summaries.values()) == ["Either."]


def test_an_answer_of_nobody_beside_that_of_a_model_is_the_right_one() -> None:
    rows = [["Oz?", "Emerald City", "Emerald City"], ["Oz?", "Emerald City", "Ruby Town"]]
    [item] = parse(table(["question", "answer", "model_answer"], *rows)).items
    assert sorted(item.answer_set.answers) == ["Emerald City", "Ruby Town"]
    assert item.metadata["answer"] == "Emerald City"


def test_of_two_likely_questions_none_is_guessed() -> None:
    with pytest.raises(DataError):
        parse(table(["user question", "last question", "answer_1", "answer_2"], ["a?", "b?", "c", "d"]))


cells = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text(), max_size=3)
names = st.sampled_from(
    "question prompt id question_id answer answers samples response answer_1 answer_2 masked_out "
    "conditioning summary summaries summary_a order context metadata model topic".split()
)


@given(st.lists(st.dictionaries(names, cells | st.dictionaries(st.text(), cells)), min_size=1, max_size=4))
def test_any_records_give_items_or_an_error(records: list[dict[str, Any]]) -> None:
    with suppress(DataError):
        file = parse(json.dumps(records).replace("NaN", "null").replace("Infinity", "1"))
        assert all(item.question.strip() for item in file.items)
        assert any(len(item.answer_set.answers) > 1 for item in file.items)
