"""The published way to count."""

from __future__ import annotations

import pytest
from scripted import Scripted

from selfreflect.train.rewards.stated import StatedBelief
from selfreflect.train.sayself.clusters import Cluster, ClusteredQuestion
from selfreflect.train.sayself.evaluation import Evaluation, grade_answers, published_figures
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.question import NoValue


def question(number: int, gold: tuple[str, ...] = ("Seine",)) -> ClusteredQuestion:
    clusters = (Cluster(answer="Seine", size=1),)
    return ClusteredQuestion(id=str(number), question=f"River {number}?", gold=gold, clusters=clusters)


def test_a_judge_sees_the_answer_part_alone_and_what_it_does_not_say_is_no_grade() -> None:
    """The published code shows it the self-reflection, too, and ends with an error at a reply that it cannot
    read."""
    replies = {"River 0": "Score: 7", "River 1": "It is right.", "River 2": "Score: 0"}
    model = Scripted(replies)
    statements = [StatedBelief(answer="Loire", confidence=0.5, reflection="It may be the Seine.")] * 3
    blank, unknown = StatedBelief(answer="", confidence=0.5), StatedBelief(answer="Po", confidence=0.5)
    questions = [*map(question, range(4)), question(4, ())]
    grades = grade_answers(questions, [*statements, blank, unknown], Asker("m", lambda: model))
    assert grades == [pytest.approx(0.7), None, None, 0.1, None]
    assert len(model.requests) == 3
    assert not any("may be" in request.messages[-1].content for request in model.requests)


def test_accuracy_is_graded_ece_is_a_distance_and_7_is_right() -> None:
    stated = [0.9, 0.6, 0.2, NoValue("no_number", "none")]
    statements = tuple(StatedBelief(answer="x", confidence=value) for value in stated)
    figures = published_figures(Evaluation("m", statements, (True,) * 4), [1.0, 0.7, 0.1, 0.6])
    assert figures.accuracy == pytest.approx(0.6)
    assert figures.ece == pytest.approx((0.1 + 0.1 + 0.1) / 3)
    assert (figures.n, figures.auroc) == (4, 1.0)


@pytest.mark.parametrize(("text", "score"), [("So: Score: 3. Score: 8", 0.8), ("7", 0.7), ("Score: 1", 0.1)])
def test_the_last_score_counts(text: str, score: float) -> None:
    model = Scripted(text)
    grades = grade_answers([question(0)], [StatedBelief("x", 0.5)], Asker("m", lambda: model))
    assert grades == [pytest.approx(score)]
