"""Lines of JSON of an assessment, read back."""

from __future__ import annotations

import json

import pytest

from selfreflect.uncertainty.assess import Assessment, Method
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.output import json_lines
from selfreflect.uncertainty.question import AnsweredQuestion

QUESTIONS = [
    AnsweredQuestion(
        id=f"q{number}",
        answers=("likely a", "likely a") if number % 2 else ("b", "likely a"),
        gold=("likely a",) if number % 3 else ("c",),
        confidence=number / 10 if number else None,
    )
    for number in range(8)
]
METHOD = Method(ClassRule("exact"), correctness=("exact",))


@pytest.fixture(scope="module")
def assessment() -> Assessment:
    return Assessment(QUESTIONS, ["stated", "semantic_entropy_mc", "entropy"], METHOD)


def test_a_line_of_each_question_has_values_or_reasons(assessment: Assessment) -> None:
    lines = list(json_lines(assessment, {}))
    json.dumps(lines, allow_nan=False)
    first, last = lines[0], lines[7]
    assert {name: first[name] for name in ("id", "answer", "samples", "classes")} == {
        "id": "q0",
        "answer": "b",
        "samples": 2,
        "classes": "exact",
    }
    assert first["values"]["stated"] is None
    assert first["undefined"]["stated"] == {
        "reason": "no_confidence",
        "message": "the record has no confidence",
    }
    assert (last["values"]["stated"], last["values"]["entropy"]) == (0.7, 0.0)
    assert list(last["undefined"]) == ["semantic_entropy_mc"]
    assert (first["correct"], last["correct"]) == ({"exact": False}, {"exact": True})
    assert "hedge" not in first
    assert last["hedge"] == {"phrase": "likely", "low": 0.65, "middle": 0.7, "high": 0.75}
    cmfg, counts = lines[8:]
    assert counts["counts"] == {"right": 3, "labelled": 8, "wrong_with_gold": 0}
    assert (counts["correctness"], counts["conclusion"]["answers"]) == ("exact", 8)
    assert (set(cmfg), cmfg["n"]) == ({"cmfg", "n"}, 7)
