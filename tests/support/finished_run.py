"""A finished run directory, written record by record."""

from __future__ import annotations

from pathlib import Path

from selfreflect.records import (
    AnswerSet,
    Control,
    Controls,
    Failure,
    Information,
    Question,
    Score,
    Summary,
    WordBits,
    WordDistance,
)
from selfreflect.store.run import Run


def write_run(
    path: Path,
    text: str = "What first?",
    *,
    strategy: str = "greedy",
    count: int = 1,
    failed: str = "",
    informed: bool = False,
) -> Path:
    """Write a finished run of ``count`` questions, with bits and controls if ``informed``."""
    with Run.open(path, {}) as run:
        for number in range(count):
            id_ = f"q{number}"
            run.append(Question(id=id_, text=text if number == 0 else f"{text} {number}"))
            run.append(
                AnswerSet(question_id=id_, masked_out=("One two.",), conditioning=("Two.",), model="tiny")
            )
            run.append(Summary(question_id=id_, name=strategy, text=f"{text} summary"))
            words = (
                WordDistance(answer=0, word=0, text="One", distances=(0.25,)),
                WordDistance(answer=0, word=1, text="two.", distances=(0.5,)),
            )
            run.append(
                Score(
                    question_id=id_,
                    summary=strategy,
                    value=0.375,
                    stderr=None,
                    token_tasks=2,
                    judge="tiny",
                    words=words,
                )
            )
            if informed:
                run.append(
                    Information(
                        question_id=id_,
                        summary=strategy,
                        zero="empty",
                        anchor="distinct",
                        reader="informed",
                        bits=6.0,
                        bits_available=10.0,
                        recovered=0.6,
                        answers=((WordBits("One", 2.0, 4.0), WordBits("two.", 4.0, 6.0)),),
                        judge="tiny",
                    )
                )
                pasted = Control(name="pasted", answers=1, words=1, bits=10.0)
                run.append(
                    Controls(
                        question_id=id_,
                        controls=(pasted,),
                        zero="empty",
                        anchor="distinct",
                        reader="informed",
                        bits_available=10.0,
                    )
                )
            if failed:
                run.append(
                    Failure(question_id=id_, stage="summaries", kind="backend", message=failed, name="basic")
                )
    return path
