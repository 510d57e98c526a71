"""The most memory that a piece of work takes: of the GPU where it runs on one, else of the process."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

_STATUS, _RESET, _MACHINE = Path("/proc/self/status"), Path("/proc/self/clear_refs"), Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


class Watch:
    """What was highest between entering and leaving :func:`watch`; None where this system does not tell."""

    peak: int | None = None


def allocated(device: torch.device) -> int | None:
    """Bytes in use now: tensors on a GPU, else the resident set of the process, after giving back what is
    free."""
    gc.collect()
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    # glibc keeps freed memory, which would count for whoever comes next
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return _status("VmRSS")


@contextmanager
def watch(device: torch.device) -> Iterator[Watch]:
    """Watch the memory while the body runs."""
    found = Watch()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield found
        found.peak = torch.cuda.max_memory_allocated(device)
    elif _reset_high_water():
        yield found
        found.peak = _status("VmHWM")
    else:
        with _sampled(found):
            yield found


def _reset_high_water() -> bool:
    """Make VmHWM start again from here. Linux allows it, some containers do not."""
    try:
        _RESET.write_text("5")
    except OSError:
        return False
    return True


@contextmanager
def _sampled(found: Watch) -> Iterator[None]:
    """Look every few milliseconds; what comes and goes in between is missed."""
    done = threading.Event()

    def look() -> None:
        while True:
            if (now := _status("VmRSS")) is not None:
                found.peak = max(found.peak or 0, now)
            if done.wait(0.005):
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _status(field: str) -> int | None:
    """A field of /proc/self/status in bytes."""
    return _kilobytes(_STATUS, field)


def available(device: torch.device) -> int:
    """Bytes that can still be had of the GPU, or of the machine and, in a container, of its share."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = _kilobytes(_MACHINE, "MemAvailable")
    if free is None:
        # macOS does not tell: what other programs leave, as a guess
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    try:
        limit, used = (int((_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        cached = re.search(r"^inactive_file (\d+)$", (_GROUP / "memory.stat").read_text(), re.MULTILINE)
    except (OSError, ValueError):  # no such group, or "max": no limit
        return free
    return max(0, min(free, limit - used + (int(cached[1]) if cached else 0)))


def _kilobytes(path: Path, field: str) -> int | None:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(field + ":")), None)
