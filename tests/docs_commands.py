"""Runs the commands in the documentation, in order, in one empty folder: a document whose commands fail is a
bug.

Fenced blocks marked ``bash`` run with ``bash -e``, those marked ``python`` with this Python. Blocks marked
``sh`` need something that not every machine has; their title says what, and they are listed as not run. Other
blocks are output. ``python tests/docs_commands.py docs/engineer.md docs/data.md`` runs only some.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

PAGES = (
    "idea curious engineer researcher runs data python trust validate uncertainty serve sayself train scale"
)
DOCUMENTS = ("README.md", *(f"docs/{page}.md" for page in PAGES.split()))
"""In the order in which one reads them: later pages use the files of earlier ones."""
_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r'sh title="(.+)"')
_COMMAND = re.compile(r"(#!|make |pip |selfreflect |echo )")


class Block(NamedTuple):
    page: str
    language: str
    """``bash`` or ``python`` for one that runs, else nothing."""
    code: str
    needs: str
    """Why it is not run."""


def blocks(page: str, text: str) -> list[Block]:
    """Every block of commands of a page.

    Raises:
        ValueError: a block of commands neither runs nor says what it needs.
    """
    result = []
    for match in _BLOCK.finditer(text):
        mark, code = match[1], match[2]
        not_run = _NOT_RUN.fullmatch(mark)
        if mark in ("bash", "python"):
            result.append(Block(page, mark, code, ""))
        elif not_run:
            result.append(Block(page, "", code, not_run[1]))
        elif mark.startswith("sh") or _COMMAND.match(code):
            line = code.partition("\n")[0]
            raise ValueError(f'{page}: mark this block bash, or sh title="what it needs": {line}')
    return result


def run(language: str, code: str, folder: str) -> int:
    interpreter = ["bash", "-euo", "pipefail", "-c"] if language == "bash" else [sys.executable, "-c"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    return subprocess.run([*interpreter, code], cwd=folder, env=environment, check=False).returncode


def main() -> int:
    root = Path(__file__).parent.parent
    only = sys.argv[1:]
    commands: list[Block] = []
    for page in only or DOCUMENTS:
        commands += blocks(page, (root / page).read_text(encoding="utf-8"))
    to_run: list[Block] = []
    for block in commands:
        if block.language and block.code not in [one.code for one in to_run]:  # pages may share a command
            to_run.append(block)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="selfreflect-docs-") as folder:
        Path(folder, "recipes").symlink_to(root / "recipes")  # commands of a clone name them so
        for block in to_run:
            print(f"\n-- {block.page}: {block.code.splitlines()[0]}", flush=True)
            started = time.monotonic()
            if status := run(block.language, block.code, folder):
                print(f"FAILED with exit status {status}:\n{block.code}")
                return 1
            print(f"   ({time.monotonic() - started:.1f} s)", flush=True)
    print(f"\n{len(to_run)} blocks ran in {time.monotonic() - began:.0f} s. Not run:")
    for block in commands:
        if not block.language:
            print(f"  {block.page}, {block.needs}: {block.code.splitlines()[0]}")
    return 0 if to_run else 1


if __name__ == "__main__":
    sys.exit(main())
