"""Results in Weights & Biases and MLflow: logged for real, on this disk, without a network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command import COMMAND, environment, run
from finished_run import write_run

from selfreflect.records import Summary
from selfreflect.report.run_records import RunRecords
from selfreflect.report.trackers import flat_results, flat_settings
from selfreflect.store.run import Run


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    path = write_run(tmp_path / "garden", count=2, informed=True)
    with Run.open(path, {}) as stored:
        stored.append(Summary(question_id="q0", name="../odd name", text="x"))
        config = {"judge": "tiny", "base_url": "https://me:hunter2@host/v1", "budget": None}
        stored.update_manifest(config={"scores": config}, models={"scores": {"revision": "r1"}})
    return path


def logged(path: Path, tracker: str, **variables: str) -> str:
    """What the command says as a process of its own: both trackers change the process that they are in."""
    done = subprocess.run(
        [*COMMAND, "report", str(path), "--log", tracker, "--json"],
        env=environment(**variables),
        cwd=path.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["strategy"] for line in done.stdout.splitlines()] == ["greedy", "../odd name"]
    assert "hunter2" not in done.stderr
    return done.stderr


def test_mlflow_gets_numbers_settings_and_the_name(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    store = tmp_path / "store"
    said = logged(finished, "mlflow", MLFLOW_TRACKING_URI=store.as_uri(), MLFLOW_ALLOW_FILE_STORE="true")
    assert "logged garden: run " in said
    metrics = {
        "/".join(file.parts[-2:]): float(file.read_text().split()[1])
        for file in store.glob("*/*/metrics/*/*")
    }
    assert metrics["greedy/score"] == 0.375
    assert (metrics["greedy/recovered"], metrics["greedy/recovered_n"]) == (0.6, 2)
    assert metrics["_odd_name/median_words"] == 1
    [judge] = store.glob("*/*/params/scores.judge")
    assert judge.read_text() == "tiny"
    [name] = store.glob("*/*/tags/mlflow.runName")
    assert name.read_text() == "garden"
    assert not any(b"hunter2" in file.read_bytes() for file in store.rglob("*") if file.is_file())


def test_wandb_gets_a_run_of_its_own(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    said = logged(finished, "wandb", WANDB_MODE="offline", WANDB_DIR=str(tmp_path), WANDB_SILENT="true")
    assert "logged garden: " in said
    [file] = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    data = file.read_bytes()
    for part in (
        b"garden",
        b"greedy/score_n",
        b"greedy/recovered",
        b"scores.judge",
        b"scores.model.revision",
    ):
        assert part in data
    assert b"hunter2" not in data


@pytest.mark.parametrize("tracker", ["wandb", "mlflow"])
def test_without_the_package_the_extra_is_named(
    finished: Path, tracker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, tracker, None)
    refused = run("report", finished, "--log", tracker)
    assert refused.code == 2
    assert f".[{tracker}]" in refused.said


def test_names_of_strategies_make_safe_and_different_names(finished: Path) -> None:
    names = ["a b", "a_b", "a/b", "..", "ä" * 300]
    records = RunRecords("r", names, {}, {}, {}, {}, ())
    keys = {key.partition("/")[0] for key in flat_results(records)} - {"questions", "failures"}
    assert keys == {"a_b", "a_b-2", "a_b-3", "_", "_-2"}
    assert flat_settings(records) == {}
