"""Spread a model that is too large for one GPU over several, whole layers at a time (by accelerate).

An automatic placement never uses main memory or disk, from which each pass would copy the weights again,
hundreds of times slower. An explicit device map may.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from selfreflect.errors import BackendError, excerpt
from selfreflect.models.spec import DeviceMap

_WEIGHTS_SHARE = 0.9
"""The share of a GPU's free memory for weights; the rest is for what passes compute."""


def visible_gpus() -> tuple[str, ...]:
    """``cuda:0``, ``cuda:1``, …: what ``CUDA_VISIBLE_DEVICES`` leaves of the machine's GPUs."""
    import torch

    return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))


def placement(device_map: DeviceMap, device: str) -> dict[str, Any]:
    """Options of ``from_pretrained``; none for a model on one device. Raises BackendError where ``"auto"``
    finds fewer than two GPUs."""
    if device_map is None:
        return {}
    if device_map != "auto":
        return {"device_map": dict(device_map)}
    from accelerate.utils import get_max_memory

    free: dict[int, int] = {}
    if device == "cuda":
        free = {gpu: size for gpu, size in get_max_memory().items() if isinstance(gpu, int)}
    if len(free) < 2:
        raise BackendError(
            f"--device-map auto needs at least two visible GPUs, and on device {device!r} there "
            f"{'is 1' if free else 'are none'}. Leave it out, or look at --device and CUDA_VISIBLE_DEVICES."
        )
    return {
        "device_map": "auto",
        "max_memory": {gpu: int(_WEIGHTS_SHARE * size) for gpu, size in free.items()},
    }


def check_placement(name: str, model: Any, device_map: DeviceMap) -> None:
    """Raise BackendError where an automatic placement leaves a part of the model without a GPU."""
    places: dict[str, str | int] = getattr(model, "hf_device_map", {})
    left = [part for part, place in places.items() if place in ("cpu", "disk")]
    if device_map == "auto" and left:
        size = model.get_memory_footprint() / 2**30
        raise BackendError(
            f"model {excerpt(name)} does not fit into the visible GPUs: of its {size:.1f} GiB, {len(left)} "
            f"parts such as {excerpt(left[0])} are left over. Free the GPUs, use more or larger ones, or a "
            f"shorter dtype. {1 - _WEIGHTS_SHARE:.0%} of each GPU's free memory is kept for computing."
        )


def describe_placement(model: Any) -> str:
    """Where the parts of a model are, in words; empty where it is in one piece."""
    places = sorted({str(place) for place in getattr(model, "hf_device_map", {}).values()})
    names = [f"GPU {place}" if place.isdecimal() else place for place in places]
    return f"the model is in parts on {', '.join(names)}" if names else ""


def input_device(module: Any) -> Any:
    """The device for the token ids of a model or decoder: that of its first weights on a device."""
    tensors = chain(module.parameters(), module.buffers())
    return next(tensor.device for tensor in tensors if not tensor.is_meta)


def output_device(model: Any) -> Any:
    """The device for final hidden states: that of the vocabulary projection."""
    weight = getattr(model.get_output_embeddings(), "weight", None)
    return input_device(model) if weight is None or weight.is_meta else weight.device
