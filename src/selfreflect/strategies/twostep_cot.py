"""List the possibilities in a first turn, distil them into one answer in a second."""

from __future__ import annotations

from selfreflect.models.base import Message
from selfreflect.strategies.task import Strategy, Task


def twostep_cot(task: Task) -> Strategy:
    prompts = task.prompts.twostep_cot
    conversation = task.messages(prompts.possibilities)
    [possibilities] = yield task.request(conversation, "possibilities")
    if not possibilities.text.strip():
        return ""  # nothing to distil, and chat templates treat an empty turn differently
    conversation += (
        Message(role="assistant", content=possibilities.text),
        Message(role="user", content=prompts.distil),
    )
    [reply] = yield task.request(conversation, "distil")
    return reply.text
