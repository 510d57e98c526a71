"""Show the progress of an experiment: a bar on a terminal, or lines in a log file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from selfreflect.cli.console import say, stderr
from selfreflect.pipeline.options import WorkDone
from selfreflect.pipeline.watched import StageProgress, duration
from selfreflect.render.text import one_line, printable

SECONDS_BETWEEN_LINES = 30
SECONDS_BETWEEN_READINGS = 2


class ReadingProgress:
    """Says now and then how much of a file is read, if that takes long."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._start = self._said = monotonic()

    def __call__(self, share: float) -> None:
        now = monotonic()
        if now - self._said < SECONDS_BETWEEN_READINGS or not share:
            return
        self._said = now
        left = duration((now - self._start) * (1 - share) / share)
        say(one_line(f"reading {self._name}: {share:.0%}, about {left} left"))


class _Details(ProgressColumn):
    """Counts and details of a stage, drawn anew with every refresh of the bar."""

    max_refresh = 0.5

    def __init__(self, stage: StageProgress) -> None:
        super().__init__()
        self._stage = stage

    def render(self, task: Task) -> Text:
        stage = self._stage
        note = [one_line(printable(stage.note), 60)] if stage.note else []
        return Text(" · ".join([stage.counts, *stage.details(), duration(stage.elapsed), *note]))


def _nothing() -> None:
    """Move no bar."""


class Watcher:
    """Shows an experiment's progress: bars with the time left, or lines if stderr is no terminal."""

    def __init__(self) -> None:
        self._name = ""
        self._stage = StageProgress(0)
        self._move_bar: Callable[[], None] = _nothing

    def note(self, line: str) -> None:
        self._stage.note = line
        if stderr.is_terminal:
            stderr.print(Text(printable(line), style="dim"))
        else:
            say(f"{self._name}: {line}" if self._name else line)

    def warn(self, line: str) -> None:
        stderr.print(Text(f"warning: {printable(line)}", style="bold"), soft_wrap=True)

    def add(self, work: WorkDone) -> None:
        self._stage.add(work)
        self._move_bar()

    def advance(self, count: int = 1, failures: int = 0) -> None:
        self._stage.advance(count, failures)
        self._move_bar()

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Watcher]:
        self._name = name
        self._stage = StageProgress(total)
        show = self._bar if stderr.is_terminal else self._lines
        try:
            with show():
                yield self
        finally:
            self._name = ""

    @contextmanager
    def _bar(self) -> Iterator[None]:
        stage = self._stage
        columns = (TextColumn("{task.description}"), BarColumn(30), _Details(stage))
        # By default rich redirects stdout to this console: piped JSON lines would end in the terminal.
        with Progress(*columns, console=stderr, redirect_stdout=False, redirect_stderr=False) as bar:
            task = bar.add_task(self._name, total=1.0)
            self._move_bar = lambda: bar.update(task, completed=stage.fraction)
            try:
                yield
            finally:
                self._move_bar = _nothing

    @contextmanager
    def _lines(self) -> Iterator[None]:
        """A line at the beginning and the end, and twice a minute, whatever this thread is waiting for."""
        name, stage, ended = self._name, self._stage, Event()

        def repeat() -> None:
            while not ended.wait(SECONDS_BETWEEN_LINES):
                state = ", ".join([f"{stage.counts} after {duration(stage.elapsed)}", *stage.details()])
                say(f"{name}: {state}; {stage.note}" if stage.note else f"{name}: {state}")

        say(f"{name}: {stage.total} to do")
        thread = Thread(target=repeat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            if stage.done or stage.failed:
                say(f"{name}: {stage.counts}, in {duration(stage.elapsed)}")
