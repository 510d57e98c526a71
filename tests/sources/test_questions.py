"""Questions: the bundled set, columns of files, gold answers, ids, and samples that can be drawn again."""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import piped
from hypothesis import given
from hypothesis import strategies as st

from selfreflect import records
from selfreflect.errors import DataError
from selfreflect.records import Question, question_id
from selfreflect.sources.questions import SOURCES, QuestionSet, load_questions

KINDS = {
    "clear": "one clear fact",
    "several": "several right answers",
    "confused": "commonly confused facts",
    "numbers": "numbers and dates",
    "opinion": "open opinion",
    "underspecified": "underspecified",
    "false": "false premise",
    "unanswerable": "unanswerable",
}


def read(*values: object, **options: Any) -> QuestionSet:
    with piped(json.dumps(list(values)).encode()):
        return load_questions("-", **options)


def refused(*values: object, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        read(*values, **options)
    return str(caught.value)


# The bundled set


def test_bundled_set_has_eight_kinds_of_eight_or_more():
    counts = Counter(question.kind for question in load_questions("bundled").questions)
    assert set(counts) == set(KINDS.values())
    assert min(counts.values()) >= 8
    assert sum(counts.values()) >= 64


@given(st.integers(1, 70), st.integers(0, 70), st.integers(-5, 2**40))
def test_limited_bundled_set_is_nested_and_even_over_kinds(limit, more, seed):
    small, large = (
        load_questions("bundled", limit=number, seed=seed).questions for number in (limit, limit + more)
    )
    assert set(small) <= set(large)
    assert len(small) == min(limit, 64)
    counts = Counter(question.kind for question in small)
    assert len(counts) == min(len(small), 8)
    assert max(counts.values()) - min(counts.values()) <= 1


# Sampling


def test_sample_of_a_seed_never_changes():
    """Literal ids: another Python, platform or version of this package has to draw the same ones."""
    lines = [f"Question {number}?" for number in range(100)]
    drawn = [
        [lines.index(question.text) for question in read(*lines, limit=5, seed=seed).questions]
        for seed in (0, 1)
    ]
    assert drawn == [[12, 45, 54, 92, 99], [3, 7, 29, 60, 73]]
    assert [question.id for question in load_questions("bundled", limit=3, seed=0).questions] == [
        "several-bronte-sister",
        "underspecified-end-of-the-war",
        "false-moon-of-venus",
    ]


@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 50), st.integers())
def test_samples_are_nested_without_replacement_and_in_source_order(total, limit, more, seed):
    lines = [f"Question {number}?" for number in range(total)]
    small, large = (read(*lines, limit=number, seed=seed) for number in (limit, limit + more))
    places = [lines.index(question.text) for question in small.questions]
    assert places == sorted(set(places))
    assert len(places) == min(limit, total)
    assert set(small.questions) <= set(large.questions)
    assert (small.total, small.limit, small.seed) == (total, limit, seed)


# Files and standard input


