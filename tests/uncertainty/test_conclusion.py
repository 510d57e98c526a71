"""The sentence for readers who know no measure: accuracy, confidence, the best estimator, and its use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import run, written

from selfreflect.uncertainty.measures import FEWEST_RESAMPLED
from selfreflect.uncertainty.prediction import Tally
from selfreflect.uncertainty.tables import coverage_at


@pytest.mark.parametrize(
    ("scores", "right", "risk", "expected"),
    [
        ([4, 3, 2, 1], [1, 1, 0, 0], 0.1, 0.5),
        ([4, 3, 2, 1], [1, 1, 0, 1], 0.25, 1.0),
        ([4, 3, 2, 1], [0, 1, 1, 1], 0.0, 0.0),
        ([2, 2, 1, 1], [1, 0, 1, 1], 0.1, 0.0),
        ([2, 2, 1, 1], [1, 1, 1, 0], 0.25, 1.0),
    ],
)
def test_the_share_that_can_be_answered_has_no_more_errors_than_allowed(
    scores: list[float], right: list[int], risk: float, expected: float
) -> None:
    assert coverage_at(Tally.of(scores, right), risk) == expected


def conclusion(path: Path, *options: str) -> dict[str, Any]:
    lines = run("uncertainty", path, "--estimators", "stated,modal_share", "--json", *options).json
    [found] = [line["conclusion"] for line in lines if "conclusion" in line]
    return dict(found)


def test_a_graded_log_ends_with_what_its_accuracy_and_confidence_are(tmp_path: Path) -> None:
    answers = {f"a{number}": ["x", "x", "y"] for number in range(6)}
    answers |= {f"b{number}": ["x", "y", "z", "z"] for number in range(6)}
    rows = [
        {
            "question": name,
            "answers": texts,
            "confidence": 0.75,
            "grades": {"match": ["C" if text == "x" else "I" for text in texts]},
        }
        for name, texts in answers.items()
    ]
    path = written(tmp_path / "a.json", rows)
    found = conclusion(path)
    assert (found["accuracy"], found["answers"]) == (18 / 42, 42), "of all graded answers"
    assert (found["sure_by"], found["sure"], found["risk"]) == ("stated", 0.75, 0.1)
    assert (found["best"], found["auroc"], found["answered"]) == ("modal_share", 1.0, 0.5)
    assert conclusion(path, "--risk", "0.5")["answered"] == 1.0
    assert "43 %" in run("uncertainty", path).stdout
    assert run("uncertainty", path, "--risk", "1.5").code == 2


def test_each_question_counts_by_its_own_first_grader(tmp_path: Path) -> None:
    rows = [
        {"question": f"{grader}{number}", "answers": ["x", "y"], "grades": {grader: ["C", "I"]}}
        for grader in ("match", "model")
        for number in range(2)
    ]
    path = written(tmp_path / "two_tasks.json", rows)
    assert conclusion(path)["answers"] == 8
    assert conclusion(path, "--correctness", "graded:model")["answers"] == 4


def test_one_kind_of_answer_is_said_to_be_no_basis(tmp_path: Path) -> None:
    rows = [{"question": name, "answers": ["x", "y"], "correct": True} for name in "ab"]
    found = conclusion(written(tmp_path / "a.json", rows))
    assert (found["accuracy"], found["best"], found["answered"]) == (1.0, None, None)
    assert found["undefined"]


@pytest.mark.parametrize(("wrong", "has_interval"), [(5, False), (20, True)])
def test_a_best_estimator_without_an_interval_is_not_called_no_better_than_guessing(
    wrong: int, has_interval: bool, tmp_path: Path
) -> None:
    rows = [
        {
            "question": str(number),
            "answers": ["x", "x", "y" if number < wrong else "x"],
            "correct": number >= wrong,
        }
        for number in range(40)
    ]
    said = run("uncertainty", written(tmp_path / "a.json", rows), "--estimators", "modal_share")
    assert (str(FEWEST_RESAMPLED) in said.stdout.split("\n")[0]) != has_interval
