"""Clusters of sampled answers, and reflections on what they disagree about."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted import Scripted

from selfreflect.train.sayself.clusters import (
    Cluster,
    ClusteredQuestion,
    cluster_answers,
    find_problem,
    tenths,
    write_rationales,
)
from selfreflect.train.sayself.statement import SURE
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.question import AnsweredQuestion

QUESTION = AnsweredQuestion(
    id="q",
    text="Capital of France?",
    answers=("Lyon", "paris.", "Paris", "Nice", "Lyon", "Paris"),
    gold=("Paris",),
)


def test_the_largest_cluster_comes_first_and_the_right_one_is_known() -> None:
    [question] = cluster_answers([QUESTION], ClassRule("exact"), Correctness("exact"))
    assert [(one.answer, one.size, one.correct) for one in question.clusters] == [
        ("paris", 3, True),
        ("Lyon", 2, False),
        ("Nice", 1, False),
    ]
    gold = question.choose("gold")
    assert gold is not None
    assert question.share(gold) == 0.5


def test_a_cluster_is_led_by_the_first_answer_and_leaders_do_not_chain() -> None:
    """jaccard: "a b" matches "b c" matches "c d", and "a b" does not match "c d"."""
    answers = ("a b", "b c", "c d")
    rule = ClassRule("jaccard:0.3")
    [question] = cluster_answers([AnsweredQuestion(id="q", answers=answers)], rule, Correctness("exact"))
    assert [(one.answer, one.size) for one in question.clusters] == [("a b", 2), ("c d", 1)]


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1), (0.04, 1), (0.15, 2), (0.25, 3), (0.94, 9), (0.95, 10), (1.0, 10)]
)
def test_shares_are_rounded_half_up_to_tenths_of_at_least_one(share: float, value: int) -> None:
    assert tenths(share) == value


def test_a_judge_decides_which_clusters_are_right() -> None:
    model = Scripted({'"The city of light"': "Yes", '"Lyon"': "No"})
    judge = Correctness("judge", Asker("scripted", lambda: model))
    answers = ("Lyon", "By the Seine. Answer: The city of light.", "Paris", "lyon.")
    asked = AnsweredQuestion(id="q", text="Capital of France?", answers=answers, gold=("Paris",))
    other = replace(asked, id="r", answers=("Lyon",))
    first, second = cluster_answers([asked, other], ClassRule("exact"), judge)
    assert [(one.answer, one.size, one.correct) for one in first.clusters] == [
        ("Lyon", 2, False),
        ("The city of light", 1, True),
        ("Paris", 1, True),  # spelled like the right answer, so nobody is asked
    ]
    assert [one.correct for one in second.clusters] == [False]
    assert len(model.batches) == 1


GOOD = "I am not sure whether the bridge was built before the war."


def question(id_: str, *sizes: int) -> ClusteredQuestion:
    clusters = tuple(Cluster(answer=f"answer {place}", size=size) for place, size in enumerate(sizes))
    return ClusteredQuestion(id=id_, question=f"Question {id_}?", clusters=clusters)


def asker(script: object) -> tuple[Asker, Scripted]:
    model = Scripted(script)  # type: ignore[arg-type]
    return Asker("scripted", lambda: model), model


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GOOD, ""),
        ("", "it is blank"),
        (f"{GOOD} {GOOD} {GOOD} {GOOD}", "it has 4 sentences, but only 3 are allowed"),
        ("I gave this answer 7 times, so I am fairly sure of it.", "it mentions '7'"),
        ("I am about seventy percent sure that this is so.", "it mentions 'percent'"),
        ("I doubt it, as the samples do not agree with each other.", "it mentions 'samples'"),
        ("I am torn between two dates for this old bridge.", "it mentions 'two'"),
        ("Nobody knows whether the bridge was built before.", "it is not in the first person"),
        (
            "I am not sure of this river. Confidence: high",
            "it contains a marker of the statement, such as 'Confidence:'",
        ),
        ("I am not sure whether.", "it has fewer than 6 words"),
    ],
)
def test_what_a_reflection_may_not_say(text: str, problem: str) -> None:
    assert find_problem(text) == problem


def test_each_question_gets_a_reflection_or_a_reason() -> None:
    script = {
        "Question a?": GOOD,
        "Question b?": f"{GOOD} It was 1912.",
        "this sentence": "I cannot tell which river runs through that town.",
        "Question c?": "60% say so.",
    }
    questions = [question("a", 3, 2), question("b", 3, 2), question("c", 1, 1), question("d", 5)]
    asked, model = asker(script)
    rationales = write_rationales(questions, asked)
    assert [(one.text, one.origin) for one in rationales] == [
        (GOOD, "model"),
        (GOOD, "repaired"),
        ("I cannot tell which river runs through that town.", "second"),
        (SURE, "fixed"),
    ]
    assert rationales[2].problem == "it mentions '60'"
    assert len(model.requests) == 4
    assert not any("Question d?" in request.messages[-1].content for request in model.requests)


def test_a_question_without_a_usable_text_is_dropped_and_counted() -> None:
    asked, model = asker("It is 100% certain.")
    [rationale] = write_rationales([question("a", 3, 2)], asked)
    assert (rationale.text, rationale.origin) == ("", "dropped")
    assert len(model.requests) == 2
