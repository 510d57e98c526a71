"""CPU threads for torch, and defaults of the libraries below it. Importing this module loads no torch."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Set
from pathlib import Path


def set_library_defaults() -> None:
    """Set environment variables for OpenMP and oneDNN that the user has not set. OpenMP reads its own when
    torch is imported, oneDNN at the first product."""
    if "torch" not in sys.modules:
        # Idle OpenMP threads spin by default, so two busy processes starve each other of their cores.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # oneDNN compiles a kernel for every shape of a product, and both it and torch keep the last 1,024 of
    # them. Passes have ever new numbers of rows, so memory would grow by some 20 MB with every question, up
    # to hundreds. A pass asks for a dozen shapes in each layer.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    os.environ.setdefault("LRU_CACHE_CAPACITY", "64")


def limit_threads() -> int:
    """Lower torch's number of threads to :func:`usable_threads`; a lower one stays. Return the number."""
    import torch

    threads = min(torch.get_num_threads(), usable_threads())
    torch.set_num_threads(threads)
    return threads


def usable_threads(root: Path = Path("/"), allowed: Set[int] | None = None) -> int:
    """``OMP_NUM_THREADS``, else the physical cores of the process's affinity, or fewer if its CPU quota pays
    for fewer: OpenMP threads meet at a barrier after every operation, and one without a core holds up all.
    ``root`` is where ``sys`` is, ``allowed`` the CPU numbers of the affinity."""
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
    """Physical cores behind ``cpus``: two hyperthreads of one core share its arithmetic units."""
    siblings = set()
    for cpu in cpus:
        path = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            siblings.add(path.read_text("utf-8"))
        except OSError:
            return len(cpus)
    return len(siblings)


def _quota(root: Path) -> float:
    """CPU quota of this container, in cores: cgroups of version 2 show a container its own group as root."""
    try:
        quota, period = (root / "sys/fs/cgroup/cpu.max").read_text("utf-8").split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # no such file, or no limit: "max"
        return math.inf
