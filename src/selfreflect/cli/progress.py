"""Progress of an experiment: a bar on a terminal, lines in a log file, and an estimate of the time left."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from selfreflect.cli.console import say, stderr
from selfreflect.pipeline.options import WorkDone
from selfreflect.render.text import one_line, printable

SECONDS_BETWEEN_LINES = 30
SECONDS_BETWEEN_READINGS = 2

_SECONDS_BETWEEN_RATES = 5
_READINGS = 7
"""Together the half minute in which the present speed is measured."""

FEWEST_ENDED = 8
"""Sequences that must have ended before they tell how long the others take: the first to end are short."""


def duration(seconds: float) -> str:
    """A time for people: ``45 s``, ``1 min 30 s``, ``12 min`` or ``3 h 20 min``."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    if seconds < 595:
        tens = round(seconds / 10) * 10
        return f"{tens // 60} min {tens % 60} s" if tens % 60 else f"{tens // 60} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


class StageProgress:
    """What a stage has done, and how long the rest will take. Its texts have no name of the stage."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.failed = 0
        self.work = WorkDone()
        self.note = ""
        """What was said last, unless something was done since."""
        self._start = self._last_end = monotonic()
        self._first_work: float | None = None
        self._readings: deque[tuple[float, int]] = deque(maxlen=_READINGS)
        """Times, some seconds apart, and the tokens until then."""

    def advance(self, count: int = 1, failures: int = 0) -> None:
        self.done += count
        self.failed += failures
        self.note = ""
        self._last_end = monotonic()

    def add(self, work: WorkDone) -> None:
        """Count work, from the first of which on the time is measured: loading a model is none."""
        if self._first_work is None:
            self._first_work = monotonic()
        self.work += work
        if work.ended:
            self._last_end = monotonic()
        if work.ended or work.tokens:
            self.note = ""
        now = monotonic()
        if not self._readings or now - self._readings[-1][0] >= _SECONDS_BETWEEN_RATES:
            self._readings.append((now, self.work.tokens))

    @property
    def fraction(self) -> float:
        """The share that is done, in sequences if a model was asked for any."""
        finished = self.done + self.failed
        work = self.work
        if finished >= self.total:
            return 1.0
        if work.asked <= 0:
            share = min(1.0, work.tokens / work.planned) if work.planned > 0 else 0.0
            return max(finished / self.total, min(1.0, share * work.units / self.total))
        not_begun = max(0, self.total - work.units) / max(1, work.units)
        return min(1.0, work.ended / (work.asked * (1 + not_begun)))

    def seconds_left(self) -> float | None:
        """What remains will go at the speed so far; None before that can be told.

        The last sequences may be the longest, or read the longest prompts. So nothing is expected to end
        sooner than in the time for which nothing has ended by now.
        """
        fraction = self.fraction
        if not fraction or 0 < self.work.ended < min(FEWEST_ENDED, self.work.asked):
            return None
        if self.work.asked <= 0 and 0 < self.work.planned <= self.work.tokens:
            return None  # all is read, and predictions are compared
        since = self._start if self._first_work is None else self._first_work
        left = (monotonic() - since) * (1 - fraction) / fraction
        return left if self.work.asked <= 0 else max(left, monotonic() - self._last_end)

    def most_seconds_left(self) -> float | None:
        """What remains at the present speed if every sequence that was begun becomes as long as it may; None
        before that can be told, or if there are more to begin."""
        work = self.work
        if work.asked <= 0 or work.units < self.total or not self._readings:
            return None
        since, tokens = self._readings[0]
        left, gain = work.planned - work.tokens, work.tokens - tokens
        if left <= 0 or gain <= 0:
            return None
        return (monotonic() - since) * left / gain

    @property
    def counts(self) -> str:
        """``2 of 6, 1 failed``."""
        failures = f", {self.failed} failed" if self.failed else ""
        return f"{self.done} of {self.total}{failures}"

    @property
    def elapsed(self) -> float:
        """Seconds since the stage began."""
        return monotonic() - self._start

    def details(self) -> list[str]:
        """Tokens, their speed and the time left, as far as they are known."""
        parts = []
        if self.work.tokens and self._first_work is not None:
            per_second = self.work.tokens / max(monotonic() - self._first_work, 1e-3)
            parts = [f"{self.work.tokens:,} tokens", f"{per_second:,.0f} tokens/s"]
        left = self.seconds_left()
        most = self.most_seconds_left() if left is None else None
        if self.done + self.failed >= self.total:
            return parts
        if left is not None:
            parts.append(f"about {duration(left)} left")
        elif most is not None:
            parts.append(f"up to {duration(most)} left")
        return parts


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
