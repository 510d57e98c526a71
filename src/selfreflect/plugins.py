"""Loading of users' code by name or entry point, with its errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any

from selfreflect.errors import ConfigError, SelfReflectError, excerpt

USER_ERRORS = (Exception, SystemExit)
"""Errors of a user's code, including ``sys.exit(0)``, which must not end a command successfully."""


def load_function(name: str, kind: str) -> Callable[..., Any]:
    """Import the function named by ``package.module:function``.

    Modules of the working directory are found too, after installed ones. It is on ``sys.path`` only while the
    module is imported.

    Args:
        kind: ``"strategy"`` or ``"model"``, for messages.

    Raises:
        ConfigError: the module cannot be imported, or has no such function.
    """
    module, _, attribute = name.partition(":")
    try:
        with _working_directory_on_path():
            imported = import_module(module)
    except USER_ERRORS as error:
        reason = f"{type(error).__name__}: {excerpt(str(error), 200)}"
        raise ConfigError(f"{kind} {excerpt(name)}: cannot import {excerpt(module)}: {reason}") from error
    # a user's module may define anything under that name
    function = getattr(imported, attribute, None)
    if function is None:
        raise ConfigError(f"{kind} {excerpt(name)}: {excerpt(module)} has no function {excerpt(attribute)}")
    if not callable(function):
        raise ConfigError(
            f"{kind} {excerpt(name)}: {excerpt(attribute)} is not a function but {excerpt(function)}"
        )
    return function  # type: ignore[no-any-return]


@contextmanager
def _working_directory_on_path() -> Iterator[None]:
    """Add the current directory to the import path, as ``python -m`` does and console scripts do not."""
    here = str(Path.cwd())
    if here in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        # the module may have removed it already
        if here in sys.path:
            sys.path.remove(here)


def error_text(error: BaseException, file: str | None) -> str:
    """Describe an error in a user's code, with the last line of ``file`` in its traceback."""
    text = f"{type(error).__name__}: {excerpt(str(error), 200)}"
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == file]
    return f"{text} (line {lines[-1]} of {Path(str(file)).name})" if lines else text


def packaged(
    group: str, objection: Callable[[str], str] = lambda name: ""
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name and a loader of each installed entry point in ``group``, sorted by name.

    A loader raises ConfigError if the entry point cannot be loaded, or if several packages add it.

    Args:
        objection: says why a name is refused; empty if it is not.
    """
    from importlib.metadata import EntryPoint, entry_points

    def load(name: str, entries: Sequence[EntryPoint]) -> Any:
        packages = " and ".join(sorted(excerpt(entry.dist.name) for entry in entries if entry.dist))
        with failures_of(f"{group} {excerpt(name)} of the package {packages}"):
            if reason := objection(name):
                raise ValueError(reason)
            # whichever came first would win by the order of installation
            if len(entries) > 1:
                raise ValueError("several packages add this name: uninstall all of them but one")
            return entries[0].load()

    by_name: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=group)):
        by_name.setdefault(entry.name, []).append(entry)
    for name, entries in by_name.items():
        yield name, partial(load, name, entries)


@contextmanager
def failures_of(name: str) -> Iterator[None]:
    """Turn errors of a user's code into a ConfigError that names the code; pass on a SelfReflectError."""
    try:
        yield
    except SelfReflectError:
        raise
    except USER_ERRORS as error:
        raise ConfigError(f"{name} fails: {error_text(error, None)}") from error
