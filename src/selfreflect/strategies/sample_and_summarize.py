"""Draw fresh samples, show them to the model, and ask it to merge them into one answer."""

from __future__ import annotations

from selfreflect.strategies.task import Strategy, Task, draw_samples
from selfreflect.text import numbered


def sample_and_summarize(task: Task) -> Strategy:
    samples = yield from draw_samples(task)
    if not samples:
        return ""
    template = task.prompts.sample_and_summarize.user
    conversation = task.messages(template, n=str(len(samples)), answers=numbered(samples))
    [reply] = yield task.request(conversation, "summary")
    return reply.text
