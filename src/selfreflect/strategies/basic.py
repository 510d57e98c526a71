"""Ask with one prompt for everything the model considers possible."""

from __future__ import annotations

from selfreflect.strategies.task import Strategy, Task


def basic(task: Task) -> Strategy:
    [reply] = yield task.request(task.messages(task.prompts.basic.user), "summary")
    return reply.text
