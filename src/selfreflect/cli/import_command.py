"""``selfreflect import``: files of the published tool, a file of items, or other run directories, into a run
directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from selfreflect.cli import options as o

Parts = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[RUN...]",
        help="Run directories of one question set (--shard), to be joined into a new one.",
        show_default=False,
    ),
]
QuestionsFile = Annotated[
    Path | None, typer.Option("--questions", metavar="FILE", help="questions.json of the published tool.")
]
AnswersFile = Annotated[
    Path | None, typer.Option("--answers", metavar="FILE", help="test_answers.json of the published tool.")
]
SummariesFile = Annotated[
    Path | None, typer.Option("--summaries", metavar="FILE", help="summaries.json of the published tool.")
]
Items = Annotated[
    str | None,
    typer.Option("--items", metavar="FILE", help="A file as `selfreflect score --items` takes it."),
]
LeaveOut = Annotated[
    list[str] | None,
    typer.Option(
        "--leave-out",
        metavar="PART",
        help="With run directories: leave guesses (what the judge expected) or words (the distance of each, most of a directory) behind. "
        "May be repeated.",
    ),
]


def command(
    out: o.Out,
    runs: Parts = None,
    questions: QuestionsFile = None,
    answers: AnswersFile = None,
    summaries: SummariesFile = None,
    items: Items = None,
    num_answers: Annotated[
        int | None, typer.Option("--num-answers", metavar="N", help="With --items: first N of each half.")
    ] = None,
    limit: o.NumItems = None,
    leave_out: LeaveOut = None,
) -> None:
    """Turn existing files into a run directory, to be scored resumably and compared with other runs; or join
    the parts of a run."""
    from selfreflect.cli.console import say
    from selfreflect.cli.show import where
    from selfreflect.sources.items import read_items
    from selfreflect.sources.published import read_published
    from selfreflect.store.run import Run

    published = (questions, answers, summaries)
    if [items is not None, any(published), bool(runs)].count(True) != 1:
        raise typer.BadParameter(
            "give either --items FILE, or some of --questions, --answers and --summaries, or run directories to join"
        )
    if items is None and (num_answers, limit) != (None, None):
        raise typer.BadParameter("--num-answers and --limit belong to --items FILE")
    if leave_out and not runs:
        raise typer.BadParameter("--leave-out belongs to run directories")
    if runs:
        _join(runs, out, leave_out or [])
        return
    if items is None:
        asked, drawn, made = read_published(*published)
    else:
        found = read_items(items, limit=limit, num_answers=num_answers)
        asked = [item.question_record for item in found]
        drawn = [item.answer_set for item in found]
        made = [summary for item in found for summary in item.summary_records]
    with Run.open(out, {}) as run:
        run.append_all([question for question in asked if question.id not in run.questions])
        run.append_all([answer for answer in drawn if answer.question_id not in run.answers])
        run.append_all(
            [summary for summary in made if (summary.question_id, summary.name) not in run.summaries]
        )
        counts = (
            f"{len(run.questions)} questions, {len(run.answers)} answer sets, {len(run.summaries)} summaries"
        )
    say(f"{where(out)}: {counts}. Score them with: selfreflect score --out {where(out)}")


def _join(runs: Sequence[Path], out: Path, leave_out: Sequence[str]) -> None:
    from selfreflect.cli.console import say
    from selfreflect.cli.show import where
    from selfreflect.errors import excerpt
    from selfreflect.records import AnswerSet, Question, Record, Score, Summary
    from selfreflect.store.merge import merge_runs
    from selfreflect.store.trim import PARTS

    for part in leave_out:
        if part not in PARTS:
            raise typer.BadParameter(f"--leave-out {part}: it must be {' or '.join(PARTS)}")
    joined = merge_runs(runs, out, leave_out=leave_out)
    kinds: dict[type[Record], str] = {
        Question: "questions",
        AnswerSet: "answer sets",
        Summary: "summaries",
        Score: "scores",
    }
    say(f"{where(out)}: " + ", ".join(f"{joined.records[kind]} {name}" for kind, name in kinds.items()))
    if joined.repeated:
        id_, (kept, other) = next(iter(joined.repeated.items()))
        say(
            f"{len(joined.repeated)} questions are in several directories, such as {excerpt(id_)} in {where(kept)} and {where(other)}; "
            "records of the first were kept."
        )
    lacking = (joined.expected or 0) - joined.records[Question]
    if lacking > 0:
        absent = ", ".join(map(str, joined.absent))
        say(
            f"{lacking} of {joined.expected} questions are in none of them{f': no directory holds part {absent}' if absent else ''}."
        )
