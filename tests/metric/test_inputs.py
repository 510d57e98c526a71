"""What a Python caller gets for a wrong type: a sentence, never an error from inside."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.errors import ConfigError, DataError, SelfReflectError
from selfreflect.metric.inputs import checked_texts, named_texts
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.judge import Judge

ANSWERS = ["Radishes.", "Lettuce.", "Plant radishes.", "Peas."]

ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=3) | st.just(object)
ANYTHING = st.recursive(
    ATOMS | st.sampled_from(["", " ", "one text", b"bytes", {"a"}, range(3), np.arange(3), np.array("x")]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ATOMS, inner, max_size=2),
    max_leaves=4,
)
SCORE = ("question", "answers", "summaries", "masked_out", "conditioning")


@pytest.fixture(scope="module")
def metric(tiny_metric):
    return tiny_metric("llama")


@given(argument=st.sampled_from(SCORE), value=ANYTHING)
def test_no_wrong_argument_of_score_ends_in_an_error_from_inside(metric, argument, value):
    arguments: dict[str, Any] = {"question": "What?", "answers": ANSWERS, "summaries": {"mine": "Radishes."}}
    if argument in ("masked_out", "conditioning"):
        arguments |= {"answers": None, "masked_out": ANSWERS, "conditioning": ANSWERS}
    arguments[argument] = value
    with suppress(SelfReflectError):
        metric.score(**arguments)


@given(argument=st.sampled_from(["temperature", "limits", "guesses", "reader"]), value=ANYTHING)
def test_no_wrong_setting_of_the_metric_ends_in_an_error_from_inside(metric, argument, value):
    with suppress(SelfReflectError):
        SelfReflect(metric.judge, **{argument: value})


@given(ANYTHING.filter(lambda value: not isinstance(value, str)))
def test_what_is_no_judge_is_refused(value):
    for make in (SelfReflect, Judge.load):
        with pytest.raises(ConfigError, match=r"by its name|must be a name"):
            make(value)


def test_a_judge_can_be_given_by_its_name(metric):
    assert repr(metric) == f"SelfReflect(Judge({metric.judge.name!r}), temperature=5)"
    scores = SelfReflect(metric.judge.name).score("What?", answers=ANSWERS, summaries="Radishes.")
    assert scores["summary"].judge == metric.judge.name


def test_one_summary_or_a_list_of_them_gets_names():
    assert named_texts("Peas.") == {"summary": "Peas."}
    assert named_texts(["Peas.", "Kale."]) == {"summary_1": "Peas.", "summary_2": "Kale."}
    assert named_texts({"mine": "Peas."}) == {"mine": "Peas."}


def test_arrays_and_columns_are_lists():
    assert checked_texts(np.array(["a", "b"]), "answers") == ("a", "b")
    pandas = pytest.importorskip("pandas")
    assert checked_texts(pandas.Series(["a", "b"]), "answers") == ("a", "b")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"summaries": ["a", None]}, "summaries must be a text, a list of texts, or texts by name"),
        ({"summaries": {"mine": 3}}, "the summary 'mine' must be a text, not int '3'"),
        ({"summaries": {" ": "a"}}, "the name of a summary must be a text that is not blank"),
        ({"answers": "one text"}, "answers must be a list of texts, not one text: every letter"),
        ({"answers": {"a", "b"}}, "answers must be a list of texts, not set"),
        ({"answers": ["a", None]}, "answers: entry 2 must be a text, not None"),
        ({"answers": ["a"]}, "needs at least 2 answers"),
        ({"question": None}, "the question must be a text, not None"),
        ({"question": " \n"}, "the question is blank"),
    ],
)
def test_the_sentence_names_the_argument(metric, arguments, sentence):
    with pytest.raises(DataError, match=sentence):
        metric.score(**{"question": "What?", "answers": ANSWERS, "summaries": {"mine": "x"}, **arguments})
