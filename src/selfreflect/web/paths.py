"""Keep this machine's paths out of what clients are told of errors."""

from __future__ import annotations

import re

from selfreflect.text import printable

_START = (
    r"(?:file:[/\\]+|~(?:[A-Za-z_][\w.-]{0,63})?[/\\]+|[A-Za-z]:[/\\]+"
    r"|\.{1,2}[/\\]+|/+|\\{2,}|\\(?=[\w.$-]+\\))"
)
"""Start of a path: a file URL, a home, a drive, a relative path with dots, the root, a Windows share, a
drive's root."""

_PART = r"[^\s/\\'\"`,:;()<>|]+"

_PATH = re.compile(
    rf"(?P<url>\b(?!file:)[A-Za-z][A-Za-z0-9+.-]{{1,15}}://\S*)"
    rf"|(?<=(?P<quote>['\"])){_START}[^'\"\n]+(?=(?P=quote))"
    rf"|(?<![\w.<…/\\]){_START}(?:{_PART}(?: {_PART})*[/\\]+)*{_PART}[/\\]*"
)
"""Matches a web address, which stays; a quoted path, whatever it contains; and a bare path. A path contains a
blank only where another of its parts follows."""

_LONGEST = 2000
"""Characters of a message."""


def without_paths(message: str) -> str:
    """Shorten paths in ``message`` to ``…/name``, escape control characters, and cut long messages.

    A relative path without dots, such as ``runs/mine``, stays: it looks like the name of a model, and does
    not tell where anything is.
    """
    text = printable(_PATH.sub(_shorten, message))
    if len(text) > _LONGEST:
        return text[: _LONGEST - 1] + "…"
    return text


def _shorten(match: re.Match[str]) -> str:
    if match["url"]:
        return match[0]
    name = re.split(r"[/\\]", match[0].rstrip("/\\"))[-1]
    return f"…/{name}"
