"""A calibrator on disk: what is kept, and what it must not be applied to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import saved_calibrator

from selfreflect.errors import ConfigError, DataError
from selfreflect.uncertainty.assess import Assessment, Method
from selfreflect.uncertainty.calibrator_file import (
    fit_file,
    read_calibrator,
    write_calibrator,
)
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.question import AnsweredQuestion

SAVED = msgspec.structs.replace(saved_calibrator.SAVED, x=(0.2, 0.6), y=(0.1, 0.9))
QUESTIONS = [
    AnsweredQuestion(
        id=f"q{number}",
        text=f"City {number}?",
        answers=("a", "a") if number % 3 else ("a", "b", "c"),
        gold=("a",) if number % 2 else ("b",),
    )
    for number in range(9)
]


def assessed(questions: list[AnsweredQuestion]) -> Assessment:
    return Assessment(questions, ["modal_share"], Method(ClassRule(), correctness=("exact",)))


def test_a_fit_keeps_what_its_score_is_made_of(tmp_path: Path) -> None:
    unlabelled = AnsweredQuestion(id="x", answers=("a",))
    saved = fit_file(assessed([*QUESTIONS, unlabelled]), "modal_share", "exact", "isotonic", "exact")
    assert (saved.n, saved.samples, len(saved.questions)) == (9, (2, 3), 18)
    assert (saved.estimator, saved.similarity, saved.correctness) == ("modal_share", "jaccard", "exact")
    assert (saved.method, saved.model, saved.token_probability) == ("isotonic", "", False)
    path = tmp_path / "cal.json"
    path.write_text(write_calibrator(saved))
    again = read_calibrator(path)
    assert again == saved
    assert again.calibrator([0.1, 0.5, 1.0]).tolist() == saved.calibrator([0.1, 0.5, 1.0]).tolist()
    assert path.read_text().endswith("}\n")


@pytest.mark.parametrize(
    "change",
    [
        {"x": (0.2,), "y": (0.1,)},
        {"x": (0.2, 0.2), "y": (0.1, 0.1)},
        {"x": (0.2, 0.6), "y": (0.0, 1.0)},
        {"method": "platt", "x": (3.0, -1.0), "y": ()},
        {"method": "temperature", "x": (2.0,), "y": ()},
        {
            "method": "temperature",
            "x": (2.0,),
            "y": (),
            "estimator": "no_such_one",
        },  # refused by its name later
    ],
)
def test_sound_maps_are_read(tmp_path: Path, change: dict[str, Any]) -> None:
    saved = msgspec.structs.replace(SAVED, **change)
    (tmp_path / "cal.json").write_text(write_calibrator(saved))
    assert read_calibrator(tmp_path / "cal.json") == saved


@pytest.mark.parametrize(
    ("change", "method"),
    [
        ({"x": (0.6, 0.2)}, "isotonic"),
        ({"y": (-0.1, 0.9)}, "isotonic"),
        ({"y": (0.1, 1.1)}, "isotonic"),
        ({"y": (0.1,)}, "isotonic"),
        ({"x": (), "y": ()}, "isotonic"),
        ({"method": "platt", "y": ()}, None),
        ({"method": "platt", "x": (1.0,), "y": ()}, "platt"),
        ({"method": "temperature", "x": (0.0,), "y": ()}, "temperature"),
        ({"method": "temperature", "x": (1.0, 2.0), "y": ()}, "temperature"),
        ({"weights": (1.0, 2.0)}, "isotonic"),
    ],
)
def test_maps_that_are_none_are_refused(tmp_path: Path, change: dict[str, Any], method: str | None) -> None:
    (tmp_path / "cal.json").write_text(write_calibrator(msgspec.structs.replace(SAVED, **change)))
    if method is None:
        assert read_calibrator(tmp_path / "cal.json").x == (0.2, 0.6)
        return
    with pytest.raises(
        DataError, match=rf"cal\.json' is not a saved calibrator: its numbers do not form a {method} map"
    ):
        read_calibrator(tmp_path / "cal.json")


def test_a_token_s_probability_is_no_share_of_replies() -> None:
    assessment = assessed(QUESTIONS)
    SAVED.refuse_other_variant(assessment)
    by_token = msgspec.structs.replace(SAVED, estimator="p_true", token_probability=True)
    by_token.refuse_other_variant(assessment)
    by_share = msgspec.structs.replace(by_token, token_probability=False)
    with pytest.raises(ConfigError, match=r"a different variant of p_true.*: probability of the token True"):
        by_share.refuse_other_variant(assessment)
    assessment.by_replies = frozenset(["p_true"])
    by_share.refuse_other_variant(assessment)
    with pytest.raises(ConfigError, match=r"a different variant of p_true.*: share of True"):
        by_token.refuse_other_variant(assessment)
