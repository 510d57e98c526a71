"""Methods beside each other: who is asked what, and what is said of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from length_measures import LengthMeasures
from scripted import Scripted

from selfreflect.models.base import Request
from selfreflect.records import AnswerSet
from selfreflect.table import to_markdown
from selfreflect.train.sayself.clusters import Cluster, ClusteredQuestion
from selfreflect.train.sayself.comparison import MethodComparison, adapter_asker
from selfreflect.train.sayself.examples import Adapter
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.correctness import Correctness

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


def test_r_tuning_is_asked_about_the_answer_that_most_samples_gave(tmp_path: Path) -> None:
    comparison, models = compare(tmp_path, "rtuning-0")
    line = lines_of(comparison)["rtuning-0"]
    assert line["accuracy"] == pytest.approx(2 / 3)
    assert line["mean_confidence"] == pytest.approx(2 / 3)  # sure of Seine, unsure of Loire
    assert line["auroc"]["value"] == 1.0
    assert len(models.opened["rtuning-0"].requests) == NUMBER


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


def test_the_table_of_differences_needs_a_trained_model(tmp_path: Path) -> None:
    comparison, _ = compare(tmp_path, "full-0")
    comparison.tabulate("Of test questions")
    assert comparison.tables[0].title == "Of test questions"
    assert len(comparison.tables[0].rows) == 6
    assert [row[0] for row in comparison.tables[1].rows] == ["full-0"]
    assert [row[0] for row in comparison.tables[2].rows] == ["full-0"]
    line = lines_of(comparison)["full-0"]
    assert line["own_constant_brier"] == pytest.approx(line["accuracy"] * (1 - line["accuracy"]))
    alone, _ = compare(tmp_path)
    alone.tabulate("Baselines")
    assert [table.title for table in alone.tables] == ["Baselines"]


def test_what_a_judge_reads_in_reflections_is_averaged(tmp_path: Path) -> None:
    comparison, _ = compare(tmp_path, "full-0", "plain-0", drawn=NUMBER)
    judge = Scripted(lambda request: "Score: 8" if "River 1" in request.messages[-1].content else "Well.")
    comparison.judge(Asker("judge", lambda: judge), "judge")
    [table] = comparison.tables
    assert table.rows[0][:4] == ("full-0", NUMBER, 6, pytest.approx(0.8))  # of questions 1 and 10 to 14
    assert len(table.rows) == 1
    lines = lines_of(comparison)
    assert lines["full-0"]["faithfulness"] == {"mean": pytest.approx(0.8), "read": 6, "asked": NUMBER}
    assert "faithfulness" not in lines["plain-0"]
    shown = judge.requests[0].messages[-1].content
    assert '"Rhone" (share 100%)' in shown  # the model's own answers, not those it was trained on
    assert "I mix up two rivers." in shown


def test_a_judge_that_gives_no_score_leaves_no_mean(tmp_path: Path) -> None:
    comparison, _ = compare(tmp_path, "full-0")
    comparison.judge(Asker("judge", lambda: Scripted("Well.")), "judge")
    assert lines_of(comparison)["full-0"]["faithfulness"] == {"mean": None, "read": 0, "asked": NUMBER}


def test_grades_are_given_to_all_that_answer(tmp_path: Path) -> None:
    comparison, _ = compare(tmp_path, "full-0")
    grader = Scripted(
        lambda request: "Score: 10" if 'Given answer: "Seine"' in request.messages[-1].content else "Score: 2"
    )
    comparison.grade(Asker("grader", lambda: grader), "the grader")
    lines = lines_of(comparison)
    assert lines["full-0"]["published"] == {
        "n": NUMBER,
        "accuracy": pytest.approx(0.2),
        "ece": pytest.approx(0.1),
        "auroc": None,
    }
    assert lines["asked directly (DP)"]["published"]["accuracy"] == 1.0
    assert "published" not in lines["constant (base rate)"]
    [table] = comparison.tables
    assert table.title == "Counted as published, with grades of the grader"
    names = ["method", "n", "graded accuracy", "published ECE", "AUROC, right from 7"]
    assert [column.heading for column in table.columns] == names
    assert table.rows[2] == ("full-0", NUMBER, pytest.approx(0.2), pytest.approx(0.1), None)
    assert "| 0.200 |" in to_markdown(table)


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


def test_nothing_is_measured_without_reflections(tmp_path: Path) -> None:
    comparison, _ = compare(tmp_path, "plain-0")
    assert not comparison.measure(LengthMeasures(), 3, {}, Stages())  # type: ignore[arg-type]
    assert comparison.tables == []


def test_random_questions_are_the_same_whenever_there_are_the_same(tmp_path: Path) -> None:
    chosen = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        comparison, _ = compare(tmp_path / name, "full-0", drawn=NUMBER)
        measures = LengthMeasures()
        comparison.measure(measures, 3, {}, Stages())  # type: ignore[arg-type]
        chosen.append([one.id for one in measures.questions])
    assert chosen[0] == chosen[1]
    assert chosen[0] != ["q0", "q1", "q2"]


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
