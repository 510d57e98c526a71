"""Comparison of trained models with baselines, and what reflections tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted import Scripted

from selfreflect.models.base import Request
from selfreflect.train.sayself.clusters import Cluster, ClusteredQuestion
from selfreflect.train.sayself.comparison import MethodComparison, adapter_asker, faithfulness_table
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


def compare(folder: Path, *names: str, samples: int = 2) -> tuple[MethodComparison, Models]:
    scripts = {None: direct, "full-0": doubting, "group-0": silent, "rtuning-0": sure}
    models = Models(scripts)  # type: ignore[arg-type]
    comparison = MethodComparison(QUESTIONS, Correctness("exact"))
    comparison.ask([adapter(folder, name) for name in names], None, models, samples)
    return comparison, models


def lines_of(comparison: MethodComparison) -> dict[str, dict[str, Any]]:
    return {line["method"]: line for line in comparison.lines()}


def test_every_method_states_a_confidence_for_every_question(tmp_path: Path) -> None:
    comparison, _ = compare(tmp_path, "full-0", "group-0", "rtuning-0")
    assert [row.method for row in comparison.rows] == [
        "agreement of samples (SC)",
        "asked directly (DP)",
        "constant (base rate)",
        "isotonic (agreement of samples (SC))",
        "length only (isotonic)",
        "full-0",
        "group-0",
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
    assert not lines["group-0"]["baseline"]
    assert lines["group-0"]["brier"]["value"] == pytest.approx(0.01)
    assert lines["full-0"]["without_confidence"] == {}


@pytest.mark.parametrize(("samples", "requests"), [(2, 2 * NUMBER), (0, NUMBER)])
def test_models_that_reflect_draw_answers_of_their_own(tmp_path: Path, samples: int, requests: int) -> None:
    _, models = compare(tmp_path, "full-0", "group-0", samples=samples)
    assert len(models.opened["full-0"].requests) == requests
    assert len(models.opened["group-0"].requests) == NUMBER  # which states no reflection


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


def test_scores_of_a_judge_are_counted_beside_the_reflections_that_it_saw() -> None:
    table = faithfulness_table({"mine": (4, [0.5, 0.5, 0.5]), "none": (2, [])}, "judge")
    assert "judge" in table.title
    assert table.rows == (("mine", 4, 3, 0.5, "0.50 to 0.50"), ("none", 2, 0, None, None))
