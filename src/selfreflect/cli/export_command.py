"""``selfreflect export``: a run directory in the layouts of the published tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.", show_default=False)]
Output = Annotated[
    Path,
    typer.Option(
        "--output", metavar="DIR", help="Directory for questions.json, test_answers.json, summaries.json."
    ),
]
Suffix = Annotated[
    str, typer.Option("--suffix", help="Added to the names of summaries; the published tool uses _summary.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")]


def command(
    run: RunDirectory, output: Output, suffix: Suffix = "_summary", overwrite: Overwrite = False
) -> None:
    """Write questions.json, test_answers.json and summaries.json as the published scorer reads them."""
    from selfreflect.cli.console import exit_with, say
    from selfreflect.cli.show import where
    from selfreflect.sources.published import write_published
    from selfreflect.store.run import Run

    loaded = Run.load(run)
    left_out = write_published(
        loaded.questions.values(),
        loaded.answers.values(),
        loaded.summaries.values(),
        output,
        suffix=suffix,
        overwrite=overwrite,
    )
    say(f"wrote {where(output)}")
    if left_out:
        say(
            f"{len(left_out)} questions share their text with an earlier one and cannot be told apart in this layout: {', '.join(left_out)}"
        )
    exit_with(len(left_out))
