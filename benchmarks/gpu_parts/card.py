"""The rates of the card that the engine's share is taken of, and those of its attention kernels."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from gpu_parts.random_judge import SHAPES
from gpu_parts.setting import Setting
from selfreflect.metric.engine.attention import BLOCK
from selfreflect.metric.engine.kernels import FUSED_KERNELS

REPETITIONS = 10


@torch.inference_mode()
def measure_card(setting: Setting) -> None:
    """Measure a large matrix product, a copy, and attention at the engine's shapes by torch's kernels."""
    dtype = torch.float32 if setting.smoke else torch.bfloat16
    setting.write("matrix product", matrix_rate(setting, dtype) / 1e12, "TFLOP/s")
    source = torch.randn(1 << (20 if setting.smoke else 30), device=setting.device).to(dtype)
    target = torch.empty_like(source)
    seconds = typical_seconds(setting, lambda: target.copy_(source))
    setting.write("copy, read and written", 2 * source.nbytes / seconds / 1e12, "TB/s")
    _measure_attention(setting, dtype)


def matrix_rate(setting: Setting, dtype: torch.dtype) -> float:
    """Operations a second in a square product of random numbers. Zeros would be faster."""
    size = 512 if setting.smoke else 8192
    left = torch.randn(size, size, device=setting.device).to(dtype)
    right = torch.randn(size, size, device=setting.device).to(dtype)
    out = torch.empty_like(left)
    return 2 * size**3 / typical_seconds(setting, lambda: torch.mm(left, right.t(), out=out))


def typical_seconds(setting: Setting, work: Callable[[], Any]) -> float:
    """The median of some repetitions, after two that do not count."""
    for _ in range(2):
        work()
    return median(setting.seconds(work) for _ in range(REPETITIONS))


def _measure_attention(setting: Setting, dtype: torch.dtype) -> None:
    """Both looks of a batch of 8,192 rows of Qwen2.5-7B: at the prefix, as one call, and at the blocks' own
    keys, masked. The engine's kernel is the first; the others are what it could be exchanged for."""
    shape = SHAPES["tiny" if setting.smoke else "qwen2.5-7b"]
    nodes, prefix, keys = (256, 64, 96) if setting.smoke else (8192, 1148, 104)
    group = shape.heads // shape.kv_heads

    def random(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, device=setting.device).to(dtype)

    query = random(1, shape.kv_heads, nodes * group, shape.head_dim)
    key = random(1, shape.kv_heads, prefix, shape.head_dim)
    value = random(1, shape.kv_heads, prefix, shape.head_dim)
    operations = 4 * nodes * shape.heads * shape.head_dim
    engine = FUSED_KERNELS[setting.device.type]
    kernels: dict[str, Callable[[], Any]] = {"the engine's": lambda: engine(query, key, value, 0.1, None)}
    if setting.device.type == "cuda":
        aten = torch.ops.aten
        kernels["flash"] = lambda: aten._scaled_dot_product_flash_attention(query, key, value, scale=0.1)
        kernels["cuDNN"] = lambda: aten._scaled_dot_product_cudnn_attention(
            query, key, value, None, True, scale=0.1
        )
    for name, kernel in kernels.items():
        _write_rate(setting, f"attention to a prefix, {name} kernel", kernel, operations * prefix)

    blocks = nodes // BLOCK
    bias = torch.zeros(blocks, 1, BLOCK * group, keys, device=setting.device, dtype=dtype)
    bias[:, :, : BLOCK * group // 2, keys // 2 :] = float("-inf")
    block_query = random(blocks, shape.kv_heads, BLOCK * group, shape.head_dim)
    block_key = random(blocks, shape.kv_heads, keys, shape.head_dim)
    block_value = random(blocks, shape.kv_heads, keys, shape.head_dim)

    def masked() -> Any:
        return engine(block_query, block_key, block_value, 0.1, bias)

    _write_rate(setting, "attention to masked blocks, the engine's kernel", masked, operations * keys)


def _write_rate(setting: Setting, name: str, kernel: Callable[[], Any], operations: int) -> None:
    try:
        seconds = typical_seconds(setting, kernel)
    except RuntimeError as error:  # a kernel that this card or build lacks
        setting.write(name, f"unavailable: {str(error).splitlines()[0][:100]}")
        return
    setting.write(name, operations / seconds / 1e12, "TFLOP/s", seconds=seconds)
