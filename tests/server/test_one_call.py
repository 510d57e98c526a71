"""Answers of one call, with the confidence that a calibrator reads off its tokens."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command import run, written
from endpoint import endpoint_server
from saved_calibrator import GUARANTEE, write_saved
from scripted import Scripted

from selfreflect.logprobs import AnswerTokens
from selfreflect.models.base import Completion, Reply, Request
from selfreflect.server.belief import LoadedCalibrator, load_calibrator

PROBABILITIES = {"high": 0.9, "close": 0.5, "low": 0.1}


def reply(request: Request) -> list[str] | Reply:
    """Answer with the probability that the question names; several answers all agree."""
    if not request.logprobs:
        return ["Ankara"] * 4
    text = request.messages[-1].content
    value = next((value for name, value in PROBABILITIES.items() if f"{name}?" in text), None)
    tokens = "not_returned" if value is None else AnswerTokens(("Ankara",), (math.log(value),))
    return Reply(completions=(Completion(text="Ankara", finish="stop", tokens=1, logprobs=tokens),))


def saved(tmp_path: Path, **changes: Any) -> LoadedCalibrator:
    of_one_call: dict[str, Any] = {"estimator": "normalised_prob", "samples": (1,), **changes}
    return load_calibrator(write_saved(tmp_path, **of_one_call), one_call=True)


def test_more_is_drawn_only_where_it_could_change_the_action(tmp_path: Path) -> None:
    script = Scripted(reply)
    settings = {"when_unsure": "abstain", "below": 0.45, "one_call": True, "band": 0.1}
    with endpoint_server(generator=script, calibrator=saved(tmp_path), **settings) as client:
        bodies = {name: client.chat(f"How likely, {name}?").json() for name in PROBABILITIES}
        untold = client.chat("No tokens?").json()["selfreflect"]
    calls = {name: body["selfreflect"]["cost"]["completions"] for name, body in bodies.items()}
    assert calls == {"high": 1, "close": 6, "low": 1}
    sure, close, unsure = (bodies[name]["selfreflect"] for name in PROBABILITIES)
    assert bodies["high"]["choices"][0]["message"]["content"] == "Ankara"
    assert (sure["strategy"], sure["num_answers"], sure["action"]) == ("one_call", 1, None)
    assert (sure["confidence"], sure["confidence_kind"], sure["calibrated"]) == (
        pytest.approx(0.9),
        "normalised_prob",
        True,
    )
    assert (close["confidence"], close["confidence_kind"], close["num_answers"]) == (1, "modal_share", 4)
    assert (unsure["action"], unsure["confidence"]) == ("abstain", pytest.approx(0.1))
    assert untold["num_answers"] == 4, "without log-probabilities there is no one-call confidence"
    assert len(untold["notes"]) > len(close["notes"]), "it says why"


def test_without_an_action_nothing_more_is_drawn_and_requests_may_still_want_it(tmp_path: Path) -> None:
    with endpoint_server(generator=Scripted(reply), calibrator=saved(tmp_path), one_call=True) as client:
        alone = client.chat("How likely, close?").json()["selfreflect"]
        drawn = client.chat("How likely, close?", selfreflect={"num_answers": 3}).json()["selfreflect"]
    assert (alone["num_answers"], drawn["num_answers"]) == (1, 3)


def test_a_guarantee_of_one_call_is_carried_by_it(tmp_path: Path) -> None:
    settings = {"when_unsure": "abstain", "below": 0.4, "one_call": True}
    calibrator = saved(tmp_path, guarantee=GUARANTEE)
    with endpoint_server(generator=Scripted(reply), calibrator=calibrator, **settings) as client:
        sure = client.chat("How likely, high?").json()["selfreflect"]
        unsure = client.chat("How likely, low?").json()["selfreflect"]
        untold = client.chat("No tokens?").json()["selfreflect"]
    assert sure["guarantee"] == {"risk": 0.1, "confidence": 0.95, "n": 130, "answer": "Ankara"}
    assert (unsure["guarantee"], unsure["no_guarantee"], unsure["action"]) == (None, "below", "abstain")
    assert unsure["cost"]["completions"] == 1
    assert (untold["guarantee"], untold["no_guarantee"], untold["action"]) == (None, "no_value", "abstain")
    assert untold["cost"]["completions"] == 1, "no other answers are guaranteed either"
    assert untold["notes"]


def test_what_a_client_cuts_carries_no_guarantee(tmp_path: Path) -> None:
    def cut(request: Request) -> Reply:
        whole = reply(request)
        assert isinstance(whole, Reply)
        [completion] = whole.completions
        return msgspec.structs.replace(
            whole, completions=(msgspec.structs.replace(completion, finish="length"),)
        )

    calibrator = saved(tmp_path, guarantee=GUARANTEE)
    with endpoint_server(generator=Scripted(cut), calibrator=calibrator, one_call=True) as client:
        limited = client.chat("How likely, high?", max_tokens=1).json()["selfreflect"]
        as_labelled = client.chat("How likely, high?").json()["selfreflect"]
    assert (limited["guarantee"], limited["no_guarantee"]) == (None, "cut_off")
    assert as_labelled["guarantee"]["risk"] == 0.1


FITTED: dict[str, dict[str, Any]] = {
    "epr": {"x": (-2.0, 0.0)},
    "wepr": {"method": "platt", "x": (1.0, 0.0), "y": (), "weights": (math.log(9), *[0.0] * 10)},
}


@pytest.mark.parametrize("estimator", FITTED)
@pytest.mark.parametrize(("ranks", "drawn"), [(5, 1), (3, 4)])
def test_one_call_reads_as_many_likely_tokens_as_the_calibrator(
    tmp_path: Path, ranks: int, drawn: int, estimator: str
) -> None:
    """The entropy of a longer list is larger: another score than that which was calibrated."""

    def ranked(request: Request) -> list[str] | Reply:
        if not request.logprobs:
            return ["Ankara"] * 4
        top = (tuple(-1.0 - place for place in range(ranks)),)
        tokens = AnswerTokens(("Ankara",), (-1.0,), top=top)
        return Reply(completions=(Completion(text="Ankara", finish="stop", tokens=1, logprobs=tokens),))

    script = Scripted(ranked)
    calibrator = saved(tmp_path, estimator=estimator, ranks=5, **FITTED[estimator])
    with endpoint_server(generator=script, calibrator=calibrator, one_call=True) as client:
        belief = client.chat("Which?").json()["selfreflect"]
    assert script.requests[0].top_logprobs == 5
    assert belief["num_answers"] == drawn
    if estimator == "wepr" and drawn == 1:
        assert belief["confidence"] == pytest.approx(0.9)


def test_one_call_needs_a_calibrator_of_one_answer(tmp_path: Path) -> None:
    records = [
        {
            "id": str(number),
            "question": f"Capital {number}?",
            "answers": ["Oslo", "Bern"],
            "logprobs": [[-0.1 * (number % 7)], [-0.2]],
            "gold": "Oslo" if number % 3 else "Rome",
        }
        for number in range(80)
    ]
    path, one, two = written(tmp_path / "a.json", records), tmp_path / "one.json", tmp_path / "two.json"
    fit = ("calibrate", path, "--estimator", "normalised_prob")
    assert run(*fit, "--num-answers", 1, "--save", one).code == 0
    assert run(*fit, "--save", two).code == 0
    assert load_calibrator(one, one_call=True).saved.samples == (1,)
    serve = ("serve", "--port", 0, "--model", "json:dumps", "--one-call")
    assert run(*serve).code == 2
    assert run(*serve, "--calibrator", two).code == 2
    assert run(*serve[:-1], "--calibrator", one).code == 2
