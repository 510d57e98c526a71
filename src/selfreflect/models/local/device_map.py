"""Spread a model that is too large for one GPU over several, whole layers at a time (by accelerate).

Never over main memory or disk, from which each pass would copy the weights again, hundreds of times slower.
"""

from __future__ import annotations

from typing import Any, Literal

from selfreflect.errors import BackendError, excerpt

_WEIGHTS_SHARE = 0.9
"""The share of a GPU's free memory for weights; the rest is for what passes compute."""


def visible_gpus() -> tuple[str, ...]:
    """``cuda:0``, ``cuda:1``, …: what ``CUDA_VISIBLE_DEVICES`` leaves of the machine's GPUs."""
    import torch

    return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))


def placement(device_map: Literal["auto"] | None, device: str) -> dict[str, Any]:
    """Options of ``from_pretrained``; none for a model on one device. Raises BackendError where ``"auto"``
    finds fewer than two GPUs."""
    if device_map is None:
        return {}
    from accelerate.utils import get_max_memory

    memory: dict[int, int] = {}
    if device == "cuda":
        for gpu, size in get_max_memory().items():
            if isinstance(gpu, int):
                memory[gpu] = int(_WEIGHTS_SHARE * size)
    if len(memory) < 2:
        raise BackendError(
            f"--device-map auto needs at least two visible GPUs, and on device {device!r} there "
            f"{'is 1' if memory else 'are none'}. Leave it out, or look at --device and CUDA_VISIBLE_DEVICES."
        )
    return {"device_map": "auto", "max_memory": memory}


def check_placement(name: str, model: Any) -> None:
    """Raise BackendError where a part of the model has no GPU."""
    places: dict[str, str | int] = getattr(model, "hf_device_map", {})
    left = [part for part, place in places.items() if place in ("cpu", "disk")]
    if left:
        size = model.get_memory_footprint() / 2**30
        raise BackendError(
            f"model {excerpt(name)} does not fit into the visible GPUs: of its {size:.1f} GiB, {len(left)} "
            f"parts such as {excerpt(left[0])} are left over. Free the GPUs, use more or larger ones, or a "
            f"shorter dtype. {1 - _WEIGHTS_SHARE:.0%} of each GPU's free memory is kept for computing."
        )


def input_device(module: Any) -> Any:
    """The device for the token ids of a model or decoder: that of its first weights."""
    return next(module.parameters()).device


def output_device(model: Any) -> Any:
    """The device for final hidden states: that of the vocabulary projection."""
    return model.get_output_embeddings().weight.device
