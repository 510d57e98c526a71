"""The published tool's files become records and come back, and nothing is overwritten, joined wrongly or
dropped in silence."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.atomic import write_files
from selfreflect.errors import DataError
from selfreflect.records import AnswerSet, Question, Summary, question_id
from selfreflect.sources.layouts.published import FILES, published_files, read_published

SWIM, EAT = "Question: Which stroke should I learn first?", "Question: What is for breakfast?"
QUESTIONS = [{"question": SWIM}, {"question": EAT}]
ANSWERS = [
    {"question": EAT, "masked_out_task_answers": ["Toast.", ""], "conditioning_answers": ["Rice.", "Toast."]},
    {"question": SWIM, "masked_out_task_answers": ["Crawl."], "conditioning_answers": ["Back."]},
]
SUMMARIES = [
    {"question": SWIM, "summaries": {"sample_and_summarize_summary": "Crawl or back.", "greedy": "Crawl."}}
]


def put(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def names_read(path: Path) -> list[str]:
    return [summary.name for summary in read_published(summaries=path)[2]]


class TestRead:
    def test_the_three_files_become_records_joined_by_text(self, tmp_path: Path) -> None:
        questions, answers, summaries = read_published(
            put(tmp_path / "q", QUESTIONS), put(tmp_path / "a", ANSWERS), put(tmp_path / "s", SUMMARIES)
        )
        swim, eat = question_id(SWIM), question_id(EAT)
        assert questions == [Question(id=swim, text=SWIM), Question(id=eat, text=EAT)]
        assert answers == [
            AnswerSet(
                question_id=eat, masked_out=("Toast.", ""), conditioning=("Rice.", "Toast."), halved="given"
            ),
            AnswerSet(question_id=swim, masked_out=("Crawl.",), conditioning=("Back.",), halved="given"),
        ]
        assert summaries == [
            Summary(question_id=swim, name="sample_and_summarize", text="Crawl or back."),
            Summary(question_id=swim, name="greedy", text="Crawl."),
        ]

    def test_without_a_questions_file_the_others_name_the_questions(self, tmp_path: Path) -> None:
        other = [{"question": "New?", "summaries": {}}]
        questions, _, _ = read_published(
            answers=put(tmp_path / "a", ANSWERS), summaries=put(tmp_path / "s", SUMMARIES + other)
        )
        assert [question.text for question in questions] == [EAT, SWIM, "New?"]

    def test_a_byte_order_mark_and_other_fields_are_no_obstacle(self, tmp_path: Path) -> None:
        (tmp_path / "q").write_bytes(
            b"\xef\xbb\xbf" + json.dumps([{"question": "Q?", "subject": None}]).encode()
        )
        assert [question.text for question in read_published(tmp_path / "q")[0]] == ["Q?"]

    @pytest.mark.parametrize(
        ("names", "read"),
        [
            (["greedy_summary", "sample_and_summarize_summary"], ["greedy", "sample_and_summarize"]),
            (["greedy", "sample_and_summarize_summary"], ["greedy", "sample_and_summarize"]),
            (["greedy", "greedy_summary", "basic_summary"], ["greedy", "greedy_summary", "basic_summary"]),
            (["a_summary", "a_summary_summary"], ["a", "a_summary"]),
            (["_summary", "summary"], ["_summary", "summary"]),
        ],
    )
    def test_the_suffix_is_cut_off_unless_names_would_become_equal(
        self, tmp_path: Path, names: list[str], read: list[str]
    ) -> None:
        path = put(tmp_path / "s", [{"question": f"{name}?", "summaries": {name: "text"}} for name in names])
        assert names_read(path) == read


class TestRefusals:
    @pytest.mark.parametrize(
        ("role", "rows"), [("questions", QUESTIONS), ("answers", ANSWERS), ("summaries", SUMMARIES)]
    )
    def test_a_question_twice_in_one_file_names_both_records(
        self, tmp_path: Path, role: str, rows: list[Any]
    ) -> None:
        path = put(tmp_path / "file", [*rows, rows[0]])
        with pytest.raises(
            DataError,
            match=rf"file: records 1 and {len(rows) + 1} have the same question .*cannot be told apart",
        ):
            read_published(**{role: path})

    @pytest.mark.parametrize(
        ("role", "rows"),
        [("answers", ANSWERS), ("summaries", [{"question": EAT, "summaries": {}}, *SUMMARIES])],
    )
    def test_a_question_that_the_questions_file_lacks(
        self, tmp_path: Path, role: str, rows: list[Any]
    ) -> None:
        questions = put(tmp_path / "questions", [{"question": EAT}])
        with pytest.raises(
            DataError, match=r"rows, record 2: its question 'Question: Which.* is not in .*questions\."
        ):
            read_published(questions, **{role: put(tmp_path / "rows", rows)})

    @pytest.mark.parametrize(
        ("role", "row", "message"),
        [
            ("questions", {"text": "Q?"}, "missing required field `question`.*with: question"),
            ("questions", "Q?", "Expected `object`, got `str`"),
            (
                "answers",
                {"question": "Q?", "masked_out_task_answers": ["a"]},
                "missing required field `conditioning_answers`",
            ),
            (
                "answers",
                {"question": "Q?", "masked_out_task_answers": ["a", 3], "conditioning_answers": []},
                r"Expected `str`, got `int` - at `\$\.masked_out_task_answers\[1\]`",
            ),
            (
                "summaries",
                {"question": "Q?", "summaries": {"greedy": None}},
                r"Expected `str`, got `null` - at `\$\.summaries",
            ),
            (
                "summaries",
                {"question": "Q?", "summaries": ["a"]},
                r"Expected `object`, got `array` - at `\$\.summaries`",
            ),
        ],
    )
    def test_a_wrong_shape_names_record_and_field(
        self, tmp_path: Path, role: str, row: Any, message: str
    ) -> None:
        first = {"questions": QUESTIONS, "answers": ANSWERS, "summaries": SUMMARIES}[role][0]
        with pytest.raises(DataError, match=r"file, record 2: .*" + message):
            read_published(**{role: put(tmp_path / "file", [first, row])})

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ('[{"question": "Q?"}', ": not JSON: .* at line 1 column 20"),
            ("", " is empty"),
            ("[" * 99_999, ": nested too deeply"),
            ('[{"question": "Q?", "question": "R?"}]', ": an object has the key 'question' more than once"),
        ],
    )
    def test_what_is_no_json_is_said_to_be_none(self, tmp_path: Path, text: str, problem: str) -> None:
        with pytest.raises(DataError, match=f"file'{problem}"):
            read_published(put(tmp_path / "file", text))

    def test_other_files_are_named(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="file: the published layout is one JSON list"):
            read_published(put(tmp_path / "file", {"question": "Q?"}))
        with pytest.raises(DataError, match="nowhere': there is no such file"):
            read_published(tmp_path / "nowhere")
        (tmp_path / "latin").write_bytes(b'[{"question": "\xe9"}]')
        with pytest.raises(DataError, match="latin' is not UTF-8: invalid byte at offset"):
            read_published(tmp_path / "latin")


class TestWrite:
    def test_the_files_have_the_published_layout(self, tmp_path: Path) -> None:
        records = read_published(
            put(tmp_path / "q", QUESTIONS), put(tmp_path / "a", ANSWERS), put(tmp_path / "s", SUMMARIES)
        )
        files, left_out = published_files(*records, suffix="_summary")
        assert left_out == []
        written = [json.loads(files[name]) for name in FILES]
        summaries = {"sample_and_summarize_summary": "Crawl or back.", "greedy_summary": "Crawl."}
        assert written == [QUESTIONS, ANSWERS, [{"question": SWIM, "summaries": summaries}]]
        assert sorted(files) == sorted(FILES)

    def test_texts_are_readable_and_indented(self) -> None:
        files, _ = published_files([Question(id="1", text="Où ?")], [], [])
        assert files["questions.json"].decode() == '[\n    {\n        "question": "Où ?"\n    }\n]\n'

    def test_what_cannot_be_told_apart_is_left_out_and_reported(self, tmp_path: Path) -> None:
        questions = [
            Question(id=key, text=text) for key, text in (("1", "Same?"), ("2", "Other?"), ("3", "Same?"))
        ]
        answers = [AnswerSet(question_id=key, masked_out=(key,), conditioning=(key,)) for key in "321"]
        summaries = [Summary(question_id=key, name="greedy", text=key) for key in "314"]
        files, left_out = published_files(questions, answers, summaries)
        assert left_out == ["3", "4"]
        write_files(tmp_path, files)
        read, read_answers, read_summaries = read_published(*(tmp_path / name for name in FILES))
        assert [question.text for question in read] == ["Same?", "Other?"]
        assert [answer.masked_out for answer in read_answers] == [("2",), ("1",)]
        assert [summary.text for summary in read_summaries] == ["1"]


# A high surrogate followed by a low one is one character in JSON's escapes, so texts hold lone surrogates of
# one sort only.
TEXTS = st.text(
    st.characters(exclude_categories=()).filter(lambda character: not "\udc00" <= character <= "\udfff")
)
NAMES = st.one_of(st.sampled_from(["a", "a_summary", "a_summary_summary", "_summary"]), TEXTS.filter(bool))
HALVES = st.lists(TEXTS, max_size=3).map(tuple)
ROWS = st.dictionaries(
    TEXTS, st.tuples(HALVES, HALVES, st.dictionaries(NAMES, TEXTS, max_size=3)), max_size=5
)


@given(rows=ROWS, context=TEXTS)
def test_any_texts_and_names_come_back(rows: dict[str, Any], context: str) -> None:
    ids = {text: question_id(text, context) for text in rows}
    questions = [Question(id=ids[text], text=text, context=context) for text in rows]
    answers = [
        AnswerSet(question_id=ids[text], masked_out=row[0], conditioning=row[1], halved="given")
        for text, row in rows.items()
    ]
    summaries = [
        Summary(question_id=ids[text], name=name, text=summary)
        for text, row in rows.items()
        for name, summary in row[2].items()
    ]
    with tempfile.TemporaryDirectory() as directory:
        files, left_out = published_files(questions, answers, summaries, suffix="_summary")
        assert left_out == []
        write_files(Path(directory), files)
        paths = [Path(directory) / name for name in FILES]
        assert read_published(*paths) == (questions, answers, summaries)
