"""``selfreflect convert``: show how a file of items is understood, and write it in the layout of this
package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.text import Text

from selfreflect.cli.console import (
    check_file,
    emit,
    print_table,
    say,
    stdout,
    write_file,
)
from selfreflect.cli.settings import ItemOptions, Json, argument, option, takes
from selfreflect.errors import ConfigError, DataError
from selfreflect.records import dump_line
from selfreflect.sources.items import Item, ItemFile, to_plain
from selfreflect.table import Column, Table
from selfreflect.text import counted, one_line, printable


@takes()
def convert_command(
    *,
    file: str = argument("FILE", "CSV, parquet, JSON, JSONL, a log of inspect_ai, or - for stdin.", ...),
    output: Path | None = option("--output FILE", "Write the items as JSONL."),
    overwrite: bool = option("--overwrite", "Replace an existing file.", False),
    json: Json = False,
    reading: ItemOptions,
) -> None:
    """Show how a file of questions, answers and summaries is understood.

    It may hold one row per question, with a list of answers or columns answer_1, answer_2, …, or one row per
    answer; summaries may be missing. Logs of inspect_ai (.eval, .json), samples of lm-eval and layouts that
    installed packages add work too. With --output, the items are written one per line, for `selfreflect score
    --items` and `selfreflect import --items`.
    """
    if output is not None:
        if output.suffix != ".jsonl":
            raise ConfigError(f"--output {output}: the name must end in .jsonl")
        if output.exists() and not overwrite:
            raise DataError(f"{output} is already there. Use another name, or --overwrite")
        check_file("--output", output, file)
    items = reading.read(file)
    if json:
        emit(_described(items))
    else:
        _show(items)
    if output is None:
        say("Write this as JSONL with: --output items.jsonl")
        return
    write_file(output, "".join(dump_line(to_plain(item)) + "\n" for item in items.items))
    if any(item.summaries for item in items.items):
        say(f"Score it: selfreflect score --items {output}")
    else:
        say(f"Let a model summarise the answers: selfreflect import --items {output} --out DIR")


def _described(file: ItemFile) -> dict[str, Any]:
    """The layout, the columns and the counts as JSON."""
    counts = {
        "questions": len(file.items),
        "answers": sum(len(item.answer_set.answers) for item in file.items),
        "summaries": sum(len(item.summaries) for item in file.items),
    }
    found = {"layout": file.layout_name, "description": file.layout, "columns": file.columns}
    return found | counts | {"notes": file.notes}


def _show(file: ItemFile) -> None:
    stdout.print(Text(f"{file.name}: {file.layout} (layout {file.layout_name})\n"), soft_wrap=True)
    rows = [(one_line(name, 40), role) for name, role in file.columns.items()]
    print_table(Table("", (Column("column"), Column("is")), tuple(rows)))
    stdout.print(Text(f"\n{file.counts}"), soft_wrap=True)
    _show_item(file.items[0])


def _show_item(item: Item) -> None:
    """Print an item in full."""
    lines = [f"\nThe first question, {item.id}:", f"  {printable(item.question)}"]
    if item.context:
        lines.append(f"  context: {printable(item.context)}")
    for heading, answers in (("test", item.masked_out), ("reference", item.conditioning)):
        lines.append(f"  {counted(len(answers), f'{heading} answer')}:")
        lines += [f"    {printable(answer) if answer.strip() else '(blank)'}" for answer in answers]
    for name, text in item.summaries.items():
        lines.append(f"  summary {one_line(name)}: {printable(text)}")
    for name, value in item.metadata.items():
        lines.append(f"  {one_line(name)}: {printable(str(value))}")
    for line in lines:
        stdout.print(Text(line), soft_wrap=True)
