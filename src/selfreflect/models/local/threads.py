"""CPU threads for torch, and defaults of the libraries below it. Importing this module loads no torch.

OpenMP threads meet at a barrier after every operation, so one that has to wait for its core holds up all of
them.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")


def set_library_defaults() -> None:
    """Set environment variables for OpenMP and oneDNN. Values that the user has set stay.

    Call it before torch is imported where that is possible: OpenMP reads its variable then. The cache sizes
    are read at the first oneDNN product, so they also take effect in a program that had imported torch
    before.
    """
    if "torch" not in sys.modules:
        # Idle OpenMP threads spin by default, so two busy processes starve each other of their cores.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # oneDNN compiles a kernel for every shape of a product, and both it and torch keep the last 1,024 of
    # them. Passes have ever new numbers of rows, so memory would grow by some 20 MB with every question, up
    # to hundreds. A pass asks for a dozen shapes in each layer.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    os.environ.setdefault("LRU_CACHE_CAPACITY", "64")


@dataclass(frozen=True)
class Threads:
    """A number of threads, and why it is that."""

    count: int
    reason: str

    def __str__(self) -> str:
        return f"{self.count} {'thread' if self.count == 1 else 'threads'} ({self.reason})"


def limit_threads() -> Threads:
    """Lower torch's number of threads to that of :func:`usable_threads`; a lower one stays."""
    import torch

    usable = usable_threads()
    current = torch.get_num_threads()
    if current < usable.count:
        return Threads(current, "as set for torch")
    torch.set_num_threads(usable.count)
    return usable


def usable_threads(root: Path = _ROOT, allowed: Set[int] | None = None) -> Threads:
    """One thread for each physical core of the process's affinity, at most as many as its CPU quota pays for.
    ``OMP_NUM_THREADS`` wins.

    Args:
        root: where ``proc`` and ``sys`` are.
        allowed: CPU numbers that the process may run on, by default its affinity.
    """
    explicit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if explicit.isdecimal() and int(explicit) > 0:
        return Threads(int(explicit), "OMP_NUM_THREADS")
    cores = _cores(root, _affinity() if allowed is None else allowed)
    reason = f"{cores} {'core' if cores == 1 else 'cores'} allowed"
    quota = min(_quotas(root), default=math.inf)
    if quota >= cores:
        return Threads(cores, reason)
    # A fraction of a core is used too: a quota stops all threads at once, so that none waits for another.
    return Threads(math.ceil(quota), f"{reason}, a quota of {quota:g}")


def _affinity() -> Set[int]:
    try:
        return os.sched_getaffinity(0)
    except AttributeError:  # neither macOS nor Windows has it
        return set(range(os.cpu_count() or 1))


def _cores(root: Path, cpus: Set[int]) -> int:
    """Physical cores behind ``cpus``: two hyperthreads of one core share its arithmetic units."""
    siblings = set()
    for cpu in cpus:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        try:
            siblings.add((topology / "thread_siblings_list").read_text("utf-8").strip())
        except (OSError, ValueError):
            return max(1, len(cpus))
    return max(1, len(siblings))


def _quotas(root: Path) -> Iterator[float]:
    """CPU quotas, in cores, of the process's control group and of those above it.

    In a container the path may be the host's, of which only the upper end is mounted; what is not there
    limits nothing.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":  # version 2
            mount, files = root / "sys/fs/cgroup", ["cpu.max"]
        elif "cpu" in controllers.split(","):
            mount, files = root / "sys/fs/cgroup/cpu", ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        group = mount / path.lstrip("/")
        for folder in (group, *group.parents):
            yield from _quota(folder, files)
            if folder == mount:
                break


def _quota(group: Path, files: list[str]) -> Iterator[float]:
    """Quota over period of one group. Version 2 keeps both in one file, version 1 in two."""
    try:
        quota, period = " ".join((group / file).read_text("utf-8") for file in files).split()
        if int(quota) > 0 and int(period) > 0:  # ValueError for "max"
            yield int(quota) / int(period)
    except (OSError, ValueError):
        return
