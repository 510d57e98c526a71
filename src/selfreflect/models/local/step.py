"""Decoding steps of the Llama family in float32 on a CPU, in C code.

A step reads every weight once, for all sequences of the batch together. Prompts stay as the first pass left
them, one copy for all samples; what a sequence adds lies in slots, which it gives back when it ends.
"""

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
import torch.nn.functional as F

from selfreflect.models.local.layers import is_at_home, is_llama, rms_norm
from selfreflect.models.local.machine import free_memory, load_compiled

MODELS = frozenset(("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"))

FLOAT = 4
"""Bytes per number."""


def serves(model: Any) -> bool:
    """Check whether :class:`FusedSequences` reproduces the model's logits and runs on this machine."""
    if not _is_known(model):
        return False
    library = step_library()
    return not isinstance(library, str) and _head_size(model) <= library.largest_head


def why_slow(model: Any) -> str:
    """Explain why a known model lacks the C library; empty if there is no problem."""
    library = step_library() if _is_known(model) else ""
    return library if isinstance(library, str) else ""


def _is_known(model: Any) -> bool:
    cls = type(model)
    if cls.__name__ not in MODELS or not is_at_home(cls):
        return False
    if type(model.lm_head) is not torch.nn.Linear or not is_llama(model.model):
        return False
    if len({weight.device for weight in model.parameters()}) > 1:
        return False
    for weight in model.parameters():
        if weight.device.type != "cpu" or weight.dtype != torch.float32 or not weight.is_contiguous():
            return False
    # The angles of these change with the longest sequence of a batch, so nothing can be shared.
    if model.model.rotary_emb.rope_type in ("dynamic", "longrope"):
        return False
    # rotary embedding turns one half of a head with the other
    return _head_size(model) % 2 == 0


def _head_size(model: Any) -> int:
    size: int = model.model.layers[0].self_attn.head_dim
    return size


class Layer(NamedTuple):
    attention: Any
    """Attention module, for its sizes and norms."""
    states: Product
    output: Product
    gates: Product
    down: Product


