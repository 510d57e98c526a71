"""Write files whole or not at all; for files of this package only, because a path that a user names may be a
device or a link, which a rename would replace."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_bytes(path: Path, data: bytes, *, private: bool = False, durable: bool = True) -> None:
    """Replace ``path`` atomically: a reader sees the old file or the new one.

    Args:
        private: whether only the owner may read the file.
        durable: wait until the data is on disk. Without it a crash of the machine may damage the new file.

    Raises:
        OSError: the file cannot be written; the old one is unchanged.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    mode = 0o600 if private else 0o666  # less what the umask takes away
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
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


def sync(path: Path) -> None:
    """Wait until a file's contents, or a directory's names, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """:func:`sync` for a directory, where the file system can; some network file systems cannot."""
    with suppress(OSError):
        sync(path)
