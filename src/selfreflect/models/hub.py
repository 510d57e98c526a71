"""Whether the Hugging Face hub can be reached. Its libraries would try for half a minute with each file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

SECONDS_TO_ANSWER = 10


def hub_answers() -> bool:
    """Whether the hub can be reached, and HF_HUB_OFFLINE does not forbid it."""
    from huggingface_hub import constants, get_session
    from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled

    try:
        get_session().head(constants.ENDPOINT, timeout=SECONDS_TO_ANSWER)
    except (HTTPError, OfflineModeIsEnabled):
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
