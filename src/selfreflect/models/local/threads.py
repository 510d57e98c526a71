"""How many threads torch gets on a CPU: as many as there are free cores.

OpenMP threads meet at a barrier after every operation, so one that shares its core with another job holds up
all of them: a pass of seconds becomes a minute. One thread fewer costs its share only.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import torch

_ROOT = Path("/")

_SHORTEST_SAMPLE = 10
"""Ticks (mostly of 10 ms) that a sample of how busy the cores are must span to say anything."""

_initial = torch.get_num_threads()
_known = _initial
"""The number that this module last saw or set. Another one was set by the program, and stays."""


@dataclass(frozen=True)
class Threads:
    """A number of threads, and why it is that."""

    count: int
    reason: str

    def __str__(self) -> str:
        return f"{self.count} {'thread' if self.count == 1 else 'threads'} ({self.reason})"


@dataclass(frozen=True)
class Usage:
    """What the kernel has counted up to a moment, in ticks: of each CPU all time and busy time, and this
    process's own time."""

    total: Mapping[int, int]
    busy: Mapping[int, int]
    own: int


def read_usage(root: Path = _ROOT) -> Usage | None:
    """The kernel's counters now; None where there are none. Stolen time is busy, waiting for a disk is
    not."""
    try:
        own = (root / "proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
        # Niced jobs give way to this process, unless it is niced itself.
        idle = (3, 4) if int(own[16]) > 0 else (1, 3, 4)
        total, busy = {}, {}
        for line in (root / "proc/stat").read_text("utf-8").splitlines():
            name, _, counted = line.partition(" ")
            if name.startswith("cpu") and name != "cpu":
                ticks = [int(field) for field in counted.split()[:8]]
                total[int(name[3:])] = sum(ticks)
                busy[int(name[3:])] = sum(ticks) - sum(ticks[i] for i in idle)
        return Usage(total, busy, own=int(own[11]) + int(own[12]))
    except (OSError, ValueError, IndexError):
        return None


def choose_threads(
    since: Usage | None = None,
    *,
    root: Path = _ROOT,
    environment: Mapping[str, str] | None = None,
    allowed: Set[int] | None = None,
) -> Threads:
    """As many threads as there are free cores, at least one. ``OMP_NUM_THREADS`` wins.

    Allowed are the physical cores of the process's affinity, at most as many as its control groups' CPU quota
    pays for. What other processes kept busy since ``since`` is taken off, to the nearest core.

    Args:
        since: counters of an earlier moment; without them the machine is taken to be idle.
        root: where ``proc`` and ``sys`` are.
        allowed: CPU numbers that the process may run on, by default its affinity.
    """
    given = (
        (os.environ if environment is None else environment)
        .get("OMP_NUM_THREADS", "")
        .partition(",")[0]
        .strip()
    )
    if given.isdecimal() and int(given) > 0:
        return Threads(int(given), "OMP_NUM_THREADS")
    cpus = _affinity() if allowed is None else allowed
    cores, quota = _cores(root, cpus), min(_quotas(root), default=math.inf)
    # A fraction of a core is used too: a quota stops all threads at once, so that none waits for another.
    limit = min(cores, math.ceil(quota)) if quota < math.inf else cores
    said = f"{cores} {'core' if cores == 1 else 'cores'} allowed" + (
        f", a quota of {quota:g}" if quota < cores else ""
    )
    if (others := _busy(since, read_usage(root), cpus)) is None:
        return Threads(limit, said)
    return Threads(max(1, min(limit, math.floor(cores - others + 0.5))), f"{said}, {others:.1f} busy")


def apply_threads(since: Usage | None = None) -> Threads:
    """Give torch the threads that :func:`choose_threads` says, unless the program has set their number
    itself."""
    global _known
    current = torch.get_num_threads()
    lowered = _initial < _cores(_ROOT, _affinity()) and "OMP_NUM_THREADS" not in os.environ
    if current != _known or lowered:
        return Threads(current, "as set for torch")
    chosen = choose_threads(since)
    torch.set_num_threads(chosen.count)
    _known = chosen.count
    return chosen


def _affinity() -> Set[int]:
    try:
        return os.sched_getaffinity(0)
    except AttributeError:  # neither macOS nor Windows has it
        return set(range(os.cpu_count() or 1))


def _cores(root: Path, cpus: Set[int]) -> int:
    """Physical cores behind ``cpus``: two hyperthreads of one core share its arithmetic units."""
    siblings = set()
    for cpu in cpus:
        try:
            siblings.add(
                (root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
                .read_text("utf-8")
                .strip()
            )
        except (OSError, ValueError):
            return max(1, len(cpus))
    return max(1, len(siblings))


def _quotas(root: Path) -> Iterator[float]:
    """CPU quotas, in cores, of the process's control groups and of all groups above them, of both versions of
    the interface.

    In a container the path may be the host's, of which only the upper end is mounted; what is not there
    limits nothing.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
        for depth in range(len(parts) + 1):
            below = Path(*parts[:depth])
            if number == "0":
                yield from _quota(root / "sys/fs/cgroup" / below, "cpu.max")
            elif "cpu" in controllers.split(","):
                for mount in dict.fromkeys((controllers, "cpu")):
                    yield from _quota(
                        root / "sys/fs/cgroup" / mount / below, "cpu.cfs_quota_us", "cpu.cfs_period_us"
                    )


def _quota(group: Path, *files: str) -> Iterator[float]:
    """Quota and period, each in microseconds, of one group: version 2 keeps both in one file, version 1 in
    two."""
    try:
        quota, period = " ".join((group / file).read_text("utf-8") for file in files).split()
        if quota != "max" and int(quota) > 0 and int(period) > 0:
            yield int(quota) / int(period)
    except (OSError, ValueError):
        return


def _busy(before: Usage | None, after: Usage | None, cpus: Set[int]) -> float | None:
    """How many of ``cpus`` other processes kept busy on average; None if that is not known."""
    if before is None or after is None:
        return None
    seen = [cpu for cpu in cpus if cpu in before.total and cpu in after.total]
    span = sum(after.total[cpu] - before.total[cpu] for cpu in seen) / max(1, len(seen))
    if span < _SHORTEST_SAMPLE:
        return None
    busy = sum(after.busy[cpu] - before.busy[cpu] for cpu in seen) - (after.own - before.own)
    return max(0.0, busy / span)
