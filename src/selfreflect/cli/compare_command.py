"""``selfreflect compare``: paired differences between strategies and runs on their common questions."""

from __future__ import annotations

from typing import Annotated

import typer

from selfreflect.cli import options as o
from selfreflect.cli.report_command import Runs

Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="STRATEGY",
        help="Strategy of the first run to compare with. [default: its first]",
    ),
]


def command(runs: Runs, baseline: Baseline = None, json: o.Json = False) -> None:
    """Compare every strategy with a baseline: differences, 95 % intervals, wins and losses, on the questions
    that both have scored."""
    from selfreflect.cli.console import emit
    from selfreflect.cli.show import loaded_records, print_table
    from selfreflect.errors import DataError
    from selfreflect.report.comparison import compare, comparison, contender

    records = loaded_records(runs, detail=False)
    if not records[0].strategies:
        raise DataError(
            f"{runs[0]} holds no summaries yet. Make some with: selfreflect summarize --out {runs[0]}"
        )
    base = contender(records[0], baseline or records[0].strategies[0])
    others = [
        contender(one, name)
        for place, one in enumerate(records)
        for name in one.strategies
        if place > 0 or name != base.strategy
    ]
    if not json:
        print_table(comparison(base, others))
        return
    for other in others:
        result = compare(base, other)
        paired = result.paired
        emit(
            {
                "baseline": {"run": base.label, "strategy": base.strategy},
                "run": other.label,
                "strategy": other.strategy,
                "difference": paired.difference.mean,
                "low": paired.difference.low,
                "high": paired.difference.high,
                "n": paired.difference.n,
                "questions": paired.difference.total,
                "wins": paired.wins,
                "ties": paired.ties,
                "losses": paired.losses,
                "p_value": paired.p_value,
                "sentence": result.sentence,
            }
        )
