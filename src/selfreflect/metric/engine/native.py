"""Attention over prefix trees as C code, compiled for this machine when it is first used.

torch's attention kernel for CPUs knows no trees and is slow at small blocks; ``tree_attention.c`` does all of
a layer's attention in one call. It needs GCC on Linux. Without it, or with ``SELFREFLECT_NATIVE=0``, torch's
kernel is used, which is slower and gives the same scores but for rounding.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from selfreflect.cache_directory import cache_directory
from selfreflect.errors import BackendError, excerpt

if TYPE_CHECKING:
    from selfreflect.metric.engine.attention import KeyValue
    from selfreflect.metric.engine.tiles import Tiles

SOURCE = Path(__file__).with_name("tree_attention.c")
FLAGS = ("-std=c11", "-O3", "-march=native", "-ffp-contract=fast", "-fPIC", "-fopenmp")
"""With plain c11 GCC would not fuse a multiplication and an addition into one instruction."""
TIMEOUT = 60
"""Seconds that a compiler may take; it needs one."""


class Native:
    """The compiled library."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self.lanes = int(library.tree_attention_lanes())
        """Queries of one key head that are computed side by side."""
        self.largest_head = int(library.tree_attention_most())
        self._run = library.tree_attention
        self._run.restype = None
        self._run.argtypes = [
            *(ctypes.c_void_p,) * 7,
            *(ctypes.c_int64,) * 3,
            *(ctypes.c_void_p,) * 6,
            *(ctypes.c_int64,) * 3,
            ctypes.c_float,
            ctypes.c_int,
        ]

    def serves(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
        """Whether it can attend with tensors of these dtypes, devices and shapes, as in :meth:`attend`."""
        for tensor in (query, key, value):
            if tensor.device.type != "cpu" or tensor.dtype != torch.float32:
                return False
        group = query.shape[1] // key.shape[1]
        return group <= self.lanes and key.shape[2] <= self.largest_head and key.shape == value.shape

    def attend(
        self,
        query: torch.Tensor,
        local: KeyValue,
        prefixes: Sequence[KeyValue | None],
        tiles: Tiles,
        scale: float,
    ) -> torch.Tensor:
        """What every query of the tiles takes from the keys that it may see.

        Args:
            query: shape (rows, H, D).
            local: keys and values that ``tiles.keys`` counts, each (keys, KV, D).
            prefixes: keys and values of the prefix of each of ``tiles.contexts``, each (KV, P, D),
                contiguous; None where it is empty.

        Returns:
            The shape of ``query``; rows that no tile has are undefined.
        """
        query, key, value = query.contiguous(), local[0].contiguous(), local[1].contiguous()
        out = torch.empty_like(query)
        prefix_keys, prefix_values, prefix_rows = np.zeros((3, len(prefixes)), dtype=np.int64)
        for i, pair in enumerate(prefixes):
            if pair is not None:
                prefix_keys[i] = pair[0].data_ptr()
                prefix_values[i] = pair[1].data_ptr()
                prefix_rows[i] = pair[0].shape[1]
        tables = (tiles.context, tiles.before, tiles.queries, tiles.keys, tiles.count, tiles.seen)
        self._run(
            *(tensor.data_ptr() for tensor in (query, out, key, value)),
            *(table.ctypes.data for table in (prefix_keys, prefix_values, prefix_rows)),
            *tiles.queries.shape,
            tiles.keys.shape[1],
            *(table.ctypes.data for table in tables),
            key.shape[1],
            query.shape[1] // key.shape[1],
            query.shape[2],
            scale,
            torch.get_num_threads(),
        )
        return out


def native() -> Native | None:
    """The library, if this machine can have it."""
    loaded = library()
    return None if isinstance(loaded, str) else loaded


@cache
def library() -> Native | str:
    """The library, compiled unless the cache directory has it, or why there is none."""
    if os.environ.get("SELFREFLECT_NATIVE") == "0":
        return "SELFREFLECT_NATIVE is 0"
    if sys.platform != "linux":
        return f"it is not built on {sys.platform}"
    try:
        return _load_cached() or _load_temporary()
    except _CompilerError as error:
        return str(error)
    except (OSError, AttributeError) as error:
        return f"the compiled library cannot be stored or loaded; let CC name a GCC ({error})"


class _CompilerError(Exception):
    """Why there is no library, and what to do."""


def _load_cached() -> Native | None:
    """From the cache directory; None if it cannot be used, or if others could have put code there."""
    parts = (SOURCE.read_text("utf-8"), *FLAGS, *_compiler(), platform.machine(), _processor())
    digest = hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:20]
    try:
        folder = cache_directory() / "native"
        path = folder / f"tree_attention-{digest}.so"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _only_ours(folder):
            return None
        if not path.exists():
            # A link, because a library that another process has loaded must not be overwritten.
            with (
                tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as scratch,
                suppress(FileExistsError),
            ):
                path.hardlink_to(_compile(Path(scratch)))
        if not _only_ours(path):
            return None
    except (OSError, BackendError):  # no home directory, or one that cannot be written
        return None
    try:
        return Native(path)
    except (OSError, AttributeError):
        # torn, or by a compiler that this torch cannot work with: the next process tries again
        path.unlink(missing_ok=True)
        return None


def _load_temporary() -> Native:
    """For this process alone: a loaded library no longer needs its file."""
    with tempfile.TemporaryDirectory(prefix="selfreflect-", ignore_cleanup_errors=True) as scratch:
        return Native(_compile(Path(scratch)))


def _only_ours(path: Path) -> bool:
    status = path.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _compiler() -> list[str]:
    try:
        return shlex.split(os.environ.get("CC", "")) or [shutil.which("gcc") or "cc"]
    except ValueError as error:
        raise _CompilerError(f"CC is not a command that a shell can read ({error})") from error


def _compile(folder: Path) -> Path:
    """Build the library in ``folder``.

    Raises:
        _CompilerError: there is no compiler, or it fails.
    """
    objects, target = folder / "library.o", folder / "library.so"
    _call_compiler(*FLAGS, "-c", str(SOURCE), "-o", str(objects))
    # Linked without OpenMP's library: torch brings one, and a second would bring a second set of threads.
    _call_compiler("-shared", str(objects), "-o", str(target))
    target.chmod(0o700)
    return target


def _call_compiler(*arguments: str) -> None:
    command = [*_compiler(), *arguments]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, errors="replace", timeout=TIMEOUT)
    except subprocess.CalledProcessError as error:
        reason = excerpt(error.stderr.strip() or f"exit status {error.returncode}", 300)
        raise _CompilerError(
            f"the C compiler failed; let CC name a GCC that works here ({reason})"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise _CompilerError(f"the C compiler did not finish within {TIMEOUT} seconds") from error
    except OSError as error:
        raise _CompilerError(
            f"the C compiler cannot be started; install gcc, or let CC name one ({error})"
        ) from error


def _processor() -> str:
    """What compiled code depends on: machines of several kinds may share a home directory."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    fields = ("flags", "Features", "model name", "CPU part")
    return "\n".join(sorted({line for line in lines if line.partition("\t")[0].strip() in fields}))
