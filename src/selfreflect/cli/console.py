"""What people see: notes and progress on stderr, results on stdout, and JSON lines on stdout where they were asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from selfreflect.records import dump_line
from selfreflect.report.text import printable


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would exit with 1, which means recorded failures here."""
        raise BrokenPipeError


stderr = _Console(stderr=True, highlight=False)
stdout = _Console(highlight=False)


def say(text: str) -> None:
    """A line for people, on stderr. Text of models and files cannot act as markup or as terminal control."""
    stderr.print(Text(printable(text)), soft_wrap=True)


def emit(value: Any) -> None:
    """One line of JSON on stdout, flushed, so that a reader of the pipe has it at once."""
    sys.stdout.write(dump_line(value) + "\n")
    sys.stdout.flush()


class _Rate(ProgressColumn):
    """Results per second, or seconds per result where they are slow."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("–", style="progress.data.speed")
        shown = f"{speed:.1f}/s" if speed >= 1 else f"{1 / speed:.1f} s each"
        return Text(shown, style="progress.data.speed")


class _Bar:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task

    def advance(self, count: int = 1) -> None:
        self._progress.advance(self._task, count)


class Watcher:
    """The experiment's progress as bars with rate and time left. A stderr that is no terminal gets one line per stage instead."""

    def note(self, line: str) -> None:
        if stderr.is_terminal:
            stderr.print(Text(printable(line), style="dim"))

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[_Bar]:
        if not stderr.is_terminal:
            say(f"{name}: {total} to do")
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _Rate(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        # Rich would redirect stdout through this console, and JSON lines that were piped elsewhere would end in the terminal.
        with Progress(*columns, console=stderr, disable=not stderr.is_terminal, redirect_stdout=False, redirect_stderr=False) as progress:
            yield _Bar(progress, progress.add_task(name, total=total))
