"""One base class for everything this package raises on purpose, and one subclass per boundary.

A message says what is wrong, where, and what to do. It never holds a secret, and text from files or models is
quoted with ``repr`` and cut.
"""

from __future__ import annotations


class SelfReflectError(Exception):
    """Base class. The command line prints its message without a traceback and exits with 2."""


class ConfigError(SelfReflectError):
    """A setting is unknown, has the wrong type, or contradicts another one."""


class DataError(SelfReflectError):
    """A file or record that the user supplied cannot be used; the message names the file, the record and the
    field."""


class StoreError(SelfReflectError):
    """The run directory cannot be read or written, or belongs to another configuration."""


class BackendError(SelfReflectError):
    """A generator could not be loaded or stopped working."""


class JudgeError(SelfReflectError):
    """A judge could not be loaded, or cannot serve as one (no full logits, no fast tokenizer)."""


class MissingExtraError(SelfReflectError):
    """An optional package is needed; the message names the extra that installs it."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs an optional package. Install it with: pip install 'selfreflect[{extra}]'"
        )


def excerpt(text: object, limit: int = 60) -> str:
    """``repr`` of ``text``, cut to about ``limit`` characters: how untrusted text is quoted in messages."""
    shown = text if isinstance(text, str) else repr(text)
    return repr(shown if len(shown) <= limit else shown[: limit - 1] + "…")


def nearest(name: str, known: list[str]) -> str:
    """``" Did you mean 'x'?"`` when one of ``known`` is close to ``name``, else an empty string."""
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def revived(name: str, message: str) -> SelfReflectError:
    """An error from another process as it was raised there."""
    kind = globals().get(name)
    if not (isinstance(kind, type) and issubclass(kind, SelfReflectError)):
        kind = SelfReflectError
    error: SelfReflectError = kind.__new__(kind, message)  # MissingExtraError makes its message itself
    return error
