"""Confidences that methods state, beside baselines."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from scripted import Scripted

from selfreflect.models.base import Completion, Refusal, Reply
from selfreflect.prompts import load_prompts
from selfreflect.records import Question
from selfreflect.strategies.task import FRESH, GREEDY, Task
from selfreflect.train.rewards.stated import StatedBelief
from selfreflect.train.sayself.clusters import Cluster, ClusteredQuestion
from selfreflect.train.sayself.comparison import reinforcement_rows
from selfreflect.train.sayself.evaluation import (
    Evaluation,
    ask_statements,
    ask_whether_sure,
    difference_table,
    label_statements,
    reference_rows,
)
from selfreflect.train.sayself.examples import make_examples
from selfreflect.train.sayself.statement import sayself
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.question import NoValue


def questions(count: int) -> list[ClusteredQuestion]:
    made = []
    for number in range(count):
        clusters = (Cluster(answer="Seine", size=7, correct=True), Cluster(answer="Loire", size=3))
        made.append(
            ClusteredQuestion(id=str(number), question=f"River {number}?", gold=("Seine",), clusters=clusters)
        )
    return made


def asker(script: object) -> Asker:
    model = Scripted(script)  # type: ignore[arg-type]
    return Asker("scripted", lambda: model)


def test_the_tuned_model_is_asked_about_an_answer_as_it_was_trained_on_it() -> None:
    [row], _ = make_examples(questions(1), None, "rtuning", "majority")
    model = Scripted("I am sure.")
    given = [StatedBelief(answer="Seine", confidence=0.5), StatedBelief(answer="", confidence=0.5)]
    sure, blank = ask_whether_sure(questions(2), given, Asker("scripted", lambda: model))
    [request] = model.requests
    assert [{"role": turn.role, "content": turn.content} for turn in request.messages] == row["prompt"]
    assert sure.confidence == 1.0
    assert isinstance(blank.confidence, NoValue)


def test_all_steps_ask_as_the_model_was_trained() -> None:
    """In the published code the templates of training, reinforcement and evaluation differ in line breaks."""
    [question] = questions(1)
    question = replace(question, context="A map.\nOf rivers.")
    [row], _ = make_examples([question], None, "no_rationale", "gold")
    model = Scripted("Answer: Seine. Confidence: 7")
    [begun] = reinforcement_rows([question], Asker("scripted", lambda: model), Correctness("exact"))
    ask_statements([question], Asker("scripted", lambda: model))
    task = Task(
        question=Question(id="0", text=question.question, context=question.context),
        prompts=load_prompts(),
        name="sayself",
        sampling=GREEDY,
        sample_sampling=FRESH,
    )
    request = next(sayself(task))
    for messages in (*(one.messages for one in model.requests), request.messages):
        assert [{"role": turn.role, "content": turn.content} for turn in messages] == row["prompt"]
    assert begun["prompt"][:-1] == row["prompt"]


def test_a_statement_without_a_confidence_is_a_failure_and_nothing_is_asked_again() -> None:
    """The published code asks up to three times more, without the question."""
    model = Scripted("Answer: Loire.")
    [statement] = ask_statements(questions(1), Asker("scripted", lambda: model))
    assert isinstance(statement.confidence, NoValue)
    assert [request.messages[-1].content for request in model.requests] == ["Question: River 0?"]


def test_the_second_stage_compares_the_answer_alone() -> None:
    """The published code finds the right answer in the question and the reflection, too."""
    texts = [
        "Answer: Loire. Self-reflection: It may be the Seine. Confidence: 9",
        "Answer: The Seine. Confidence: 9",
    ]
    for text, correct in zip(texts, (False, True), strict=True):
        [row] = reinforcement_rows(questions(1), asker(text), Correctness("substring"))
        assert row["correct"] is correct


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        ("Answer: Seine. Confidence : 8", "Answer: Seine. Confidence :"),
        ("Answer: Seine. **Confidence**: 8", "Answer: Seine. **Confidence**:"),
        ("Answer: İİ. Confidence: 8", "Answer: İİ. Confidence:"),  # longer in lower case
        ("Answer: Seine. Confidence: 8 Confidence: 8", "Answer: Seine. Confidence:"),
    ],
)
def test_a_statement_is_cut_where_its_confidence_is_read(text: str, begun: str) -> None:
    [row] = reinforcement_rows(questions(1), asker(text), Correctness("exact"))
    assert row["prompt"][-1]["content"] == begun


def test_three_rows_need_no_method() -> None:
    statements = [StatedBelief(answer="a" * (1 + number % 3), confidence=number / 20) for number in range(20)]
    labels = tuple(number % 3 != 0 for number in range(20))
    rows = reference_rows(Evaluation("m", tuple(statements), labels))
    assert [row.method for row in rows] == ["constant (base rate)", "isotonic (m)", "length only (isotonic)"]
    assert rows[0].measures()["ece_10_left"].value == pytest.approx(0)


def test_a_model_is_compared_with_its_own_base_rate() -> None:
    """To state 0.2 for every question tells nothing, however far below others' base rate its score is."""
    labels = (True,) * 6 + (False,) * 23
    same = Evaluation("same", (StatedBelief("x", 0.2),) * 29, labels)
    knows = Evaluation("knows", tuple(StatedBelief("x", 0.8 if label else 0.1) for label in labels), labels)
    silent = Evaluation("silent", (StatedBelief("x", NoValue("no_number", "none")),) * 29, labels)
    table = difference_table([same, knows, silent], [])
    assert table is not None
    [same_row, knows_row] = table.rows
    base = 6 / 29 * 23 / 29
    assert same_row[:4] == ("same", "own constant", 29, pytest.approx((6 / 29 - 0.2) ** 2))
    assert knows_row[3] == pytest.approx((6 * 0.04 + 23 * 0.01) / 29 - base)
    assert difference_table([silent], []) is None


