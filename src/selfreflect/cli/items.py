"""Read a file of items for a command, and say what a user should know of it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from selfreflect.cli.console import ReadingProgress, say
from selfreflect.errors import ConfigError
from selfreflect.render.text import one_line
from selfreflect.sources.items import Item, ItemFile, read_item_file, read_items, with_summaries


def load_item_file(
    source: str,
    limit: int | None = None,
    num_answers: int | None = None,
    column: Sequence[str] | None = None,
    split: str | None = None,
) -> ItemFile:
    """Read a file of items as the options --column and --split say, with progress if that takes long."""
    return read_item_file(
        source,
        limit=limit,
        num_answers=num_answers,
        columns=assigned_columns(column),
        separator=_separator(split),
        progress=ReadingProgress(source_name(source)),
    )


def load_items(
    source: str,
    limit: int | None = None,
    num_answers: int | None = None,
    column: Sequence[str] | None = None,
    split: str | None = None,
) -> list[Item]:
    """Read the items of a file that have summaries."""
    file = load_item_file(source, limit, num_answers, column, split)
    items = with_summaries(file)
    say_notes(file.notes)
    return items


def bundled_items(name: str, *, limit: int | None = None, num_answers: int | None = None) -> list[Item]:
    """Read items that come with the package."""
    with resources.as_file(resources.files("selfreflect") / "data" / f"{name}.json") as path:
        return read_items(path, limit=limit, num_answers=num_answers)


def source_name(source: str) -> str:
    """A file, or standard input for ``-``, as people call it."""
    return "standard input" if source == "-" else Path(source).name


def assigned_columns(pairs: Sequence[str] | None) -> dict[str, str]:
    """Columns by role, from pairs such as ``answer=text`` or ``answers=A1..A6``.

    Raises:
        ConfigError: one is no pair, or a role has two columns.
    """
    assigned: dict[str, str] = {}
    for pair in pairs or ():
        role, equals, name = pair.partition("=")
        if not equals:
            raise ConfigError(f"--column {pair}: write ROLE=NAME, as in --column answer=text")
        role = "answer" if role == "answers" else role
        if role in assigned:
            several = " (several with one answer each: --column answer=A1..A6)"
            raise ConfigError(
                f"--column names two columns for {role}: {assigned[role]} and {name}. Keep one"
                f"{several if role == 'answer' else ''}"
            )
        assigned[role] = name
    return assigned


def _separator(split: str | None) -> str:
    """The text of --split, in which ``\\n`` and ``\\t`` stand for a line end and a tab."""
    if split == "":
        raise ConfigError("--split is empty: write what separates the answers, as in --split ';'")
    return (split or "").replace("\\n", "\n").replace("\\t", "\t")


def say_notes(notes: Sequence[str]) -> None:
    for note in notes:
        say(one_line(f"note: {note}."))
