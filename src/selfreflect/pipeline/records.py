"""The records of a run directory, as reports and studies take them."""

from __future__ import annotations

from selfreflect.report.run_records import RunRecords
from selfreflect.sources.items import Item, items_from_records
from selfreflect.store.run import Run


def run_records(run: Run, label: str | None = None) -> RunRecords:
    """What a report needs of a run directory; strategies in the order in which they were made."""
    names = dict.fromkeys(name for _, name in (*run.summaries, *run.scores, *run.information))
    names |= dict.fromkeys(failure.name for failure in run.failures if failure.name)
    return RunRecords(
        label=label or run.path.name or str(run.path),
        strategies=list(names),
        questions=run.questions,
        answers=run.answers,
        summaries=run.summaries,
        scores=run.scores,
        failures=run.failures,
        information=run.information,
        controls=run.controls,
    )


def run_items(run: Run) -> list[Item]:
    """The questions of a run that have answers, with their summaries, as items."""
    return items_from_records(run.questions, run.answers.values(), run.summaries.values())
