"""A run that is killed again and again ends with the same records as one that was left alone.

The same file is the worker: ``python test_store_kill.py DIRECTORY`` fills a run directory, one record for
each byte that it reads.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from selfreflect.records import AnswerSet, Failure, Question, Score, Summary
from selfreflect.store.manifest import StoredRecord
from selfreflect.store.run import Run

QUESTIONS = 15
STRATEGIES = ("greedy", "basic")
KILLS = 16
FAILS = ("q-7", "basic")
DATA = ("questions.jsonl", "answers.jsonl", "summaries.jsonl", "scores.jsonl")


def missing(run: Run) -> Iterator[StoredRecord]:
    """Stage by stage, the records that a run still lacks. Lines of megabytes let a kill hit in the middle of
    a write."""
    ids = [f"q-{number}" for number in range(QUESTIONS)]
    long = "word " * 250_000
    yield from (Question(id=key, text=f"{key}?\u2028") for key in ids if key not in run.questions)
    yield from (
        AnswerSet(question_id=key, masked_out=(key, long), conditioning=(long,))
        for key in ids
        if key not in run.answers
    )
    pairs = [(key, name) for key in ids for name in STRATEGIES]
    for key, name in pairs:
        if (key, name) not in run.summaries:
            if (key, name) == FAILS:
                yield Failure(
                    question_id=key, stage="summaries", kind="backend", message="always fails", name=name
                )
            else:
                yield Summary(question_id=key, name=name, text=f"{name} {long}")
    for key, name in pairs:
        if (key, name) in run.summaries and (key, name) not in run.scores:
            yield Score(question_id=key, summary=name, value=0.5, stderr=None, token_tasks=3, judge="j")


def work(directory: str) -> None:
    with Run.open(directory, {"seed": 1}) as run:
        print("open", flush=True)
        for record in missing(run):
            if not sys.stdin.read(1):
                return
            run.append(record)
            print("done", flush=True)
    print("complete", flush=True)


def worker(directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, str(directory)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finish(directory: Path) -> None:
    with worker(directory) as process:
        said, _ = process.communicate("x" * 10 * QUESTIONS, timeout=60)
    assert process.returncode == 0
    assert said.endswith("complete\n")


def sizes(directory: Path) -> list[int]:
    return [(directory / name).stat().st_size for name in DATA if (directory / name).exists()]


def live_and_die(directory: Path, chance: random.Random, when: str) -> None:
    """Let a worker append a few records and kill it: while it starts, at a random moment of its work, or in
    the middle of a write."""
    records = chance.randint(1, 7)
    with worker(directory) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("x" * records)
        process.stdin.flush()
        if when != "starting":
            for _ in range(1 + records):
                process.stdout.readline()
        before = sizes(directory)
        process.stdin.write("xx")
        process.stdin.flush()
        while when == "writing" and sizes(directory) == before:
            assert process.poll() is None
        time.sleep(
            {"starting": chance.uniform(0, 0.2), "working": chance.uniform(0, 0.03), "writing": 0}[when]
        )
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def test_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    killed, calm = tmp_path / "killed", tmp_path / "calm"
    chance = random.Random(20)
    progress = set()
    for life in range(KILLS):
        live_and_die(killed, chance, ("starting", "working", "writing", "writing")[life % 4])
        progress.add(sum(sizes(killed)))
    assert len(progress) > KILLS // 2, "the kills hit a run that was making progress"
    finish(killed)
    finish(calm)
    for name in DATA:
        assert (killed / name).read_bytes() == (calm / name).read_bytes(), name
    assert Run.load(killed).failures == Run.load(calm).failures
    assert [(failure.question_id, failure.name) for failure in Run.load(calm).failures] == [FAILS]
    assert len(Run.load(calm).scores) == len(STRATEGIES) * QUESTIONS - 1
    assert Run.load(killed).manifest == Run.load(calm).manifest


if __name__ == "__main__":
    work(sys.argv[1])
