"""An interruption loses the sequences in flight and nothing else: each question is written as it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

from command import COMMAND, environment, run, written

ENDS = {signal.SIGKILL: -9, signal.SIGINT: 130}
"""What a process that is ended in this way returns."""


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def interrupt(command: list[str], file: Path, end: signal.Signals) -> int:
    """Start a command, and end it a moment after its first record."""
    with subprocess.Popen(
        [*COMMAND, *command], env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        while not records(file):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.005)
        time.sleep(0.1)  # as long as a whole batch takes to be written
        process.send_signal(end)
        said = process.stderr.read()
    if end == signal.SIGINT:
        assert "Interrupted. Finished work is saved; run the same command to resume." in said
        assert "Traceback" not in said
    return process.returncode


def test_an_interrupted_run_keeps_what_has_ended_and_gives_the_same_texts_later(tmp_path: Path) -> None:
    import tiny

    model = tiny.save(tmp_path / "model", "llama", max_position_embeddings=2000)
    rows = "".join(json.dumps({"question": f"What grows in garden {number}?"}) + "\n" for number in range(4))
    questions = written(tmp_path / "q.jsonl", rows)
    answers = f"answers --questions {questions} --num-answers 1 --max-new-tokens 60"
    summaries = "summarize --strategies greedy,basic --summary-tokens 100"
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for command, name, end in (
        (answers, "answers.jsonl", signal.SIGKILL),
        (summaries, "summaries.jsonl", signal.SIGINT),
    ):
        command = f"{command} --model {model} --batch-size 1 --device cpu"
        assert run(*command.split(), "--out", whole).code == 0
        expected = records(whole / name)
        assert interrupt([*command.split(), "--out", str(killed)], killed / name, end) == ENDS[end]
        kept = records(killed / name)
        assert 0 < len(kept) < len(expected)
        resumed = run(*command.split(), "--out", killed)
        assert resumed.code == 0, resumed.stderr
        assert records(killed / name)[: len(kept)] == kept
        assert sorted(map(json.dumps, records(killed / name))) == sorted(map(json.dumps, expected))
