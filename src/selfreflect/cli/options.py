"""Options that several commands share, other than settings."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Part(StrEnum):
    """A part of scores that can be left out."""

    guesses = "guesses"
    words = "words"


STRATEGIES = "greedy,basic,cot,sample_and_summarize"

Strategies = Annotated[
    str,
    typer.Option(
        "--strategies",
        metavar="A,B",
        help="How the model summarises its belief: greedy, basic, cot, twostep_cot, sample_and_summarize, "
        "concatenated_answers, or your own as package.module:function.",
    ),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Run directory. An existing one is resumed.")]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Delete the records of an existing run directory and start over.")
]
NumItems = Annotated[int | None, typer.Option("--limit", metavar="N", help="Take only the first N items.")]
NumAnswers = Annotated[
    int | None, typer.Option("--num-answers", metavar="N", help="Use the first N answers of each half.")
]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.", show_default=False)]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Only print what is left to do and what it costs: calls, tokens, time, and money if [prices.MODEL] in "
        "--config sets input_per_million and output_per_million. Writes nothing and asks no server; loads local "
        "models and times them for some seconds.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines to stdout.")]

# For `validate`, until it takes them from the settings.
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", help="Take only N questions or items.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of everything random. [default: 0]")]
Revision = Annotated[
    str | None, typer.Option("--revision", help="Revision (commit, tag, branch) of a model from the hub.")
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        metavar="URL",
        help="Where openai:NAME is served, such as http://localhost:8000/v1. A key is read from SELFREFLECT_API_KEY, for OpenAI also from "
        "OPENAI_API_KEY. [default: https://api.openai.com/v1]",
    ),
]
MaxConnections = Annotated[
    int,
    typer.Option(
        "--max-connections",
        metavar="N",
        help="Calls to a server under way at a time; with --executor ray, from each actor.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="Time that a server has for one response. With all repetitions a call takes three times that.",
    ),
]
JudgeUrl = Annotated[
    str | None,
    typer.Option(
        "--judge-url",
        metavar="URL",
        help="Where vllm+http:NAME is served in pooling mode, such as http://localhost:8000/v1.",
    ),
]
JudgeRevision = Annotated[
    str | None, typer.Option("--judge-revision", help="Revision of a judge from the hub.")
]
JudgeDtype = Annotated[
    str | None,
    typer.Option(
        "--judge-dtype", help="auto, float32, bfloat16 or float16. [default: float32, on CUDA bfloat16]"
    ),
]
Compat = Annotated[
    str | None,
    typer.Option("--compat", help="'published' tokenises with the second BOS of the published scorer."),
]
Device = Annotated[str, typer.Option("--device", help="auto, cuda, mps or cpu.")]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with a model from the hub.")
]
