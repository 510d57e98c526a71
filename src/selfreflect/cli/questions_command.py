"""``selfreflect questions``: look at a question source, or put its questions into a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from selfreflect.cli import options as o

MaybeOut = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Put them into this run directory instead of showing them."),
]


def command(
    questions: o.Questions = "bundled",
    limit: o.Limit = None,
    shard: o.Shard = None,
    split: o.Split = None,
    subset: o.Subset = None,
    question_column: o.QuestionColumn = None,
    seed: o.Seed = None,
    out: MaybeOut = None,
    fresh: o.Fresh = False,
    json: o.Json = False,
) -> None:
    """Show the questions of a source, or store them. Sampling with --limit is seeded and recorded."""
    from selfreflect.cli.console import emit, say, stdout
    from selfreflect.cli.stages import experiment, finish
    from selfreflect.sources.questions import load_questions

    chosen: dict[str, Any] = {
        "limit": limit,
        "split": split,
        "subset": subset,
        "question_column": question_column,
        "part": shard,
    }
    if out is not None:
        with experiment(
            out, ["questions"], {"questions": {"source": questions, "seed": seed, **chosen}}, fresh=fresh
        ) as opened:
            opened.questions()
            finish(opened, json)
        return
    from rich.text import Text

    from selfreflect.render.text import one_line

    found = load_questions(questions or "bundled", seed=seed or 0, **chosen)
    for question in found.questions:
        if json:
            emit(question)
        else:
            kind = f"  [{one_line(question.kind)}]" if question.kind else ""
            stdout.print(Text(one_line(question.text)).append(kind, style="dim"), soft_wrap=True)
    say(f"{len(found.questions)} of {found.total} questions of {found.source}")
