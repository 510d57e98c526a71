"""Resources of this machine: CPU threads, memory, GPUs, a C compiler, access to the hub.

Imports torch on use.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import shlex
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from selfreflect.errors import BackendError, excerpt

FLAGS = ("-std=c11", "-O3", "-march=native", "-ffp-contract=fast", "-fPIC", "-fopenmp")
"""Compiler flags; plain c11 would prevent fused multiply-add instructions."""
TIMEOUT = 60
"""Maximum number of seconds for compiling."""

Library = TypeVar("Library")

_CONTROL_GROUP = Path("/sys/fs/cgroup")


def set_library_defaults() -> None:
    """Set environment variables for OpenMP and oneDNN, unless the user has set them. OpenMP reads its
    variables when torch is imported, oneDNN at the first product."""
    # OpenMP has read it once torch is imported
    if "torch" not in sys.modules:
        # Idle OpenMP threads spin by default, so two busy processes starve each other of their cores.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # oneDNN compiles a kernel for every shape of a product, and both it and torch keep the last 1,024 of
    # them. Passes have ever new numbers of rows, so memory would grow by some 20 MB with every question, up
    # to hundreds. A pass asks for a dozen shapes in each layer.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    os.environ.setdefault("LRU_CACHE_CAPACITY", "64")


def limit_threads() -> int:
    """Lower torch's number of threads to :func:`usable_threads`, if it is higher. Return the number."""
    import torch

    threads = min(torch.get_num_threads(), usable_threads())
    torch.set_num_threads(threads)
    return threads


def usable_threads(root: Path = Path("/"), allowed: Set[int] | None = None) -> int:
    """Count the CPU threads that can compute in parallel.

    This is ``OMP_NUM_THREADS``, else the physical cores of the process's affinity, or fewer if its CPU quota
    pays for fewer: OpenMP threads meet at a barrier after every operation, and one without a core holds up
    all. ``root`` is where ``sys`` is, ``allowed`` the CPU numbers of the affinity.
    """
    explicit = os.environ.get("OMP_NUM_THREADS", "").strip()
    if explicit.isdecimal() and int(explicit) > 0:
        return int(explicit)
    cores = _cores(root, _affinity() if allowed is None else allowed)
    # A fraction of a core is used too: a quota stops all threads at once, so that none waits for another.
    return math.ceil(min(cores, _quota(root)))


def _affinity() -> Set[int]:
    try:
        return os.sched_getaffinity(0)
    except AttributeError:  # neither macOS nor Windows has it
        return set(range(os.cpu_count() or 1))


def _cores(root: Path, cpus: Set[int]) -> int:
    """Count the physical cores behind ``cpus``, since hyperthreads share arithmetic units."""
    siblings = set()
    for cpu in cpus:
        path = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            siblings.add(path.read_text("utf-8"))
        except OSError:
            return len(cpus)
    return len(siblings)


def _quota(root: Path) -> float:
    """Read the container's CPU quota, in cores.

    Cgroups of version 2 show a container its own group as root.
    """
    try:
        quota, period = (root / "sys/fs/cgroup/cpu.max").read_text("utf-8").split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # no such file, or no limit: "max"
        return math.inf


def free_memory() -> int:
    """Count the free bytes of memory, within the container's limit."""
    import psutil

    free = int(psutil.virtual_memory().available)
    try:
        limit = int((_CONTROL_GROUP / "memory.max").read_text("ascii"))
        usage = int((_CONTROL_GROUP / "memory.current").read_text("ascii"))
        statistics = (_CONTROL_GROUP / "memory.stat").read_text("ascii")
    except (OSError, ValueError):  # no control group, or no limit: "max"
        return free
    # the page cache counts as usage, and is given back when memory is needed
    cached = re.search(r"^inactive_file (\d+)$", statistics, re.MULTILINE)
    reclaimable = int(cached[1]) if cached else 0
    return max(0, min(free, limit - usage + reclaimable))


def count_gpus() -> int:
    """Count the GPUs that ``CUDA_VISIBLE_DEVICES`` allows."""
    import torch

    return torch.cuda.device_count()


