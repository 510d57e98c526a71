"""Runs the commands in the documentation, in order, in one empty folder: a document whose commands fail is a
bug.

Fenced blocks marked ``bash`` run with ``bash -e``, those marked ``python`` with this Python. Other blocks are
output. ``python tests/docs_commands.py docs/engineer.md docs/data.md`` runs only some.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAGES = "idea curious engineer researcher runs data python trust validate uncertainty scale"
DOCUMENTS = ("README.md", *(f"docs/{page}.md" for page in PAGES.split()))
"""In the order in which one reads them: later pages use the files of earlier ones."""
_BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[str, str]]:
    """(language, code) of every block to run."""
    return [(match[1], match[2]) for match in _BLOCK.finditer(text)]


def run(language: str, code: str, folder: str) -> int:
    interpreter = ["bash", "-euo", "pipefail", "-c"] if language == "bash" else [sys.executable, "-c"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    return subprocess.run([*interpreter, code], cwd=folder, env=environment, check=False).returncode


def main() -> int:
    root = Path(__file__).parent.parent
    only = sys.argv[1:]
    commands = []
    for name in only or DOCUMENTS:
        for language, code in blocks((root / name).read_text(encoding="utf-8")):
            commands.append((name, language, code))
    with tempfile.TemporaryDirectory(prefix="selfreflect-docs-") as folder:
        for name, language, code in commands:
            print(f"\n-- {name}: {code.splitlines()[0]}", flush=True)
            started = time.monotonic()
            if status := run(language, code, folder):
                print(f"FAILED with exit status {status}:\n{code}")
                return 1
            print(f"   ({time.monotonic() - started:.1f} s)", flush=True)
    print(f"\n{len(commands)} blocks ran.")
    return 0 if commands else 1


if __name__ == "__main__":
    sys.exit(main())
