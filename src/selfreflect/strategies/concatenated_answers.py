"""List fresh samples verbatim: as informative as a summary can be, but not short."""

from __future__ import annotations

from selfreflect.strategies.task import Strategy, Task, draw_samples
from selfreflect.text import answer_list


def concatenated_answers(task: Task) -> Strategy:
    samples = yield from draw_samples(task)
    return answer_list(samples)
