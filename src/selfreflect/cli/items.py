"""Read a file of items for a command, and say what a user should know of it."""

from __future__ import annotations

from selfreflect.cli.console import say
from selfreflect.render.text import one_line
from selfreflect.sources.items import Item, ItemFile, read_item_file, with_summaries


def load_items(source: str, limit: int | None = None, num_answers: int | None = None) -> list[Item]:
    """Read the items of a file that have summaries."""
    file = read_item_file(source, limit=limit, num_answers=num_answers)
    items = with_summaries(file)
    say_notes(file)
    return items


def say_notes(file: ItemFile) -> None:
    for note in file.notes:
        say(one_line(f"note: {note}."))
