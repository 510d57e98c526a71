"""What the second stage trains on: statements that a model has begun, up to the confidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from selfreflect.models.base import Message
from selfreflect.sayself.clusters import ClusteredQuestion
from selfreflect.sayself.evaluation import ask_texts, label_statements
from selfreflect.sayself.statement import begin_statement, parse_statement
from selfreflect.train.parsing import StatedBelief
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.question import NoValue


def reinforcement_rows(
    questions: Sequence[ClusteredQuestion], asker: Asker, correctness: Correctness
) -> list[dict[str, Any]]:
    """Let a fine-tuned model answer questions, and cut its statements before the number.

    Whether an answer is correct is read from the answer alone. (The published code also searches the question
    and the reflection for the right answer, so that naming it anywhere counts.)

    Returns:
        Rows with ``question_id``, ``prompt`` (chat messages, the last one a statement that ends with
        ``Confidence:``) and ``correct``. Left out are statements without an answer or a confidence, and
        questions without a right answer.
    """
    texts = ask_texts(questions, asker)
    statements = [
        StatedBelief("", text) if isinstance(text, NoValue) else parse_statement(text) for text in texts
    ]
    labels = label_statements(questions, statements, correctness)
    rows = []
    for question, text, statement, label in zip(questions, texts, statements, labels, strict=True):
        if isinstance(text, NoValue) or not statement.is_complete or label is None:
            continue
        turns = (
            Message(role="user", content=question.asked),
            Message(role="assistant", content=begin_statement(text)),
        )
        prompt = [{"role": turn.role, "content": turn.content} for turn in turns]
        rows.append({"question_id": question.id, "prompt": prompt, "correct": label})
    return rows


def question_rows(questions: Sequence[ClusteredQuestion]) -> list[dict[str, Any]]:
    """Rows to train whole statements on: ``question_id``, ``prompt`` (the question alone) and ``gold``.
    Questions without a right answer are left out."""
    rows = []
    for question in questions:
        if question.gold:
            turn = {"role": "user", "content": question.asked}
            rows.append({"question_id": question.id, "prompt": [turn], "gold": list(question.gold)})
    return rows
