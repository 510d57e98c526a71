"""The comparison and the writer of the SaySelf experiment in ``benchmarks/``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from selfreflect.sayself.rationales import find_problem

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def _on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])


def lines(*confidences: float | None) -> dict[str, dict[str, Any]]:
    """Right and wrong in turns."""
    values = enumerate(confidences)
    return {str(place): {"confidence": value, "correct": place % 2 == 0} for place, value in values}


def test_a_difference_is_paired_averaged_over_seeds_and_of_readable_confidences() -> None:
    from sayself import arms_of, brier, difference, filled

    sure, unsure = lines(*[1.0, 0.0] * 4), lines(*[0.5] * 8)
    assert difference([sure], unsure, brier) == "-0.250 [-0.250, -0.250], n 8"
    assert difference([sure, unsure], unsure, brier).startswith("-0.125 [")
    assert difference([unsure], None, brier).startswith("+0.000 [")  # always the own accuracy
    silent = lines(*[1.0, None] * 4)
    assert difference([silent], unsure, brier) == "– (4 questions)"
    assert difference([filled(silent)], unsure, brier).endswith("n 8")
    arms = arms_of({"full-0": sure, "full-1": unsure, "full-0-brier": sure, "constant (base rate)": sure})
    assert {name: len(seeds) for name, seeds in arms.items()} == {"full": 2, "full-brier": 1}


def test_the_writer_names_what_the_clusters_add_to_the_question() -> None:
    from sayself_writer import write

    prompt = (
        'Somebody was asked "What does Ida Berg speak?" and wavered between these answers.\n'
        '1. "Ida Berg speaks French at home" (share 50%)\n'
        '2. "In 1990 Ida Berg spoke french, then Dutch" (share 30%)\n'
        '3. "Ida Berg speaks Danish" (share 20%)'
    )
    [text] = write([{"role": "user", "content": prompt}])
    assert text == "I do not know whether it is French or Dutch."
    assert find_problem(text) == ""