def test_methods_are_compared_with_the_best_baseline_on_the_same_questions() -> None:
    labels = (True, False) * 6

    def method(name: str, right: float, wrong: float, count: int = 12) -> Evaluation:
        values = [right if label else wrong for label in labels[:count]]
        statements = [StatedBelief(answer="x", confidence=value) for value in values]
        statements += [StatedBelief(answer="x", confidence=NoValue("no_number", "none"))] * (12 - count)
        return Evaluation(name, tuple(statements), labels)

    baselines = [method("half", 0.5, 0.5), method("better", 0.6, 0.4), method("few", 1.0, 0.0, count=2)]
    table = difference_table([method("mine", 0.9, 0.1), method("none", 0.5, 0.5, count=0)], baselines)
    assert table is not None
    rows = [row[:4] for row in table.rows if row[1] == "better"]
    assert rows == [("mine", "better", 12, pytest.approx(0.01 - 0.16)), ("none", "better", 0, None)]
    assert difference_table([], baselines) is None


def test_a_blank_answer_is_wrong_where_something_is_right() -> None:
    [known] = questions(1)
    unknown = replace(known, gold=())
    blank = StatedBelief(answer="", confidence=0.5)
    assert label_statements([known, unknown], [blank, blank], Correctness("exact")) == (False, None)


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        ("I am sure.", 1.0),
        ("Yes, I AM SURE of it", 1.0),
        ("I am unsure.", 0.0),
        ("I'm not sure.", 0.0),
        ("Yes.", 1.0),
        ("No, I doubt it", 0.0),
        ("I am sure that I am unsure.", None),
    ],
)
def test_ways_to_be_sure(text: str, confidence: float | None) -> None:
    [said] = ask_whether_sure(questions(1), [StatedBelief("Seine", 0.5)], asker(text))
    assert (None if isinstance(said.confidence, NoValue) else said.confidence) == confidence
    assert said.answer == "Seine"


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        ("Answer: Seine. Confidence: 8. And I", 0.8),
        ("Answer: Seine. Confidence: 1", None),  # perhaps the beginning of 10
        ("Answer: Seine. Self-reflection: I", None),
    ],
)
def test_a_statement_that_was_cut_off_counts_from_a_whole_confidence_on(
    text: str, confidence: float | None
) -> None:
    reply = Reply(completions=(Completion(text=text, finish="length", tokens=160),))
    [said] = ask_statements(questions(1), asker({"River 0": reply}))
    assert said.answer == "Seine"
    if confidence is None:
        assert isinstance(said.confidence, NoValue)
        assert said.confidence.reason == "cut_off"
    else:
        assert said.confidence == confidence


def test_what_has_no_reply_no_label_or_no_right_answer_is_left_out_of_the_second_stage() -> None:
    [known] = questions(1)
    unknown = replace(known, id="u", gold=())
    reply = "Answer: Seine. Confidence: 3"
    refusal = Refusal(kind="refused", message=reply)
    assert reinforcement_rows([known], asker(lambda request: refusal), Correctness("exact")) == []
    rows = reinforcement_rows([unknown, known], asker(reply), Correctness("exact"))
    assert [row["question_id"] for row in rows] == ["0"]
