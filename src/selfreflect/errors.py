"""Exceptions of this package. A message says what is wrong, where, and what to do. It never contains a
secret, and it quotes text from files or models with :func:`excerpt`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires


class SelfReflectError(Exception):
    """Base class. The command line prints the message without a traceback and exits with 2."""


class ConfigError(SelfReflectError):
    """A setting is unknown, has the wrong type, or contradicts another."""


class DataError(SelfReflectError):
    """A user's file or record cannot be used; the message names the file, the record and the field."""


class StoreError(SelfReflectError):
    """The run directory cannot be read or written, or was created with different settings."""


class BackendError(SelfReflectError):
    """A generator could not be loaded or stopped working.

    Args:
        status: HTTP status of its server; 0 without one.
        wait: seconds that the server asked to wait.
    """

    def __init__(self, message: str = "", *, status: int = 0, wait: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.wait = wait


class JudgeError(SelfReflectError):
    """A judge could not be loaded, or lacks what a judge needs (full logits, a fast tokenizer)."""


class MissingExtraError(SelfReflectError):
    """An optional package is needed; the message names the extra that installs it."""

    def __init__(self, purpose: str, extra: str) -> None:
        packages = " ".join(f"'{package}'" for package in requirements(extra))
        super().__init__(
            f"{purpose} needs an optional package. Install it with: pip install '.[{extra}]' in a clone of "
            f"selfreflect, or anywhere with: pip install {packages}"
        )


def requirements(extra: str = "") -> list[str]:
    """What this package needs, or one of its extras does, as pip takes it: ``["matplotlib>=3.10"]``."""
    try:
        lines = requires("selfreflect") or []
    except PackageNotFoundError:  # run from a folder
        return []
    packages = []
    for line in lines:
        package, _, marker = line.partition(";")
        match = re.search(r"extra *== *['\"]([\w-]+)", marker)
        if (match[1] if match else "") == extra:
            packages.append(package.strip())
    return packages


def missing_package(error: ModuleNotFoundError) -> str | None:
    """A sentence on a package that this one needs and that is not installed; None for any other module."""
    name = (error.name or "").partition(".")[0]
    for requirement in requirements():
        if name and re.match(rf"{re.escape(name)}(?![\w-])", requirement):
            return f"the package {name} is not installed. Install it with: pip install '{requirement}'"
    return None


def excerpt(text: object, limit: int = 60) -> str:
    """Quote untrusted text for a message: its ``repr``, cut to about ``limit`` characters."""
    if not isinstance(text, str):
        text = repr(text)
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return repr(text)


def nearest(name: str, names: list[str]) -> str:
    """Return ``" Did you mean 'x'?"`` if one of ``names`` is close to ``name``, else an empty string."""
    import difflib

    close = difflib.get_close_matches(name, names, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def unknown_name(what: str, name: str, known: Iterable[str]) -> ConfigError:
    """Make the error for a name that is not among those that are known."""
    names = list(known)
    return ConfigError(f"no {what} {name!r}.{nearest(name, names)} Known: {', '.join(names)}")


def rebuild_error(name: str, message: str) -> SelfReflectError:
    """Recreate an error that another process raised, from its class name and message."""
    kind = globals().get(name)
    if not (isinstance(kind, type) and issubclass(kind, SelfReflectError)):
        kind = SelfReflectError
    error: SelfReflectError = kind.__new__(kind, message)  # MissingExtraError builds its own message
    return error
