"""``selfreflect export``: a run directory in the layout of the published tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from selfreflect.cli import settings as o

RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.", show_default=False)]
Output = Annotated[
    Path,
    o.option("--output DIR", "Directory for questions.json, test_answers.json, summaries.json."),
]
Suffix = Annotated[
    str,
    o.option("--suffix TEXT", "Append this to names of summaries, as the published tool does."),
]
Overwrite = Annotated[bool, o.option("--overwrite", "Replace existing files.")]


def command(
    run: RunDirectory, output: Output, suffix: Suffix = "_summary", overwrite: Overwrite = False
) -> None:
    """Write a run in the layout of the published tool.

    Its scorer reads questions.json, test_answers.json and summaries.json.
    """
    from selfreflect.cli.console import exit_with, say, where
    from selfreflect.sources.published import write_published
    from selfreflect.store.run import Run

    records = Run.load(run)
    left_out = write_published(
        records.questions.values(),
        records.answers.values(),
        records.summaries.values(),
        output,
        suffix=suffix,
        overwrite=overwrite,
    )
    say(f"wrote {where(output)}")
    if left_out:
        say(
            f"{len(left_out)} questions were left out, because this layout tells questions apart by their "
            f"text and an earlier one has the same: {', '.join(left_out)}"
        )
    exit_with(len(left_out))
