"""Guess how fast a local model will be from its number of weights and one small matrix product. No weights
are read."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import NamedTuple

import torch

from selfreflect.models.base import ModelSpec
from selfreflect.models.local.loading import EMBEDDED, ModelSource, locate, pick_device, pick_dtype
from selfreflect.models.local.machine import limit_threads
from selfreflect.models.smollm2 import WEIGHTS

_SIDE = 4096
"""Rows and columns of the matrix that is timed. In float32 it has 64 MB, more than most caches hold."""

_READING_ROWS = 256
"""Tokens that are read in one product; more of them take as long per token."""

_READING, _WRITING = 1.5, 1.0
"""Time of a forward pass in units of the time of its matrix products: attention, norms, sampling. Tokens
are drawn with products that are faster than the one that is timed."""


class ModelPace(NamedTuple):
    """How fast a model is on this machine, roughly."""

    reading: float
    """Seconds for a token of a prompt, or of a text that is judged."""
    writing: float
    """Seconds for a token that is drawn, in a batch of ``rows``."""


def guess_pace(spec: ModelSpec, rows: int) -> ModelPace | None:
    """Guess the pace of a local model whose configuration is on this disk; None for others.

    Args:
        rows: sequences that are drawn together.
    """
    if spec.kind != "local":
        return None
    embedded = spec.bare_name == EMBEDDED
    weights = WEIGHTS if embedded else _count_by_configuration(locate(spec, None))
    if weights is None:
        return None
    device = pick_device(spec.device)
    dtype = pick_dtype(spec.dtype, device)
    seconds = [weights * _seconds_per_weight(count, device, dtype) for count in (_READING_ROWS, rows)]
    return ModelPace(_READING * seconds[0] / _READING_ROWS, _WRITING * seconds[1] / rows)


@lru_cache(maxsize=8)
def _count_by_configuration(source: ModelSource) -> int | None:
    """The number of weights of a model, without a download; None if that is not known here."""
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(
            source.path, revision=source.requested_revision, local_files_only=True, trust_remote_code=False
        )
        with torch.device("meta"):
            skeleton = transformers.AutoModelForCausalLM.from_config(config)
    except Exception:  # whatever is wrong with the model, loading it says so
        return None
    return sum(int(parameter.numel()) for parameter in skeleton.parameters())


@lru_cache(maxsize=32)
@torch.inference_mode()
def _seconds_per_weight(rows: int, device: str, dtype: torch.dtype) -> float:
    """Time the product of ``rows`` tokens and a matrix, the best of some after the first."""
    if device == "cpu":
        limit_threads()
    matrix = torch.ones(_SIDE, _SIDE, device=device, dtype=dtype)
    tokens = torch.ones(rows, _SIDE, device=device, dtype=dtype)
    times: list[float] = []
    while len(times) < 3 or (len(times) < 6 and sum(times) < 1):  # others may hold the processors at first
        start = time.perf_counter()
        (tokens @ matrix.t())[0, 0].item()  # which waits for a GPU
        times.append(time.perf_counter() - start)
    return min(times[1:]) / _SIDE**2
