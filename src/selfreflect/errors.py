"""Exceptions of this package. A message names the problem and its place; a remedy says what to do. No message
contains a secret, and each quotes text from files or models with :func:`excerpt`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, requires
from typing import Any


class SelfReflectError(Exception):
    """Base class of all errors. The command line prints the message without a traceback and exits with 2.

    Args:
        message: what is wrong, and where. It names no flag; ``str(error)`` adds the remedy to it.
        code: a word that programs read, such as ``"unreachable"``; by default the code of the class.
        remedy: what to do about it. Names in braces are settings (``{answers.base_url}``) or options of the
            command (``{out}``); whoever shows the error words them, see :meth:`worded`.
        fields: the values that the message speaks of, by name.
    """

    code = "error"

    def __init__(self, message: str = "", *, code: str = "", remedy: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.remedy = remedy
        self.fields = fields

    @property
    def message(self) -> str:
        """The error message without the remedy."""
        return str(self.args[0]) if self.args else ""

    def worded(self, name_of: Callable[[str], str] | None = None) -> str:
        """Join the message and its remedy.

        Args:
            name_of: words a name of the remedy, ``"answers.base_url"`` or ``"out"``. By default its key.
        """
        if not self.remedy:
            return self.message
        stop = "" if self.message.endswith((".", "!", "?", "…")) else "."
        return f"{self.message}{stop} {worded(self.remedy, name_of)}"

    def __str__(self) -> str:
        return self.worded()

    def __reduce__(self) -> tuple[Any, ...]:
        # classes with arguments of their own cannot be made again from the message
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(kind: type[SelfReflectError], args: tuple[Any, ...]) -> SelfReflectError:
    return kind.__new__(kind, *args)


_NAME = re.compile(r"\{([a-z]\w*(?:\.\w+)*)\}")


def worded(remedy: str, name_of: Callable[[str], str] | None = None) -> str:
    """Replace the setting names in braces of a remedy.

    A remedy may quote untrusted text, which is why it is no format string.
    """
    return _NAME.sub(lambda match: name_of(match[1]) if name_of else match[1].rpartition(".")[2], remedy)


def names_in(remedy: str) -> list[str]:
    """List the settings and options that a remedy names: ``["answers.base_url", "out"]``."""
    return _NAME.findall(remedy)


class ConfigError(SelfReflectError):
    """An unknown, mistyped or contradictory setting."""

    code = "setting"


class DataError(SelfReflectError):
    """An unusable file or record of the user; the message names file, record and field."""

    code = "data"


class StoreError(SelfReflectError):
    """A run directory that cannot be read or written, or that was made with other settings."""

    code = "store"


class BackendError(SelfReflectError):
    """A generator that could not be loaded or stopped working.

    Fields: ``status``, the HTTP status of its server; ``wait``, the seconds that the server asked to wait.
    """

    code = "backend"

    @property
    def status(self) -> int:
        """HTTP status of the server's response; 0 if there was none."""
        return int(self.fields.get("status", 0))

    @property
    def wait(self) -> float | None:
        """Seconds that the server asked the client to wait; None if it did not."""
        return self.fields.get("wait")


class JudgeError(SelfReflectError):
    """A judge that could not be loaded, or that lacks full logits or a fast tokenizer."""

    code = "judge"


class MissingExtraError(SelfReflectError):
    """A missing optional package; the message names the extra that installs it."""

    code = "missing_extra"

    def __init__(self, purpose: str, extra: str) -> None:
        packages = " ".join(f"'{package}'" for package in requirements(extra))
        super().__init__(
            f"{purpose} needs an optional package. Install it with: pip install '.[{extra}]' in a clone of "
            f"selfreflect, or anywhere with: pip install {packages}",
            extra=extra,
        )


@contextmanager
def optional(purpose: str, extra: str) -> Iterator[None]:
    """Convert a failed import of an optional package to MissingExtraError."""
    try:
        yield
    except ImportError:
        raise MissingExtraError(purpose, extra) from None


def requirements(extra: str = "") -> list[str]:
    """List the requirements of this package or of one extra, as pip accepts them:
    ``["matplotlib>=3.10"]``."""
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
    """Describe a missing required package in a sentence; None for any other module."""
    name = (error.name or "").partition(".")[0]
    for requirement in requirements():
        # the name of another package may begin with this one
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
    """Suggest a similar name, as ``" Did you mean 'x'?"``; empty if none is close."""
    import difflib

    close = difflib.get_close_matches(name, names, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def unknown_name(kind: str, name: str, known_names: Iterable[str]) -> ConfigError:
    """Make the error for an unknown name."""
    names = list(known_names)
    message = f"no {kind} {excerpt(name)}.{nearest(name, names)} Known: {', '.join(names)}"
    return ConfigError(message, code="unknown_name", name=name)
