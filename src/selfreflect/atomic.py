"""Write files whole or not at all.

:func:`write_bytes` is for names that this package chose. A name that a user gave may be a device or a link,
which a rename would replace; :func:`write_through` is for those.
"""

from __future__ import annotations

import errno
import glob
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

# Folder of files that write_files has not moved to their place yet.
_STAGING = ".selfreflect.partial"

# Seconds for which a new folder may not be locked yet.
_YOUNG = 2.0


def write_bytes(
    path: Path, data: bytes, *, private: bool = False, durable: bool = True, mode: int | None = None
) -> None:
    """Replace ``path`` atomically: a reader sees the old file or the new one.

    Args:
        private: whether only the owner may read the file.
        mode: the permissions, whatever the umask is.
        durable: wait until the data is on disk. Without it a crash of the machine may damage the new file.

    Raises:
        OSError: the file cannot be written; the old one is unchanged.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    created = 0o600 if private or mode is not None else 0o666  # less what the umask takes away
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, created)
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(data)
            if durable:
                file.flush()
                os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)


def write_through(path: Path, data: bytes) -> None:
    """Write a file that a user named: atomically and with the permissions of the old file.

    A link, a device or a pipe is written in place, and so is a file whose directory takes no new one.

    Raises:
        OSError: the file cannot be written.
    """
    is_special = path.is_symlink() or (path.exists() and not path.is_file())
    if is_special or not os.access(path.parent, os.W_OK):
        path.write_bytes(data)
        return
    write_bytes(path, data, mode=path.stat().st_mode & 0o777 if path.exists() else None)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder, by their path in it.

    A new folder gets all of them at once. In one that exists all are on disk before the first appears: a
    killed process may leave some of them, but never a part of one, and :func:`conflicts` lets the same call
    complete them.

    Raises:
        OSError: something cannot be written; what was there before is unchanged.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        with _turn(folder):
            _replace_files(folder, files)
        return
    _remove_leftovers(folder)
    unique = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}.partial")
    unique.mkdir()
    # A rename is the only step that readers see: the folder is there whole, or not at all.
    with _turn(unique), _staged(unique, files):
        unique.rename(folder)
        sync_directory(folder.parent)


def _replace_files(folder: Path, files: Mapping[str, bytes]) -> None:
    staging = folder / _STAGING
    for path in (staging, *((folder / inner).parent for inner in files)):
        _refuse_links(folder, path)
    shutil.rmtree(staging, ignore_errors=True)  # a killed process left it
    with _staged(staging, files):
        for inner in files:
            target = folder / inner
            target.parent.mkdir(parents=True, exist_ok=True)
            (staging / inner).replace(target)
            sync_directory(target.parent)


def _refuse_links(folder: Path, path: Path) -> None:
    """Refuse a path below a folder that leads through a link. Raises OSError.

    Anybody may have made the link, and files elsewhere would be replaced and removed.
    """
    for part in (path, *path.parents):
        if part == folder:
            return
        if part.is_symlink():
            raise OSError(errno.ELOOP, f"{part.name} in it is a link, which is not followed", str(part))


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left beside a folder: folders that nobody writes to, where there are
    locks."""
    with suppress(ImportError, OSError):
        import fcntl

        for leftover in folder.parent.glob(f"{glob.escape(folder.name)}.{'[0-9a-f]' * 8}.partial"):
            if leftover.is_symlink() or time.time() - leftover.stat().st_mtime < _YOUNG:
                continue
            descriptor = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(leftover)
            finally:
                os.close(descriptor)


@contextmanager
def _staged(staging: Path, files: Mapping[str, bytes]) -> Iterator[None]:
    """Write files into a folder that is removed in the end, if it is still there."""
    try:
        for inner, data in files.items():
            path = staging / inner
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, data)
        yield
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Wait until no other process writes files into a folder, where there are locks. Two that write at once
    would leave some files of each."""
    with ExitStack() as stack:
        with suppress(ImportError, OSError):
            import fcntl

            descriptor = os.open(folder, os.O_RDONLY)  # which a folder may refuse that can be written to
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def conflicts(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """List the files in a folder that :func:`write_files` would replace.

    These are none if a killed process left them as the beginning of the same files.
    """
    paths = {folder / name: data for name, data in files.items()}
    existing = [path for path in paths if path.exists()]
    staging = folder / _STAGING
    was_killed = staging.is_dir() and not staging.is_symlink() and len(existing) < len(paths)
    is_beginning = was_killed and all(
        path.is_file() and path.read_bytes() == paths[path] for path in existing
    )
    return [] if is_beginning else existing


def sync(path: Path) -> None:
    """Wait until a file's contents, or a directory's names, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Sync a directory where the file system can; some network file systems cannot."""
    with suppress(OSError):
        sync(path)
