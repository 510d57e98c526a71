"""Take the model's ordinary answer as the summary: the baseline that hides every other possibility."""

from __future__ import annotations

from selfreflect.strategies.task import Strategy, Task


def greedy(task: Task) -> Strategy:
    [reply] = yield task.request(task.messages(), "summary")
    return reply.text
