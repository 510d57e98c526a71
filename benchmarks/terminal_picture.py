"""Turns a terminal's output (ANSI on standard input) into an SVG picture, as the README shows.

FORCE_COLOR=1 selfreflect ask "…" 2>/dev/null | python benchmarks/terminal_picture.py "selfreflect ask"
docs/ask.svg
"""

from __future__ import annotations

import io
import sys

from rich.console import Console
from rich.text import Text


def main(title: str, path: str) -> None:
    text = sys.stdin.read().rstrip("\n")
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text))
    console.save_svg(path, title=title)


if __name__ == "__main__":
    main(*sys.argv[1:])
