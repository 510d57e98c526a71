"""``reflect``: the whole job for questions at hand."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import selfreflect
from selfreflect.errors import BackendError, ConfigError, DataError, SelfReflectError
from selfreflect.models.base import Completion, Reply
from selfreflect.models.judge import Judge
from selfreflect.report.reflection import Reflection, Reflections
from selfreflect.run.reflect import reflect, reflect_each

SAMPLES = ["Radishes.", "radishes", "Lettuce.", "Radishes.", "Lettuce.", "Peas."]
QUESTION = "What should I plant first?"


@pytest.fixture(scope="module")
def judge(tiny_judge) -> Judge:
    return tiny_judge("llama")


def plants(messages: list[dict[str, str]], n: int, seed: int) -> list[str]:
    """A gardener."""
    if "broken" in messages[-1]["content"]:
        raise RuntimeError("no connection")
    return [("Radishes.", "Lettuce.")[(seed + index) % 2] for index in range(n)]


def test_own_samples_and_summaries(judge) -> None:
    result = reflect(
        QUESTION, samples=SAMPLES, summaries={"mine": "Radishes.", "other": "Peas."}, judge=judge
    )
    assert isinstance(result, Reflection)
    assert sorted(result.answers) == sorted(SAMPLES)
    assert [(one.text, one.count) for one in result.classes] == [
        ("Radishes.", 3),
        ("Lettuce.", 2),
        ("Peas.", 1),
    ]
    assert result.summaries == {"mine": "Radishes.", "other": "Peas."}
    assert result.failures == ()
    direct = selfreflect.SelfReflect(judge).score(QUESTION, answers=SAMPLES, summaries=result.summaries)
    for name, score in direct.items():
        assert result.scores[name].value == pytest.approx(score.value, abs=1e-6)
        assert result.measures[name]["score"] == result.scores[name].value
        assert result.scores[name].recovered == result.information[name].recovered
    assert result.controls is not None


def test_everything_is_drawn_from_a_function(judge) -> None:
    result = reflect(QUESTION, generate=plants, judge=judge, num_answers=3, strategies=["greedy", "basic"])
    assert len(result.answers) == 6
    assert set(result.answers) == {"Radishes.", "Lettuce."}
    assert list(result.summaries) == list(result.scores) == ["greedy", "basic"]


def test_own_samples_are_summarised_by_a_function(judge) -> None:
    calls = []

    def summarise(messages: Any, **options: Any) -> str:
        calls.append(options["max_tokens"])
        return "Radishes, or lettuce."

    result = reflect(
        QUESTION, samples=SAMPLES, generate=summarise, judge=judge, strategies=["basic"], summary_tokens=33
    )
    assert result.summaries == {"basic": "Radishes, or lettuce."}
    assert calls == [33]
    assert sorted(result.answers) == sorted(SAMPLES)


def test_samples_alone_are_grouped_and_no_judge_is_loaded() -> None:
    result = reflect(QUESTION, samples=SAMPLES, judge="no/such/judge")
    assert [one.count for one in result.classes] == [3, 2, 1]
    assert result.summaries == {}


def test_an_exception_costs_its_question_and_no_other(judge) -> None:
    results = reflect(
        ["Which plant?", "Which broken plant?", "What now?"],
        generate=plants,
        judge=judge,
        num_answers=2,
        strategies="greedy",
    )
    assert isinstance(results, Reflections)
    assert [len(one.answers) for one in results] == [4, 0, 4]
    [failure] = results[1].failures
    assert (failure.stage, failure.kind) == ("answers", "backend")
    assert "RuntimeError: 'no connection' (line " in failure.message
    assert [one.scores != {} for one in results] == [True, False, True]


class Failing:
    """A model that gives up at its second question."""

    name, revision = "failing", ""

    def generate(self, requests: Any) -> list[Reply]:
        if "second" in requests[0].messages[-1].content:
            raise BackendError("the server is gone")
        text = Completion(text="Radishes.", finish="stop", tokens=1)
        return [Reply(completions=(text,) * request.n) for request in requests]


def test_a_model_that_gives_up_keeps_what_is_done(judge, monkeypatch) -> None:
    monkeypatch.setattr("selfreflect.run.stages.StageSpec.batch_size", 1)
    options = {"model": Failing(), "judge": judge, "num_answers": 1, "strategies": "greedy"}
    first, second, third = reflect(["the first?", "the second?", "the third?"], **options)
    assert first.failures == ()
    for one in (second, third):
        assert [(failure.kind, failure.message) for failure in one.failures] == [
            ("backend", "the server is gone")
        ]
    with pytest.raises(BackendError, match="the server is gone"):
        reflect("the second?", **options)


def test_results_come_one_by_one(judge) -> None:
    asked = []

    def generate(messages: Any) -> str:
        asked.append(messages[-1]["content"])
        return "Radishes."

    results = reflect_each(
        ["one?", "two?"], generate=generate, judge=judge, num_answers=1, strategies="greedy"
    )
    assert asked == []
    assert next(results).question == "one?"
    assert not any("two?" in text for text in asked)
    assert next(results).question == "two?"


def test_a_data_frame_in_is_a_data_frame_out(judge) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "topic": ["garden", "kitchen"],
            "question": [QUESTION, "What should I cook?"],
            "samples": [SAMPLES, ["Soup.", "Soup.", "Stew.", "Soup."]],
            "summary": ["Radishes.", None],
        }
    )
    results = reflect(frame, judge=judge)
    assert list(results["topic"]) == ["garden", "kitchen"]
    assert list(results["answers"]) == [6, 4]
    assert list(results["classes"]) == [3, 2]
    assert results["strategy"].tolist()[0] == "summary"
    assert results["score"].notna().tolist() == [True, False]
    rows = reflect(frame.to_dict("records"), judge=judge)
    assert rows[0].scores == reflect(frame.iloc[:1].to_dict("records"), judge=judge)[0].scores
    assert rows[0].metadata == {"topic": "garden"}


def test_rows_have_the_columns_of_files_and_need_no_answers(judge) -> None:
    rows = [{"prompt": QUESTION, "response": text, "note": "a", "summary_mine": "Peas."} for text in SAMPLES]
    [result] = reflect(rows, judge=judge)
    assert sorted(result.answers) == sorted(SAMPLES)
    assert list(result.scores) == ["mine"]
    [drawn] = reflect([{"question": QUESTION, "topic": 3}], generate=plants, judge=judge, num_answers=1)
    assert len(drawn.answers) == 2
    assert drawn.metadata == {"topic": 3}
    with pytest.raises(DataError, match="row 1: an answer distribution needs at least 2 answers"):
        reflect([{"question": QUESTION, "answer": "Radishes."}], judge=judge)


def test_the_same_question_twice_keeps_both(judge) -> None:
    results = reflect(
        [QUESTION, QUESTION], samples=[SAMPLES, ["Peas."] * 4], summaries=["Peas.", "Peas."], judge=judge
    )
    assert [len(one.answers) for one in results] == [6, 4]
    assert results[0].scores["summary"].value != results[1].scores["summary"].value


HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e & 'quoted'"


def test_what_models_say_is_shown_and_never_run(judge) -> None:
    result = reflect(
        HOSTILE, samples=[HOSTILE, "b"] * 3, summaries={HOSTILE: HOSTILE}, judge=judge, context=HOSTILE
    )
    page = result._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    for text in (page, repr(result), repr(Reflections([result] * 5)), Reflections([result])._repr_html_()):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert len(repr(result).splitlines()) <= 4
    assert json.loads(json.dumps(result.to_dict()))["classes"][0]["count"] == 3


def test_progress_is_off_where_nobody_looks_and_on_where_asked(judge, capsys) -> None:
    reflect(QUESTION, samples=SAMPLES, summaries="Peas.", judge=judge)
    assert capsys.readouterr() == ("", "")
    reflect(QUESTION, samples=SAMPLES, summaries="Peas.", judge=judge, progress=True)
    written = capsys.readouterr()
    assert written.out == ""
    assert "1/1" in written.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "the question has no answers: give samples=..., generate=... or model=..."),
        ({"samples": SAMPLES, "strategies": "basic"}, "strategies need a model to ask"),
        ({"generate": plants, "model": "smollm2"}, "not both"),
        ({"generate": plants, "temprature": 1}, "unknown setting 'temprature'. Did you mean 'temperature'"),
        ({"generate": plants, "num_answers": 0}, "num_answers must be from 1 to 1,000,000, not 0"),
        ({"generate": plants, "strategies": ["bassic"]}, "unknown strategy 'bassic'"),
        ({"generate": plants, "strategies": ["basic", "basic"]}, "'basic' is given twice"),
        ({"samples": ["one"]}, "the question: an answer distribution needs at least 2 answers"),
        ({"samples": SAMPLES, "summaries": "x", "judge": 7}, "a judge must be a name"),
        ({"generate": plants, "device_map": "all"}, "device_map must be one of auto, not 'all'"),
        ({"model": 7}, "a model must be a name or a loaded generator"),
        ({"questions": ["a?", "b?"], "samples": [SAMPLES]}, "samples must be a list with one entry for each"),
        ({"questions": ["a?", 3], "generate": plants}, "question 2: the question must be a text, not int"),
        ({"questions": 3, "generate": plants}, "questions must be a text, a list of texts or of rows"),
        ({"questions": [{"question": "a?"}, "b?"]}, "row 2 must be a dict like the other rows"),
    ],
)
def test_a_wrong_argument_gets_a_sentence_before_anything_is_asked(arguments, sentence) -> None:
    with pytest.raises((ConfigError, DataError), match=sentence):
        reflect_each(arguments.pop("questions", QUESTION), **arguments)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.just(object)
    | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = "questions samples summaries generate model judge context strategies".split()
SETTINGS = "num_answers temperature max_new_tokens seed budget reader measures device timeout cache".split()


@given(argument=st.sampled_from([*ARGUMENTS, *SETTINGS]), value=ANYTHING)
def test_no_wrong_argument_ends_in_an_error_from_inside(argument, value) -> None:
    if argument in ("model", "judge", "cache", "device") and isinstance(value, str):
        return  # a name
    arguments = {"questions": QUESTION, "samples": SAMPLES, "judge": "no/such/judge", argument: value}
    with suppress(SelfReflectError):
        reflect_each(**arguments)


@given(column=st.sampled_from(["question", "context", "samples", "answer", "summary", "id"]), value=ANYTHING)
def test_no_wrong_cell_ends_in_an_error_from_inside(column, value) -> None:
    row = {"question": QUESTION, "samples": SAMPLES, column: value}
    with suppress(SelfReflectError):
        reflect_each([row], judge="no/such/judge")


def test_a_misspelt_argument_is_named_before_what_it_leaves_missing(judge) -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'sampels'"):
        reflect("When?", sampels=["Now.", "Then."], judge=judge)
    with pytest.raises(ConfigError, match="Give a function as generate="):
        reflect("When?", model=lambda messages: "Now.", judge=judge)


def test_as_many_questions_as_there_are_workers_are_answered_at_once() -> None:
    active, most = 0, 0

    async def generate(messages: Any, seed: int) -> str:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await asyncio.sleep(0.1)
        active -= 1
        return f"answer {seed}"

    questions = [f"Number {number}?" for number in range(16)]
    assert len(reflect(questions, generate=generate, strategies=[], num_answers=1)) == 16
    assert most > 8, "more than a batch of a model"
