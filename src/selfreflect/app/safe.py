"""What the page may be told of messages that were written for a terminal."""

from __future__ import annotations

import re

from selfreflect.render.text import printable

_START = r"(?:file:[/\\]+|~(?:[A-Za-z_][\w.-]{0,63})?[/\\]+|[A-Za-z]:[/\\]+|\.{1,2}[/\\]+|/+|\\{2,}|\\(?=[\w.$-]+\\))"
"""A URL of a file, a home, a drive, a relative path with dots, the root, a Windows share, a drive's root."""

_PART = r"[^\s/\\'\"`,:;()<>|]+"

_PATH = re.compile(
    rf"(?P<address>\b(?!file:)[A-Za-z][A-Za-z0-9+.-]{{1,15}}://\S*)"
    rf"|(?<=(?P<quote>['\"])){_START}[^'\"\n]+(?=(?P=quote))"
    rf"|(?<![\w.<…/\\]){_START}(?:{_PART}(?: {_PART})*[/\\]+)*{_PART}[/\\]*"
)
"""An address on the web, which stays; a path in quotes, whatever is in it; a path. Blanks belong to a path
where a part of it follows."""

_LONGEST = 2000


def without_paths(message: str) -> str:
    """``message`` with the paths of this machine cut to ``…/name``, control characters shown as escapes, and
    an end.

    A relative path without dots, such as ``runs/mine``, stays: it cannot be told from the name of a model,
    and says where nothing is.
    """
    shown = printable(_PATH.sub(_cut, message))
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def _cut(match: re.Match[str]) -> str:
    return match[0] if match["address"] else "…/" + re.split(r"[/\\]", match[0].rstrip("/\\"))[-1]
