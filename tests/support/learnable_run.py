"""A run directory with several measured summaries of each question, to make training data of."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from selfreflect.records import AnswerSet, Information, Question, Score, Summary, WordBits
from selfreflect.store.run import Run

ANSWERS = ("Paris.", "paris", "Lyon.", "Paris", "Paris.", "Nice.", "Paris.", "Paris.", "Lyon", "Paris.")


def information(question: str, name: str, told: list[float], available: float = 10.0) -> Information:
    """What a summary tells of held-out answers of one word each."""
    mean = sum(told) / len(told)
    return Information(
        question_id=question,
        summary=name,
        zero="empty",
        anchor="distinct",
        reader="informed",
        bits=mean,
        bits_available=available,
        recovered=mean / available,
        answers=tuple((WordBits("word", bits, available),) for bits in told),
        judge="tiny",
    )


def write_learnable(
    path: Path,
    texts: dict[str, tuple[str, list[float]]],
    *,
    questions: dict[str, str] | None = None,
    cut: Collection[str] = (),
) -> Path:
    """Write a run.

    Args:
        texts: by strategy a summary, and the bits that it tells of each held-out answer; of every question.
        questions: texts by id.
        cut: strategies whose summaries were cut off.
    """
    with Run.open(path, {}) as run:
        for id_, text in (questions or {"q0": "Which city?"}).items():
            run.append(Question(id=id_, text=text, context="Some say this.", gold=("Paris",)))
            run.append(
                AnswerSet(
                    question_id=id_, masked_out=ANSWERS[:5], conditioning=ANSWERS[5:], model="tiny student"
                )
            )
            for name, (summary, told) in texts.items():
                run.append(Summary(question_id=id_, name=name, text=summary, truncated=name in cut))
                run.append(information(id_, name, told))
                distances = tuple(0.5 - bits / 20 for bits in told)
                run.append(
                    Score(
                        question_id=id_,
                        summary=name,
                        value=sum(distances) / len(distances),
                        stderr=0.01,
                        token_tasks=len(told),
                        judge="tiny",
                        answer_means=distances,
                    )
                )
    return path
