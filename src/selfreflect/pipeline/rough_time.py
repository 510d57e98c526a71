"""Guess how long the stages of a run take before a model has done any of the work.

A local model's pace follows from its size and one small matrix product, a server's from the two samples of
the preflight. Texts to come are as long as those of common models. All of it may be wrong by a factor of two,
so a guess is shown as a range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from selfreflect.errors import SelfReflectError
from selfreflect.models.base import ModelSpec, load_object
from selfreflect.records import SamplingCheck

if TYPE_CHECKING:
    from selfreflect.models.local.pace import ModelPace

ROUGH = "a rough guess until the first question is done"

_SHORTEST, _LONGEST = 0.5, 2.0
"""How far the time may be from a guess. Of 12 stages of four small runs on a busy machine, 11 took a time
in this range of what is guessed for them now."""

_ROWS = (1, 8, 64)
"""Numbers of sequences for which a local model's pace is guessed, so that few products are timed."""

_SAMPLE_TOKENS = 24
"""Of each of the preflight's two samples, where the server does not say."""


def rough_range(seconds: float) -> tuple[float, float]:
    """From and to around a guess, in seconds."""
    return seconds * _SHORTEST, seconds * _LONGEST


def rough_duration(seconds: float) -> str:
    """Say a guess as a range, such as ``2 to 6 min``."""
    low, high = rough_range(seconds)
    if high < 20:
        return "some seconds"
    units = ((120, 1, "s"), (7200, 60, "min"), (72 * 3600, 3600, "h"), (math.inf, 86400, "days"))
    size, unit = next((size, unit) for most, size, unit in units if high < most)
    return f"{max(1, round(low / size))} to {max(2, round(high / size))} {unit}"


def writing_seconds(
    model: ModelSpec, lengths: Mapping[int, int], prompt_tokens: float, check: SamplingCheck | None
) -> float | None:
    """Guess how long texts take to be drawn; None where nothing tells.

    Args:
        lengths: typical tokens of the texts, by the number of sequences that are asked for together.
        prompt_tokens: of all prompts.
        check: the preflight of the model's server.
    """
    if model.kind == "openai":
        return None if check is None else _server_seconds(check, model.max_connections, lengths)
    largest = min(model.batch_size or _ROWS[-1], _ROWS[-1])
    seconds = 0.0
    for count, tokens in lengths.items():
        rows = max(size for size in _ROWS if size <= max(1, min(count, largest)))
        pace = _pace(model, rows)
        if pace is None:
            return None
        seconds += tokens * pace.writing
    pace = _pace(model, _ROWS[0])
    return None if pace is None else seconds + prompt_tokens * pace.reading


def _server_seconds(check: SamplingCheck, connections: int, lengths: Mapping[int, int]) -> float | None:
    """As many calls at a time as the settings allow, each as fast as the two samples were."""
    if not check.seconds:
        return None
    per_token = check.seconds / (check.tokens / 2 or _SAMPLE_TOKENS)
    return sum(per_token * tokens / max(1, min(count, connections)) for count, tokens in lengths.items())


def reading_seconds(judge: ModelSpec, tokens: float) -> float | None:
    """Guess how long a judge reads so many tokens; None where nothing tells."""
    pace = _pace(judge, _ROWS[0])
    return None if pace is None else tokens * pace.reading


def _pace(model: ModelSpec, rows: int) -> ModelPace | None:
    if model.kind != "local":
        return None
    try:
        pace: ModelPace | None = load_object("selfreflect.models.local.pace:guess_pace")(model, rows)
    except SelfReflectError:  # loading the model says what is wrong
        return None
    return pace
