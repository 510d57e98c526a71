"""Claims with labels: estimators of a claim, and calibrators that turn support into a chance to be right."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from command import run, written
from endpoint import endpoint_server
from fault_server import FaultServer, chat, choice

from selfreflect.uncertainty.claims.labelled import ClaimCalibrator
from selfreflect.uncertainty.claims.support import Claim
from selfreflect.uncertainty.guarantee import keep_threshold

KINDS = ("tower", "mill", "school", "market")


def towns(first: int, count: int, *, labelled: bool = True, seed: int = 0) -> list[dict[str, Any]]:
    """Answers that make each claim with a chance of its own, which is the chance that the claim is right."""
    draw = random.Random(seed)
    rows = []
    for number in range(first, first + count):
        claims = []
        answers = [f"Town {number} is a town." for _ in range(10)]
        for kind in KINDS:
            text, chance = f"The {kind} was built by masons.", draw.random()
            answers = [f"{answer} {text}" if draw.random() < chance else answer for answer in answers]
            claims.append({"text": text, "correct": draw.random() < chance})
        row = {"question": f"Describe town {number}.", "answers": answers}
        rows.append({**row, "claims": claims} if labelled else row)
    return rows


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("claims")
    file = written(folder / "labelled.json", towns(0, 60))
    path = folder / "calibrator.json"
    done = run("calibrate", file, "--claims", "words", "--method", "platt", "--save", path)
    assert done.code == 0, done.stderr
    return path


def test_estimators_of_claims_are_assessed_on_labels(tmp_path: Path) -> None:
    rows = towns(0, 60)
    rows[0]["claims"][0]["correct"] = None
    file = written(tmp_path / "labelled.json", [*rows, {"question": "Which?", "answers": ["None."]}])
    done = run("uncertainty", file, "--claims", "words", "--json")
    assert done.code == 0, done.stderr
    values = {line["id"]: line for line in done.json if "values" in line}
    assert len(values) == 4 * 60
    row = rows[5]
    for number, kind in enumerate(KINDS, 1):
        line = next(line for line in values.values() if line["id"].endswith(f"#{number}"))
        assert set(line["values"]) == {"support", "contradicted", "mentioned"}
        said = sum(f"The {kind} " in answer for answer in row["answers"])
        shares = [line["values"]["support"] for line in values.values()][20 + number - 1]
        assert shares == said / 10
    [auroc] = [
        line["measures"]["auroc"]["value"]
        for line in done.json
        if line.get("estimator") == "support" and "measures" in line
    ]
    assert auroc > 0.75


def test_labels_of_claims_and_answers_travel_into_a_run(tmp_path: Path) -> None:
    rows = [{**row, "correct": number % 3 > 0} for number, row in enumerate(towns(0, 30))]
    file = written(tmp_path / "labelled.json", rows)
    assert run("import", "--items", file, "--out", tmp_path / "run").code == 0
    for options in (("--claims", "words"), ()):
        of_file, of_run = (
            [line["correct"] for line in run("uncertainty", source, *options, "--json").json if "id" in line]
            for source in (file, tmp_path / "run")
        )
        assert of_file == of_run
        assert {True, False} <= {label for entry in of_run for label in entry.values()}


def test_a_calibrator_of_claims_gives_their_chance_to_be_right(saved: Path, tmp_path: Path) -> None:
    fitted = json.loads(saved.read_text())
    assert (fitted["reader"], fitted["estimator"], fitted["samples"], fitted["n"]) == (
        "words",
        "support",
        [10],
        240,
    )
    unseen = towns(60, 40, seed=1)
    file = written(tmp_path / "unseen.json", unseen)
    done = run("claims", file, "--calibrator", saved, "--json")
    assert done.code == 0, done.stderr
    labels = [{claim["text"]: claim["correct"] for claim in row["claims"]} for row in unseen]
    pairs = [
        (claim["confidence"], right[claim["text"]])
        for line, right in zip(done.json, labels, strict=True)
        for claim in line["claims"]
        if claim["text"] in right
    ]
    confidences, correct = zip(*pairs, strict=True)
    # 160 claims: the standard error of their mean is .04
    assert sum(confidences) / len(pairs) == pytest.approx(sum(correct) / len(pairs), abs=0.12)
    high = [is_right for confidence, is_right in pairs if confidence > 0.6]
    low = [is_right for confidence, is_right in pairs if confidence < 0.4]
    assert sum(high) / len(high) > 0.6 > 0.4 > sum(low) / len(low)
    page = tmp_path / "claims.html"
    assert run("claims", file, "--calibrator", saved, "--output", page).code == 0
    assert "of claims with such a support are right" in page.read_text()
    line = done.json[0]
    assert line["expected_wrong"] == pytest.approx(sum(1 - claim["confidence"] for claim in line["claims"]))
    applied = run("calibrate", file, "--claims", "words", "--apply", saved, "--json")
    assert applied.code == 0, applied.stderr
    assert {line["answer"] for line in applied.json} == set(labels[0])


def test_a_calibrator_of_claims_is_bound_to_reader_questions_and_answers(saved: Path, tmp_path: Path) -> None:
    same = written(tmp_path / "same.json", towns(0, 3))
    assert run("claims", same, "--calibrator", saved).code == 2
    unseen = written(tmp_path / "unseen.json", towns(70, 3))
    other = run("claims", unseen, "--reader", "embedding", "--calibrator", saved)
    assert (other.code, other.stdout) == (2, "")
    assert run("calibrate", unseen, "--apply", saved).code == 2
    answers = written(tmp_path / "answers.json", [{"question": f"Q{n}", "answers": ["a", "b"]} for n in "xy"])
    assert run("serve", "--calibrator", saved).code == 2
    for command, option in (("calibrate", "--estimator"), ("uncertainty", "--estimators")):
        assert run(command, unseen, "--claims", "words", option, "entropy").code == 2
    fewer = run("claims", answers, "--calibrator", saved)
    assert (fewer.code, "10 answers, not 2" in fewer.stderr) == (0, True)


@pytest.mark.parametrize(
    "rows",
    [
        [{"question": "Q", "answers": ["A b c."]}],
        [{"question": "Q", "answers": ["A b c."], "claims": [{"text": "A b c."}]}],
        [{"question": "Q", "answers": ["A b c."], "claims": "A b c."}],
        [{"question": "Q", "answers": ["A b c."], "claims": [{"text": "A.", "correct": "perhaps"}]}],
        [{"question": "Q", "answers": ["A."], "claims": [{"text": "A.", "correct": x} for x in (0, 1)]}],
    ],
)
def test_files_without_labelled_claims_are_refused(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    done = run("calibrate", written(tmp_path / "file.json", rows), "--claims", "words")
    assert (done.code, done.stdout) == (2, "")


def test_kept_claims_are_all_right_as_often_as_promised() -> None:
    """Of 9 questions and 90 % the highest wrong score counts, and of 8 none is high enough."""
    scores, labels = [0.1 * number for number in range(9)], [0.0] * 9
    groups = list(map(str, range(9)))
    assert keep_threshold(scores, labels, groups, 0.9) == scores[8]
    assert keep_threshold(scores, labels, groups, 0.5) == scores[4]
    assert keep_threshold(scores[:8], labels[:8], groups[:8], 0.9) == math.inf
    assert keep_threshold(scores, [1.0] * 9, groups, 0.9) == -math.inf
    # of each question its highest wrong claim
    assert keep_threshold([0.1, 0.7, 0.3, 0.9], [0.0, 0.0, 0.0, 1.0], list("aabb"), 0.5) == 0.7


def test_claims_that_are_kept_are_named(tmp_path: Path) -> None:
    file = written(tmp_path / "labelled.json", towns(0, 60))
    path = tmp_path / "calibrator.json"
    done = run("calibrate", file, "--claims", "words", "--keep", "0.6", "--save", path, "--json")
    assert done.code == 0, done.stderr
    [line] = [line for line in done.json if "keep" in line]
    assert (line["n"], line["keep"]["samples"]) == (60, 10)
    found = run("claims", written(tmp_path / "unseen.json", towns(60, 5)), "--calibrator", path, "--json")
    for claim in (claim for row in found.json for claim in row["claims"]):
        assert claim["kept"] == (claim["support"] > line["keep"]["threshold"])
    fewer = [{**row, "answers": row["answers"][:4]} for row in towns(60, 2)]
    assert run("claims", written(tmp_path / "fewer.json", fewer), "--calibrator", path).code == 2
    calibrator = ClaimCalibrator.load(path, "words")
    for unread, is_kept in (((), True), ((None,), None)):  # fitted on claims read in all answers
        claim = Claim("A.", (*unread, *["says"] * (10 - len(unread))))  # type: ignore[arg-type]
        assert calibrator.rate(claim).is_kept is is_kept
    for refused in (["--keep", "0.99"], ["--keep", "1"], ["--keep", "0"], ["--keep=-1"], ["--keep", "nan"]):
        assert run("calibrate", file, "--claims", "words", *refused, "--save", tmp_path / "x").code == 2
    answers = [{"question": f"{n}?", "answers": ["1", "1"], "gold": str(n % 2)} for n in range(60)]
    plain = written(tmp_path / "plain.json", answers)
    assert run("calibrate", plain).code == 0
    assert run("calibrate", plain, "--keep", "0.5").code == 2


def test_the_endpoint_gives_claims_a_calibrated_confidence(saved: Path) -> None:
    [row] = towns(90, 1, labelled=False)
    texts = row["answers"]
    calibrator = ClaimCalibrator.load(saved, "words")
    with (
        FaultServer(lambda call: chat(*map(choice, texts[: call.n]))) as upstream,
        endpoint_server(
            upstream=upstream.url, names=["m"], num_answers=10, claims_calibrator=calibrator
        ) as client,
    ):

        def claims_about(question: str) -> tuple[list[dict[str, Any]], list[str]]:
            turns = [{"role": "user", "content": question}]
            options = {"claims": True, "reflect": "always"}
            belief = client.chat(messages=turns, selfreflect=options).json()["selfreflect"]
            return belief["claims"], belief["notes"]

        claims, _ = claims_about("Describe town 90.")
        known, notes = claims_about("Describe town 3.")
    assert claims
    curve = calibrator.saved.calibrator
    for claim in claims:
        assert claim["confidence"] == pytest.approx(float(curve([claim["support"]])[0]))
    assert {claim["confidence"] for claim in known} == {None}
    assert any("not calibrated" in note for note in notes)
