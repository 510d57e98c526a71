"""What counts as correct, and how it depends on length."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scripted import Scripted

from selfreflect.errors import ConfigError
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.assess import Assessment, Method
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.correctness import Correctness, squad_f1
from selfreflect.uncertainty.measures import audit_length
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue

PARIS = AnsweredQuestion(id="q", gold=("Paris", "City of Light"), correct=False)


@pytest.mark.parametrize(
    ("name", "answer", "label"),
    [
        ("contains", "It is Paris, of course", True),
        ("contains", "It is not Paris", False),
        ("exact", "paris.", True),
        ("exact", "the city of light", True),
        ("exact", "Paris, France", False),
        ("squad_f1", "Paris, France", True),
        ("squad_f1:0.8", "Paris, France", False),
        ("substring", "It is PARIS, of course", True),
        ("substring", "It is Lyon", False),
        ("substring", "By comparison, Lyon", True),  # as published
        ("human", "paris", False),
    ],
)
def test_functions_and_thresholds(name: str, answer: str, label: bool) -> None:
    assert Correctness(name)(PARIS, answer) is label


def test_numbers() -> None:
    numeric = Correctness("numeric")
    thousand = AnsweredQuestion(id="q", gold=("1000",))
    assert numeric(thousand, "about 1,000 of them") is True
    assert numeric(thousand, "100") is False
    assert numeric(thousand, "a thousand") is False


def test_squad_f1_ignores_case_punctuation_and_articles() -> None:
    assert squad_f1("The cat, sat!", "a cat sat") == 1
    assert squad_f1("cat cat", "cat") == pytest.approx(2 / 3)
    assert squad_f1("the", "...") == 1
    assert squad_f1("the", "cat") == 0
    # typographic twins, and a letter with a combining accent
    assert squad_f1("O’Brien", "O'Brien") == squad_f1("cafe\u0301", "café") == squad_f1("５", "5") == 1


@pytest.mark.parametrize("bad", ["exakt", "exact:0.5", "rouge:2", "rouge:"])
def test_bad_names_are_refused(bad: str) -> None:
    with pytest.raises(ConfigError):
        Correctness(bad)


def test_a_score_and_a_label_that_both_follow_length_are_warned_of() -> None:
    rng = np.random.default_rng(0)
    length = rng.integers(1, 50, 400)
    score = -length + rng.normal(0, 5, 400)
    label = length + rng.normal(0, 10, 400) < 25
    audit = audit_length(score, label, length)
    assert "flatters" in audit.warning
    assert audit.score_with_correct is not None
    assert audit.score_with_correct > 0.5
    assert audit.score_with_correct_at_length is not None
    assert abs(audit.score_with_correct_at_length) < 0.15
    assert audit.auroc_of_length is not None
    assert audit.auroc_of_length > 0.9
    assert "harms" in audit_length(-score, label, length).warning
    assert audit_length(rng.normal(size=400), label, length).warning == ""


def test_answers_of_middle_length_that_are_right_are_warned_of() -> None:
    rng = np.random.default_rng(1)
    length = rng.integers(1, 30, 300)
    is_middle = (length > 10) & (length < 20)
    label = np.where(rng.random(300) < 0.95, is_middle, ~is_middle)
    audit = audit_length(is_middle + rng.normal(0, 0.3, 300), label, length)
    assert audit.score_with_length is not None
    assert abs(audit.score_with_length) < 0.11
    assert audit.score_with_middle is not None
    assert audit.score_with_middle < -0.5
    assert audit.dependence is not None
    assert audit.score_with_correct is not None
    assert audit.score_with_correct_at_middle is not None
    assert audit.score_with_correct_at_middle < audit.score_with_correct - 0.1
    assert audit_length(rng.normal(size=300), label, length).dependence is None


def test_what_speaks_of_the_greedy_answer_is_compared_with_its_correctness() -> None:
    rows = []
    for number, (greedy, gold) in enumerate(
        [("Lyon, likely.", "Lyon, likely"), ("Paris", "Lyon"), (None, "Paris")]
    ):
        values = {"greedy_distance": 0.1 * number}
        fields = {"answers": ("Paris",) * 3, "gold": (gold,), "greedy": greedy, "correct": True}
        rows.append(AnsweredQuestion(id=str(number), values=values, **fields))
    method = Method(ClassRule(), correctness=("exact", "human"))
    assessment = Assessment(rows, ["modal_share", "greedy_distance"], method)
    assert assessment.answers_of("modal_share").labels["exact"] == [False, False, True]
    assert assessment.answers_of("greedy_distance").labels["exact"] == [True, False, True]
    assert assessment.answers_of("greedy_distance").labels["human"] == [None, True, True]
    assert assessment.answers_of("greedy_distance").lengths == [2, 1, 1]
    assert isinstance(missing := assessment.values["greedy_distance"][2], NoValue)
    assert missing.reason == "no_greedy"
    indices, scores, labels, *_ = assessment.labelled_scores("greedy_distance", "exact")
    assert (indices, scores.tolist(), labels.tolist()) == ([0, 1], [0.0, -0.1], [1.0, 0.0])


def test_a_judge_is_asked_about_what_is_not_spelled_like_a_right_answer() -> None:
    model = Scripted({'"It is Paris"': "Yes", '"Lyon"': "No.", '"Nice"': "Perhaps"})
    judge = Correctness("judge", Asker("scripted", lambda: model))
    questions = [replace(PARIS, id=str(number), text="Capital?") for number in range(6)]
    questions[5] = AnsweredQuestion(id="5", text="Capital?")
    answers = ["It is Paris", "Lyon", "Nice", "paris.", None, "Lyon"]
    assert judge.label_all(questions, answers) == [True, False, None, True, None, None]
    assert len(model.requests) == 3
    assert '1. "Paris"\n2. "City of Light"' in model.requests[0].messages[-1].content
    assert judge(questions[1], "It is Paris") is None  # a verdict is of one question
    with pytest.raises(ConfigError, match="correctness by 'judge' needs a model to ask"):
        Correctness("judge")


def test_a_label_of_a_person_is_of_one_answer_and_its_spellings() -> None:
    human = Correctness("human")
    right = replace(PARIS, correct=True)
    assert human(right, "Paris") is True
    assert human(right, "the paris.", judged="Paris") is True
    assert human(right, "Lyon", judged="Paris") is None
    assert human(right, None, judged="Paris") is None
    assert human(right, None) is True


@pytest.mark.parametrize(
    ("name", "answer", "gold", "label"),
    [
        ("numeric", "1000000", "1000001", True),  # within a millionth
        ("numeric", "1000000", "1000002", False),
        ("numeric", "0", "0.0", True),
        ("numeric", "1e-9", "0", False),
        ("numeric", "-5", "5", False),
        ("numeric", "2", "1/2", False),
        ("numeric", "0.5", "1/2", True),
        ("numeric", "50%", "1/2", True),
        ("numeric", "50 %", "50", True),
        ("numeric", "3-5", "5", False),
        ("numeric", "5 km", "5", True),
        ("numeric", "5 km", "5 miles", False),
        ("numeric", "5 (in 2020)", "5", True),
        ("numeric", "72 clips, altogether.", "72", True),
        ("numeric", "Five!", "five", True),
        ("numeric", "five", "5", False),
        ("substring", "anything", " ", False),
        ("substring", "in Paris", " paris ", True),
        ("substring", "Par", "Paris", False),
        ("squad_f1", "x y", "y z", True),  # 2 of 4: a half is enough
        ("squad_f1:0.51", "x y", "y z", False),
    ],
)
def test_close_enough(name: str, answer: str, gold: str, label: bool) -> None:
    assert Correctness(name)(AnsweredQuestion(id="q", gold=(gold,)), answer) is label