def test_file_with_every_field(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text(
        '{"id": 7, "question": " Why?\\n", "answer": "so", "subject": "causes", "note": 1}\n',
        encoding="utf-8",
    )
    got = load_questions(str(path))
    values = {"subject": "causes", "note": 1}
    assert got.questions == (Question(id="7", text=" Why?\n", gold=("so",), kind="causes", metadata=values),)
    assert got.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (got.source, got.total, got.limit, got.seed, got.question_column) == (
        str(path),
        1,
        None,
        0,
        "question",
    )


def test_plain_lines_on_standard_input():
    with piped(b"Why?\nHow?\n"):
        got = load_questions("-")
    assert [question.text for question in got.questions] == ["Why?", "How?"]
    assert got.sha256 == hashlib.sha256(b"Why?\nHow?\n").hexdigest()


@pytest.mark.parametrize(
    "given_columns", [["text", "query", "prompt", "problem", "question"][start:] for start in range(5)]
)
def test_question_column_is_guessed_in_order(given_columns):
    got = read({column: f"{column}?" for column in given_columns})
    assert got.questions[0].text == f"{got.question_column}?"
    assert got.question_column == next(
        name for name in ("question", "problem", "prompt", "query", "text") if name in given_columns
    )


def test_unknown_column_names_those_there_are():
    message = refused({"question": "Why?", "title": "t"}, question_column="titel")
    assert "has no column 'titel'. Did you mean 'title'? Its columns are 'question', 'title'." in message


def test_csv_whose_first_question_stands_in_place_of_the_header(tmp_path):
    (tmp_path / "q.csv").write_text("Why is the sky blue?\nWhy not?\n", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"its columns are 'Why is the sky blue\?' \(the first line of a CSV file\)"
    ):
        load_questions(str(tmp_path / "q.csv"))


@pytest.mark.parametrize(
    ("fields", "gold"),
    [
        ({}, ()),
        ({"answer": None}, ()),
        ({"answer": ""}, ()),
        ({"answer": "so"}, ("so",)),
        ({"answers": ["so", "thus", None]}, ("so", "thus")),
        ({"gold": []}, ()),
        ({"answer": {"value": "so", "aliases": ["thus", "so"]}}, ("so", "thus")),
        ({"answer": {"value": "so"}}, ("so",)),
        ({"answer": {"value": "<unk>", "aliases": []}}, ()),
        ({"gold": "second", "answer": "first"}, ("second",)),
    ],
)
def test_gold_answers(fields, gold):
    assert read({"question": "Why?", **fields}).questions[0].gold == gold


# Contexts


ROW = {"question": "Which colour?", "context": "Anna: red.\n\nTom: blue."}


def test_the_context_of_a_question_is_read_from_every_format(tmp_path):
    written = {"json": json.dumps([ROW]), "jsonl": json.dumps(ROW)}
    for suffix, text in written.items():
        (tmp_path / f"q.{suffix}").write_text(text, encoding="utf-8")
    with (tmp_path / "q.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([ROW.keys(), ROW.values()])
    pq.write_table(pa.Table.from_pylist([ROW]), tmp_path / "q.parquet")
    expected = Question(id=question_id(*ROW.values()), text=ROW["question"], context=ROW["context"])
    for suffix in ("json", "jsonl", "csv", "parquet"):
        assert load_questions(str(tmp_path / f"q.{suffix}")).questions == (expected,), suffix


@given(st.lists(st.tuples(st.sampled_from(["Why?", "How?"]), st.none() | st.text(max_size=3)), min_size=1))
def test_a_question_is_told_by_text_and_context(pairs):
    questions = read(*({"question": text, "context": context} for text, context in pairs)).questions
    assert len({question.id for question in questions}) == len(pairs)
    seen: Counter[tuple[str, str]] = Counter()
    for question, (text, context) in zip(questions, pairs, strict=True):
        kept = context if context and context.strip() else ""
        assert (question.text, question.context) == (text, kept)
        seen[text, kept] += 1
        suffix = f"-{seen[text, kept]}" if seen[text, kept] > 1 else ""
        assert question.id == question_id(text, kept) + suffix


def test_a_named_context_column_wins_and_may_be_inside_an_object():
    row = {"question": "Why?", "context": "no", "passage": "yes", "page": {"text": "inner"}}
    assert read(row).questions[0].context == "no"
    named = read(row, context_column="passage")
    assert (named.questions[0].context, named.context_column) == ("yes", "passage")
    assert read(row, context_column="page.text").questions[0].context == "inner"
    message = refused(row, context_column="pasage")
    assert "has no column 'pasage'. Did you mean 'passage'?" in message


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"question": ""}, "the field 'question' is blank"),
        ({"question": "\n"}, "the field 'question' is blank"),
        ({"question": None}, "the field 'question' is missing or null"),
        ({"question": 3}, "the field 'question' must be a text, not a number"),
        ({"question": {"text": 3}}, "the field 'question' must be a text, not an object"),
        ({"id": [1]}, "the field 'id' must be a text or an integer, not a list"),
        (
            {"answer": ["so", ["or"]]},
            "the field 'answer' must hold the right answer as text: entry 2 is a list",
        ),
        ({"category": 3}, "the field 'category' must be a text, not a number"),
        ({"context": ["a", 1]}, "the field 'context' must be a text, not a list"),
        *(
            ({"answer": gold}, "the field 'answer' must hold the right answer as text: it is an object")
            for gold in ({"value": {}, "aliases": []}, {"value": "a", "aliases": [{}]}, {"text": [{}]})
        ),
    ],
)
def test_malformed_record_is_named_even_when_it_is_not_drawn(fields, problem):
    good = {"question": "Why?"}
    for limit in (None, 1):
        assert (
            refused(good, {"question": "How?", **fields}, good, limit=limit)
            == f"standard input, record 2: {problem}"
        )


