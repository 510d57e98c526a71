"""Run the commands in the documentation, in order, in one empty folder.

Fenced blocks marked ``bash`` or ``python`` run. Those marked ``sh`` need something that few machines have;
their title says what. ``python tests/docs_commands.py docs/data.md`` runs only some pages.
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

import yaml

PAGES = " ".join(
    (
        "idea curious engineer ci researcher runs report data inspect lm-eval python trust judge validate",
        "uncertainty estimators guarantee fields claims serve show sayself train gpu scale",
    )
)
DOCUMENTS = ("README.md", *(f"docs/{page}.md" for page in PAGES.split()))
"""In the order in which one reads them: later pages use the files of earlier ones."""
ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r'sh title="(.+)"')
_COMMAND = re.compile(r"(#!|make |pip |selfreflect |echo )")
_RUN = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}


class Block(NamedTuple):
    page: str
    language: str
    """Empty for one that is not run."""
    code: str
    needs: str


def blocks(page: str, text: str) -> list[Block]:
    """List the blocks of commands of a page. Raises ValueError for one that neither runs nor says why."""
    result = []
    for mark, code in _BLOCK.findall(text):
        not_run = _NOT_RUN.fullmatch(mark)
        if mark in _RUN:
            result.append(Block(page, mark, code, ""))
        elif not_run:
            result.append(Block(page, "", code, not_run[1]))
        elif mark.startswith("yaml"):
            result += workflow_steps(page, code)
        elif mark.startswith("sh") or _COMMAND.match(code):
            raise ValueError(f'{page}: mark this block bash, or sh title="what it needs": {code[:60]}')
    return result


def workflow_steps(page: str, code: str) -> list[Block]:
    """List the commands of a workflow of GitHub Actions as its runner takes them, but for installations.

    Raises ValueError for a file that is no workflow.
    """
    workflow = yaml.safe_load(code)
    # YAML 1.1 reads the key "on" as true
    if not (isinstance(workflow, dict) and {"jobs", True} <= workflow.keys()):
        raise ValueError(f"{page}: a block marked yaml is a workflow of GitHub Actions")
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    commands = [step["run"].strip() for step in steps if "run" in step]
    if not all("uses" in step or "run" in step for step in steps) or not commands:
        raise ValueError(f"{page}: a step of the workflow neither uses nor runs anything")
    return [
        Block(page, "", command, "installs a package")
        if command.startswith("pip ")
        else Block(page, "bash", command, "")
        for command in commands
    ]


def main(pages: list[str]) -> int:
    every = [block for page in pages for block in blocks(page, (ROOT / page).read_text(encoding="utf-8"))]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    to_run = {block.code: block for block in every if block.language}  # pages may share a command
    with tempfile.TemporaryDirectory(prefix="selfreflect-docs-") as folder:
        Path(folder, "recipes").symlink_to(ROOT / "recipes")  # commands of a clone name them so
        for code, block in to_run.items():
            print(f"\n-- {block.page}: {code.splitlines()[0]}", flush=True)
            started = time.monotonic()
            if status := subprocess.run(
                [*_RUN[block.language], code], cwd=folder, env=environment
            ).returncode:
                print(f"FAILED with exit status {status}:\n{code}")
                return 1
            print(f"   ({time.monotonic() - started:.1f} s)", flush=True)
    for block in every:
        if block.needs:
            print(f"not run: {block.page}, {block.needs}: {block.code.splitlines()[0]}")
    return 0 if to_run else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or [*DOCUMENTS]))
