"""A short calibration of a local generator: how fast it is, and how soon its completions end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from selfreflect.models.base import Completion, Reply, Request
from selfreflect.pipeline.cost import Trial

if TYPE_CHECKING:
    from selfreflect.models.local.generator import HFGenerator

TRIAL_SECONDS = 3.0
"""About how long one kind of completion is tried."""

TRIAL_SIZE = 64
"""Completions that are drawn together at most."""


def tried(generator: HFGenerator, requests: Sequence[Request]) -> Trial:
    """Draw some of the completions of ``requests``, which are of one kind, for about
    :data:`TRIAL_SECONDS`."""
    size, chosen = min(generator.batch_size, TRIAL_SIZE), list[Request]()
    for request in requests:
        left = size - sum(one.n for one in chosen)
        if left > 0:
            chosen.append(replace(request, n=min(request.n, left, max(1, size // 4))))
    limit = chosen[0].sampling.max_new_tokens

    def draw(tokens: int) -> tuple[float, list[Completion], int]:
        began = time.monotonic()
        asked = [
            replace(one, sampling=replace(one.sampling, max_new_tokens=min(tokens, limit))) for one in chosen
        ]
        replies = [reply for reply in generator.generate(asked) if isinstance(reply, Reply)]
        return (
            time.monotonic() - began,
            [each for one in replies for each in one.completions],
            sum(one.prompt_tokens for one in replies),
        )

    draw(1)  # the first call of a process is slower than the others
    first, _, prompts = draw(1)
    spent, drawn, _ = draw(8)
    more = int(8 * TRIAL_SECONDS / max(spent - first, 1e-6))
    if more > 8:
        spent, drawn, _ = draw(min(more, limit))
    return Trial(
        prompt_tokens=prompts,
        first_seconds=first,
        completions=len(drawn),
        tokens=sum(one.tokens for one in drawn),
        stopped=sum(one.finish == "stop" for one in drawn),
        seconds=spent,
    )
