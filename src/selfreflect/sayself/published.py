"""Count as SaySelf's published evaluation does, so that its figures can be compared with ours.

There a judge gives each answer a score from 1 to 10. The accuracy is the mean score, an answer from 7 on
counts as right for AUROC, and "ECE" is the mean distance of confidence and score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from selfreflect.sayself.clusters import ClusteredQuestion
from selfreflect.sayself.evaluation import Evaluation
from selfreflect.sayself.prompts import user_message
from selfreflect.sayself.statement import parse_confidence
from selfreflect.stats import defined
from selfreflect.store.replies import ModelReplies
from selfreflect.table import Column, Table
from selfreflect.text import quoted
from selfreflect.train.parsing import StatedBelief
from selfreflect.uncertainty.asking.asker import Asker, Inquiry, reply_text
from selfreflect.uncertainty.prediction import Tally, auroc
from selfreflect.uncertainty.question import NoValue

WORST_GRADE = 0.1
RIGHT_FROM = 0.7


def read_score(reply: ModelReplies) -> float | NoValue:
    """Read ``Score: 7`` as 0.7, by the rules of :func:`parse_confidence`."""
    text = reply_text(reply)
    return text if isinstance(text, NoValue) else parse_confidence(text.rpartition("Score:")[2])


def grade_answers(
    questions: Sequence[ClusteredQuestion], statements: Sequence[StatedBelief], asker: Asker
) -> list[float | None]:
    """Let a judge compare the answer part of each statement with the right answers.

    Returns:
        Grades from 0.1 to 1; a blank answer has the worst. None without a right answer, or if the judge gives
        no score from 1 to 10.
    """
    inquiries = {}
    for place, (question, statement) in enumerate(zip(questions, statements, strict=True)):
        if question.gold and statement.answer:
            values = {
                "question": quoted(question.asked),
                "gold": " or ".join(map(quoted, question.gold)),
                "answer": quoted(statement.answer),
            }
            inquiries[place] = Inquiry("grade", (user_message("grade", values),), max_new_tokens=48)
    replies = dict(zip(inquiries, asker.ask(list(inquiries.values())), strict=True))
    grades: list[float | None] = []
    for place, (question, statement) in enumerate(zip(questions, statements, strict=True)):
        grade: float | NoValue | None = WORST_GRADE if question.gold and not statement.answer else None
        if place in replies:
            grade = read_score(replies[place])
        grades.append(grade if isinstance(grade, float) and grade >= WORST_GRADE else None)
    return grades


class PublishedFigures(NamedTuple):
    """The figures of one method; None where they are undefined."""

    n: int
    """Answers with a grade."""
    accuracy: float | None
    """Mean grade."""
    ece: float | None
    """Mean distance of the confidence from the grade, over answers that have both."""
    auroc: float | None


def published_figures(evaluation: Evaluation, grades: Sequence[float | None]) -> PublishedFigures:
    """Compute the figures of the published code. Only its clamping of confidences is left out: one above 10
    has no value."""
    valid = defined(grades)
    confidences, paired_grades = [], []
    for statement, grade in zip(evaluation.statements, grades, strict=True):
        if grade is not None and not isinstance(statement.confidence, NoValue):
            confidences.append(statement.confidence)
            paired_grades.append(grade)
    distances = [abs(one - other) for one, other in zip(confidences, paired_grades, strict=True)]
    labels = [grade >= RIGHT_FROM for grade in paired_grades]
    return PublishedFigures(
        len(valid),
        sum(valid) / len(valid) if valid else None,
        sum(distances) / len(distances) if distances else None,
        float(auroc(Tally.of(confidences, labels))) if len(set(labels)) > 1 else None,
    )


def published_table(figures: Mapping[str, PublishedFigures], judge: str) -> Table:
    """A row per method."""
    columns = (
        Column("method"),
        Column("n", "d"),
        Column("graded accuracy", ".3f"),
        Column("published ECE", ".3f"),
        Column("AUROC, right from 7", ".3f"),
    )
    rows = tuple((method, *of_method) for method, of_method in figures.items())
    notes = (
        "Grades from 1 to 10 count as tenths. published ECE: mean distance of confidence and grade, not "
        "binned.",
    )
    return Table(f"Counted as published, with grades of {judge}", columns, rows, notes)
