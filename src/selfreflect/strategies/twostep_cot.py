"""First turn: list the possibilities. Second turn: distil them into one answer."""

from __future__ import annotations

from selfreflect.models.base import Message
from selfreflect.strategies.task import Strategy, Task


def twostep_cot(task: Task) -> Strategy:
    prompts = task.prompts.twostep_cot
    conversation = task.messages(prompts.possibilities)
    [listed] = yield task.request(conversation, "possibilities")
    if not listed.text.strip():
        return ""  # there is nothing to distil, and chat templates differ in what they make of an empty turn
    conversation += (
        Message(role="assistant", content=listed.text),
        Message(role="user", content=prompts.distil),
    )
    [reply] = yield task.request(conversation, "distil")
    return reply.text
