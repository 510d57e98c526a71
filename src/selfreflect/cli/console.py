"""Terminal output: progress and messages on stderr, results on stdout, and exit codes of errors."""

from __future__ import annotations

import dataclasses
import errno
import os
import platform
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import IO, TYPE_CHECKING, Any, NoReturn

import rich.table
import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from selfreflect.errors import ConfigError, DataError, SelfReflectError, excerpt, missing_package
from selfreflect.records import Question, dump_line
from selfreflect.run.models import WorkDone
from selfreflect.sources.files import source_name
from selfreflect.table import Table, to_rich
from selfreflect.text import counted, listed, one_line, percent, printable, printable_json

if TYPE_CHECKING:
    from selfreflect.report.run_records import RunRecords
    from selfreflect.store.run import Run

SECONDS_BETWEEN_LINES = 30
SECONDS_BETWEEN_READINGS = 2

REPORTS = (".html", ".md", ".csv", ".tex")
"""Suffixes of result files for ``--output``."""

FEWEST_ENDED = 8
"""Number of sequences that must end before their speed is used, since short ones end first."""


# Where no line may end: before a percent sign, and in a command or an option's value, which are to be copied.
_UNBROKEN = re.compile(
    r" %|`[^`\n]*`|--[a-z-]+ (?:[a-z_]*=?'[^'\n]*'|[a-z_]+=\S+|[A-Z]+\b)|(?<=: )selfreflect .*"
)

# a character of one cell that no text holds on purpose, in place of a space where no line may end
_JOINT = "\ue000"


