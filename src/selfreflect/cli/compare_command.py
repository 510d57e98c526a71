"""``selfreflect compare``: paired differences between strategies and runs on their common questions."""

from __future__ import annotations

from typing import Annotated

from selfreflect.cli import settings as o

Baseline = Annotated[
    str | None,
    o.option("--baseline STRATEGY", "Strategy of the first run to compare with. [default: its first]"),
]


def command(runs: o.Runs, baseline: Baseline = None, json: o.Json = False) -> None:
    """Compare strategies and runs with a baseline.

    Gives paired differences with 95 % intervals, wins and losses, on the questions that both have scored.
    """
    from selfreflect.cli.console import emit, print_table
    from selfreflect.cli.show import load_records
    from selfreflect.errors import DataError
    from selfreflect.report.comparison import compare, comparison, contenders

    records = load_records(runs, detail=False)
    if not records[0].strategies:
        raise DataError(
            f"{runs[0]} holds no summaries yet. Make some with: selfreflect summarize --out {runs[0]}"
        )
    base, *others = contenders(records, baseline)
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
