"""What reflections tell of sampled answers: which texts are measured, and what is averaged."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from length_measures import LengthMeasures

from selfreflect.records import AnswerSet, Question, halves
from selfreflect.table import to_markdown
from selfreflect.train.rewards.stated import StatedBelief
from selfreflect.train.sayself.clusters import Cluster, ClusteredQuestion
from selfreflect.train.sayself.comparison import (
    TEXTS,
    BitsAndDistances,
    answer_sets,
    faithfulness_table,
    measure_reflections,
    own_clusters,
    told_table,
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


def test_means_are_over_what_is_defined() -> None:
    figures = BitsAndDistances(
        bits={"answer": [1.0, 2.0], "answer and reflection": [4.0], "reflection": []},
        distances={"answer": [0.5, 0.25], "answer and reflection": [0.1], "reflection": [0.3]},
    )
    assert figures.means() == {
        "answer": {"bits": 1.5, "distance": 0.375},
        "answer and reflection": {"bits": 4.0, "distance": 0.1},
        "reflection": {"bits": None, "distance": 0.3},
    }


def test_the_table_has_a_row_for_each_text_with_its_intervals() -> None:
    figures = BitsAndDistances(
        bits={"answer": [1.0] * 7, "answer and reflection": [2.0, 4.0], "reflection": []},
        distances={"answer": [0.5] * 9, "answer and reflection": [0.1], "reflection": []},
    )
    table = told_table(figures, "What it tells")
    assert table.title == "What it tells"
    assert [column.heading for column in table.columns] == ["text", "n", "bits", "95%", "SelfReflect", "95%"]
    assert table.rows[0] == ("answer", 9, 1.0, "1.00 to 1.00", 0.5, "0.5000 to 0.5000")
    assert table.rows[1][:3] == ("answer and reflection", 2, 3.0)
    assert table.rows[1][4:] == (0.1, None)  # one value has no interval
    assert table.rows[2] == ("reflection", 0, None, None, None, None)
    assert [row[0] for row in table.rows] == list(TEXTS)
    shown = to_markdown(table)
    assert "| 3.00 |" in shown
    assert "| 0.1000 |" in shown


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


def test_one_answer_has_no_halves() -> None:
    assert answer_sets([AnsweredQuestion(id="q", answers=("x",))]) == {}


def test_a_question_without_own_answers_keeps_its_clusters() -> None:
    own = [AnsweredQuestion(id="b", answers=("Iseo", "iseo.", "Como"))]
    first, second, *_ = own_clusters(QUESTIONS, own)
    assert first == QUESTIONS[0]
    assert second.clusters == (Cluster(answer="Iseo", size=2), Cluster(answer="Como", size=1))
    assert (second.id, second.question, second.context) == ("b", "Lake b?", "Of b.")