def load_compiled(source: Path, load: Callable[[Path], Library]) -> Library | str:
    """Compile a C file and load it with ``load``, or return the reason for failure.

    It takes less than a second and needs GCC on Linux. A later process takes the library of the cache;
    ``SELFREFLECT_NATIVE=0`` switches it off.
    """
    import subprocess

    if os.environ.get("SELFREFLECT_NATIVE") == "0":
        return "SELFREFLECT_NATIVE is 0"
    if sys.platform != "linux":
        return f"it is not built on {sys.platform}"
    try:
        compiler = _compiler()
        stored = _stored_library(source, compiler)
        if stored is not None and (library := _load_stored(stored, load)) is not None:
            return library
        # a loaded library no longer needs its file
        with tempfile.TemporaryDirectory(prefix="selfreflect-", ignore_cleanup_errors=True) as scratch:
            path = _compile(source, compiler, Path(scratch))
            try:
                library = load(path)
            except (OSError, AttributeError) as error:
                return (
                    "the compiled library cannot be loaded; set TMPDIR to a directory that may hold "
                    f"programs, or set CC to a GCC that works here ({error})"
                )
            if stored is not None:
                _store_library(stored, path.read_bytes())
            return library
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        reason = excerpt(str(error.stderr or error).strip(), 300)
        return f"the C compiler failed; set CC to a GCC that works here ({reason})"
    except (OSError, ValueError) as error:
        return f"the library cannot be compiled; install gcc, or set CC to a C compiler ({error})"


def _compiler() -> list[str]:
    """Split ``CC`` like a shell, or find GCC. Raises ValueError for unbalanced quotation marks."""
    return shlex.split(os.environ.get("CC", "")) or [shutil.which("gcc") or "cc"]


def _compile(source: Path, compiler: Sequence[str], folder: Path) -> Path:
    import subprocess

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


def _stored_library(source: Path, compiler: Sequence[str]) -> Path | None:
    """Return the cache path of a compiled C library; None without a cache.

    Raises:
        OSError: there is no such compiler.
    """
    from selfreflect.models.smollm2 import cache_directory

    program = shutil.which(compiler[0])
    if program is None:
        raise FileNotFoundError(f"there is no program {excerpt(compiler[0])}")
    # an updated compiler compiles anew
    status = Path(program).stat()
    # machines with other processors may share a home directory
    processor = Path("/proc/cpuinfo").read_text("utf-8", "replace").partition("\n\n")[0]
    features = sorted(re.findall(r"(?im)^(?:model name|flags|features|cpu part)\s*:.*$", processor))
    build = [*compiler, *FLAGS, program, str(status.st_size), str(status.st_mtime_ns), *features]
    texts = source.read_bytes() + Path(__file__).with_name("vectors.h").read_bytes()
    digest = hashlib.sha256(texts + "\0".join(build).encode())
    with suppress(BackendError):  # there is no home directory
        return cache_directory() / f"{source.stem}-{digest.hexdigest()[:16]}.bin"
    return None


_DIGEST_SIZE = hashlib.sha256().digest_size


def _load_stored(path: Path, load: Callable[[Path], Library]) -> Library | None:
    """Load a cached library; None if it is missing, damaged or writable by others."""
    try:
        # O_NOFOLLOW: a link could lead to anybody's file
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            status = os.fstat(file.fileno())
            # it is code, which runs as this user
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
                return None
            digest, data = file.read(_DIGEST_SIZE), file.read()
        if hashlib.sha256(data).digest() != digest:
            return None
        # a library whose file is cut off ends its process, and memory is nobody else's; the linker knows
        # libraries by their paths, so no other one may get the number of this file
        memory = os.memfd_create(path.stem)
        with os.fdopen(memory, "wb", closefd=False) as copy:
            copy.write(data)
        return load(Path(f"/proc/self/fd/{memory}"))
    except (OSError, AttributeError):  # such as a library for another system's C library
        return None


def _store_library(path: Path, data: bytes) -> None:
    """Store a library for later processes, if the cache is writable."""
    from selfreflect.atomic import write_bytes

    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, hashlib.sha256(data).digest() + data, private=True)


SECONDS_TO_ANSWER = 10
# Seconds for which a hub is not asked again: each stage looks for its model there, and a silent
# hub takes all the time that it gets.
_REMEMBERED = 60
# When a hub was last asked, and whether it answered, by its address.
_ANSWERS: dict[str, tuple[float, bool]] = {}


def hub_answers() -> bool:
    """Check whether the hub is reachable and HF_HUB_OFFLINE is unset."""
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return False
    moment, answers = _ANSWERS.get(constants.ENDPOINT, (-math.inf, False))
    if time.monotonic() - moment > _REMEMBERED:
        answers = _answers(constants.ENDPOINT)
        _ANSWERS[constants.ENDPOINT] = time.monotonic(), answers
    return answers


def _answers(address: str) -> bool:
    from huggingface_hub import get_session
    from huggingface_hub.errors import HTTPError

    try:
        get_session().head(address, timeout=SECONDS_TO_ANSWER)
    except (HTTPError, OSError, ValueError):  # the last two of settings: a proxy, a file of certificates
        return False
    return True


@contextmanager
def datasets_offline() -> Iterator[None]:
    """Keep ``datasets`` offline within this context."""
    import datasets
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before