@pytest.mark.parametrize(
    ("fields", "gold"),
    [
        ({"answer": 204}, ("204",)),
        ({"answer": 204.0}, ("204",)),
        ({"answer": 0.5}, ("0.5",)),
        ({"answer": True}, ("true",)),
        ({"answer": ["so", 3, None, " "]}, ("so", "3")),
        ({"answer": {"value": "so", "aliases": ["or", "so", "<unk>"]}}, ("so", "or")),
        ({"answers": {"text": ["so", "so", "or"], "answer_start": [1, 1, 4]}}, ("so", "or")),
        ({"answer": {"so": 3}}, ('{"so": 3}',)),
        ({"answer": 1, "choices": ["no", "yes"]}, ("yes",)),
        ({"answer": 2, "choices": ["no", "yes"]}, ()),
    ],
)
def test_a_right_answer_may_be_a_number_true_or_false_or_the_number_of_a_choice(fields, gold):
    assert read({"question": "Why?", **fields}).questions[0].gold == gold


# Names


def test_unknown_source_lists_the_known_ones():
    with pytest.raises(DataError) as caught:
        load_questions("triviaqa")
    message = str(caught.value)
    assert "'triviaqa' is neither a known source nor an existing file. Did you mean 'trivia_qa'?" in message
    assert all(name in message for name in [*SOURCES, "hf:NAME", ".jsonl"])


# Round trips


texts = st.text(st.characters(exclude_categories=["Cs"])).filter(str.strip) | st.sampled_from(
    ['"Why?", he\r\nasked', "لماذا \u202e؟", "\x00?"]
)
written = st.lists(
    st.builds(
        Question, id=st.uuids().map(str), text=texts, kind=texts, gold=st.lists(texts, unique=True).map(tuple)
    ),
    min_size=1,
    max_size=4,
).map(tuple)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("round-trips")


@given(written)
def test_written_json_is_read_back(folder, written):
    plain = [json.loads(records.dump_line(question)) for question in written]
    (folder / "q.json").write_text(json.dumps(plain, ensure_ascii=False), encoding="utf-8", newline="")
    (folder / "q.jsonl").write_text("\n".join(map(records.dump_line, written)), encoding="utf-8", newline="")
    assert load_questions(str(folder / "q.json")).questions == written
    assert load_questions(str(folder / "q.jsonl")).questions == written


@given(st.lists(texts, min_size=1))
def test_no_text_silently_overwrites_another(values):
    questions = read(*values, *values).questions
    assert [question.text for question in questions] == [*values, *values]
    assert len({question.id for question in questions}) == 2 * len(values)


def test_rows_of_single_answers_are_one_question_without_gold(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("question,answer,topic\nOz?,a,t\nOz?,b,t\nNod?,c,t\n", encoding="utf-8")
    found = load_questions(str(path))
    assert [(question.text, question.gold) for question in found.questions] == [("Oz?", ()), ("Nod?", ())]
    assert (found.total, found.questions[0].metadata) == (2, {"topic": "t"})
    path.write_text("question,answer\nOz?,a\nOz?,a\n", encoding="utf-8")
    assert [question.gold for question in load_questions(str(path)).questions] == [("a",), ("a",)]
