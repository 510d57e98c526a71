"""CPU threads for torch, and defaults of the libraries below it. Importing this module loads no torch."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Set
from pathlib import Path

_ROOT = Path("/")


def set_library_defaults() -> None:
    """Set environment variables for OpenMP and oneDNN that the user has not set.

    Best called before torch is imported, which is when OpenMP reads its variable. The cache sizes are read at
    the first oneDNN product.
    """
    if "torch" not in sys.modules:
        # Idle OpenMP threads spin by default, so two busy processes starve each other of their cores.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # oneDNN compiles a kernel for every shape of a product, and both it and torch keep the last 1,024 of
    # them. Passes have ever new numbers of rows, so memory would grow by some 20 MB with every question, up
    # to hundreds. A pass asks for a dozen shapes in each layer.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    os.environ.setdefault("LRU_CACHE_CAPACITY", "64")


def limit_threads() -> str:
    """Lower torch's number of threads to :func:`usable_threads`; a lower one stays. Say how many, and why."""
    import torch

    count, reason = usable_threads()
    current = torch.get_num_threads()
    if current < count:
        count, reason = current, "as set for torch"
    torch.set_num_threads(count)
    return f"{count} {'thread' if count == 1 else 'threads'} ({reason})"


def usable_threads(root: Path = _ROOT, allowed: Set[int] | None = None) -> tuple[int, str]:
    """The number of threads to compute with, and the reason. ``OMP_NUM_THREADS`` wins.

    Else it is one for each physical core of the process's affinity, at most as many as its CPU quota pays
    for: OpenMP threads meet at a barrier after every operation, so one without a core holds up all of them.

    Args:
        root: where ``sys`` is.
        allowed: CPU numbers that the process may run on, by default its affinity.
    """
    explicit = os.environ.get("OMP_NUM_THREADS", "").strip()
    if explicit.isdecimal() and int(explicit) > 0:
        return int(explicit), "OMP_NUM_THREADS"
    cores = _cores(root, _affinity() if allowed is None else allowed)
    reason = f"{cores} {'core' if cores == 1 else 'cores'} allowed"
    quota = _quota(root)
    if quota >= cores:
        return cores, reason
    # A fraction of a core is used too: a quota stops all threads at once, so that none waits for another.
    return math.ceil(quota), f"{reason}, a quota of {quota:g}"


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
