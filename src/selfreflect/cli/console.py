"""Write to the terminal: messages and progress to stderr, results and JSON lines to stdout."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.text import Text

from selfreflect.atomic import conflicts, write_files, write_through
from selfreflect.errors import ConfigError, DataError
from selfreflect.records import Question, dump_line
from selfreflect.render.table import Table, to_rich
from selfreflect.render.text import one_line, printable, printable_json
from selfreflect.text import counted

if TYPE_CHECKING:
    from selfreflect.report.run_records import RunRecords
    from selfreflect.store.run import Run


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would exit with 1, which means recorded failures here."""
        raise BrokenPipeError


stderr = _Console(stderr=True, highlight=False)
stdout = _Console(highlight=False)


def say(text: str) -> None:
    """Print a line to stderr. Text of models and files cannot act as markup or terminal control."""
    stderr.print(Text(printable(text)), soft_wrap=True)


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
    try:
        write_through(path, text.encode())
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from error
    say(f"wrote {path}")


def refuse_source(flag: str, output: Path, source: str) -> None:
    """Raise ConfigError if an output would replace the file that is read, by whatever name."""
    with suppress(OSError):  # one is not there, or not to be had: who reads or writes it says so
        if output.samefile(source):
            raise ConfigError(f"{flag} {output} would replace the questions; name another file")


def write_folder(folder: Path, files: Mapping[str, bytes], overwrite: bool) -> None:
    """Write the files of a folder that a user asked for, all or none.

    Raises:
        DataError: one of them is there and ``overwrite`` is False, or the system refuses.
    """
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
    from selfreflect.store.manifest import MANIFEST

    if (folder / MANIFEST).exists():
        raise DataError(f"{folder} is a run directory. Use another directory for --output")


def make_folder(path: Path) -> None:
    """Make a directory that a user asked for. Raises DataError if the system refuses."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be made: {error.strerror}") from error
