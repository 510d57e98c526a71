"""Products of a few rows with a model's weights, which are read in as few bytes as give the same numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch

from selfreflect.models.local.machine import free_memory, load_compiled

SOURCE = Path(__file__).with_name("decode.c")

FLOAT32, BFLOAT16, CODES8, CODES4 = range(4)
"""Forms of a matrix, as in ``decode.c``: the model's own, the upper halves of numbers whose lower ones are
zeros, and codes of 8 or 4 bits with a scale and an offset for every 32 of them."""

PACKED_FORMS = (CODES4, CODES8, BFLOAT16)
"""The smallest first."""

SHARE = 4
"""A model's matrices are packed as long as that takes less than this part of the free memory."""

CACHE_LINE = 64
"""Bytes. Vectors are read from multiples of it."""

_SAMPLE = 4099
"""Of so many weights one is compared, to see whether a matrix has changed."""


class StepLibrary:
    """The compiled ``decode.c``."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        pointer, integer, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
        self.largest_head = int(library.attention_most())
        self.packed_size = library.packed_size
        self.packed_size.restype = integer
        self.packed_size.argtypes = [integer] * 3
        self.pack = library.pack
        self.pack.argtypes = [pointer, integer, integer, integer, pointer, ctypes.c_int]
        self.products = library.products
        self.products.restype = None
        self.products.argtypes = [
            *(pointer, integer, integer, pointer, number),
            *(pointer, integer, pointer, ctypes.c_int, pointer, ctypes.c_int),
        ]
        self.attend = library.attend
        self.attend.restype = None
        self.attend.argtypes = [*[pointer] * 11, *[integer] * 6, number, ctypes.c_int]


@cache
def step_library() -> StepLibrary | str:
    """The library, compiled for this process in about a second, or why there is none."""
    return load_compiled(SOURCE, StepLibrary)


class Product:
    """Matrices with the same input, and the norm before them. Results lie side by side."""

    def __init__(self, library: StepLibrary, modules: Sequence[torch.nn.Linear], norm: Any = None) -> None:
        self.library = library
        self.packed = [packed_weights(library, module) for module in modules]
        rows = []
        for module, packed in zip(modules, self.packed, strict=True):
            bias = 0 if module.bias is None else module.bias.data_ptr()
            rows.append([packed.address, bias, module.weight.shape[0], packed.form])
        self.matrices = np.array(rows, dtype=np.int64)
        """A row is a ``Matrix`` of ``decode.c``."""
        self.inner = modules[0].weight.shape[1]
        self.width = sum(module.weight.shape[0] for module in modules)
        self.norm = None if norm is None else norm.weight.data_ptr()
        self.epsilon = 0.0 if norm is None else norm.variance_epsilon

    def __call__(
        self, x: torch.Tensor, lanes: torch.Tensor, total: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The products of ``x`` (rows, inner), contiguous, added to ``total`` if there is one. ``lanes`` is
        room for as many numbers as ``x`` has."""
        assert lanes.numel() >= x.numel() == len(x) * self.inner  # the C code checks no bounds
        out = x.new_empty(len(x), self.width) if total is None else total
        self.library.products(
            x.data_ptr(),
            len(x),
            self.inner,
            self.norm,
            self.epsilon,
            self.matrices.ctypes.data,
            len(self.matrices),
            out.data_ptr(),
            total is not None,
            lanes.data_ptr(),
            torch.get_num_threads(),
        )
        return out


class PackedWeights(NamedTuple):
    """A matrix in one of the forms."""

    form: int
    address: int
    room: npt.NDArray[np.uint8] | None
    """Holds what lies at the address; None for the model's own."""
    origin: tuple[int, int, bytes]
    """Tells whether the model's own matrix is still the one that was packed."""


_packed: WeakKeyDictionary[torch.nn.Linear, PackedWeights] = WeakKeyDictionary()
_packing = Lock()


def packed_weights(library: StepLibrary, module: torch.nn.Linear) -> PackedWeights:
    """The weights of a module in the smallest form that gives the very same numbers. They are packed once,
    and again when the module has others; the model's own stay, because other passes need them."""
    with _packing:
        origin = _origin(module.weight)
        packed = _packed.get(module)
        if packed is None or packed.origin != origin:
            packed = _pack(library, module.weight, origin)
            _packed[module] = packed
        return packed


def _origin(weight: torch.Tensor) -> tuple[int, int, bytes]:
    version = 0 if weight.is_inference() else weight._version
    # Changes through `weight.data` leave the version as it is.
    sample = weight.detach().view(-1)[::_SAMPLE].numpy().tobytes()
    return weight.data_ptr(), version, sample


def _pack(library: StepLibrary, weight: torch.Tensor, origin: tuple[int, int, bytes]) -> PackedWeights:
    outer, inner = weight.shape
    in_use = sum(packed.room.nbytes for packed in _packed.values() if packed.room is not None)
    for form in PACKED_FORMS:
        size = library.packed_size(form, outer, inner)
        if not size or SHARE * (in_use + size) > in_use + free_memory():
            continue
        room = np.zeros(size + CACHE_LINE, dtype=np.uint8)
        address = room.ctypes.data + -room.ctypes.data % CACHE_LINE
        if library.pack(weight.data_ptr(), outer, inner, form, address, torch.get_num_threads()):
            return PackedWeights(form, address, room, origin)
    return PackedWeights(FLOAT32, weight.data_ptr(), None, origin)
