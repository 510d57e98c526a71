"""Which GPUs this process may use."""

from __future__ import annotations


def visible_gpus() -> tuple[str, ...]:
    """``cuda:0``, ``cuda:1``, …: what ``CUDA_VISIBLE_DEVICES`` leaves of the machine's GPUs."""
    import torch

    return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
