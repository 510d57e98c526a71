"""``selfreflect import``: files of the published tool, or a file of items, into a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from selfreflect.cli import options as o

QuestionsFile = Annotated[Path | None, typer.Option("--questions", metavar="FILE", help="questions.json of the published tool.")]
AnswersFile = Annotated[Path | None, typer.Option("--answers", metavar="FILE", help="test_answers.json of the published tool.")]
SummariesFile = Annotated[Path | None, typer.Option("--summaries", metavar="FILE", help="summaries.json of the published tool.")]
Items = Annotated[str | None, typer.Option("--items", metavar="FILE", help="A file as `selfreflect score --items` takes it.")]


def command(
    out: o.Out,
    questions: QuestionsFile = None,
    answers: AnswersFile = None,
    summaries: SummariesFile = None,
    items: Items = None,
    num_answers: Annotated[int | None, typer.Option("--num-answers", metavar="N", help="With --items: first N of each half.")] = None,
    limit: o.Limit = None,
) -> None:
    """Turn existing files into a run directory, to be scored resumably and compared with other runs."""
    from selfreflect.cli.console import say
    from selfreflect.cli.show import where
    from selfreflect.items import read_items
    from selfreflect.published import read_published
    from selfreflect.records import AnswerSet, Question, Summary
    from selfreflect.store import Run

    published = (questions, answers, summaries)
    if (items is None) == (not any(published)):
        raise typer.BadParameter("give either --items FILE, or some of --questions, --answers and --summaries")
    if items is None and (num_answers, limit) != (None, None):
        raise typer.BadParameter("--num-answers and --limit belong to --items FILE")
    if items is None:
        asked, drawn, made = read_published(*published)
    else:
        found = read_items(items, limit=limit, num_answers=num_answers)
        asked = [Question(id=item.id, text=item.question) for item in found]
        drawn = [AnswerSet(question_id=item.id, masked_out=item.masked_out, conditioning=item.conditioning) for item in found]
        made = [Summary(question_id=item.id, name=name, text=text) for item in found for name, text in item.summaries.items()]
    with Run.open(out, {}) as run:
        run.append_all([question for question in asked if question.id not in run.questions])
        run.append_all([answer for answer in drawn if answer.question_id not in run.answers])
        run.append_all([summary for summary in made if (summary.question_id, summary.name) not in run.summaries])
        counts = f"{len(run.questions)} questions, {len(run.answers)} answer sets, {len(run.summaries)} summaries"
    say(f"{where(out)}: {counts}. Score them with: selfreflect score --out {where(out)}")
