"""Read a model with transformers, onto one device or spread over several GPUs.

A model that is too large for one GPU is spread by accelerate, whole layers at a time. It never spills into
main memory or onto disk, from which each pass would copy the weights again, hundreds of times slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch

from selfreflect.errors import BackendError, excerpt
from selfreflect.models.local.layers import DECODERS

if TYPE_CHECKING:
    from selfreflect.models.local.loading import ModelSource

_WEIGHTS_SHARE = 0.9
"""The share of a GPU's free memory for weights; the rest is for what passes compute."""


def read_model(source: ModelSource, parts: Mapping[str, Any]) -> tuple[Any, Any]:
    """Read a model, with its adapter merged, and its tokenizer.

    Args:
        parts: options of ``from_pretrained`` that spread it over devices.

    Raises:
        BackendError: weights are missing, or cannot be loaded.
    """
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    accumulate_in_float32(source.device)
    with source.explain_errors():
        tokenizer = source.tokenizer()
        model, report = source.architecture().from_pretrained(
            source.path,
            dtype=source.dtype,
            **source.weight_options,
            **parts,
        )
        # transformers would go on with random numbers in their place
        if missing := sorted(report["missing_keys"]):
            raise ValueError(
                f"its weights lack {len(missing)} tensors of this architecture, such as {missing[0]}"
            )
        check_rotary(model)
        check_placement(source.name, model)
        if source.adapter is not None:
            model = source.adapter.merge(model)
    return model, tokenizer


def accumulate_in_float32(device: str) -> None:
    """Torch's default lets cuBLAS add up parts of a sum in half precision."""
    if device.startswith("cuda"):
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


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
            f"a model is spread over two visible GPUs or more, and on device {device!r} there "
            f"{'is 1' if memory else 'are none'}",
            code="gpus",
            remedy="Leave {execution.device_map} out, or look at {execution.device} and "
            "CUDA_VISIBLE_DEVICES.",
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


def check_rotary(model: Any) -> None:
    """Raise ValueError where a configuration turns a part of each head only, which the layers of this family
    cannot: their first pass would fail."""
    decoder: Any = getattr(model, "model", None)
    frequencies = getattr(getattr(decoder, "rotary_emb", None), "inv_freq", None)
    if type(decoder).__name__ not in DECODERS or frequencies is None or not len(decoder.layers):
        return
    size = decoder.layers[0].self_attn.head_dim
    if 2 * len(frequencies) != size:
        raise ValueError(
            f"its rotary embedding turns {2 * len(frequencies)} of the {size} numbers of a head, and this "
            "architecture needs all; remove partial_rotary_factor from config.json, or correct head_dim"
        )
