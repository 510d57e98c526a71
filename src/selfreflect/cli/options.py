"""Options that several commands share, other than settings."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


def option(usage: str, help: str) -> Any:
    """An option of a command: ``option("--limit N", "Take only the first N items.")``."""
    name, _, metavar = usage.partition(" ")
    return typer.Option(name, metavar=metavar or None, help=help)


class Part(StrEnum):
    """A part of scores that can be left out."""

    guesses = "guesses"
    words = "words"


STRATEGIES = "greedy,basic,cot,sample_and_summarize"

Strategies = Annotated[
    str,
    option(
        "--strategies A,B",
        "How the model summarises its belief: greedy, basic, cot, twostep_cot, sample_and_summarize, "
        "concatenated_answers, or your own as package.module:function.",
    ),
]
Out = Annotated[Path, option("--out DIR", "Run directory. An existing one is resumed.")]
Fresh = Annotated[bool, option("--fresh", "Delete the records of an existing run directory and start over.")]
NumItems = Annotated[int | None, option("--limit N", "Take only the first N items.")]
NumAnswers = Annotated[int | None, option("--num-answers N", "Use the first N answers of each half.")]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.", show_default=False)]
DryRun = Annotated[
    bool,
    option(
        "--dry-run",
        "Only print what is left to do and what it costs: calls, tokens, time, and money if [prices.MODEL] "
        "in --config sets input_per_million and output_per_million. Writes nothing and asks no server; "
        "loads local models and times them for some seconds.",
    ),
]
Json = Annotated[bool, option("--json", "Print JSON lines to stdout.")]
