"""``--strategies sayself``: let a trained model state its answer, its doubts and its confidence."""

from __future__ import annotations

from selfreflect.models.base import Message
from selfreflect.records import StatedParts
from selfreflect.sayself.statement import asked, parse_statement
from selfreflect.strategies.task import MalformedReplyError, StatedSummary, Strategy, Task
from selfreflect.uncertainty.question import NoValue


def sayself(task: Task) -> Strategy:
    """Ask the question alone, as the model was trained, and read the parts of what it states."""
    message = Message(role="user", content=asked(task.question.text, task.question.context))
    [reply] = yield task.request((message,), "summary")
    statement = parse_statement(reply.text)
    if isinstance(statement.confidence, NoValue):
        raise MalformedReplyError(f"it states no confidence: {statement.confidence.message}")
    if not statement.answer:
        raise MalformedReplyError("it states a confidence and no answer")
    parts = StatedParts(
        answer=statement.answer, reflection=statement.reflection, confidence=statement.confidence
    )
    return StatedSummary(reply.text, parts)
