"""Show what a dry run found: the cost of each stage, as a table or as one line of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selfreflect.cli.console import emit, print_table, say, stderr
from selfreflect.pipeline.costs import cost_table, reasons_to_ask, sum_up
from selfreflect.text import one_line

if TYPE_CHECKING:
    from selfreflect.config import Config
    from selfreflect.pipeline.dry_run import DryRun


def show_costs(dry_run: DryRun, json: bool) -> None:
    """Print the costs of a dry run."""
    stages, total = sum_up(dry_run)
    if json:
        emit({"dry_run": stages, "total": total, "notes": dry_run.notes})
        return
    print_table(cost_table(stages, total))
    for note in dry_run.notes:
        say(one_line(note))
    say("dry run: nothing was written, and no server was asked.")


def announce_costs(dry_run: DryRun, config: Config) -> bool:
    """Print the costs of a run on stderr if it may take more than some minutes, or money; return whether."""
    reasons = reasons_to_ask(dry_run, config)
    if not reasons:
        return False
    print_table(cost_table(*sum_up(dry_run)), stderr)
    say("; ".join(reasons))
    return True
