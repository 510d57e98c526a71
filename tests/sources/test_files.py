"""The user's files: every format round-trips, every way to be wrong gets a message that names the place."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import piped
from hypothesis import assume, example, given
from hypothesis import strategies as st

from selfreflect.errors import DataError, MissingExtraError
from selfreflect.sources.files import Content, read_content
from selfreflect.sources.parsers import PARSERS, parse_rows
from selfreflect.sources.questions import load_questions
from selfreflect.sources.rows import Row, RowIds
from selfreflect.uncertainty.reading import read_answered_questions

TRICKY = [
    'say "hi", twice',
    "two\nlines",
    "carriage\rreturn\r\n",
    "\u2028line separator\x85",
    "مرحبا \u202eabc",
    "\x00\x1f\x7f",
    " padded\t",
]
texts = st.text() | st.sampled_from(TRICKY)
high_surrogate = st.just("\ud83d")
"""Alone: a high surrogate before a low one would be a pair, which JSON does not tell from the character it
stands for."""


def read_rows(source: str | Path) -> list[Row]:
    return parse_rows(read_content(source, PARSERS))


def save(folder: Path, name: str, data: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def parsed(suffix: str, data: str | bytes) -> list[Row]:
    return parse_rows(
        Content(name="it", suffix=suffix, data=data if isinstance(data, bytes) else data.encode())
    )


def refused(folder: Path, name: str, data: str | bytes) -> str:
    """The message about a bad file, which always names it."""
    path = save(folder, name, data)
    with pytest.raises(DataError) as caught:
        read_rows(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


# What each format gives


def test_json_list_of_objects_and_texts(tmp_path):
    path = save(tmp_path, "q.json", '[{"question": "Why?", "n": 1}, "How?"]')
    assert [(row.where, row.fields) for row in read_rows(path)] == [
        ("record 1", {"question": "Why?", "n": 1}),
        ("record 2", {"question": "How?"}),
    ]


def test_jsonl_counts_lines_and_skips_blank_ones(tmp_path):
    path = save(tmp_path, "q.jsonl", '{"a": 1}\r\n\n  \n"Why?"\n')
    assert [(row.where, row.fields) for row in read_rows(path)] == [
        ("line 1", {"a": 1}),
        ("line 4", {"question": "Why?"}),
    ]


def test_csv_names_the_line_a_record_starts_on(tmp_path):
    path = save(tmp_path, "q.csv", 'id,question\n\n1,"two\nlines"\n2,Why?\n')
    assert [(row.where, row.fields) for row in read_rows(path)] == [
        ("line 3", {"id": "1", "question": "two\nlines"}),
        ("line 5", {"id": "2", "question": "Why?"}),
    ]


def test_parquet_keeps_nested_values(tmp_path):
    fields = {"question": {"text": "Why?"}, "gold": ["a", "b"]}
    pq.write_table(pa.Table.from_pylist([fields]), tmp_path / "q.PARQUET")
    assert read_rows(tmp_path / "q.PARQUET") == [Row(repr(str(tmp_path / "q.PARQUET")), "record 1", fields)]


@pytest.mark.parametrize("name", ["q.json", "q.jsonl", "q.csv", "q.txt"])
def test_byte_order_mark_is_no_part_of_the_data(tmp_path, name):
    body = {"q.json": '["Why?"]', "q.jsonl": '"Why?"', "q.csv": "question\nWhy?", "q.txt": "Why?"}[name]
    assert read_rows(save(tmp_path, name, b"\xef\xbb\xbf" + body.encode()))[0].fields == {"question": "Why?"}


@pytest.mark.parametrize(
    ("data", "suffix"),
    [
        (b'\xef\xbb\xbf\n [{"question": "Why?"}]', ".json"),
        (b' {"question": "Why?"}\n', ".jsonl"),
        (b'Why?\n"How?"\n', ".txt"),
    ],
)
def test_standard_input_is_recognised_by_its_start(data, suffix):
    with piped(data):
        content = read_content("-")
    assert (content.name, content.suffix) == ("standard input", suffix)
    assert parse_rows(content)[0].fields == {"question": "Why?"}


# What goes wrong


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"gone\.json'.* no such file"):
        read_rows(tmp_path / "gone.json")


@contextmanager
def ordinary_user() -> Iterator[None]:
    """The superuser may read everything, so the test steps down for a moment."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_unreadable_file(tmp_path):
    path = save(tmp_path, "secret.json", "[]")
    path.chmod(0)
    with ordinary_user(), pytest.raises(DataError, match=r"secret\.json' cannot be read: Permission denied"):
        read_rows(path)


@pytest.mark.parametrize("data", ["", " \n\t\r\n"])
def test_empty_file(tmp_path, data):
    assert refused(tmp_path, "q.jsonl", data).endswith("is empty")


def test_unknown_suffix_lists_the_known_ones(tmp_path):
    assert re.search(
        r"unsupported file type '\.docx'; use one of \.json, \.jsonl, .*, \.xlsx, \.txt",
        refused(tmp_path, "q.docx", "x"),
    )


