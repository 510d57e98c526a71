"""A model too large for one GPU, in parts on several: where the parts go, and where tensors enter and leave
it.

accelerate places whole layers and moves what passes from one module to the next. Nothing of an automatic
placement goes to main memory or to disk: each pass would bring it over again, hundreds of times slower, and
nobody would know why. A device map that says so outright may.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from selfreflect.errors import BackendError, excerpt
from selfreflect.models.spec import DeviceMap

Parts = tuple[tuple[str, str | int], ...] | None
"""A device map that can be a key."""

_ROOM = 0.9
"""The share of a GPU's free memory for weights; the rest is for what passes compute."""


def parts_of(device_map: DeviceMap) -> Parts:
    """``device_map`` as a key; () where accelerate is to make the map."""
    if isinstance(device_map, Mapping):
        return tuple(sorted(device_map.items()))
    return () if device_map == "auto" else None


def placement(parts: Parts, device: str) -> dict[str, Any]:
    """Options of ``from_pretrained``.

    Raises:
        BackendError: there are not several GPUs.
    """
    if parts is None:
        return {}
    if parts:
        return {"device_map": dict(parts)}
    from accelerate.utils import get_max_memory

    free = (
        {place: size for place, size in get_max_memory().items() if isinstance(place, int)}
        if device == "cuda"
        else {}
    )
    if len(free) < 2:
        raise BackendError(
            f"--device-map auto needs at least two visible GPUs, and on device {device!r} there {'is 1' if free else 'are none'}. "
            "Leave it out, or look at --device and CUDA_VISIBLE_DEVICES."
        )
    return {"device_map": "auto", "max_memory": {place: int(_ROOM * size) for place, size in free.items()}}


def check_placed(name: str, model: Any, parts: Parts) -> None:
    """Raises BackendError where an automatic placement leaves a part of the model without a GPU."""
    left = [part for part, place in _device_map(model).items() if place in ("cpu", "disk")]
    if parts == () and left:
        raise BackendError(
            f"model {excerpt(name)} does not fit into the visible GPUs: of its {model.get_memory_footprint() / 2**30:.1f} GiB, "
            f"{len(left)} parts such as {excerpt(left[0])} are left over. Free the GPUs, use more or larger ones, or a shorter dtype. "
            f"{1 - _ROOM:.0%} of each GPU's free memory is kept for computing."
        )


def describe(model: Any) -> str | None:
    """Where the parts of a model are, in words; None where it is in one piece."""
    places = sorted({str(place) for place in _device_map(model).values()})
    return (
        f"the model is in parts on {', '.join(f'GPU {place}' if place.isdecimal() else place for place in places)}"
        if places
        else None
    )


def input_device(module: Any) -> Any:
    """The device for the token ids of a model or decoder: that of its first weights which do not wait
    elsewhere."""
    return next(
        tensor.device for tensor in chain(module.parameters(), module.buffers()) if not tensor.is_meta
    )


def output_device(model: Any) -> Any:
    """The device for final hidden states: that of the vocabulary projection."""
    weight = getattr(model.get_output_embeddings(), "weight", None)
    return input_device(model) if weight is None or weight.is_meta else weight.device


def visible_gpus() -> tuple[str, ...]:
    """``cuda:0``, ``cuda:1``, …: what ``CUDA_VISIBLE_DEVICES`` leaves of the machine's GPUs."""
    import torch

    return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))


def _device_map(model: Any) -> dict[str, str | int]:
    found: dict[str, str | int] = getattr(model, "hf_device_map", {})
    return found
