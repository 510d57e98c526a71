"""Items for ``selfreflect score --items``: what is read, what is refused, and what is left to the scorer to
record as a failure."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from command import piped
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from selfreflect.errors import DataError
from selfreflect.records import AnswerSet
from selfreflect.sources.items import Item, items_from_records, read_item_file, to_plain

PARITY = Path(__file__).parents[1] / "data" / "parity_items.json"
PLAIN = {"question": "Why?", "answers": ["a", "b", "c"], "summaries": {"mine": "s"}}


def read_items(source: str | Path, **options: int) -> list[Item]:
    return read_item_file(source, need_summaries=True, **options).items


def read(*values: object, **options: int) -> list[Item]:
    with piped(json.dumps(list(values)).encode()):
        return read_items("-", **options)


def refused(*values: object) -> str:
    with pytest.raises(DataError) as caught:
        read(*values)
    return str(caught.value)


def but(**changes: object) -> dict[str, object]:
    """A good item with some fields changed; None removes one."""
    return {name: value for name, value in {**PLAIN, **changes}.items() if value is not None}


def test_reads_the_parity_items():
    items = read_items(PARITY)
    plain = json.loads(PARITY.read_text(encoding="utf-8"))
    assert [item.id for item in items] == [entry["id"] for entry in plain]
    assert [list(item.masked_out) for item in items] == [entry["masked_out_task_answers"] for entry in plain]
    assert [list(item.conditioning) for item in items] == [entry["conditioning_answers"] for entry in plain]
    assert [item.summaries for item in items] == [entry["summaries"] for entry in plain]


def test_one_list_of_answers_is_halved_with_the_odd_one_in_the_second_half():
    (item,) = read(PLAIN)
    assert item == Item.of("Why?", {"mine": "s"}, answers=["a", "b", "c"])
    assert (len(item.masked_out), len(item.conditioning), item.halved) == (1, 2, "shuffled")


def test_values_travel_with_an_item_and_nested_ones_do_not():
    [item] = read(but(topic="garden", level=2, sure=True, gold=[1], scores={"x": 1.5}, note=" ", none=None))
    assert item.metadata == {"topic": "garden", "level": 2, "sure": True, "gold": '["1"]'}
    assert item.question_record.metadata == item.metadata
    assert item.id == read(PLAIN)[0].id


def test_num_answers_keeps_the_first_of_each_half():
    both = but(answers=None, masked_out_task_answers=["a", "b", "c"], conditioning_answers=["d"])
    (halved, given_halves) = read(but(answers=list("abcdef")), both, num_answers=2)
    (whole,) = read(but(answers=list("abcdef")))
    assert (halved.masked_out, halved.conditioning) == (whole.masked_out[:2], whole.conditioning[:2])
    assert (given_halves.masked_out, given_halves.conditioning) == (("a", "b"), ("d",))


def test_limit_keeps_the_first_items_but_checks_them_all():
    assert [item.id for item in read(*(but(id=number) for number in range(5)), limit=2)] == ["0", "1"]
    with pytest.raises(DataError, match="record 2"):
        read(PLAIN, {}, limit=1)


@pytest.mark.parametrize(
    ("answers", "masked_out", "conditioning"),
    [
        ({"answers": []}, (), ()),
        ({"answers": ["only"]}, (), ("only",)),
        ({"answers": None, "masked_out_task_answers": [], "conditioning_answers": ["d"]}, (), ("d",)),
        ({"answers": None, "masked_out_task_answers": ["a"], "conditioning_answers": []}, ("a",), ()),
    ],
)
def test_too_few_answers_are_no_fault_of_the_file(answers, masked_out, conditioning):
    item, other = read(but(id="poor", **answers), but(id="good"))
    assert (item.masked_out, item.conditioning) == (masked_out, conditioning)
    assert other.id == "good"


def test_null_in_a_list_is_a_missing_answer_and_is_counted():
    rows = [{**PLAIN, "answers": ["a", None, "b", "c", None]}]
    with piped(json.dumps(rows).encode()):
        file = read_item_file("-")
    assert sorted(file.items[0].answer_set.answers) == ["a", "b", "c"]
    assert sum("2 answers left out" in note for note in file.notes) == 1


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (but(question=None), "the field 'question' is missing"),
        (but(question="  "), "the field 'question' is blank"),
        (but(question=["Why?"]), "the field 'question' must be a text, not a list"),
        (but(id=1.5), "the field 'id' must be a text or an integer"),
        (but(answers=["a", ["b", "c"]]), "entry 2 is a list"),
        (but(answers=None, reply_text="a"), "its fields are 'question', 'summaries', 'reply_text'"),
        (but(answers=None, response="a", prediction="b"), "'response', 'prediction' could each contain"),
        (
            but(answers=None, masked_out_task_answers=["a"]),
            "both 'masked_out_task_answers' and 'conditioning_answers'",
        ),
        (but(masked_out_task_answers=["a"], conditioning_answers=["b"]), "or only 'answers'"),
        (but(summaries=3), "the field 'summaries' must be a text, a list of texts, or an object"),
        (but(summaries={"mine": 1}), "the summary 'mine' must be a text, not a number"),
        (but(summaries={"mine": ["s"]}), "the summary 'mine' must be a text, not a list"),
        (but(summaries={" ": "s"}), "a summary has a blank name"),
    ],
)
def test_malformed_item_names_record_and_field(item, problem):
    message = refused(but(id="good"), item)
    assert message.startswith("standard input, record 2: ")
    assert problem in message


def test_items_without_summaries_are_nothing_to_score():
    assert "has answers but no summaries" in refused(but(summaries=None), but(summaries={}, id="b"))
    assert [item.id for item in read(but(summaries=None), but(id="b"))] == ["b"]


texts = st.text() | st.just("\ud800")
items = st.builds(
    Item,
    id=st.uuids().map(str),
    question=texts.map(lambda text: text + "?"),
    masked_out=st.lists(texts, min_size=1).map(tuple),
    conditioning=st.lists(texts, min_size=1).map(tuple),
    summaries=st.dictionaries(st.text().map(lambda text: text + "."), texts, min_size=1),
    order=st.lists(st.lists(texts, min_size=1).map(tuple)).map(tuple),
    context=texts.filter(lambda text: not text or text.strip()),
    metadata=st.dictionaries(
        st.text(),
        st.booleans() | st.integers(-(2**62), 2**62) | st.text().map(lambda text: text + "."),
        max_size=3,
    ),
)


@given(st.lists(items, min_size=1, max_size=4))
def test_written_items_are_read_back(written):
    assert read(*map(to_plain, written)) == [replace(item, halved="given") for item in written]


def test_items_of_records_are_those_with_a_question_and_answers_in_the_order_of_questions() -> None:
    item = Item.of("What grows fast?", {"a": "Radishes."}, masked_out=["one"], conditioning=["two"])
    bare = Item.of("What grows slowly?", {}, answers=["oaks", "yews"])
    stray = AnswerSet(question_id="stray", masked_out=("x",), conditioning=("y",))
    questions = [one.question_record for one in (item, bare)]
    answers = {one.question_id: one for one in (bare.answer_set, stray, item.answer_set)}
    assert items_from_records(questions, answers, item.summary_records) == [item, bare]
    del answers[item.id]
    assert items_from_records(questions, answers, item.summary_records) == [bare]


def test_thousands_of_columns_take_no_square_of_time():
    names = [*(f"summary_{number}x" for number in range(6000)), *(f"c{number}" for number in range(6000))]
    row = {"question": "Q?", "answers": ["a", "b"], **dict.fromkeys(names, "x")}
    started = time.process_time()
    with piped(json.dumps([row]).encode()):
        file = read_item_file("-")
    assert time.process_time() - started < 5  # half a minute where each name is compared with all
    assert len(file.items[0].summaries) == 6000


@pytest.mark.parametrize(
    "name", ["reply", "output", "model_response", "prediction", "Zusammenfassung", "Résumé"]
)
def test_the_one_reply_beside_the_answers_is_what_is_scored(name: str, tmp_path: Path) -> None:
    table = tmp_path / "bot.csv"
    table.write_text(
        f"question,answer_1,answer_2,{name}\nWhen?,May,June,In May.\nWho?,I,You,\n", encoding="utf-8"
    )
    file = read_item_file(table, need_summaries=True)
    assert [item.summaries for item in file.items] == [{name: "In May."}]
    assert len(file.notes) == 2
    assert read_item_file(table).items[0].summaries == {}


@pytest.mark.parametrize(("column", "advice"), [("bot", "bot"), ("my bot", "'my bot'"), ("{out}", "NAME")])
def test_the_only_column_of_texts_is_proposed_for_the_summaries(
    column: str, advice: str, tmp_path: Path
) -> None:
    table = tmp_path / "bot.csv"
    table.write_text(f"question,answer_1,answer_2,{column}\nWhen?,May,June,Not yet known\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_item_file(table, need_summaries=True)
    assert f"{{column}} summary={advice}, " in caught.value.remedy


def test_two_replies_beside_the_answers_are_not_chosen_among(tmp_path: Path) -> None:
    table = tmp_path / "bot.csv"
    table.write_text(
        "question,answer_1,answer_2,reply,output\nWhen?,May,June,In May.,June.\n", encoding="utf-8"
    )
    with pytest.raises(DataError) as caught:
        read_item_file(table, need_summaries=True)
    assert caught.value.code == "no_summaries"