class FusedSequences:
    """Sequences that grow by one token per step.

    Args:
        keys, values: for each layer those of the prompts, (prompts, KV, longest, D), padded on the left.
        rows: which of the prompts each sequence begins with.
        lengths: tokens of each prompt.
    """

    def __init__(
        self,
        model: Any,
        keys: Sequence[torch.Tensor],
        values: Sequence[torch.Tensor],
        rows: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
    ) -> None:
        library = step_library()
        assert not isinstance(library, str)
        self.library = library
        self.model = model  # whose weights must outlive the pointers to them
        self.decoder = model.model
        self.prompt_keys = keys
        self.prompt_values = values
        self.rows = rows
        self.lengths = lengths[rows]
        self.layers = []
        for layer in self.decoder.layers:
            attn, mlp = layer.self_attn, layer.mlp
            states = [attn.q_proj, attn.k_proj, attn.v_proj]
            self.layers.append(
                Layer(
                    attn,
                    Product(library, states, layer.input_layernorm),
                    Product(library, [attn.o_proj]),
                    Product(library, [mlp.gate_proj, mlp.up_proj], layer.post_attention_layernorm),
                    Product(library, [mlp.down_proj]),
                )
            )
        self.head = Product(library, [model.lm_head], self.decoder.norm)
        products = [self.head]
        for layer in self.layers:
            products += [layer.states, layer.output, layer.gates, layer.down]
        widest = max(product.inner for product in products)
        self.lanes = torch.empty(len(rows) * widest)
        self.key_heads = keys[0].shape[1]
        self.slots = Slots(len(rows), len(self.layers), (self.key_heads, keys[0].shape[3]))
        self._find_prompts()

    def keep(self, unfinished: Sequence[int]) -> None:
        """Keep only the unfinished sequences."""
        self.rows = self.rows[list(unfinished)]
        self.lengths = self.lengths[list(unfinished)]
        self.slots.keep(unfinished)
        self._find_prompts()

    def extend(self, tokens: torch.Tensor) -> torch.Tensor:
        """Append one token to each sequence, and return the next logits, (sequences, vocabulary)."""
        positions = torch.from_numpy(self.lengths + self.slots.count)
        self.slots.append()
        x = self.decoder.embed_tokens(tokens)
        cos, sin = self.decoder.rotary_emb(x[None], positions[None])
        cos = cos.contiguous()
        sin = sin.contiguous()
        for index, layer in enumerate(self.layers):
            states = layer.states(x, self.lanes)
            _norm_heads(layer.attention, states, self.key_heads)
            layer.output(self._attend(index, states, cos, sin), self.lanes, x)
            gates, ups = layer.gates(x, self.lanes).chunk(2, dim=1)
            layer.down(F.silu(gates).mul_(ups), self.lanes, x)
        return self.head(x, self.lanes)

    def _find_prompts(self) -> None:
        """Locate each sequence's prompt keys and values in each layer."""
        self.first = []
        for keys, values in zip(self.prompt_keys, self.prompt_values, strict=True):
            # prompts are padded on the left, so their first token stands behind the padding
            before = self.rows * keys.stride(0) + (keys.shape[2] - self.lengths) * keys.stride(2)
            self.first.append((keys.data_ptr() + FLOAT * before, values.data_ptr() + FLOAT * before))

    def _attend(self, index: int, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Compute each new token's attention to its sequence, (sequences, H * D)."""
        first_keys, first_values = self.first[index]
        keys = self.prompt_keys[index]
        size = keys.shape[3]
        heads = states.shape[1] // size - 2 * self.key_heads
        out = states.new_empty(len(states), heads * size)
        self.library.attend(
            states.data_ptr(),
            out.data_ptr(),
            cos.data_ptr(),
            sin.data_ptr(),
            first_keys.ctypes.data,
            first_values.ctypes.data,
            self.lengths.ctypes.data,
            self.slots.keys[index].data_ptr(),
            self.slots.values[index].data_ptr(),
            self.slots.table.ctypes.data,
            self.slots.count.ctypes.data,
            self.slots.table.shape[1],
            len(states),
            self.key_heads,
            heads // self.key_heads,
            size,
            keys.stride(1),
            self.layers[index].attention.scaling,
            torch.get_num_threads(),
        )
        return out


def _norm_heads(attention: Any, states: torch.Tensor, key_heads: int) -> None:
    """Normalise queries and keys in place, as Qwen3 does."""
    if getattr(attention, "q_norm", None) is None:
        return
    heads = states.view(len(states), -1, attention.head_dim)
    values = heads.shape[1] - key_heads
    keys = values - key_heads
    heads[:, :keys] = rms_norm(attention.q_norm, heads[:, :keys])
    heads[:, keys:values] = rms_norm(attention.k_norm, heads[:, keys:values])


class Slots:
    """Slots of new tokens' keys and values, equal in every layer and reused after a sequence ends."""

    def __init__(self, sequences: int, layers: int, shape: tuple[int, int]) -> None:
        self.keys = [torch.empty(0, *shape) for _ in range(layers)]
        self.values = [torch.empty(0, *shape) for _ in range(layers)]
        self.free = np.empty(0, dtype=np.int64)
        self.table = np.zeros((sequences, 32), dtype=np.int64)
        """The slots of each sequence, in order."""
        self.count = np.zeros(sequences, dtype=np.int64)
        """Number of slots of each sequence."""

    def append(self) -> None:
        """Allocate one more slot for each sequence."""
        sequences, columns = self.table.shape
        if len(self.free) < sequences:
            self._grow(sequences)
        if self.count.max() == columns:
            self.table = np.pad(self.table, ((0, 0), (0, columns)))
        self.table[np.arange(sequences), self.count] = self.free[:sequences]
        self.free = self.free[sequences:]
        self.count += 1

    def keep(self, sequences: Sequence[int]) -> None:
        """Free the slots of all other sequences."""
        freed = [self.free]
        for sequence in set(range(len(self.count))) - set(sequences):
            freed.append(self.table[sequence, : self.count[sequence]])
        self.free = np.concatenate(freed)
        self.table = self.table[list(sequences)]
        self.count = self.count[list(sequences)]

    def _grow(self, sequences: int) -> None:
        before = len(self.keys[0])
        # by half at least, because growing copies all keys and values
        after = before + max(16 * sequences, before // 2)
        for states in (self.keys, self.values):
            for layer, old in enumerate(states):
                states[layer] = old.new_empty(after, *old.shape[1:])
                states[layer][:before] = old
        self.free = np.concatenate([self.free, np.arange(before, after)])


SOURCE = Path(__file__).with_name("decode.c")

FLOAT32, BFLOAT16, CODES8, CODES4 = range(4)
"""Forms of a matrix, as in ``decode.c``: the model's own numbers; the upper halves of numbers whose lower
halves are zero; codes of 8 or 4 bits, with a scale and an offset for every 32 codes."""

PACKED_FORMS = (CODES4, CODES8, BFLOAT16)
"""Packed forms, smallest first."""

SHARE = 4
"""Divisor of the free memory that limits packing of a model's matrices."""

CACHE_LINE = 64
"""Size of a cache line in bytes. Vectors begin at multiples of it."""

# Of so many weights one is compared, to see whether a matrix has changed.
_SAMPLE = 4099


class StepLibrary:
    """The compiled library of ``decode.c``."""

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
    """Compile the library in about a second, or return the reason for failure."""
    return load_compiled(SOURCE, StepLibrary)


class Product:
    """Matrices with a common input, and their preceding norm. Results are stored side by side."""

    def __init__(self, library: StepLibrary, modules: Sequence[torch.nn.Linear], norm: Any = None) -> None:
        self.library = library
        self.packed = [packed_weights(library, module) for module in modules]
        rows = []
        for module, packed in zip(modules, self.packed, strict=True):
            bias = 0 if module.bias is None else module.bias.data_ptr()
            rows.append([packed.address, bias, module.weight.shape[0], packed.form])
        self.matrices = np.array(rows, dtype=np.int64)
        """Rows that are each a ``Matrix`` of ``decode.c``."""
        self.inner = modules[0].weight.shape[1]
        self.width = sum(module.weight.shape[0] for module in modules)
        self.norm = None if norm is None else norm.weight.data_ptr()
        self.epsilon = 0.0 if norm is None else norm.variance_epsilon

    def __call__(
        self, x: torch.Tensor, lanes: torch.Tensor, total: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Multiply ``x`` (rows, inner), contiguous, and add the products to ``total`` if given.

        ``lanes`` is room for as many numbers as ``x`` has.
        """
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
    """A matrix packed in one of the forms."""

    form: int
    address: int
    room: npt.NDArray[np.uint8] | None
    """Memory at the address; None for the model's own."""
    origin: tuple[int, int, bytes]
    """Identity of the model's matrix when it was packed, to detect a change."""


_packed: WeakKeyDictionary[torch.nn.Linear, PackedWeights] = WeakKeyDictionary()
_packing = Lock()


def packed_weights(library: StepLibrary, module: torch.nn.Linear) -> PackedWeights:
    """Pack a module's weights in the smallest lossless form.

    They are packed once, and again when the module has others; the model's own stay, because other passes
    need them.
    """
    # two threads may load the same model
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
    # memory that packed weights take now would be free without them
    in_use = sum(packed.room.nbytes for packed in _packed.values() if packed.room is not None)
    for form in PACKED_FORMS:
        size = library.packed_size(form, outer, inner)
        if not size or SHARE * (in_use + size) > in_use + free_memory():
            continue
        # room to begin at a multiple of CACHE_LINE
        room = np.zeros(size + CACHE_LINE, dtype=np.uint8)
        address = room.ctypes.data + -room.ctypes.data % CACHE_LINE
        # 0 if a single number would differ in this form
        if library.pack(weight.data_ptr(), outer, inner, form, address, torch.get_num_threads()):
            return PackedWeights(form, address, room, origin)
    return PackedWeights(FLOAT32, weight.data_ptr(), None, origin)
