"""Where things are kept that are costly to get and the same for every run: the embedded model, compiled
code."""

from __future__ import annotations

import os
from pathlib import Path

from selfreflect.errors import BackendError


def cache_directory() -> Path:
    """``$SELFREFLECT_CACHE``, else ``$XDG_CACHE_HOME/selfreflect``, else ``~/.cache/selfreflect``. Creates
    nothing.

    Raises:
        BackendError: the directory is below the home of a user who has none.
    """
    try:
        if own := os.environ.get("SELFREFLECT_CACHE"):
            return Path(own).expanduser().absolute()
        shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
        if shared.is_absolute():  # the XDG rules say that a relative path is to be ignored
            return shared / "selfreflect"
        return Path.home() / ".cache" / "selfreflect"
    except RuntimeError as error:
        raise BackendError(
            "there is no home directory to keep the cache in; set SELFREFLECT_CACHE to a directory"
        ) from error
