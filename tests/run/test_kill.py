"""A whole run that is killed at any moment, again and again, or interrupted, ends as one that nobody
disturbed.

The same file is a worker: ``python test_kill.py [DIRECTORY, COMMAND]`` makes an undisturbed run, then forks a
child for each life that it is asked for, so that many lives cost one start of the libraries and are at work
in their first moment.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from command import environment, written
from msgspec.structs import replace

from selfreflect.records import RETRIED
from selfreflect.store.run import Run

pytestmark = pytest.mark.timeout(900)  # some seventy lives

SUPPORT = Path(__file__).parents[1] / "support"
"""Where this file finds its helpers when it runs as a program."""

SEED = 4

DATA = ("questions.jsonl", "answers.jsonl", "summaries.jsonl", "scores.jsonl")
FILES = (*DATA, "failures.jsonl")
WITH_FAILURES = 1
"""Exit status of a run that is complete and has failures."""
INTERRUPTED = 130

LONG = "and why should a beginner plant that in a small garden, not something else? " * 6
QUESTIONS = ("What first?", "Who is it?", "Which pot?", "Why not?", "What grows?", "long " * 1500 + "?")
STRATEGIES = "greedy,sample_and_summarize,flaky:ask"
FLAKY = """
def ask(task):
    if "pot" in task.question.text:
        raise OSError("no service")
    [reply] = yield task.request(task.messages(), "ask")
    return reply.text or "nothing"
"""


class Lives:
    """The worker. Each life is a fresh process that runs the command from its start, in a directory of its
    own or an earlier one's.

    ``calm`` is the undisturbed run.
    """

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.calm = folder / "calm"
        call = [sys.executable, __file__, json.dumps([str(self.calm), command])]
        self._worker = subprocess.Popen(
            call,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(PYTHONPATH=str(SUPPORT)),
        )
        assert int(self._read()) == WITH_FAILURES

    def begin(self, out: Path, limit: int = 0) -> int:
        """The pid of a new life. It is ended by the kernel when a file of its would grow beyond ``limit``
        bytes."""
        self._say([str(out), limit])
        return int(self._read())

    def end(self) -> int:
        """Exit status of the life that was begun; minus the signal where one ended it. Its pid stays its own
        until then."""
        self._say(None)
        return int(self._read())

    def _say(self, value: Any) -> None:
        assert self._worker.stdin is not None
        self._worker.stdin.write(json.dumps(value) + "\n")
        self._worker.stdin.flush()

    def _read(self) -> str:
        assert self._worker.stdout is not None
        return self._worker.stdout.readline().strip()

    def __enter__(self) -> Lives:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.communicate(timeout=200)


def content(out: Path, name: str) -> bytes:
    return (out / name).read_bytes() if (out / name).exists() else b""


def content_of_partial(out: Path) -> int:
    """Bytes of the answers of questions that are not finished."""
    total = 0
    for file in (out / "partial").glob("*"):
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


def lines(out: Path) -> int:
    return sum(content(out, name).count(b"\n") for name in DATA)


def is_torn(out: Path) -> bool:
    return any(not data.endswith(b"\n") for name in FILES if (data := content(out, name)))


def live(lives: Lives, out: Path, seconds: float, chance: random.Random, drawing: bool) -> int:
    """One life and its end: anywhere between the start and the end of a whole one, among its records, while a
    question has some of its answers (always, if ``drawing``), or in the middle of a write."""
    when = chance.choices(("anywhere", "working", "drawing", "writing"), (5, 4, 2, 4))[0]
    when = "drawing" if drawing else when
    had, records, delay, limit = lines(out), chance.randint(1, 6), 0.0, 0
    if when == "writing":
        open_ends = [(len(content(out, name)), len(content(lives.calm, name))) for name in DATA]
        limit = chance.randint(
            *chance.choice([(now + 1, whole) for now, whole in open_ends if now < whole] or [(1, 4000)])
        )
    pid = lives.begin(out, limit)
    if when != "writing":
        deadline = time.monotonic() + 200
        while (
            when in ("working", "drawing")
            and not (when == "drawing" and content_of_partial(out))
            and lines(out) < min(had + records, lines(lives.calm))
            and time.monotonic() < deadline
        ):
            time.sleep(0.001)
        delay = chance.uniform(0, {"working": 0.02, "drawing": 0.002}.get(when, seconds))
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
    status = lives.end()
    print(f"{out.name}: {when}, {records} records, {delay:.4f} s, {limit} bytes")
    print(f"  ended with {status} after {had} -> {lines(out)} lines")
    return status


def records(out: Path, name: str) -> list[str]:
    """The lines of a file, each of them whole, in any order."""
    data = content(out, name)
    assert data.endswith(b"\n") or not data, f"{out / name} ends in a torn line"
    return sorted(data.decode().splitlines())


def alike(one: Any, other: Any) -> bool:
    """Equal but for the last bits of numbers: a summary that is scored without the others of its question
    shares fewer rows with them."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return (
        math.isclose(one, other, rel_tol=0, abs_tol=1e-6)
        if isinstance(one, float) and isinstance(other, float)
        else one == other
    )


