"""``selfreflect import``: files, items or other run directories into a run directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from selfreflect.cli import settings as o
from selfreflect.errors import ConfigError

Shards = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[RUN...]",
        help="Run directories of one question set (--shard) to join into a new one.",
        show_default=False,
    ),
]
QuestionsFile = Annotated[Path | None, o.option("--questions FILE", "questions.json of the published tool.")]
AnswersFile = Annotated[Path | None, o.option("--answers FILE", "test_answers.json of the published tool.")]
SummariesFile = Annotated[Path | None, o.option("--summaries FILE", "summaries.json of the published tool.")]
Items = Annotated[
    str | None,
    o.option("--items FILE", "A file of items, as `selfreflect score --items` reads it."),
]
LeaveOut = Annotated[
    list[o.Part] | None,
    o.option(
        "--leave-out PART",
        "Join run directories without guesses (what the judge expected) or words (the distance of each word, "
        "most of a directory). Can be repeated.",
    ),
]


def command(
    out: o.Out,
    runs: Shards = None,
    questions: QuestionsFile = None,
    answers: AnswersFile = None,
    summaries: SummariesFile = None,
    items: Items = None,
    num_answers: o.NumAnswers = None,
    limit: o.NumItems = None,
    leave_out: LeaveOut = None,
) -> None:
    """Turn files into a run directory, or join runs.

    Then score it with `selfreflect score --out DIR`, and compare it with other runs.
    """
    published = (questions, answers, summaries)
    if [items is not None, any(published), bool(runs)].count(True) != 1:
        raise ConfigError(
            "give either --items FILE, or some of --questions, --answers and --summaries, or run "
            "directories to join"
        )
    if items is None and (num_answers, limit) != (None, None):
        raise ConfigError("--num-answers and --limit belong to --items FILE")
    if leave_out and not runs:
        raise ConfigError("--leave-out belongs to run directories")
    if runs:
        _join(runs, out, leave_out or [])
        return
    from selfreflect.cli.console import say, where
    from selfreflect.sources.items import read_items
    from selfreflect.sources.published import read_published
    from selfreflect.store.run import Run

    if items is None:
        question_records, answer_sets, summary_records = read_published(*published)
    else:
        records = read_items(items, limit=limit, num_answers=num_answers)
        question_records = [item.question_record for item in records]
        answer_sets = [item.answer_set for item in records]
        summary_records = [summary for item in records for summary in item.summary_records]
    with Run.open(out, {}) as run:
        run.append_all(record for record in question_records if record.id not in run.questions)
        run.append_all(record for record in answer_sets if record.question_id not in run.answers)
        run.append_all(
            record for record in summary_records if (record.question_id, record.name) not in run.summaries
        )
        counts = (
            f"{len(run.questions)} questions, {len(run.answers)} answer sets, {len(run.summaries)} summaries"
        )
    say(f"{where(out)}: {counts}. Score them with: selfreflect score --out {where(out)}")


def _join(runs: Sequence[Path], out: Path, leave_out: Sequence[str]) -> None:
    from selfreflect.cli.console import say, where
    from selfreflect.errors import excerpt
    from selfreflect.records import AnswerSet, Question, Score, Summary
    from selfreflect.store.merge import merge_runs

    merged = merge_runs(runs, out, leave_out=leave_out)
    counts = merged.records
    say(
        f"{where(out)}: {counts[Question]} questions, {counts[AnswerSet]} answer sets, {counts[Summary]} "
        f"summaries, {counts[Score]} scores"
    )
    if merged.repeated:
        id_, (first, second) = next(iter(merged.repeated.items()))
        say(
            f"{len(merged.repeated)} questions are in several directories, such as {excerpt(id_)} in "
            f"{where(first)} and {where(second)}; records of the first were kept."
        )
    missing = (merged.expected or 0) - counts[Question]
    if missing > 0:
        shards = ", ".join(map(str, merged.absent))
        reason = f": no directory holds shard {shards}" if shards else ""
        say(f"{missing} of {merged.expected} questions are missing{reason}.")
