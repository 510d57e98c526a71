"""What a killed process would leave: the files of a folder before each change of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

Files = dict[str, bytes]
"""Contents by path in the folder."""

_CHANGES = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
_watched: list[tuple[Path, list[Files]]] = []


def files_in(folder: Path) -> Files:
    """All files in a folder, those that a writer has not renamed yet included."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def place(files: Files, folder: Path) -> Path:
    """Make a folder with these files."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@contextmanager
def moments(folder: Path) -> Iterator[list[Files]]:
    """Collect the different states of a folder in which a kill would leave it."""
    _install()
    states: list[Files] = []
    _watched.append((folder, states))
    try:
        yield states
    finally:
        _watched.clear()
    states.append(files_in(folder))


@cache
def _install() -> None:
    sys.addaudithook(_look)


def _look(event: str, arguments: tuple[object, ...]) -> None:
    """Keep the state before a call that may change a file: the interpreter announces each to this hook."""
    if not _watched or event not in _CHANGES:
        return
    folder, states = _watched.pop()  # so that our own reading is not looked at
    try:
        if str(folder) in " ".join(map(str, arguments)):
            state = files_in(folder)
            if state not in states:
                states.append(state)
    finally:
        _watched.append((folder, states))
