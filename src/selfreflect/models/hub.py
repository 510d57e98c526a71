"""Whether the Hugging Face hub can be reached. Its libraries would try for half a minute with each file."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS_TO_ANSWER = 10
_REMEMBERED = 60
"""Seconds for which a hub is not asked again: each stage looks for its model there, and a silent hub takes
all the time that it gets."""
_asked: dict[str, tuple[float, bool]] = {}
"""When a hub was last asked, and whether it answered, by its address."""


def hub_answers() -> bool:
    """Whether the hub can be reached, and HF_HUB_OFFLINE does not forbid it."""
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return False
    moment, answers = _asked.get(constants.ENDPOINT, (-math.inf, False))
    if time.monotonic() - moment > _REMEMBERED:
        answers = _answers(constants.ENDPOINT)
        _asked[constants.ENDPOINT] = time.monotonic(), answers
    return answers


def _answers(address: str) -> bool:
    from huggingface_hub import get_session
    from huggingface_hub.errors import HTTPError

    try:
        get_session().head(address, timeout=SECONDS_TO_ANSWER)
    except (HTTPError, OSError, ValueError):  # the last two of settings: a proxy, a file of certificates
        return False
    return True


@contextmanager
def datasets_offline() -> Iterator[None]:
    """Let ``datasets`` use only what is on this disk."""
    import datasets
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before
