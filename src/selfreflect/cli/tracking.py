"""``--log``: send results to an experiment tracker, from the commands that make them and from ``report``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from selfreflect.cli.console import say
from selfreflect.report.run_records import RunRecords
from selfreflect.store.run import Run
from selfreflect.text import one_line


def log_runs(tracker: str | None, runs: Sequence[RunRecords]) -> None:
    """Log runs that were made earlier.

    Raises:
        MissingExtraError: the tracker's package is not installed.
        DataError: the tracker refused.
    """
    if tracker is None:
        return
    from selfreflect.report.trackers import log_run

    for run in runs:
        say(one_line(f"logged {run.label}: {log_run(tracker, run)}"))


def log_result(tracker: str, records: RunRecords, out: Path | None = None) -> None:
    """Log what a command has just made; where that fails, only warn.

    Args:
        out: the run directory that holds it. If several judges scored it, the name says whose scores these
            are.
    """
    again = "" if out is None else " `selfreflect report --log` tries again."
    try:
        if out is not None and len(Run.load(out).scorings) > 1:
            records = replace(records, label=f"{records.label}, judge {records.judge}")
        log_runs(tracker, [records])
    except Exception as error:  # another program's code, which must not cost a result
        say(one_line(f"Warning: the results were not logged: {error}{again}", 600))
