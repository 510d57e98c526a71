"""The command line under a profiler and under a line tracer, as coverage and debuggers have."""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import tiny
from command import environment, run, written

import selfreflect
from selfreflect.models.local.generator import HFGenerator

TRACED = """
import runpy, sys, threading
import transformers, selfreflect.metric.scorer, selfreflect.models.local.loading  # untraced, which is faster
lines = set()
def of_line(frame, event, argument):
    lines.add((frame.f_code.co_name, frame.f_lineno))
    return of_line
def trace(frame, event, argument):
    return of_line if "selfreflect/models/chat.py" in frame.f_code.co_filename else None
threading.settrace(trace)
sys.settrace(trace)
try:
    runpy.run_module("selfreflect", run_name="__main__", alter_sys=True)
finally:
    print(sorted({name for name, _ in lines}), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "under", [["-m", "cProfile", "-m", "selfreflect"], ["-c", TRACED]], ids=["profiler", "tracer"]
)
def test_scoring_ends_under(under: list[str], tmp_path: Path) -> None:
    model = tiny.save(tmp_path / "model", "llama")
    item = {"question": "What first?", "answers": ["Radishes.", "Lettuce."], "summaries": {"a": "Radishes."}}
    items = written(tmp_path / "items.json", [item])
    command = [sys.executable, *under, "score", "--items", str(items), "--judge", str(model)]
    done = subprocess.run(
        [*command, "--device", "cpu", "--json"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])["score"] is not None
    said = done.stdout + done.stderr
    assert "_apply_template" in said


def test_few_functions_lie_between_the_command_and_the_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever follows `run` from `main` in a debugger steps into ten functions of the package at most."""
    package = str(Path(selfreflect.__file__).parent)
    stacks = []
    decode = HFGenerator._decode

    def recorded(*arguments):
        stacks.append([frame.name for frame in traceback.extract_stack() if package in frame.filename])
        yield from decode(*arguments)

    monkeypatch.setattr(HFGenerator, "_decode", recorded)
    model = tiny.save(tmp_path / "model", "llama")
    questions = written(tmp_path / "questions.txt", "What first?\n")
    options = ["--num-answers", "1", "--max-new-tokens", "2", "--strategies", "greedy", "--device", "cpu"]
    command = ["run", "--questions", questions, "--model", model, "--judge", model, *options]
    assert run(*command, "--out", tmp_path / "r").code == 0
    assert stacks
    longest = max((names[names.index("with_settings") :] for names in stacks), key=len)
    assert len(longest) < 10, longest
