"""Attention over prefix trees as C code, compiled for this machine when it is first used.

torch's attention kernel for CPUs knows no trees and is slow at small blocks; ``tree_attention.c`` does all of
a layer's attention in one call. It needs GCC on Linux. Where there is none, or with ``SELFREFLECT_NATIVE=0``,
torch's kernel is used, which is slower and gives the same scores but for rounding.
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

import numpy as np
import torch

from selfreflect.cache_directory import cache_directory
from selfreflect.errors import BackendError, excerpt
from selfreflect.metric.engine.tiles import Tiles

SOURCE = Path(__file__).with_name("tree_attention.c")
FLAGS = ("-std=c11", "-O3", "-march=native", "-ffp-contract=fast", "-fPIC", "-fopenmp")
"""By the letter of c11 GCC would not join a multiplication and an addition into one instruction."""
SECONDS = 60
"""How long a compiler may take; it is done in one."""

KeyValue = tuple[torch.Tensor, torch.Tensor]


class Native:
    """The compiled library."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self.lanes = int(library.tree_attention_lanes())
        """Queries of one key head that are computed beside each other."""
        self.largest = int(library.tree_attention_most())
        """The largest size of a head."""
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
        """Whether it knows tensors of this kind and shape."""
        plain = all(each.device.type == "cpu" and each.dtype == torch.float32 for each in (query, key, value))
        fits = query.shape[1] // key.shape[1] <= self.lanes and key.shape[2] <= self.largest
        return plain and fits and key.shape == value.shape

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
            prefixes: those of the prefix of each of ``tiles.contexts``, each (KV, P, D), contiguous; None
                where it is empty.

        Returns:
            The shape of ``query``; rows that no tile has are undefined.
        """
        q, k, v = (each.contiguous() for each in (query, *local))
        out = torch.empty_like(q)
        keys, values = (
            [0 if pair is None else pair[which].data_ptr() for pair in prefixes] for which in (0, 1)
        )
        tables = [
            np.array(column, dtype=np.int64)
            for column in (keys, values, [0 if p is None else p[0].shape[1] for p in prefixes])
        ]
        count, size = tiles.queries.shape
        self._run(
            *(each.data_ptr() for each in (q, out, k, v)),
            *(each.ctypes.data for each in tables),
            *(count, size, tiles.keys.shape[1]),
            *(
                each.ctypes.data
                for each in (tiles.context, tiles.before, tiles.queries, tiles.keys, tiles.count, tiles.seen)
            ),
            *(k.shape[1], q.shape[1] // k.shape[1], q.shape[2]),
            scale,
            torch.get_num_threads(),
        )
        return out


def native() -> Native | None:
    """The library, if there is one on this machine."""
    found = library()
    return None if isinstance(found, str) else found


@cache
def library() -> Native | str:
    """The library, compiled if the cache has none for this source and machine, or why there is none."""
    if os.environ.get("SELFREFLECT_NATIVE") == "0":
        return "SELFREFLECT_NATIVE is 0"
    if sys.platform != "linux":
        return f"it is not built on {sys.platform}"
    try:
        return _cached() or _compiled_elsewhere()
    except _CompilerError as error:
        return str(error)
    except (OSError, AttributeError) as error:
        return f"the compiled library cannot be stored or loaded; let CC name a GCC ({error})"


class _CompilerError(Exception):
    """Why there is no library, and what to do."""


def _cached() -> Native | None:
    """From the cache; None where that cannot be, or others could have left code for us to run there."""
    parts = (SOURCE.read_text("utf-8"), *FLAGS, *_compiler(), platform.machine(), _processor())
    name = hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:20]
    try:
        folder = cache_directory() / "native"
        path = folder / f"tree_attention-{name}.so"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _ours(folder):
            return None
        if not path.exists():
            # A link, since nothing may be put in the place of a library that another process may have loaded.
            with (
                tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as scratch,
                suppress(FileExistsError),
            ):
                path.hardlink_to(_compile(Path(scratch) / "library.so"))
        if not _ours(path):
            return None
    except (OSError, BackendError):  # no home directory, or one that cannot be written
        return None
    try:
        return Native(path)
    except (OSError, AttributeError):
        # torn, or by a compiler that this torch cannot work with: the next process tries anew
        path.unlink(missing_ok=True)
        return None


def _compiled_elsewhere() -> Native:
    """For this process alone: a library that is loaded needs its file no more."""
    with tempfile.TemporaryDirectory(prefix="selfreflect-", ignore_cleanup_errors=True) as scratch:
        return Native(_compile(Path(scratch) / "library.so"))


def _ours(path: Path) -> bool:
    status = path.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _compiler() -> list[str]:
    try:
        return shlex.split(os.environ.get("CC", "")) or [shutil.which("gcc") or "cc"]
    except ValueError as error:
        raise _CompilerError(f"CC is no command that a shell would read ({error})") from error


def _compile(target: Path) -> Path:
    part = target.with_suffix(".o")
    # Linked by itself, without OpenMP's library: torch brings its own, and two would be two sets of threads.
    for arguments in (
        (*FLAGS, "-c", str(SOURCE), "-o", str(part)),
        ("-shared", str(part), "-o", str(target)),
    ):
        command = [*_compiler(), *arguments]
        try:
            subprocess.run(
                command, check=True, capture_output=True, text=True, errors="replace", timeout=SECONDS
            )
        except subprocess.CalledProcessError as error:
            said = excerpt(error.stderr.strip() or f"exit status {error.returncode}", 300)
            raise _CompilerError(
                f"the C compiler failed; let CC name a GCC that works here ({said})"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise _CompilerError(f"the C compiler was not done after {SECONDS} seconds") from error
        except FileNotFoundError as error:
            raise _CompilerError(
                f"there is no C compiler; install gcc, or let CC name one ({error})"
            ) from error
        except OSError as error:
            raise _CompilerError(f"the C compiler cannot be started ({error})") from error
    target.chmod(0o700)
    return target


def _processor() -> str:
    """What code for this machine depends on: a home directory may be shared by machines of several kinds."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(
        sorted(
            {
                line
                for line in lines
                if line.partition("\t")[0].strip() in ("flags", "Features", "model name", "CPU part")
            }
        )
    )
