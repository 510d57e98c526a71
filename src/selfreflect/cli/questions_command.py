"""``selfreflect questions``: look at a question source, or put its questions into a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from selfreflect.cli import settings as o
from selfreflect.cli.settings import Overrides, takes
from selfreflect.pipeline.options import ExecutionOptions

MaybeOut = Annotated[
    Path | None,
    o.option("--out DIR", "Store the questions in this run directory; show nothing."),
]


@takes("questions")
def command(overrides: Overrides, out: MaybeOut = None, fresh: o.Fresh = False, json: o.Json = False) -> None:
    """Show the questions of a source, or store them."""
    if out is not None:
        from selfreflect.cli.stages import run_stages

        run_stages(out, ["questions"], overrides, ExecutionOptions(), fresh=fresh, json=json)
        return
    from rich.text import Text

    from selfreflect.cli.console import emit, say, stdout
    from selfreflect.render.text import one_line
    from selfreflect.sources.questions import load_questions

    source = load_questions(**overrides.config().section("questions"))
    for question in source.questions:
        if json:
            emit(question)
            continue
        line = Text(one_line(question.text))
        if question.kind:
            line.append(f"  [{one_line(question.kind)}]", style="dim")
        stdout.print(line, soft_wrap=True)
    say(f"{len(source.questions)} of {source.total} questions of {source.source}")
