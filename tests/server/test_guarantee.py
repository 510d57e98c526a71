"""What the endpoint guarantees of the answers that it shows, over a real socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import saved_calibrator
from command import run
from endpoint import endpoint_server

from selfreflect.models.base import Request
from selfreflect.server.belief import load_calibrator
from selfreflect.uncertainty.calibrator_file import digests
from selfreflect.uncertainty.guarantee import WINDOW, upper_bound
from selfreflect.uncertainty.question import AnsweredQuestion

GUARANTEE = msgspec.structs.replace(
    saved_calibrator.GUARANTEE,
    threshold=0.75,
    answered=80,
    bound=upper_bound(1, 80, 0.95),
    coverage=80 / 130,
    grid=(0.75, 0.5),
    samples=4,
    model="scripted",
    scores=tuple([0.25] * 20 + [0.5] * 30 + [0.75] * 30 + [1.0] * 50),
)
SAVED: dict[str, Any] = {
    "y": (0.1, 0.9),
    "questions": digests([AnsweredQuestion(id="1", text="Seen before?")]),
    "guarantee": GUARANTEE,
}
SURE, SPLIT = ["Ankara", "Ankara.", "ankara", "Ankara"], ["Ankara", "Izmir", "Bursa", "ankara"]


def cities(request: Request) -> list[str]:
    """Agree on answers unless the question is hard."""
    return SPLIT if "hard" in request.messages[-1].content else SURE


def written(tmp_path: Path, **changes: Any) -> Path:
    return saved_calibrator.write_saved(tmp_path, **{**SAVED, **changes})


@pytest.mark.parametrize("action", ["abstain", "hedge"])
def test_what_is_shown_is_guaranteed_and_the_rest_is_not(tmp_path: Path, action: str) -> None:
    calibrator = load_calibrator(written(tmp_path))
    with endpoint_server(cities, calibrator=calibrator, when_unsure=action) as client:
        shown = client.chat("An easy one?").json()
        unsure = client.chat("A hard one?").json()
        known = client.chat("Seen before?").json()["selfreflect"]
        page = client.http.get("/metrics").text
    belief = shown["selfreflect"]
    assert belief["guarantee"] == {"risk": 0.1, "confidence": 0.95, "n": 130, "answer": "Ankara"}
    assert (belief["action"], belief["no_guarantee"]) == (None, None)
    below = unsure["selfreflect"]
    assert (below["guarantee"], below["no_guarantee"], below["action"]) == (None, "below", action)
    assert below["confidence"] == pytest.approx(0.5), "which alone, above --below, would be shown"
    assert (known["guarantee"], known["no_guarantee"]) == (None, "known_question")
    assert 'selfreflect_guaranteed_total{guarantee="holds"} 1.0' in page
    assert 'selfreflect_guaranteed_total{guarantee="below"} 1.0' in page
    assert "selfreflect_guarantee_applies 1.0" in page
    assert "selfreflect_answers_total 12.0" in page


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"selfreflect": {"num_answers": 3}}, "other_number"),
        ({"selfreflect": {"confidence": "split_half"}}, "other_confidence"),
        ({"temperature": 0.0, "top_p": 0.5}, None),  # of the summary: the answers are drawn as ever
    ],
)
def test_another_way_to_answer_is_not_covered(
    tmp_path: Path, options: dict[str, Any], reason: str | None
) -> None:
    drawn = []

    def noted(request: Request) -> list[str]:
        if request.n > 1:
            drawn.append(request.sampling.temperature)
        return cities(request)

    with endpoint_server(noted, calibrator=load_calibrator(written(tmp_path))) as client:
        belief = client.chat("An easy one?", **options).json()["selfreflect"]
    assert drawn == [1.0]
    assert (belief["guarantee"] is None, belief["no_guarantee"]) == (reason is not None, reason)


def test_another_model_is_not_covered(tmp_path: Path) -> None:
    other = msgspec.structs.replace(GUARANTEE, model="smollm2")
    with endpoint_server(cities, calibrator=load_calibrator(written(tmp_path, guarantee=other))) as client:
        belief = client.chat("An easy one?").json()["selfreflect"]
    assert (belief["guarantee"], belief["no_guarantee"]) == (None, "other_model")


def test_drift_ends_the_guarantee_and_says_so(tmp_path: Path) -> None:
    with endpoint_server(cities, calibrator=load_calibrator(written(tmp_path))) as client:
        for number in range(WINDOW):
            belief = client.chat(f"An easy one, {number}?").json()["selfreflect"]
            if number < WINDOW - 1:
                assert belief["guarantee"]
        page = client.http.get("/metrics").text
    assert (belief["guarantee"], belief["no_guarantee"]) == (None, "drift")
    assert any("no longer applies" in note for note in belief["notes"])
    assert "selfreflect_guarantee_applies 0.0" in page
    assert f"selfreflect_score_distance {80 / 130:.10}"[:35] in page


@pytest.mark.parametrize(
    "arguments",
    [
        "--below 0.3",
        "--at-least 3",
        "--num-answers 9",
        "--classes jaccard:0.5",
        "--model json:loads",
        "--temperature 0.7",
        "--top-p 0.5",
    ],
)
def test_settings_that_void_the_guarantee_are_refused(tmp_path: Path, arguments: str) -> None:
    model = () if "--model" in arguments else ("--model", "json:dumps")
    saved = msgspec.structs.replace(GUARANTEE, model="json:dumps", temperature=1.0, top_p=0.9)
    path = written(tmp_path, guarantee=saved)
    outcome = run("serve", "--port", 0, "--calibrator", path, *model, *arguments.split())
    assert outcome.code == 2, outcome.said
