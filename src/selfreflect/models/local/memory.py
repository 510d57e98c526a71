"""How much memory is free for this process."""

from __future__ import annotations

import re
from pathlib import Path

import psutil

_CONTROL_GROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Bytes that are still free in the machine, and within the container's limit."""
    free = int(psutil.virtual_memory().available)
    try:
        limit = int((_CONTROL_GROUP / "memory.max").read_text("ascii"))
        usage = int((_CONTROL_GROUP / "memory.current").read_text("ascii"))
        statistics = (_CONTROL_GROUP / "memory.stat").read_text("ascii")
    except (OSError, ValueError):  # no control group, or no limit: "max"
        return free
    cached = re.search(r"^inactive_file (\d+)$", statistics, re.MULTILINE)
    reclaimable = int(cached[1]) if cached else 0
    return max(0, min(free, limit - usage + reclaimable))
