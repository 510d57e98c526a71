"""What the page may be told of messages that were written for a terminal."""

from __future__ import annotations

import re

from selfreflect.report.text import printable

_PATH = re.compile(r"(?<![\w.:/\\])(?:~[\w.-]*|[A-Za-z]:)?(?:[/\\][^\s/\\'\",:;)]+){2,}[/\\]?")
_LONGEST = 2000


def without_paths(message: str) -> str:
    """``message`` with absolute paths of this machine cut to ``…/name``, control characters shown as escapes, and an end."""
    shown = _PATH.sub(lambda match: "…/" + re.split(r"[/\\]", match[0].rstrip("/\\"))[-1], printable(message))
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"
