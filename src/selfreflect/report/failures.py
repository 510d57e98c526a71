"""Tabulate what failed, and say what a user can do about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from selfreflect.records import STAGES, FailureKind
from selfreflect.render.table import Column, Table
from selfreflect.render.text import one_line
from selfreflect.report.run_records import RunRecords

FAILURE_COLUMNS = (
    Column("stage"),
    Column("strategy"),
    Column("kind"),
    Column("count", "d"),
    Column("question"),
    Column("example"),
)


REMEDIES: Mapping[FailureKind, str] = {
    "no_answers": "most answers are blank or refused; take another model or prompt (--prompts)",
    "blank_summary": "the model wrote nothing; take another strategy or prompt (--prompts)",
    "too_long": "use a model or judge with a larger context window, or shorter answers (--max-new-tokens)",
    "unclosed_reasoning": "in a new run (another --out), raise {tokens} or leave out --thinking",
    "cut_off": "in a new run (another --out), raise {tokens}",
    "over_budget": "raise --budget",
    "refused": "rephrase the question, or take another model",
    "content_filter": "rephrase the question, or take another server",
    "empty": "run the same command again; it tries only what failed",
    "backend": "see the message; then run the same command again, which tries only what failed",
    "malformed": "the model did not keep to the form it was asked for; take another model or strategy",
    "strategy": "mend the strategy and run the same command again, which tries only what failed",
}
"""What a user can do about a failure."""


def failure_table(run: RunRecords) -> Table:
    """Count failures by stage, strategy and kind, each with its first message as an example."""
    ranks = {name: rank for rank, name in enumerate(run.strategies)}
    groups = defaultdict(list)
    for failure in run.failures:
        rank = ranks.get(failure.name, len(ranks))
        groups[STAGES.index(failure.stage), rank, failure.name, failure.kind].append(failure)
    rows = []
    for _, failures in sorted(groups.items()):
        first = failures[0]
        example = one_line(first.message, 160)
        record = run.questions.get(first.question_id)
        question = first.question_id if record is None else one_line(record.text, 160)
        rows.append((first.stage, first.name or None, first.kind, len(failures), question, example))
    reasons = {(kind, stage == "answers"): REMEDIES[kind] for stage, _, kind, *_ in rows}
    notes = []
    for (kind, drawing), remedy in reasons.items():
        tokens = "--max-new-tokens" if drawing else "--summary-tokens"
        notes.append(f"{kind}: {remedy.format(tokens=tokens)}")
    return Table("Failures", FAILURE_COLUMNS, tuple(rows), tuple(notes))
