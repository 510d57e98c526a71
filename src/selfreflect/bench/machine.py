"""What timings depend on besides the program: the machine, and the memory in use, a GPU's where the judge is
on one, else the process's."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import torch

from selfreflect.metric.engine.attention import native
from selfreflect.models.judge import Judge
from selfreflect.models.local.machine import free_memory

_RESET = Path("/proc/self/clear_refs")


def describe_machine(judge: Judge) -> dict[str, Any]:
    """What ``--json`` prints under ``machine``."""
    device = next(judge.lm.model.parameters()).device
    compiled = device.type == "cpu" and judge.lm.dtype == "float32" and native()
    return {
        "judge": judge.name,
        "dtype": judge.lm.dtype,
        "device": device.type,
        "processor": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "attention": "compiled" if compiled else "torch",
        "load": round(os.getloadavg()[0], 2),
        "torch": str(torch.__version__),
        "transformers": version("transformers"),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return match[1] if match else platform.processor()


def allocated(device: torch.device) -> int:
    """Bytes in use, after freeing what can be freed: tensors on a GPU, else the process's resident memory."""
    gc.collect()
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    # glibc keeps freed memory, which would count for the next schedule
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


def reset_peak(device: torch.device) -> bool:
    """Let the peak start from here. Linux allows it, some containers and other systems do not."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return True
    try:
        _RESET.write_text("5")
    except OSError:
        return False
    return True


def peak(device: torch.device) -> int:
    """Most bytes in use since :func:`reset_peak`."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    match = re.search(
        r"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE
    )
    assert match is not None
    return 1024 * int(match[1])


def available(device: torch.device) -> int:
    """Bytes that are still free on the GPU, or in the machine and in the container's limit."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return free_memory()
