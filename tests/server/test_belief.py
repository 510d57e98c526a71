"""Classes, entropy and confidence of sampled answers."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from pathlib import Path

import pytest

from selfreflect.errors import ConfigError
from selfreflect.server.belief import BeliefReader, Confidence, load_calibrator
from selfreflect.server.structured import read_objects
from selfreflect.uncertainty.calibrator_file import CalibratorFile, digests, write_calibrator
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.question import AnsweredQuestion

ANSWERS = ("Bob", "Ann.", "ann", "Cem", "Ann.")


def saved(path: Path, **changes: object) -> Path:
    fields = {
        "estimator": "modal_share",
        "classes": "exact",
        "class_order": "first",
        "similarity": "jaccard",
        "correctness": "exact",
        "method": "isotonic",
        "x": (0.0, 1.0),
        "y": (0.0, 0.5),
        "n": 9,
        "samples": (5,),
        "questions": digests([AnsweredQuestion(id="1", text="Seen before?")]),
        **changes,
    }
    path.write_text(write_calibrator(CalibratorFile(**fields)))  # type: ignore[arg-type]
    return path


def test_the_largest_class_comes_first_in_its_commonest_spelling() -> None:
    classes = BeliefReader(ClassRule()).read("none", "Who?", ANSWERS).classes
    assert [(one.text, one.share) for one in classes.shares] == [("Ann.", 0.6), ("Bob", 0.2), ("Cem", 0.2)]
    assert classes.labels == (1, 0, 0, 2, 0)
    assert classes.entropy == pytest.approx(-0.6 * math.log(0.6) - 0.4 * math.log(0.2))


def test_a_confidence_comes_with_its_kind_or_not_at_all() -> None:
    reader = BeliefReader(ClassRule())
    assert reader.kinds == ("modal_share", "split_half", "none")
    assert reader.read("modal_share", "Who?", ANSWERS).confidence == Confidence(0.6, "modal_share", 5)
    assert reader.read("none", "Who?", ANSWERS).confidence == Confidence(None, None, 5)
    alone = reader.read("split_half", "Who?", ("Ann",)).confidence
    assert (alone.value, alone.kind) == (None, None)
    assert "1 of at least 2 samples" in alone.notes[0]


def test_a_calibrator_speaks_for_its_own_estimator_and_new_questions(tmp_path: Path) -> None:
    calibrator = load_calibrator(saved(tmp_path / "cal.json"))
    reader = BeliefReader(ClassRule(), calibrator)
    assert reader.read("modal_share", "Who?", ANSWERS).confidence == Confidence(
        0.3, "modal_share", 5, calibrator.id
    )
    assert reader.read("split_half", "Who?", ANSWERS).confidence.calibrator_id is None
    seen = reader.read("modal_share", "Seen before?", ANSWERS).confidence
    assert (seen.value, seen.calibrator_id) == (0.6, None)
    fewer = reader.read("modal_share", "Who?", ANSWERS[:2]).confidence
    assert fewer.calibrator_id == calibrator.id
    assert "fitted on questions with 5 answers, not 2" in fewer.notes[0]


def test_a_calibrator_may_read_an_uncertainty(tmp_path: Path) -> None:
    path = saved(tmp_path / "cal.json", estimator="entropy", x=(-2.0, 0.0), y=(0.1, 0.9))
    reader = BeliefReader(ClassRule(), load_calibrator(path))
    assert "entropy" in reader.kinds
    assert reader.read("entropy", "Who?", ("Ann",) * 5).confidence.value == pytest.approx(0.9)
    seen = reader.read("entropy", "Seen before?", ("Ann",) * 5).confidence
    assert (seen.value, seen.kind) == (None, None)  # an entropy is no confidence


@pytest.mark.parametrize("changes", [{"estimator": "p_true", "model": "m"}, {"estimator": "perplexity"}])
def test_a_calibrator_that_needs_more_is_refused(tmp_path: Path, changes: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        load_calibrator(saved(tmp_path / "cal.json", **changes))


@pytest.mark.parametrize(("rule", "answer"), [("jaccard", "a"), ("same", "a" * 20_000)])
def test_what_is_slow_to_sort_does_not_hold_up_others(rule: str, answer: str) -> None:
    async def both() -> list[str]:
        reader = BeliefReader(ClassRule(rule))
        order: list[str] = []
        started = threading.Event()

        def slow() -> None:
            started.wait(200)
            order.append("slow")

        async def quick() -> None:
            order.append("quick")
            started.set()

        await asyncio.gather(reader.run([answer] * 2, slow), quick())
        return order

    assert asyncio.run(both()) == ["quick", "slow"]


def test_the_confidence_of_an_object_is_that_of_required_fields_of_any_name() -> None:
    schema = {
        "$ref": "#/$defs/invoice",
        "$defs": {"invoice": {"type": "object", "required": ["a/b", "~"], "properties": {"note": {}}}},
    }
    answers = [json.dumps({"a/b": 1, "~": min(number, 1), "note": str(number)}) for number in range(4)]
    asked = {"type": "json_schema", "json_schema": {"schema": schema}}
    reading = read_objects("Which?", answers, asked, ClassRule("exact"))
    assert reading.confidence.value == pytest.approx(3 / 4)
