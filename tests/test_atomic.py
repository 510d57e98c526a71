"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from selfreflect.atomic import open_through, write_bytes, write_files, write_through


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_made_and_replaced(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file.json"
    for data in (b"first", b"second and longer", b""):
        write_bytes(path, data, durable=durable)
        assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]


def test_who_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_bytes(tmp_path / "shared", b"")
        write_bytes(tmp_path / "private", b"", private=True)
    finally:
        os.umask(before)
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_bytes(path, bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_bytes(tmp_path / "missing" / "file", b"")


def test_a_reader_never_sees_half_a_file_when_the_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    code = (
        "import sys; from pathlib import Path; from selfreflect.atomic import write_bytes\n"
        "for number in range(10**9): write_bytes(Path(sys.argv[1]), bytes([number % 256]) * 100_000)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)]) as writer:
        while not path.exists():
            assert writer.poll() is None
        for _ in range(50):
            data = path.read_bytes()
            assert data == data[:1] * 100_000
        writer.kill()
    data = path.read_bytes()
    assert data == data[:1] * 100_000


def test_a_folder_that_cannot_be_opened_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows opens no folders, and a folder may allow everything but to list it."""

    def refuse(path: object, *arguments: Any, **options: Any) -> int:
        if path == tmp_path:
            raise PermissionError(path)
        return os_open(path, *arguments, **options)

    os_open: Any = os.open
    monkeypatch.setattr(os, "open", refuse)
    write_files(tmp_path, {"a.json": b"1"})
    assert (tmp_path / "a.json").read_bytes() == b"1"


KILLED = """
import os, signal, sys
from pathlib import Path
from selfreflect import atomic
real = atomic.write_bytes
def write_bytes(path, data, **options):
    real(path, data, **options)
    print(flush=True)
    sys.stdin.read() if {waits} else os.kill(os.getpid(), signal.SIGKILL)
atomic.write_bytes = write_bytes
atomic.write_files(Path(sys.argv[1]), {{"a": b"1", "b": b"2"}})
"""


def test_the_next_command_clears_what_a_killed_one_left(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    killed = [sys.executable, "-c", KILLED.format(waits=False), str(folder)]
    assert subprocess.run(killed, stdout=subprocess.DEVNULL).returncode == -signal.SIGKILL
    [left] = tmp_path.iterdir()
    waiting = [sys.executable, "-c", KILLED.format(waits=True), str(tmp_path / "out.json")]
    kept = tmp_path / "out.json.0123abcd.partial.txt"
    kept.write_text("of somebody else")
    (tmp_path / "out.01234567.partial").symlink_to(tmp_path)
    with subprocess.Popen(waiting, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        write_files(folder, {"a": b"1"})
        assert not left.exists()
        write_through(tmp_path / "out.json", b"{}")
        assert len(list(tmp_path.glob("out.json.????????.partial"))) == 1, "another process writes there"
        process.kill()
    write_through(tmp_path / "out.json", b"{}")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"out", "out.json", "out.01234567.partial", kept.name}


def test_what_a_link_names_stays_if_writing_fails(tmp_path: Path) -> None:
    old, link = tmp_path / "old.json", tmp_path / "link.json"
    old.write_bytes(b"old")
    link.symlink_to(old)

    def write(fails: bool) -> None:
        with open_through(link) as file:
            file.write(b"new")
            if fails:
                raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 (its own)
        write(fails=True)
    assert old.read_bytes() == b"old"
    write(fails=False)
    assert (old.read_bytes(), link.is_symlink()) == (b"new", True)
