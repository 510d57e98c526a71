"""Devices that are not there: CPU tensors that say they are on ``cpu:1``, ``cpu:2``, ... and may not meet, as
tensors of two GPUs may not.

Every operation passes through here. Its numbers are those of the CPU, so what a model in parts computes must
equal what it computes in one piece, and whatever was not moved to where its layer is raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import dispatch_model
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

_HOST = torch.device("cpu")
_TO, _COPY = ("aten::to.", "aten::cpu"), "aten::_to_copy"
"""Moves, which consist of a copy where anything is to move, and that."""


class Placed(torch.Tensor):
    """A CPU tensor that says it is elsewhere."""

    held: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: torch.Tensor, device: torch.device) -> Placed:
        with torch.inference_mode(False):  # else no weight could have a view
            made: Placed = torch.Tensor._make_wrapper_subclass(
                cls,
                held.shape,
                strides=held.stride(),
                storage_offset=held.storage_offset(),
                dtype=held.dtype,
                device=device,
            )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """In threads, which know nothing of :class:`Devices`."""
        return (
            function.decompose(*args, **(kwargs or {}))
            if function.name().startswith(_TO)
            else _run(function, args, kwargs or {})
        )

    def tolist(self) -> Any:
        return self.held.tolist()

    def data_ptr(self) -> int:
        return self.held.data_ptr()


class Devices(TorchDispatchMode):
    """All devices ``cpu:N``."""

    def __init__(self) -> None:
        super().__init__()
        self.moves: list[tuple[torch.device, torch.device]] = []
        """From where to where, for each tensor that went from one device to another."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.name().startswith(_TO):
            with self:
                return function.decompose(*args, **(kwargs or {}))
        found = _run(function, args, kwargs or {})
        if function.name() == _COPY and found.device != args[0].device:
            self.moves.append((args[0].device, found.device))
        return found


class _Made(TorchFunctionMode):
    """``torch.tensor(..., device=...)``, which torch makes without asking a dispatch mode."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        place = (kwargs or {}).get("device")
        if function is not torch.tensor or place is None:
            return function(*args, **(kwargs or {}))
        return function(*args, **{**kwargs, "device": None}).to(place)


def _run(function: Any, args: Any, kwargs: Any) -> Any:
    """One operation, where its tensors are; what it makes is there too, unless it says where."""
    tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)]
    homes = {one.device for one in tensors if isinstance(one, Placed) or one.dim()}
    if function.name() != _COPY and len(homes) > 1:
        raise RuntimeError(f"tensors on {', '.join(sorted(map(str, homes)))} meet in {function.name()}")
    device = next(iter(homes), _HOST) if kwargs.get("device") is None else torch.device(kwargs["device"])
    inner, options = tree_map(lambda one: one.held if isinstance(one, Placed) else one, (args, kwargs))
    if _made_up(device) and options.get("device") is not None:
        options["device"] = _HOST
    found = function(*inner, **options)
    if function._schema.is_mutable:
        return args[0]
    return tree_map(
        lambda one: Placed(one, device) if isinstance(one, torch.Tensor) and _made_up(device) else one, found
    )


def _made_up(device: torch.device) -> bool:
    return device.type == "cpu" and device.index is not None


@contextmanager
def devices() -> Iterator[Devices]:
    with _Made(), Devices() as mode:
        yield mode


def dispatched(model: Any, places: Mapping[str, str]) -> Any:
    """The model in parts, by accelerate itself, which makes the hooks that move tensors. Within
    :func:`devices`."""
    first = torch.device(next(iter(places.values())))
    return dispatch_model(
        model, device_map=dict(places), main_device=first, skip_keys=model._skip_keys_device_placement
    )
