"""``selfreflect sayself run``, killed while it samples, trains and evaluates, and started again each time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_chat import chatml, save_lm

RUN = "import sys; sys.path.insert(0, '.'); from selfreflect.cli import main; main()"


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def start(folder: Path, model: str) -> subprocess.Popen[bytes]:
    flags = f"--questions questions.json --out r --model {model} --base {model} --num-answers 2"
    flags += " --max-new-tokens 8 --batch-size 4 --classes exact --correctness substring --select majority"
    flags += " --variants group,no_rationale --seeds 0,1 --yes"
    command = [sys.executable, "-c", RUN, "sayself", "run", *flags.split()]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)


def kill_when(process: subprocess.Popen[bytes], is_time: Callable[[], bool]) -> None:
    end = time.monotonic() + 600
    while not is_time():
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(0.01)
    process.kill()
    process.wait()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_same_command_goes_on_after_a_kill_in_any_step(tmp_path: Path) -> None:
    model = save_lm(tmp_path / "model", chatml())
    rows = [{"question": f"What is thing {number}?", "answer": "a"} for number in range(80)]
    (tmp_path / "questions.json").write_text(json.dumps(rows))
    run, models = tmp_path / "r", tmp_path / "r/sayself/models"

    kill_when(start(tmp_path, model), lambda: len(lines(run / "answers.jsonl")) > 3)
    early = lines(run / "answers.jsonl")[:3]
    kill_when(start(tmp_path, model), lambda: any(models.glob("group-1/checkpoint-10/trainer_state.json")))
    first = (models / "group-0/training.json").read_bytes()
    assert not (models / "group-1/training.json").exists()

    def asks() -> bool:
        return sum('"step": "statement"' in line for line in lines(run / "replies.jsonl")) > 30

    kill_when(start(tmp_path, model), asks)
    replies = lines(run / "replies.jsonl")[:30]
    process = start(tmp_path, model)
    assert process.wait(timeout=600) == 0, (tmp_path / "log").read_text()[-2000:]

    assert lines(run / "answers.jsonl")[:3] == early
    assert len(lines(run / "answers.jsonl")) == 80
    assert (models / "group-0/training.json").read_bytes() == first
    assert lines(run / "replies.jsonl")[:30] == replies
    asked = [json.loads(line)["request"] for line in lines(run / "replies.jsonl")]
    assert len(asked) == len(set(asked))
    table = (run / "sayself/evaluation.md").read_text()
    for name in ("group-0", "group-1", "no_rationale-0", "no_rationale-1"):
        assert name in table