class _Console(Console):
    def print(self, *objects: Any, indent: int = 0, **options: Any) -> None:
        """Print objects as rich does, but break lines only between words and never inside commands.

        Args:
            indent: blanks before the rest of a broken line, at least as many as before its start.
            options: those of rich; ``soft_wrap`` leaves lines whole unless they go to a terminal.
        """
        if self.is_terminal or not options.get("soft_wrap"):
            objects = tuple(
                self._wrapped(item, indent) if isinstance(item, Text) else item for item in objects
            )
        super().print(*objects, **options)

    def _wrapped(self, text: Text, indent: int) -> Text:
        """Break a text into lines before rich joins it with others."""
        text = text.copy()
        text.plain = _UNBROKEN.sub(lambda match: match[0].replace(" ", _JOINT), text.plain)
        lines = []
        for line in text.split(allow_blank=True):
            line.expand_tabs()
            blanks = min(max(indent, len(line.plain) - len(line.plain.lstrip(" "))), self.width // 2)
            for number, piece in enumerate(line.divide(_breaks(line.plain, self.width, blanks))):
                piece.plain = piece.plain.replace(_JOINT, " ").rstrip(" ")
                lines.append(Text(" " * blanks).append(piece) if number else piece)
        return Text("\n").join(lines)

    def on_broken_pipe(self) -> None:
        """Raise the error, since rich would exit with 1, the code for failures on record."""
        raise BrokenPipeError


def _breaks(line: str, width: int, indent: int) -> list[int]:
    """Find the line breaks between words, with all lines but the first indented."""
    breaks = []
    column = 0
    for match in re.finditer(r"\s*\S+", line):
        word = match[0].lstrip()
        if column > indent and column + cell_len(match[0]) > width:
            breaks.append(match.end() - len(word))
            column = indent + cell_len(word)
        else:
            column += cell_len(match[0])
    return breaks


stderr = _Console(stderr=True, highlight=False)
stdout = _Console(highlight=False)


def say(text: str) -> None:
    """Print one line to stderr, wrapped only on a terminal. Text of models and files cannot act as markup or
    terminal control."""
    stderr.print(Text(printable(text)), soft_wrap=True)


def say_notes(notes: Sequence[str]) -> None:
    """Print notes about a file."""
    for note in notes:
        say(one_line(f"note: {note}."))


def emit(value: Any) -> None:
    """Print one line of JSON to stdout and flush it. Control characters are escaped."""
    sys.stdout.write(printable_json(dump_line(value)) + "\n")
    sys.stdout.flush()


def say_next_step(path: Path, records: Run | RunRecords) -> None:
    """Print the command that continues a run directory."""
    directory = shlex.quote(str(path))
    if not records.answers:
        say(f"Draw answers: selfreflect answers --out {directory}")
    elif not records.summaries:
        command = f"selfreflect summarize --out {directory}"
        say(f"Summarise them, with one short summary each: {command} --strategies basic --summary-tokens 256")
        say(f"To use all the usual strategies, including those with long reasoning, run: {command}")
    elif not (records.scores or records.information or records.measurements):
        if getattr(records, "awaits_scores", True):
            say(f"Score the summaries: selfreflect score --out {directory}")
        else:
            say(f"See how far the answers agree: selfreflect uncertainty {directory}")
    else:
        say_report([path])


def say_report(paths: Sequence[Path]) -> None:
    """Print the command that writes the page of run directories."""
    directories = " ".join(shlex.quote(str(path)) for path in paths)
    say(f"Look at the results: selfreflect report {directories} --output report.html")


def can_ask() -> bool:
    """Check whether a user can answer at the terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and stderr.is_terminal  # None: closed, as by cron


def agree(question: str) -> bool:
    """Ask a yes-or-no question at the terminal, and return whether the user says yes."""
    say(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def agree_to_start(reasons: Sequence[str], *, yes: bool, otherwise: str) -> None:
    """Print the reasons not to start, and exit if an interactive user does not agree.

    Args:
        otherwise: what was not done then.
    """
    say("; ".join(reasons))
    if can_ask() and not yes and not agree("Start?"):
        say(f"{otherwise} Run the same command and confirm, or add --yes.")
        raise typer.Exit(130)


def exit_with(failures: int) -> None:
    """Exit with 1 if failures are recorded."""
    if failures:
        say(f"done, with {counted(failures, 'failure')} recorded.")
        raise typer.Exit(1)


# What the system's `sysexits.h` names an error in the program itself.
_EX_SOFTWARE = 70


@contextmanager
def exit_codes(keeps_work: bool, name_of: Callable[[str], str]) -> Iterator[None]:
    """Turn errors into a message and an exit code; bugs keep their traceback.

    Args:
        keeps_work: whether the command stores its work, so that it can be resumed.
        name_of: words a setting in a remedy.
    """
    try:
        yield
    except SelfReflectError as error:
        _exit(2, f"error: {error.worded(name_of)}")
    except KeyboardInterrupt:
        resume = " Finished work is saved; run the same command to resume." if keeps_work else ""
        _exit(130, f"Interrupted.{resume}")
    except BrokenPipeError:
        _drop_stdout()  # its reader has ended (`| head`)
        raise typer.Exit(141) from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            _exit(2, f"error: {excerpt(str(error.filename), 200)}: the name is too long. Use a shorter one.")
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            _exit_with_bug(error, keeps_work)
        _drop_stdout()
        _exit(
            2,
            f"error: cannot write the output: {error.strerror}. Free some disk space, then run the "
            "command again.",
        )
    except MemoryError:
        saved = "; finished work is saved" if keeps_work else ""
        _exit(2, f"error: out of memory. Use smaller numbers or another machine{saved}.")
    # typer ends the program itself; a user's function must not, or its exit code would pass for ours
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except SystemExit as error:  # of a user's or a library's code
        _exit(2, f"error: code that the command called ended the program with sys.exit({error.code!r}).")
    except Exception as error:
        sentence = missing_package(error) if isinstance(error, ModuleNotFoundError) else None
        if sentence is None:
            _exit_with_bug(error, keeps_work)
        _exit(2, f"error: {sentence}")


def _exit(code: int, message: str) -> NoReturn:
    say(message)
    raise typer.Exit(code) from None


def _exit_with_bug(error: Exception, keeps_work: bool) -> NoReturn:
    """Print the details for a bug report, and exit."""
    from selfreflect import __version__

    for line in "".join(traceback.format_exception(error)).splitlines():
        say(line)
    saved = " Finished work is saved." if keeps_work else ""
    _exit(
        _EX_SOFTWARE,
        f"error: this is a bug in selfreflect {__version__} (Python {platform.python_version()}, "
        f"{platform.system()}). Please report it with the lines above.{saved}",
    )


def _drop_stdout() -> None:
    """Redirect stdout to the null device, so that Python does not fail at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_table(table: Table, console: Console = stdout) -> None:
    for part in to_rich(table, console.width):
        console.print(part)


def print_notes_first(table: Table) -> None:
    """Print the notes of a table as sentences, then the table if it has rows."""
    for note in table.notes:
        stdout.print(Text(one_line(note)))
    if table.rows:
        print_table(dataclasses.replace(table, notes=()))


def context_line(question: Question) -> Text:
    """Format the context of a question as one line."""
    return Text(f"  context: {one_line(question.context, 220)}", style="dim")


@contextmanager
def open_output(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that the user asked for, and report its path once it is written. Raises DataError if the
    system refuses."""
    from selfreflect.atomic import open_through

    try:
        with open_through(path) as file:
            yield file
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from error
    say(f"wrote {path}")


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file that the user asked for, as :func:`open_output` does."""
    with open_output(path) as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def check_file(output: Path, source: str = "") -> None:
    """Refuse an output path that is a directory, lacks a parent directory or is the input."""
    with suppress(OSError):  # whoever reads or writes the file says what is wrong
        if not output.parent.is_dir():
            raise ConfigError(
                f"{output}: there is no directory {output.parent}. Make it first", code="no_directory"
            )
        if output.is_dir():
            raise ConfigError(f"{output} is a directory; name a file in it", code="is_directory")
        if output.samefile(source):
            raise ConfigError(
                f"{output} would replace the questions; name another file", code="output_is_input"
            )


def check_output(output: Sequence[Path], source: str = "", kinds: Sequence[str] = REPORTS) -> None:
    """Refuse output paths of an unknown kind, or that cannot be written, before any work."""
    for path in output:
        if path.suffix not in kinds:
            raise ConfigError(
                f"{path}: the name must end in {listed(kinds, 'or')}",
                code="suffix",
                remedy="Give {output} another name.",
            )
        check_file(path, source)


def write_folder(folder: Path, files: Mapping[str, bytes], overwrite: bool) -> None:
    """Write files into a folder that the user asked for; a new folder gets all files or is not made.

    Raises:
        DataError: one of them is there and ``overwrite`` is False, or the system refuses.
    """
    from selfreflect.atomic import write_files

    try:
        names = dict.fromkeys(name.partition("/")[0] for name in files if (folder / name).exists())
        if names and not overwrite:
            raise DataError(
                f"already there in {folder}: {', '.join(names)}",
                code="exists",
                remedy="Use another directory, or {overwrite}.",
            )
        write_files(folder, files)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error.strerror}. Use another directory") from error


def refuse_run_directory(folder: Path) -> None:
    """Raise DataError if the folder to write is a run directory."""
    from selfreflect.store.manifest import MANIFEST

    if (folder / MANIFEST).exists():
        raise DataError(
            f"{folder} is a run directory",
            code="run_directory",
            remedy="Use another directory for {output}.",
        )


def make_folder(path: Path) -> None:
    """Make a directory that the user asked for. Raises DataError if the system refuses."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be made: {error.strerror}") from error


def duration(seconds: float) -> str:
    """Format a duration, such as ``45 s``, ``1 min 30 s`` or ``12 min``."""
    # what rounds to 60 s is written as a minute
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    if seconds < 595:
        tens = round(seconds / 10) * 10
        return f"{tens // 60} min {tens % 60} s" if tens % 60 else f"{tens // 60} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


class StageProgress:
    """Progress of a stage, and an estimate of the time left."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.failed = 0
        self.work = WorkDone()
        self.note = ""
        """Latest message, until further work is done."""
        self._start = self._last_end = monotonic()
        self._first_work: float | None = None

    def advance(self, count: int = 1, failures: int = 0) -> None:
        self.done += count
        self.failed += failures
        self.note = ""
        self._last_end = monotonic()

    def add(self, work: WorkDone) -> None:
        """Add finished work. The clock starts with the first work, after loading."""
        if self._first_work is None:
            self._first_work = monotonic()
        self.work += work
        if work.ended:
            self._last_end = monotonic()
        if work.ended or work.tokens:
            self.note = ""

    @property
    def fraction(self) -> float:
        """Share of the work that is done, in sequences if a model generates any."""
        finished = self.done + self.failed
        work = self.work
        if finished >= self.total:
            return 1.0
        if work.requested <= 0:
            share = min(1.0, work.tokens / work.planned) if work.planned > 0 else 0.0
            return max(finished / self.total, min(1.0, share * work.units / self.total))
        # questions that were not begun will ask for as many sequences each as those that were
        not_begun = max(0, self.total - work.units) / max(1, work.units)
        return min(1.0, work.ended / (work.requested * (1 + not_begun)))

    def seconds_left(self) -> float | None:
        """Estimate the time left at the current speed; None at the start.

        The last sequences may be the longest, or read the longest prompts. So nothing is expected to end
        sooner than in the time for which nothing has ended by now.
        """
        fraction = self.fraction
        if not fraction or 0 < self.work.ended < min(FEWEST_ENDED, self.work.requested):
            return None
        if self.work.requested <= 0 and 0 < self.work.planned <= self.work.tokens:
            return None  # all is read, and predictions are compared
        # loading a model is no work whose speed tells how long the rest takes
        since = self._start if self._first_work is None else self._first_work
        left = (monotonic() - since) * (1 - fraction) / fraction
        return left if self.work.requested <= 0 else max(left, monotonic() - self._last_end)

    @property
    def counts(self) -> str:
        """The counts as ``2 of 6, 1 failed``."""
        failures = f", {self.failed:,} failed" if self.failed else ""
        return f"{self.done:,} of {self.total:,}{failures}"

    @property
    def elapsed(self) -> float:
        """Seconds since the stage began."""
        return monotonic() - self._start

    def details(self) -> list[str]:
        """Describe the time left, tokens and speed, as known so far. Narrow terminals cut the end."""
        parts = []
        left = self.seconds_left()
        if left is not None and self.done + self.failed < self.total:
            parts.append(f"about {duration(left)} left")
        if self.work.tokens and self._first_work is not None:
            per_second = self.work.tokens / max(monotonic() - self._first_work, 1e-3)
            parts += [f"{self.work.tokens:,} tokens", f"{per_second:,.0f} tokens/s"]
        return parts


class ReadingProgress:
    """Progress reporter for reading a file, if that takes long."""

    def __init__(self, source: str) -> None:
        self._name = source_name(source)
        self._start = self._said = monotonic()

    def __call__(self, share: float) -> None:
        now = monotonic()
        if now - self._said < SECONDS_BETWEEN_READINGS or not share:
            return
        self._said = now
        left = duration((now - self._start) * (1 - share) / share)
        say(one_line(f"reading {self._name}: {percent(share)}, about {left} left"))


class _Details(ProgressColumn):
    """Counts and details of a stage, redrawn with every refresh of the bar."""

    max_refresh = 0.5

    def __init__(self, stage: StageProgress) -> None:
        super().__init__(table_column=rich.table.Column(no_wrap=True, overflow="ellipsis"))
        self._stage = stage

    def render(self, task: Task) -> Text:
        stage = self._stage
        note = [one_line(printable(stage.note), 60)] if stage.note else []
        return Text(" · ".join([stage.counts, duration(stage.elapsed), *stage.details(), *note]))


class ProgressReporter:
    """Progress reporter of an experiment: bars on a terminal, otherwise lines."""

    def __init__(self) -> None:
        self._name = ""
        self._stage = StageProgress(0)
        self._move_bar: Callable[[], None] = lambda: None

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
    def stage(self, name: str, total: int) -> Iterator[ProgressReporter]:
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
                self._move_bar = lambda: None

    @contextmanager
    def _lines(self) -> Iterator[None]:
        """Print a line at the beginning and the end, and twice a minute in a thread."""
        name, stage, ended = self._name, self._stage, Event()

        def repeat() -> None:
            while not ended.wait(SECONDS_BETWEEN_LINES):
                state = ", ".join([f"{stage.counts} after {duration(stage.elapsed)}", *stage.details()])
                say(f"{name}: {state}; {stage.note}" if stage.note else f"{name}: {state}")

        say(f"{name}: {stage.total:,} to do")
        # a stage may compute for minutes without a word, and logs of a cluster show only lines
        thread = Thread(target=repeat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            if stage.done or stage.failed:
                say(f"{name}: {stage.counts}, in {duration(stage.elapsed)}")
