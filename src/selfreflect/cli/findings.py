"""What becomes of the finding of a study: it is shown, and kept beside what is needed to make it again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from selfreflect import __version__
from selfreflect.cli.console import emit, print_table, say, stdout, where
from selfreflect.errors import MissingExtraError
from selfreflect.render.text import printable
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.folder import draw, to_lines, write
from selfreflect.validate.study import Finding


def show_finding(finding: Finding, json: bool) -> None:
    if json:
        for row in to_lines(finding):
            emit(row)
        return
    for table in finding.tables:
        print_table(table)
        stdout.print()
    for sentence in finding.says:
        stdout.print(Text(printable(sentence)))
        stdout.print()


def keep_finding(finding: Finding, made_with: dict[str, Any], out: Path) -> None:
    """Without matplotlib all but the plots is kept, and people are told."""
    folder = write(finding, made_with, out)
    try:
        draw(finding, folder)
    except MissingExtraError as error:
        say(f"no plots: {error}")
    say(f"the finding and all that belongs to it are in {where(folder)}")


def made_with(
    source: str | None, seed: int, items: int, metrics: Sequence[MetricInfo], values: Sequence[Value]
) -> dict[str, Any]:
    models = dict.fromkeys(value.by for value in values if value.by)
    return {
        "source": source or "made up",
        "items": items,
        "metrics": ", ".join(info.name for info in metrics),
        "models": "; ".join(models) or "none",
        "seed": seed,
        "selfreflect": __version__,
    }
