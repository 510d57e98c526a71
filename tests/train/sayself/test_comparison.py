"""Comparison of trained models with baselines, and what reflections tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from length_measures import LengthMeasures
from scripted import Scripted

from selfreflect.models.base import Request
from selfreflect.records import AnswerSet, Question, halves
from selfreflect.train.rewards.stated import StatedBelief
from selfreflect.train.sayself.clusters import Cluster, ClusteredQuestion
from selfreflect.train.sayself.comparison import (
    BitsAndDistances,
    MethodComparison,
    adapter_asker,
    answer_sets,
    faithfulness_table,
    measure_reflections,
)
from selfreflect.train.sayself.examples import Adapter
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.question import AnsweredQuestion

NUMBER = 15
"""Questions, of which every third has a largest cluster that is wrong."""


def question(number: int) -> ClusteredQuestion:
    right, wrong = ("Seine", "Loire") if number % 3 else ("Loire", "Seine")
    clusters = (
        Cluster(answer=right, size=5 + number % 4, correct=bool(number % 3)),
        Cluster(answer=wrong, size=2, correct=not number % 3),
    )
    return ClusteredQuestion(id=f"q{number}", question=f"River {number}?", gold=("Seine",), clusters=clusters)


QUESTIONS = [question(number) for number in range(NUMBER)]


def direct(request: Request) -> str:
    return "Answer: Seine. Confidence: 8"


def doubting(request: Request) -> str:
    """What a trained model says, greedily and sampled."""
    if request.n > 1:
        return "Answer: Rhone. Confidence: 3"
    return "Answer: Loire. Self-reflection: I mix up two rivers. Confidence: 3"


def silent(request: Request) -> str:
    return "Answer: Seine. Confidence: 9"


def sure(request: Request) -> str:
    return "I am unsure." if "Loire" in request.messages[1].content else "I am sure."


class Models:
    """Opens scripted models by name, and remembers them."""

    def __init__(self, scripts: dict[str | None, Callable[[Request], str]]) -> None:
        self.opened: dict[str | None, Scripted] = {}
        self._scripts = scripts

    def __call__(self, name: str | None) -> Asker:
        key = name if name is None else Path(name).name
        model = self.opened.setdefault(key, Scripted(self._scripts[key]))
        return Asker(str(name), lambda: model)


def adapter(folder: Path, name: str, base: str = "smollm2") -> Adapter:
    (folder / name).mkdir()
    (folder / name / "training.json").write_text(json.dumps({"base": base, "metrics": {"change": 1.0}}))
    return Adapter(folder / name, name.partition("-")[0])  # type: ignore[arg-type]


def compare(
    folder: Path, *names: str, drawn: int = 4, per_question: int = 2
) -> tuple[MethodComparison, Models]:
    scripts = {None: direct, "full-0": doubting, "plain-0": silent, "rtuning-0": sure}
    models = Models(scripts)  # type: ignore[arg-type]
    comparison = MethodComparison(QUESTIONS, Correctness("exact"))
    comparison.ask([adapter(folder, name) for name in names], None, models, drawn, per_question)
    return comparison, models


def lines_of(comparison: MethodComparison) -> dict[str, dict[str, Any]]:
    return {line["method"]: line for line in comparison.lines()}


def test_every_method_states_a_confidence_for_every_question(tmp_path: Path) -> None:
    comparison, _ = compare(tmp_path, "full-0", "plain-0", "rtuning-0")
    assert [row.method for row in comparison.rows] == [
        "agreement of samples (SC)",
        "asked directly (DP)",
        "constant (base rate)",
        "isotonic (agreement of samples (SC))",
        "length only (isotonic)",
        "full-0",
        "plain-0",
        "rtuning-0",
    ]
    lines = lines_of(comparison)
    assert {line["n"] for line in lines.values()} == {NUMBER}
    assert lines["agreement of samples (SC)"]["accuracy"] == pytest.approx(2 / 3)
    assert (lines["asked directly (DP)"]["accuracy"], lines["asked directly (DP)"]["mean_confidence"]) == (
        1.0,
        pytest.approx(0.8),
    )
    assert (lines["full-0"]["accuracy"], lines["full-0"]["mean_confidence"]) == (0.0, pytest.approx(0.3))
    assert lines["constant (base rate)"]["baseline"]
    assert lines["constant (base rate)"]["accuracy"] is None
    assert lines["constant (base rate)"]["mean_confidence"] == pytest.approx(2 / 3)
    assert not lines["plain-0"]["baseline"]
    assert lines["plain-0"]["brier"]["value"] == pytest.approx(0.01)
    assert lines["full-0"]["without_confidence"] == {}


@pytest.mark.parametrize(
    ("drawn", "per_question", "requests"),
    [(4, 2, NUMBER + 4), (NUMBER, 2, 2 * NUMBER), (99, 2, 2 * NUMBER), (0, 2, NUMBER), (4, 0, NUMBER)],
)
def test_models_that_reflect_draw_answers_to_some_questions(
    tmp_path: Path, drawn: int, per_question: int, requests: int
) -> None:
    _, models = compare(tmp_path, "full-0", "plain-0", drawn=drawn, per_question=per_question)
    assert len(models.opened["full-0"].requests) == requests
    assert len(models.opened["plain-0"].requests) == NUMBER  # which states no reflection


class Stages:
    """Counts what is shown of each stage."""

    def __init__(self) -> None:
        self.shown: dict[str, list[int]] = {}

    @contextmanager
    def __call__(self, name: str, total: int) -> Iterator[Any]:
        self.shown[name] = [total, 0]
        self.name = name
        yield self

    def advance(self, count: int = 1, failures: int = 0) -> None:
        self.shown[self.name][1] += count


def test_reflections_are_measured_on_the_answers_of_their_own_model(tmp_path: Path) -> None:
    comparison, _ = compare(tmp_path, "full-0", "plain-0", drawn=NUMBER, per_question=4)
    measures, stages = LengthMeasures(), Stages()
    assert comparison.measure(measures, 3, {}, stages)  # type: ignore[arg-type]
    assert stages.shown == {"reflections of full-0": [3, 3]}
    assert len(measures.questions) == 3
    told = lines_of(comparison)["full-0"]["told"]
    assert told["answer"] == {"bits": 1.0, "distance": 0.1}
    assert told["answer and reflection"]["bits"] == 6.0
    assert comparison.tables[0].title == "What full-0 tells of the sampled answers"
    assert comparison.tables[0].rows[0][:2] == ("answer", 3)


def test_a_model_that_drew_no_answers_is_measured_on_those_of_the_run(tmp_path: Path) -> None:
    comparison, _ = compare(tmp_path, "full-0", per_question=0)
    of_run = {
        one.id: AnswerSet(question_id=one.id, masked_out=("a",), conditioning=("b",)) for one in QUESTIONS
    }
    measures = LengthMeasures()
    comparison.measure(measures, 99, of_run, Stages())  # type: ignore[arg-type]
    assert sorted(one.id for one in measures.questions) == sorted(of_run)


def test_a_model_that_is_trained_anew_is_asked_anew(tmp_path: Path) -> None:
    """Replies are kept under the name of the asker."""
    made = Adapter(tmp_path / "full-0", "full")
    made.folder.mkdir()
    names = []
    for base in ("smollm2", "smollm2", "another"):
        record = json.dumps({"base": base, "metrics": {"change": 1.0}})
        (made.folder / "training.json").write_text(record)
        asker = adapter_asker(lambda name: Asker(str(name), lambda: Scripted("x")), made)
        names.append(asker.model)
    assert names[0] == names[1] != names[2]
    assert all(name.startswith(f"{made.folder} trained ") for name in names)


REFLECTED = [
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
        REFLECTED,
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
