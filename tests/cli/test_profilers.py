"""The command line under a line tracer, as coverage and debuggers have."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import tiny
from command import environment, written

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


def test_scoring_ends_under_a_tracer(tmp_path: Path) -> None:
    model = tiny.save(tmp_path / "model", "llama")
    item = {"question": "What first?", "answers": ["Radishes.", "Lettuce."], "summaries": {"a": "Radishes."}}
    items = written(tmp_path / "items.json", [item])
    command = [sys.executable, "-c", TRACED, "score", "--items", str(items), "--judge", str(model)]
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
