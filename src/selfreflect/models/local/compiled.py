"""C code of this package, compiled for the machine by the process that first uses it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from selfreflect.errors import excerpt

FLAGS = ("-std=c11", "-O3", "-march=native", "-ffp-contract=fast", "-fPIC", "-fopenmp")
"""With plain c11 GCC would not fuse a multiplication and an addition into one instruction."""
TIMEOUT = 60
"""Seconds that a compiler may take."""

Library = TypeVar("Library")


def load_compiled(source: Path, load: Callable[[Path], Library]) -> Library | str:
    """Compile a C file, in less than a second, and load it from the path that ``load`` gets; or say why there
    is no library. It needs GCC on Linux; ``SELFREFLECT_NATIVE=0`` switches it off."""
    if os.environ.get("SELFREFLECT_NATIVE") == "0":
        return "SELFREFLECT_NATIVE is 0"
    if sys.platform != "linux":
        return f"it is not built on {sys.platform}"
    try:
        # a loaded library no longer needs its file
        with tempfile.TemporaryDirectory(prefix="selfreflect-", ignore_cleanup_errors=True) as scratch:
            path = _compile(source, Path(scratch))
            try:
                return load(path)
            except (OSError, AttributeError) as error:
                return (
                    "the compiled library cannot be loaded; set TMPDIR to a directory that may hold "
                    f"programs, or let CC name a GCC that works here ({error})"
                )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        reason = excerpt(str(error.stderr or error).strip(), 300)
        return f"the C compiler failed; let CC name a GCC that works here ({reason})"
    except (OSError, ValueError) as error:
        return f"the library cannot be compiled; install gcc, or let CC name one ({error})"


def _compile(source: Path, folder: Path) -> Path:
    compiler = shlex.split(os.environ.get("CC", "")) or [shutil.which("gcc") or "cc"]
    objects = folder / "library.o"
    target = folder / "library.so"
    steps: tuple[list[str | Path], list[str | Path]] = (
        [*compiler, *FLAGS, "-c", source, "-o", objects],
        # without OpenMP's library: torch brings one, and a second would bring a second set of threads
        [*compiler, "-shared", objects, "-o", target, "-lm"],
    )
    for command in steps:
        subprocess.run(command, check=True, capture_output=True, text=True, errors="replace", timeout=TIMEOUT)
    return target