def assert_equal(killed: Path, calm: Path) -> None:
    """Record for record. Failures that may mend are tried again in each life, so they are told more than
    once."""
    assert {path.name for path in killed.iterdir() if path.suffix != ".tmp"} == {
        path.name for path in calm.iterdir()
    }
    for name in DATA:
        mine, theirs = records(killed, name), records(calm, name)
        assert alike([*map(json.loads, mine)], [*map(json.loads, theirs)]), name
        assert mine == theirs or name == "scores.jsonl", name
    told, expected = Counter(records(killed, "failures.jsonl")), Counter(records(calm, "failures.jsonl"))
    assert told.keys() == expected.keys()
    assert {
        line: count for line, count in told.items() if json.loads(line)["kind"] not in RETRIED and count > 1
    } == {}
    one, other = Run.load(killed), Run.load(calm)
    assert sorted(one.failures, key=repr) == sorted(other.failures, key=repr)
    assert replace(one.manifest, wall_time={}, finished={}) == replace(
        other.manifest, wall_time={}, finished={}
    )


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    import tiny

    folder = tmp_path_factory.mktemp("work")
    written(folder / "flaky.py", FLAKY)
    questions = written(
        folder / "q.jsonl", "\n".join(json.dumps({"question": f"{LONG}{text}"}) for text in QUESTIONS)
    )
    model = tiny.save(folder / "model", "llama", max_position_embeddings=1200)
    sizes = "--num-answers 4 --num-samples 2 --max-new-tokens 6 --summary-tokens 8 --batch-size 3"
    models = f"--model {model} --judge {model} --device cpu"
    command = f"run --questions {questions} {models} --strategies {STRATEGIES} {sizes}"
    with Lives(folder, command.split()) as worker:
        yield worker


@pytest.mark.parametrize(("kills", "torn_writes"), [(3, 1), pytest.param(50, 8, marks=pytest.mark.slow)])
def test_a_run_that_is_killed_again_and_again_equals_one_that_was_not(
    lives: Lives, tmp_path: Path, kills: int, torn_writes: int
) -> None:
    """The kernel has to end ``torn_writes`` lives inside a write, besides those that are killed; one of these
    at least while a question has some of its answers."""
    chance, ends, torn, progress = random.Random(SEED), Counter[int](), 0, set()
    print(f"seed {SEED}")
    halves = 0
    seconds = whole_life(lives, tmp_path / "killed-0")
    finished, out = 1, tmp_path / "killed-1"
    while ends[-signal.SIGKILL] < kills or torn < torn_writes or not halves:
        drawing = not halves and lines(out) == 0
        status = live(lives, out, seconds, chance, drawing)
        assert status < 0 or status == WITH_FAILURES, out.with_suffix(".log").read_text()
        ends[status] += 1
        torn += is_torn(out)
        halves += content_of_partial(out) > 0
        progress.add((out, lines(out)))
        if lines(out) == lines(lives.calm):
            whole_life(lives, out)
            finished += 1
            out = tmp_path / f"killed-{finished}"
    whole_life(lives, out)
    assert len(progress) > kills // 2, "the kills hit runs that were making progress"
    assert {failure.kind for failure in Run.load(lives.calm).failures} == {"too_long", "strategy"}


@pytest.mark.slow
def test_an_interrupted_run_keeps_what_has_ended_and_gives_the_same_texts_later(
    lives: Lives, tmp_path: Path
) -> None:
    out, file = tmp_path / "interrupted", "summaries.jsonl"
    pid = lives.begin(out)
    deadline, sizes = time.monotonic() + 200, {0}
    while (
        len(sizes) < 3 and time.monotonic() < deadline
    ):  # while the second record is written, the first is safe
        sizes.add(len(content(out, file)))
        time.sleep(0.001)
    os.kill(pid, signal.SIGINT)
    assert lives.end() == INTERRUPTED
    said = out.with_suffix(".log").read_text()
    assert "Interrupted. Finished work is saved; run the same command to resume." in said
    assert "Traceback" not in said
    kept = content(out, file)
    assert kept.endswith(b"\n")
    assert lines(out) < lines(lives.calm)
    whole_life(lives, out)
    assert content(out, file).startswith(kept)


def whole_life(lives: Lives, out: Path) -> float:
    """Let a run come to its end, which must be that of the calm one. The seconds it took."""
    started = time.monotonic()
    lives.begin(out)
    assert lives.end() == WITH_FAILURES, out.with_suffix(".log").read_text()
    seconds = time.monotonic() - started
    assert_equal(out, lives.calm)
    return seconds


def ended(cli: Any, arguments: list[str]) -> int:
    """The exit status of a command in this process."""
    try:
        cli(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def begin(cli: Any, command: list[str], out: str, limit: int) -> None:
    """Be one life."""
    log = os.devnull if limit else f"{out}.log"  # the limit holds for every file
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    if limit:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    os._exit(ended(cli, [*command, "--out", out]))


def work(calm: str, command: list[str]) -> None:
    """Make the calm run, after which everything is loaded, then lives as they are asked for."""
    from typer.main import get_command

    from selfreflect.cli import application

    said, cli = os.fdopen(os.dup(1), "w"), get_command(application())
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    print(ended(cli, [*command, "--out", calm]), file=said, flush=True)
    while line := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            begin(cli, command, *json.loads(line))
        print(pid, file=said, flush=True)
        sys.stdin.readline()
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=said, flush=True)


if __name__ == "__main__":
    work(*json.loads(sys.argv[1]))
