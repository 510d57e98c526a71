"""What timings depend on besides the program."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from selfreflect.metric.engine.native import native

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge


def machine(judge: Judge) -> dict[str, Any]:
    """What timings depend on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    device = next(judge.lm.model.parameters()).device
    return {
        "judge": judge.name,
        "dtype": judge.lm.dtype,
        "device": device.type,
        "processor": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "cores": cores,
        "threads": torch.get_num_threads(),
        "attention": "compiled"
        if (device.type, judge.lm.dtype) == ("cpu", "float32") and native()
        else "torch",
        "load": round(os.getloadavg()[0], 2),
        "torch": str(torch.__version__),
        "transformers": version("transformers"),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )
