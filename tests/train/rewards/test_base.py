"""What trainers hand to every reward, and what they get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from selfreflect.errors import ConfigError, DataError
from selfreflect.records import AnswerSet, Question, question_id
from selfreflect.train.rewards.base import BatchColumns, Outcome, Reward, Unrewarded, said
from selfreflect.train.rewards.judged import JudgeReward


class LengthReward(Reward):
    """Minus the number of characters; none for a completion that asks."""

    __name__ = "length"
    worst = -99.0

    def outcomes(self, texts: Sequence[str | Unrewarded], columns: BatchColumns) -> list[Outcome]:
        return [
            text if isinstance(text, Unrewarded) else None if "?" in text else -float(len(text))
            for text in texts
        ]


def test_failures_get_the_worst_and_are_counted() -> None:
    metrics: dict[str, float] = {}
    noted: dict[str, list[str]] = {}
    texts = ["abc", "", "a?", "<think>a"]
    log = {"log_metric": metrics.__setitem__, "log_extra": noted.__setitem__}
    assert LengthReward()(None, texts, **log) == [-3.0, -99.0, None, -99.0]  # type: ignore[arg-type]
    assert metrics == {"length/failed": 0.5, "length/undefined": 0.25}
    assert noted == {"length/failure": ["", "blank", "", "unclosed_reasoning"]}
    noted.clear()
    LengthReward()(None, ["a"], log_extra=noted.__setitem__)
    assert noted == {}
    assert LengthReward()(None, [], log_metric=lambda name, value: pytest.fail("nothing to log")) == []


def test_a_failure_may_be_worth_the_worst_or_less() -> None:
    assert LengthReward(-99).failed == -99.0
    assert LengthReward(-100)(None, [""]) == [-100.0]
    with pytest.raises(ConfigError) as caught:
        LengthReward(-98.5)
    assert caught.value.code == "failed"
    with pytest.raises(ConfigError, match="failed"):
        LengthReward("best")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("Paris", "Paris"),
        ("<think>Lyon?</think> Paris", "Paris"),
        ([{"role": "assistant", "content": "Paris"}, {"role": "tool", "content": "Lyon"}], "Paris"),
        ([{"role": "assistant", "content": "Lyon"}, {"role": "assistant", "content": "Paris"}], "Paris"),
        ([{"content": "Paris"}], "Paris"),
        (({"content": [{"text": "Pa"}, {"type": "image"}, "x", {"text": None}, {"text": "ris"}]},), "Paris"),
        ([{"role": "user", "content": "Paris"}], None),
        ([{"content": 7}], None),
        ([], None),
        (" \n", None),
    ],
)
def test_the_last_words_of_the_assistant_count(completion: Any, text: str | None) -> None:
    read = said(completion)
    assert (read if isinstance(read, str) else None) == text
    assert isinstance(read, str) or read.kind == "blank"


@pytest.mark.parametrize(
    ("read", "code", "column"),
    [
        (lambda columns: columns.texts("a"), "no_text", "a"),
        (lambda columns: columns.texts("n", ""), "no_text", "n"),
        (lambda columns: columns.texts("e"), "missing_column", "e"),
        (lambda columns: columns.lists("e"), "missing_column", "e"),
        (lambda columns: columns.values("s"), "column_length", "s"),
        (lambda columns: columns.values("b"), "column_length", "b"),
    ],
)
def test_columns_that_do_not_fit_are_named(read: Any, code: str, column: str) -> None:
    columns = BatchColumns(2, {"a": ["x", None], "b": ["y"], "n": [3, 4], "s": "xy"})
    with pytest.raises(DataError) as caught:
        read(columns)
    assert (caught.value.code, caught.value.fields["column"]) == (code, column)


class CountingReward(JudgeReward):
    """A judge's reward without the judge: how often a text was measured before, and at which place."""

    __name__ = "counting"

    def __init__(self, **options: Any) -> None:
        super().__init__("smollm2", **options)
        self.calls: list[tuple[Question, AnswerSet, list[str]]] = []

    def measure(self, question: Question, answers: AnswerSet, texts: Sequence[str]) -> dict[str, Outcome]:
        self.calls.append((question, answers, list(texts)))
        outcomes: dict[str, Outcome] = {text: 10.0 * place for place, text in enumerate(texts)}
        return outcomes | {"odd": None} | {"bad": Unrewarded("too_long", "it is")}


COLUMNS: dict[str, Any] = {
    "question": ["A?", "B?", "A?", "A?"],
    "answers": [["c", "d"]] * 4,
    "masked_answers": [["e"]] * 4,
}


def test_different_texts_of_a_question_are_measured_together() -> None:
    reward = CountingReward(length_penalty=0.5)
    assert reward(None, ["x y", "x", "z", "x y"], **COLUMNS) == [-1.0, -0.5, 9.5, -1.0]
    assert [(one.text, texts) for one, _, texts in reward.calls] == [("A?", ["x y", "z"]), ("B?", ["x"])]
    answers = reward.calls[0][1]
    assert (answers.masked_out, answers.conditioning) == (("e",), ("c", "d"))


def test_questions_are_told_by_their_id_context_and_model() -> None:
    reward = CountingReward()
    more = {"context": ["K"] * 4, "model": ["m"] * 4, "revision": ["r"] * 4}
    reward(None, list("wxyz"), **COLUMNS, **more, question_id=["i", None, "", "i"])
    questions = [one for one, *_ in reward.calls]
    assert [(one.id, one.context) for one in questions] == [
        ("i", "K"),
        (question_id("B?", "K"), "K"),
        (question_id("A?", "K"), "K"),
    ]
    assert all(one.id == answers.question_id for one, answers, _ in reward.calls)
    assert {(answers.model, answers.revision) for _, answers, _ in reward.calls} == {("m", "r")}
