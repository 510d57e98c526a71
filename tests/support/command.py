"""How the tests run the command line: in this process where they can, as a process of its own where the
process is the point."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from selfreflect.cli import application


class Outcome:
    """What a command did. ``lines`` are those of its stdout."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        self.code, self.stdout, self.stderr = code, stdout, stderr
        self.said = " ".join(stderr.split())

    @property
    def json(self) -> list[Any]:
        return [json.loads(line) for line in self.stdout.splitlines()]


def refused(outcome: Outcome, *parts: object) -> None:
    """Exit code 2, nothing on stdout, and all of ``parts`` on stderr, however its lines are broken."""
    assert (outcome.code, outcome.stdout) == (2, ""), outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert [part for part in map(str, parts) if part not in outcome.said] == []


@cache
def _command() -> Any:
    """The command line. To make it takes longer than most commands."""
    return get_command(application())


def run(*arguments: object, stdin: str | bytes | None = None) -> Outcome:
    """Run a command in this process. A bug is raised here."""
    with CliRunner().isolation(input=stdin) as (stdout, stderr, _):
        with pytest.raises(SystemExit) as left:
            _command()([str(argument) for argument in arguments], prog_name="selfreflect")
        sys.stdout.flush()
        sys.stderr.flush()
        said = [stream.getvalue().decode().replace("\r\n", "\n") for stream in (stdout, stderr)]
    code = left.value.code or 0
    assert isinstance(code, int)
    assert code != 70, said[1]  # a bug
    return Outcome(code, *said)


COMMAND = [sys.executable, "-c", "from selfreflect.cli import main; main()"]


def environment(**changes: str) -> dict[str, str]:
    return {
        **os.environ,
        "OMP_WAIT_POLICY": "PASSIVE",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "200",
        **changes,
    }


def process(
    *arguments: object,
    cwd: Path | None = None,
    before: Callable[[], None] | None = None,
    changes: dict[str, str] | None = None,
) -> Outcome:
    """Run a command as a process of its own, whose environment has ``changes``."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment(**(changes or {})),
        preexec_fn=before,
        capture_output=True,
        text=True,
        timeout=200,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@contextmanager
def piped(data: bytes) -> Iterator[None]:
    """Make ``data`` the standard input of this process."""
    with mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(data))):
        yield


def small(model: Path, out: Path, questions: Path, *, strategies: str = "greedy,basic") -> list[str]:
    """Arguments of a `run` that a tiny model finishes in a moment."""
    text = (
        f"run --questions {questions} --model {model} --judge {model} --num-answers 2 --max-new-tokens 6 "
        "--summary-tokens 8 "
        f"--num-samples 2 --device cpu --strategies {strategies} --out {out}"
    )
    return text.split()


def written(path: Path, content: object) -> Path:
    """A file with text as it is, or with anything else as JSON."""
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path