def test_broken_jsonl_gives_line_and_column(tmp_path):
    assert re.search(
        r"line 2: not JSON: .* at column 12", refused(tmp_path, "q.jsonl", '{"a": 1}\n{"question"')
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ('"Why?"', "contains a text; expected an object, or a list"),
        ("3.5", "contains a number"),
        ("null", "contains null"),
        ("[1, 2]", "record 1: expected an object or a text, not a number"),
        ('["Why?", ["How?"]]', "record 2: expected an object or a text, not a list"),
        ("[true]", "record 1: expected an object or a text, not true or false"),
    ],
)
def test_json_of_the_wrong_shape(tmp_path, data, problem):
    assert problem in refused(tmp_path, "q.json", data)


def test_deep_nesting_ends_in_a_message(tmp_path):
    assert "nested too deeply" in refused(tmp_path, "q.json", "[" * 100_000)


@pytest.mark.parametrize("name", ["q.json", "q.jsonl", "q.csv"])
def test_an_integer_of_thousands_of_digits_is_read_as_text(tmp_path, name):
    digits = "8" * 5000
    data = f'{{"question": "2^16609?", "answers": [{digits}, 4], "gold": {digits}}}'
    if name == "q.csv":
        data = f'question,answers,gold\n2^16609?,"[{digits}, 4]",{digits}\n'
    [question] = read_answered_questions(save(tmp_path, name, data)).questions
    assert (question.answers, question.gold) == ((digits, "4"), (digits,))


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_huge_number_counts_no_choice(tmp_path, digits):
    data = f'{{"question": "Oz?", "choices": ["a", "b"], "answer": {"7" * digits}}}'
    assert load_questions(str(save(tmp_path, "q.jsonl", data))).questions[0].gold == ()


@pytest.mark.parametrize("name", ["q.json", "q.jsonl", "q.csv", "q.txt"])
def test_not_utf8_gives_the_offset(tmp_path, name):
    assert "not UTF-8: invalid byte at offset 7" in refused(tmp_path, name, b'["caf\xc3\xa9\xe9"]')


def test_csv_rows_with_more_cells_than_columns_are_refused(tmp_path):
    assert "line 3" in refused(tmp_path, "q.csv", "question,answer\na,b\nWhy?,b,c\n")


@pytest.mark.parametrize("text", ["question;note, or none\nWhy?;b\n", "question\tanswer\nWhy?\tb\n"])
def test_csv_of_spreadsheets_with_other_delimiters(tmp_path, text):
    separated = text.replace(", or none", "")
    assert read_rows(save(tmp_path, "q.csv", separated))[0].fields["question"] == "Why?"
    if "," in text:  # then the comma counts
        assert (
            "question" not in read_rows(save(tmp_path, "q.csv", "question;note, or none\nb;c,d\n"))[0].fields
        )


def test_parquet_values_that_json_lacks_become_texts(tmp_path):
    day, cost = date(2024, 3, 5), Decimal("1.50")
    table = pa.table({"question": [b"Why?"], "gold": [cost], "answers": [[day]], "blob": [b"\xff"]})
    pq.write_table(table, tmp_path / "q.parquet")
    [row] = read_rows(tmp_path / "q.parquet")
    assert row.fields == {"question": "Why?", "gold": "1.50", "answers": ["2024-03-05"], "blob": b"\xff"}
    # as polars writes it
    pq.write_table(pa.table({"question": pa.array([b"Why?"], pa.large_binary())}), tmp_path / "l.parquet")
    assert read_rows(tmp_path / "l.parquet")[0].fields == {"question": "Why?"}


def test_file_that_only_claims_to_be_parquet(tmp_path):
    assert "not a readable parquet file" in refused(tmp_path, "q.parquet", "Why?")


def test_parquet_columns_of_one_name(tmp_path):
    table = pa.table([pa.array(["Why?"]), pa.array(["How?"])], names=["question", "question"])
    pq.write_table(table, tmp_path / "q.parquet")
    with pytest.raises(DataError, match="2 columns with the name 'question'"):
        read_rows(tmp_path / "q.parquet")


