"""Fresh samples listed as they are: what a summary could say at best, without the brevity."""

from __future__ import annotations

from selfreflect.strategies.task import Strategy, Task, draw_samples
from selfreflect.text import answer_list


def concatenated_answers(task: Task) -> Strategy:
    samples = yield from draw_samples(task)
    return answer_list(samples)
