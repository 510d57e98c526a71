"""Where to cache what is costly to get and the same for every run: the embedded model, compiled code."""

from __future__ import annotations

import os
from pathlib import Path

from selfreflect.errors import BackendError


def cache_directory() -> Path:
    """``$SELFREFLECT_CACHE``, else ``$XDG_CACHE_HOME/selfreflect``, else ``~/.cache/selfreflect``. It may not
    exist yet.

    Raises:
        BackendError: the user has no home directory.
    """
    try:
        if directory := os.environ.get("SELFREFLECT_CACHE"):
            return Path(directory).expanduser().absolute()
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        if base.is_absolute():  # the XDG rules say that a relative path is to be ignored
            return base / "selfreflect"
        return Path.home() / ".cache" / "selfreflect"
    except RuntimeError as error:
        raise BackendError(
            "there is no home directory to keep the cache in; set SELFREFLECT_CACHE to a directory"
        ) from error
