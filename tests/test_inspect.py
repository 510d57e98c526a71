"""The scorer for inspect_ai: its measures, and in an environment that has it an evaluation and its log."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from selfreflect.errors import MissingExtraError
from selfreflect.inspect import GradedAnswer, confidence, measured
from selfreflect.uncertainty.reading import read_answered_questions

OZ = "Capital of Oz?"
EPOCHS = {"sure": ("Ruby", "Ruby.", "ruby", "Ruby"), "unsure": ("Ruby", "Emerald", "Silver", "Ruby")}


def graded(samples: int) -> list[GradedAnswer]:
    return [
        GradedAnswer(f"{name} {number}", OZ, answer, "C" if name == "sure" else "I")
        for number in range(samples)
        for name, answers in EPOCHS.items()
        for answer in answers
    ]


def test_measures_of_epochs() -> None:
    found = measured(graded(5))
    assert found["modal_share"] == pytest.approx((1 + 0.5) / 2)
    assert found["classes"] == pytest.approx((1 + 3) / 2)
    assert (found["modal_accuracy"], found["auroc"], found["answered"]) == (0.5, 1.0, 0.5)
    assert found["ece"] == pytest.approx(0.25)


def test_measures_without_verdicts_are_undefined() -> None:
    found = measured(answer._replace(grade="P") for answer in graded(2))
    assert (found["modal_share"], found["auroc"], found["ece"], found["answered"]) == (0.75, None, None, None)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.scorer", None)
    with pytest.raises(MissingExtraError):
        confidence(None)


def test_an_evaluation_reports_what_its_log_says(tmp_path: Path) -> None:
    inspect_ai = pytest.importorskip("inspect_ai")
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import includes

    texts = iter("Ruby Ruby. Emerald Ruby".split())

    def output(*_: object) -> ModelOutput:
        made = ModelOutput.from_content("mockllm/model", next(texts))
        made.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return made

    task = inspect_ai.Task(
        dataset=[Sample(id="oz", input=OZ, target="Ruby")], scorer=confidence(includes()), epochs=4
    )
    model = get_model("mockllm/model", custom_outputs=output)
    [log] = inspect_ai.eval(task, model=model, display="none", log_dir=str(tmp_path))
    metrics = {name: value.value for score in log.results.scores for name, value in score.metrics.items()}
    assert metrics["accuracy"] == metrics["modal_share"] == 0.75
    [question] = read_answered_questions(log.location).questions
    verdicts = [right for _, right in question.grades["selfreflect"]]
    assert (len(question.answers), sum(map(bool, verdicts))) == (4, 3)
