"""``benchmarks/gpu.py``: what it has measured on a machine that can be had for minutes is never lost."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from script import load_benchmark

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "gpu.py"


@pytest.fixture
def gpu():
    return load_benchmark("gpu")


def writes(text: str) -> str:
    return f"import sys; print({text!r}, flush=True)"


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        ("import time; time.sleep(60)", r"longer than 2 s"),
        ("import os; os.kill(os.getpid(), 11)", r"exit status -11"),
        ("raise MemoryError('of the card')", r"exit status 1: (?s:.*)MemoryError: of the card$"),
    ],
)
def test_a_part_that_hangs_or_crashes_keeps_its_results_and_lets_the_next_one_run(
    gpu, tmp_path, monkeypatch, capsys, then, reason
) -> None:
    row = json.dumps({"name": "x", "value": 1, "unit": "s", "target": None, "relation": "<=", "ok": None})
    commands = {"card": f"{writes(row)}; {then}", "paths": writes(row)}
    run_part = gpu.run_part
    monkeypatch.setattr(
        gpu, "run_part", lambda command, limit: run_part([sys.executable, "-c", commands[command[3]]], limit)
    )
    monkeypatch.setitem(gpu.PARTS, "card", gpu.PARTS["card"]._replace(seconds=2))
    report = {"run": {}, "parts": [], "results": []}
    out = tmp_path / "gpu.json"
    gpu.run_parts(["card", "paths"], report, out, argparse.Namespace(seconds=60, smoke=False))
    written = json.loads(out.read_text())
    assert [result["part"] for result in written["results"]] == ["card", "paths"]
    first, second = written["parts"]
    assert re.search(reason, first["stopped"])
    assert second["stopped"] is None
    assert "STOPPED" in gpu.table(written)


def test_no_part_starts_once_the_time_for_all_is_over(gpu, tmp_path) -> None:
    report = {"run": {}, "parts": [], "results": []}
    gpu.run_parts(["card"], report, tmp_path / "gpu.json", argparse.Namespace(seconds=0, smoke=True))
    assert (
        "the 0 s of --seconds were over"
        in json.loads((tmp_path / "gpu.json").read_text())["parts"][0]["stopped"]
    )


def test_missing_packages_come_from_the_wheels_of_the_kit(gpu, tmp_path, monkeypatch) -> None:
    (tmp_path / "kit" / "wheels").mkdir(parents=True)
    monkeypatch.setattr(gpu, "KIT", tmp_path / "kit")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.setattr(
        gpu, "find_spec", lambda name: name == "jinja2" or list(tmp_path.glob(f"*/{name}")) or None
    )
    with pytest.raises(SystemExit, match=r"msgspec, psutil, markupsafe cannot be imported.* make gpu-kit"):
        gpu.provide_packages(tmp_path / "site")
    for name in ("msgspec", "psutil", "MarkupSafe"):
        with zipfile.ZipFile(tmp_path / "kit" / "wheels" / f"{name}-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name.lower()}/__init__.py", "")
    gpu.provide_packages(tmp_path / "site")
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == ["markupsafe", "msgspec", "psutil"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_names_smoke(gpu, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--out", str(tmp_path / "none.json")])
    with pytest.raises(SystemExit, match=r"sees no CUDA GPU(.|\n)*gpu.py --smoke"):
        gpu.main()


@pytest.mark.slow  # .ci/run calls the same, with all parts
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_smoke_works_without_a_gpu(tmp_path) -> None:
    out = tmp_path / "gpu.json"
    done = subprocess.run(
        [sys.executable, SCRIPT, "--smoke", "--only", "card", "--out", out], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_text())
    assert {"device", "torch", "transformers", "python", "date"} <= report["run"].keys()
    assert "matrix product" in done.stdout
    assert [part["stopped"] for part in report["parts"]] == [None]
    assert all(result["value"] > 0 for result in report["results"])
