"""Write files whole or not at all.

:func:`write_bytes` is for names that this package chose. A name that a user gave may be a device or a link,
which a rename would replace; :func:`open_through` is for those.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


def write_bytes(path: Path, data: bytes, *, private: bool = False, durable: bool = True) -> None:
    """Replace ``path`` atomically: a reader sees the old file or the new one.

    Args:
        private: whether only the owner may read the file.
        durable: wait until the data is on disk. Without it a crash of the machine may damage the new file.

    Raises:
        OSError: the file cannot be written; the old one is unchanged.
    """
    with _replacing(path, private=private, durable=durable) as file:
        file.write(data)


@contextmanager
def _replacing(
    path: Path, *, private: bool = False, durable: bool = True, mode: int | None = None
) -> Iterator[IO[bytes]]:
    """Open a file that replaces ``path`` once it is fully written."""
    # random, so that two processes never write to one file
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    created = 0o600 if private or mode is not None else 0o666  # less what the umask takes away
    try:
        # O_EXCL follows no link that somebody else has put there
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, created)
        with os.fdopen(descriptor, "wb") as file:
            # tells clear_unfinished in another process that the file is still being written
            _try_lock(descriptor)
            if mode is not None:
                os.fchmod(descriptor, mode)
            yield file
            if durable:
                file.flush()
                os.fsync(descriptor)
        temporary.replace(path)
    # an interrupt, too, must leave no file behind
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    # a rename is on disk only when its directory is
    if durable:
        sync_directory(path.parent)


@contextmanager
def open_through(path: Path) -> Iterator[IO[bytes]]:
    """Open a file at a path that a user gave, to be written atomically with the old file's permissions.

    A link, a device or a pipe is written in place once all is known, and so is a file whose directory takes
    no new one.

    Raises:
        OSError: the file cannot be written.
    """
    is_special = path.is_symlink() or (path.exists() and not path.is_file())
    if is_special or not os.access(path.parent, os.W_OK):
        with tempfile.TemporaryFile() as whole:
            yield whole
            whole.seek(0)
            # an error before must leave the old file as it is
            with path.open("wb") as file:
                shutil.copyfileobj(whole, file)
        return
    clear_unfinished(path)
    with _replacing(path, mode=path.stat().st_mode & 0o777 if path.exists() else None) as file:
        yield file


def write_through(path: Path, data: bytes) -> None:
    """Write a file as :func:`open_through` does."""
    with open_through(path) as file:
        file.write(data)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder. ``files`` maps paths below the folder to contents.

    A new folder gets all of them at once. In one that exists each file is replaced atomically.

    Raises:
        OSError: something cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        for inner in files:
            _refuse_links(folder, (folder / inner).parent)
        _write_each(folder, files)
        return
    # a rename is the only step that readers see: the folder is there whole, or not at all
    clear_unfinished(folder)
    unique = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}.partial")
    unique.mkdir()
    try:
        with _locked(unique):
            _write_each(unique, files)
            unique.rename(folder)
    finally:
        shutil.rmtree(unique, ignore_errors=True)
    sync_directory(folder.parent)


def clear_unfinished(path: Path) -> None:
    """Delete unfinished files that killed commands left behind; a running command holds a lock."""
    unfinished = re.compile(rf"{re.escape(path.name)}\.[0-9a-f]{{8}}\.partial")
    with suppress(OSError):
        for entry in list(os.scandir(path.parent)):
            if unfinished.fullmatch(entry.name) and not entry.is_symlink():
                with _locked(Path(entry)) as is_free:
                    if is_free and entry.is_dir():
                        shutil.rmtree(entry, ignore_errors=True)
                    elif is_free and entry.is_file():
                        Path(entry).unlink()


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Try to lock a file or folder, and yield whether it was free."""
    # O_NONBLOCK, because opening a pipe of such a name would wait for a writer
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    if os.name != "posix":  # Windows has no such locks: nothing counts as left over there
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held, or a file system without locks
        return False
    return True


def _write_each(folder: Path, files: Mapping[str, bytes]) -> None:
    for inner, data in files.items():
        path = folder / inner
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)


def _refuse_links(folder: Path, path: Path) -> None:
    """Refuse a path that leads through a link below a folder. Raises OSError.

    Anybody may have made the link, and files elsewhere would be replaced.
    """
    for part in (path, *path.parents):
        if part == folder:
            return
        if part.is_symlink():
            raise OSError(errno.ELOOP, f"{part.name} is a link, and links are not followed", str(part))


def sync(path: Path) -> None:
    """Wait until a file's contents, or a directory's names, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Sync a directory, ignoring file systems that cannot do so."""
    with suppress(OSError):
        sync(path)
