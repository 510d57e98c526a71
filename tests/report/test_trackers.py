"""Results in Weights & Biases and MLflow: logged for real, on this disk, without a network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command import COMMAND, environment, run
from finished_run import write_run
from witness import calls

from selfreflect.records import Summary
from selfreflect.report.export import flat_results, flat_settings
from selfreflect.report.run_records import RunRecords
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
    """What `report` says."""
    done = own_process("report", str(path), "--log", tracker, "--json", folder=path.parent, **variables)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["strategy"] for line in done.stdout.splitlines()] == ["greedy", "../odd name"]
    assert "hunter2" not in done.stderr
    return done.stderr


ITEMS = [{"question": "Red?", "answers": ["Yes.", "No.", "Yes.", "Yes."], "summaries": {"s": "Yes."}}]


@pytest.mark.slow
def test_results_are_logged_where_they_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    import tiny

    model = tiny.save(tmp_path / "model", "llama", max_position_embeddings=400)
    (tmp_path / "items.json").write_text(json.dumps(ITEMS))
    assert run("import", "--items", tmp_path / "items.json", "--out", tmp_path / "r").code == 0
    store = tmp_path / "store"
    where = {"MLFLOW_TRACKING_URI": store.as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}
    judge = ["--judge", str(model), "--device", "cpu", "--measures", "selfreflect", "--no-controls", "--json"]
    logged_to = " ".join(["score", *judge, "--log", "mlflow"])
    for name, value in where.items():
        monkeypatch.setenv(name, value)
    sources = {source: (f"{logged_to} {source}", tmp_path) for source in ("--out r", "--items items.json")}
    scores = [done.lines[0]["score"] for done in calls(sources).values()]
    files = sorted(store.glob("*/*/metrics/s/score"))
    assert [float(file.read_text().split()[1]) for file in files] == scores
    names = {file.read_text() for file in store.glob("*/*/tags/mlflow.runName")}
    assert names == {"r", "items.json"}
    assert {file.read_text() for file in store.glob("*/*/params/scores.judge")} == {str(model)}
    broken = {**where, "MLFLOW_TRACKING_URI": "file:///proc/nowhere"}
    done = own_process("score", "--out", "r", *judge, "--log", "mlflow", folder=tmp_path, **broken)
    assert done.returncode == 0, "a tracker that fails costs no result"
    assert json.loads(done.stdout)["score"] == scores[0]
    assert "Warning: the results were not logged: " in done.stderr


def own_process(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command as a process of its own: both trackers change the process that they are in."""
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment(**variables),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
    )


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


def test_a_name_that_is_no_text_is_logged_with_escapes_or_refused(tmp_path: Path) -> None:
    path = write_run(tmp_path / "caf\udce9\x1b[31m", count=1)
    with Run.open(path, {}) as stored:
        stored.update_manifest(config={"scores": {"judge": "m\ud800"}})
    where = {"MLFLOW_TRACKING_URI": (tmp_path / "store").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}
    done = own_process("report", str(path), "--log", "mlflow", folder=tmp_path, **where)
    assert "logged caf\\udce9\\x1b[31m: " in done.stderr
    where = {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}
    done = own_process("report", str(path), "--log", "wandb", folder=tmp_path, **where)
    assert (done.returncode, "error: wandb: " in done.stderr) == (2, True), done.stderr


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
    for command in (["report", finished], ["run", "--out", finished], ["score", "--items", "none.json"]):
        refused = run(*command, "--log", tracker)
        assert refused.code == 2
        assert f".[{tracker}]" in refused.said


def test_names_of_strategies_make_safe_and_different_names(finished: Path) -> None:
    names = ["a b", "a_b", "a/b", "..", "ä" * 300]
    records = RunRecords("r", names, {}, {}, {}, {}, ())
    keys = {key.partition("/")[0] for key in flat_results(records)} - {"questions", "failures"}
    assert keys == {"a_b", "a_b-2", "a_b-3", "_", "_-2"}
    assert flat_settings(records) == {}
