"""An interruption loses the sequences in flight and nothing else: each question is written as it ends."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

from command import COMMAND, environment, run, written


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def interrupt(command: list[str], file: Path) -> int:
    """Start a command, and interrupt it a moment after its first record."""
    with subprocess.Popen(
        [*COMMAND, *command], env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        while not records(file):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.005)
        time.sleep(0.1)  # as long as a whole batch takes to be written
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert "Interrupted. Finished work is saved; run the same command to resume." in said
    assert "Traceback" not in said
    return process.returncode


def test_an_interrupted_run_keeps_what_has_ended_and_gives_the_same_texts_later(tmp_path: Path) -> None:
    """Summaries; ``test_kill.py`` ends a run in every stage."""
    import tiny

    model = tiny.save(tmp_path / "model", "llama", max_position_embeddings=2000)
    rows = "".join(json.dumps({"question": f"What grows in garden {number}?"}) + "\n" for number in range(4))
    questions = written(tmp_path / "q.jsonl", rows)
    local = f"--model {model} --batch-size 1 --device cpu"
    answers = f"answers --questions {questions} --num-answers 1 --max-new-tokens 6 {local}".split()
    summaries = f"summarize --strategies greedy,basic --summary-tokens 100 {local}".split()
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(*answers, "--out", whole).code == 0
    shutil.copytree(whole, killed)
    assert run(*summaries, "--out", whole).code == 0
    expected = records(whole / "summaries.jsonl")
    assert interrupt([*summaries, "--out", str(killed)], killed / "summaries.jsonl") == 130
    kept = records(killed / "summaries.jsonl")
    assert 0 < len(kept) < len(expected)
    resumed = run(*summaries, "--out", killed)
    assert resumed.code == 0, resumed.stderr
    assert records(killed / "summaries.jsonl")[: len(kept)] == kept
    assert sorted(map(json.dumps, records(killed / "summaries.jsonl"))) == sorted(map(json.dumps, expected))