READ_AND_MEASURE = r"""
import re, sys
import pyarrow.compute, pyarrow.parquet
from selfreflect.sources.files import Content
from selfreflect.sources.parsers import PARSERS
from selfreflect.errors import DataError
def peak():  # of this program alone: what getrusage says includes the one that started it
    return int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1])
before = peak()
try:
    list(PARSERS[".parquet"](Content("f", ".parquet", open(sys.argv[1], "rb").read())))
except DataError as error:
    print(peak() - before, error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured in kilobytes on Linux")
@pytest.mark.parametrize("is_repeated", [True, False])
def test_a_parquet_bomb_is_refused_before_it_takes_memory(is_repeated, tmp_path):
    """One row with 5 GB of texts, in a file of 525 bytes; or rows of 270 MB, each packed by itself."""
    indices = pa.array([0] * 5000, type=pa.int32())
    texts = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * 1_000_000]))
    answers = pa.ListArray.from_arrays(pa.array([0, 5000], type=pa.int32()), texts)
    table = pa.table({"question": ["Why?"], "answers": answers})
    if not is_repeated:
        table = pa.table({"question": ["x" * 2_000_000] * 135})
    options = {"compression": "zstd", "store_schema": False, "use_dictionary": is_repeated}
    pq.write_table(table, tmp_path / "q.parquet", **options)
    command = [sys.executable, "-c", READ_AND_MEASURE, tmp_path / "q.parquet"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kilobytes, _, message = done.stdout.partition(" ")
    assert "more than 256,000,000 bytes of rows" in message
    assert int(kilobytes) < 300_000


def test_the_limit_is_of_all_streams_of_a_folder(tmp_path):
    """Two streams, of which each is below it."""
    indices = pa.array([0] * 150, type=pa.int32())
    texts = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * 1_000_000]))
    table = pa.table({"question": texts})
    with pa.OSFile(str(tmp_path / "q.arrow"), "wb") as file:
        for _ in range(2):
            with pa.ipc.new_stream(file, table.schema) as stream:
                stream.write_table(table)
    with pytest.raises(DataError, match="more than 256,000,000 bytes of rows"):
        read_rows(tmp_path / "q.arrow")


@pytest.mark.parametrize("name", ["state.json", "dataset_dict.json"])
def test_an_index_that_is_not_utf8_is_named(tmp_path, name):
    save(tmp_path, name, b'{"_data_files": ["\xff"]}')
    with pytest.raises(DataError, match=rf"{name} is not UTF-8: invalid byte at offset 18"):
        read_content(tmp_path)


def test_blank_lines_before_bad_json_take_no_time():
    """Once the square of their number: minutes."""
    content = Content("f", ".json", b"{}" + b"\n" * 200_000 + b"]")
    start = time.process_time()
    with pytest.raises(DataError, match="not JSON"):
        parse_rows(content)
    assert time.process_time() - start < 2


def test_parquet_without_pyarrow_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"\.\[parquet\]"):
        read_rows(save(tmp_path, "q.parquet", b"PAR1"))


def test_hostile_text_is_quoted_and_cut(tmp_path):
    message = refused(
        tmp_path, "q.json", json.dumps([{"a\n\x1b[31m" * 50: 1}]).replace("}", ', "k": 1, "k": 2}')
    )
    assert "\n" not in message
    assert "\x1b" not in message
    assert len(message) < 400


# Properties


@given(st.lists(st.text() | high_surrogate, min_size=1).map("".join))
@example("\ud800")
def test_lone_surrogates_survive_as_escapes(text):
    assert parsed(".json", json.dumps([{"question": text}]))[0].fields == {"question": text}


@given(st.lists(st.tuples(texts, texts), min_size=1))
def test_csv_round_trip(cells):
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerows([("question", "answer"), *cells])
    filled = [row for row in cells if any(row)]
    assume(filled)
    assert [tuple(row.fields.values()) for row in parsed(".csv", stream.getvalue())] == filled


@given(st.lists(st.tuples(texts, st.lists(texts)), min_size=1))
def test_parquet_round_trip(values):
    fields = [{"question": question, "gold": gold} for question, gold in values]
    stream = io.BytesIO()
    pq.write_table(
        pa.Table.from_pylist(
            fields, schema=pa.schema({"question": pa.string(), "gold": pa.list_(pa.string())})
        ),
        stream,
    )
    assert [row.fields for row in parsed(".parquet", stream.getvalue())] == fields


@given(
    st.binary(min_size=1) | st.text('[]{}",:\n1é', min_size=1).map(str.encode), st.sampled_from(list(PARSERS))
)
def test_any_bytes_give_rows_or_a_data_error(data, suffix):
    try:
        outcome: object = parsed(suffix, data)
    except DataError as error:
        outcome = str(error)
    assert outcome
    assert isinstance(outcome, list) or str(outcome).startswith("it")


# Rows and ids


def row(**fields: object) -> Row:
    return Row("'q.json'", "record 3", dict(fields))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "'question' is missing or null"),
        ({"question": None}, "'question' is missing or null"),
        ({"question": " \n"}, "'question' is blank"),
        ({"question": 3}, "'question' must be a text, not a number"),
        ({"question": {"text": "Why?"}}, "'question' must be a text, not an object"),
    ],
)
def test_text_field_that_is_none(fields, problem):
    with pytest.raises(DataError, match=f"'q.json', record 3: the field {problem}"):
        row(**fields).text("question")


def test_made_ids_never_collide():
    ids = RowIds()
    first = ids.take(row(), "Why?")
    second = ids.take(row(id=None), "Why?")
    assert ids.take(row(id=f"{first}-3"), "How?") == f"{first}-3"
    assert [second, ids.take(row(id=""), "Why?")] == [f"{first}-2", f"{first}-4"]


def test_repeated_id_names_both_records():
    ids = RowIds()
    ids.take(Row("'q.json'", "record 1", {"id": 7}), "Why?")
    with pytest.raises(DataError, match="record 3: the id '7' is already taken by record 1"):
        ids.take(row(id="7"), "How?")


# Plain texts
