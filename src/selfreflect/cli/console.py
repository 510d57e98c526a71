"""Write to the terminal: messages and the progress of an experiment, as bars or lines, to stderr; results and
JSON lines to stdout."""

from __future__ import annotations

import shlex
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from selfreflect.errors import ConfigError, DataError
from selfreflect.pipeline.models import WorkDone
from selfreflect.records import Question, dump_line
from selfreflect.sources.files import source_name
from selfreflect.table import Table, to_rich
from selfreflect.text import counted, one_line, printable, printable_json

if TYPE_CHECKING:
    from selfreflect.report.run_records import RunRecords
    from selfreflect.store.run import Run

SECONDS_BETWEEN_LINES = 30
SECONDS_BETWEEN_READINGS = 2
_SECONDS_BETWEEN_RATES = 5
_READINGS = 7
"""Together the half minute in which the present speed is measured."""

FEWEST_ENDED = 8
"""Sequences that must have ended before they tell how long the others take: the first to end are short."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would exit with 1, which means recorded failures here."""
        raise BrokenPipeError


stderr = _Console(stderr=True, highlight=False)
stdout = _Console(highlight=False)


def say(text: str) -> None:
    """Print a line to stderr. Text of models and files cannot act as markup or terminal control."""
    stderr.print(Text(printable(text)), soft_wrap=True)


def say_notes(notes: Sequence[str]) -> None:
    """Print what a user should know of a file."""
    for note in notes:
        say(one_line(f"note: {note}."))


def emit(value: Any) -> None:
    """Print a line of JSON to stdout, flushed, so that the reader of a pipe gets it at once. A terminal finds
    nothing in it to obey."""
    sys.stdout.write(printable_json(dump_line(value)) + "\n")
    sys.stdout.flush()


def say_next_step(path: Path, records: Run | RunRecords) -> None:
    """Say what to do next with a run directory, as a command."""
    directory = shlex.quote(str(path))
    if not records.answers:
        say(f"Draw answers: selfreflect answers --out {directory}")
    elif not records.summaries:
        command = f"selfreflect summarize --out {directory}"
        say(f"Summarise them, with one short summary each: {command} --strategies basic --summary-tokens 256")
        say(f"With all the usual strategies, some of which reason at length: {command}")
    elif not (records.scores or records.information):
        if getattr(records, "awaits_scores", True):
            say(f"Score the summaries: selfreflect score --out {directory}")
        else:
            say(f"See how far the answers agree: selfreflect uncertainty {directory}")
    else:
        say_report([path])


def say_report(paths: Sequence[Path]) -> None:
    """Say which command writes the page of some run directories."""
    directories = " ".join(shlex.quote(str(path)) for path in paths)
    say(f"Look at it: selfreflect report {directories} --output report.html")


def can_ask() -> bool:
    """Whether somebody sits at a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and stderr.is_terminal  # None: closed, as by cron


def agree(question: str) -> bool:
    """Ask a question at the terminal; only yes is yes."""
    say(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def exit_with(failures: int) -> None:
    """Exit with 1 if failures are recorded."""
    if failures:
        say(f"done, with {counted(failures, 'failure')} recorded.")
        raise typer.Exit(1)


def print_table(table: Table, console: Console = stdout) -> None:
    for part in to_rich(table, console.width):
        console.print(part)


def context_line(question: Question) -> Text:
    """The beginning of what the model reads with a question."""
    return Text(f"  context: {one_line(question.context, 220)}", style="dim")


def write_file(path: Path, text: str) -> None:
    """Write a file that a user asked for, and say so. Raises DataError if the system refuses."""
    from selfreflect.atomic import write_through

    try:
        write_through(path, text.encode())
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from error
    say(f"wrote {path}")


def check_file(flag: str, output: Path, source: str = "") -> None:
    """Raise ConfigError, before work begins, if the directory of an output is not there, or if the output
    would replace the file that is read, by whatever name."""
    with suppress(OSError):  # one is not there, or not to be had: who reads or writes it says so
        if not output.parent.is_dir():
            raise ConfigError(f"{flag} {output}: there is no directory {output.parent}. Make it first")
        if output.samefile(source):
            raise ConfigError(f"{flag} {output} would replace the questions; name another file")


def check_output(output: Sequence[Path], source: str = "") -> None:
    """Refuse outputs of an unknown kind, outputs that cannot be written, and the file that is read, before
    anything is computed."""
    for path in output:
        if path.suffix not in (".html", ".md", ".csv"):
            raise ConfigError(f"--output {path}: the name must end in .html, .md or .csv")
        for ending in ("", "-reliability", "-coverage") if path.suffix == ".csv" else ("",):
            check_file("--output", path.with_stem(path.stem + ending), source)


def write_folder(folder: Path, files: Mapping[str, bytes], overwrite: bool) -> None:
    """Write the files of a folder that a user asked for, all or none.

    Raises:
        DataError: one of them is there and ``overwrite`` is False, or the system refuses.
    """
    from selfreflect.atomic import conflicts, write_files

    try:
        if not overwrite and (existing := conflicts(folder, files)):
            names = dict.fromkeys(path.relative_to(folder).parts[0] for path in existing)
            raise DataError(
                f"already there in {folder}: {', '.join(names)}. Use another directory, or --overwrite"
            )
        write_files(folder, files)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error.strerror}. Use another directory") from error


def refuse_run_directory(folder: Path) -> None:
    """Raise DataError if a folder to write is a run directory, whose files must stay as they are."""
    from selfreflect.store.layout import MANIFEST

    if (folder / MANIFEST).exists():
        raise DataError(f"{folder} is a run directory. Use another directory for --output")


def make_folder(path: Path) -> None:
    """Make a directory that a user asked for. Raises DataError if the system refuses."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be made: {error.strerror}") from error


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

    def __init__(self, source: str) -> None:
        self._name = source_name(source)
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
