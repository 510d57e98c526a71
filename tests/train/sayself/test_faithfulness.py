"""What reflections tell of sampled answers: which texts are measured, and what is averaged."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from length_measures import LengthMeasures

from selfreflect.records import AnswerSet, Question, halves
from selfreflect.train.rewards.stated import StatedBelief
from selfreflect.train.sayself.clusters import Cluster, ClusteredQuestion
from selfreflect.train.sayself.comparison import (
    BitsAndDistances,
    answer_sets,
    faithfulness_table,
    measure_reflections,
)
from selfreflect.uncertainty.question import AnsweredQuestion

QUESTIONS = [
    ClusteredQuestion(
        id=id_, question=f"Lake {id_}?", context=f"Of {id_}.", clusters=(Cluster(answer="Como", size=1),)
    )
    for id_ in "abcd"
]
ANSWERS = {id_: AnswerSet(question_id=id_, masked_out=("Como",), conditioning=("Garda",)) for id_ in "abd"}
DOUBT = StatedBelief(answer="Como", confidence=0.5, reflection="It may be Garda.")


def measured(statements: Sequence[StatedBelief]) -> tuple[LengthMeasures, BitsAndDistances, int]:
    measures, steps = LengthMeasures(), []
    figures = measure_reflections(
        measures,  # type: ignore[arg-type]
        QUESTIONS,
        statements,
        ANSWERS,
        lambda: steps.append(1),
    )
    return measures, figures, len(steps)


def test_answer_reflection_and_both_are_measured_as_summaries() -> None:
    measures, figures, _ = measured([DOUBT, *[StatedBelief("", 0.5)] * 3])
    assert measures.texts == ["Como", "Como. It may be Garda.", "It may be Garda."]
    assert measures.questions == [Question(id="a", text="Lake a?", context="Of a.")]
    assert figures.bits == {"answer": [1], "answer and reflection": [5], "reflection": []}
    assert figures.distances == {"answer": [0.1], "answer and reflection": [0.5], "reflection": [0.4]}


def test_questions_without_all_three_texts_or_answers_are_left_out_and_counted_as_done() -> None:
    silent = StatedBelief(answer="Como", confidence=0.5)
    nothing = StatedBelief(answer="", confidence=0.5, reflection="It may be Garda.")
    measures, figures, steps = measured([silent, nothing, DOUBT, DOUBT])
    assert [question.id for question in measures.questions] == ["d"]  # c has no sampled answers
    assert steps == 4
    assert figures.distances["answer"] == [0.1]


def test_scores_of_a_judge_are_counted_beside_the_reflections_that_it_saw() -> None:
    table = faithfulness_table({"mine": (4, [0.5, 0.5, 0.5]), "none": (2, [])}, "judge")
    assert "judge" in table.title
    assert table.rows == (("mine", 4, 3, 0.5, "0.50 to 0.50"), ("none", 2, 0, None, None))


@pytest.mark.parametrize(
    ("answers", "half"),
    [("wx", 1), ("vwxyz", 2), ("uvwxyz", 3)],  # an odd one is left out, so that both halves are equal
)
def test_answers_are_shuffled_and_halved(answers: str, half: int) -> None:
    first, second = halves(answers, "q")
    for order in (answers, answers[::-1]):
        sets = answer_sets([AnsweredQuestion(id="q", answers=tuple(order)), AnsweredQuestion(id="r")])
        expected = AnswerSet(question_id="q", masked_out=first, conditioning=second[:half], halved="shuffled")
        assert sets == {"q": expected}
    assert len(first) == half
