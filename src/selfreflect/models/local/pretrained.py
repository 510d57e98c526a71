"""Reading of models with transformers, adapter merging, and file checks without reading weights.

A model that is too large for one GPU is spread by accelerate, whole layers at a time. It never spills into
main memory or onto disk, from which each pass would copy the weights again, hundreds of times slower.
Adapters are merged into the base's own weights, so everything that runs the base runs them as fast.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from selfreflect.errors import BackendError, excerpt, optional
from selfreflect.models.base import Message
from selfreflect.models.chat import ChatTokenizer
from selfreflect.models.local.layers import DECODERS

if TYPE_CHECKING:
    from selfreflect.models.local.loading import ModelSource


# The share of a GPU's free memory for weights; the rest is for what passes compute.
_WEIGHTS_SHARE = 0.9

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
KINDS = ("LORA", "ADALORA", "LOHA", "LOKR", "IA3", "OFT", "BOFT", "VERA", "HRA")
"""Kinds of adapters that can be merged into the weights and consist of two files. Other kinds name further
models, which peft would download, or cannot be merged, such as soft prompts."""

# Wrong tensors that an error names.
_EXAMPLES = 2


def read_model(source: ModelSource, parts: Mapping[str, Any]) -> tuple[Any, Any]:
    """Read a model and its tokenizer, and merge its adapter.

    Args:
        parts: options of ``from_pretrained`` that spread it over devices.

    Raises:
        BackendError: weights are missing, or cannot be loaded.
    """
    silence_transformers()
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


def silence_transformers() -> None:
    """Keep warnings and bars of transformers off stderr, where progress bars are."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def accumulate_in_float32(device: str) -> None:
    """Disable cuBLAS sums in half precision, torch's default."""
    if device.startswith("cuda"):
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def placement(device_map: Literal["auto"] | None, device: str) -> dict[str, Any]:
    """Choose placement options of ``from_pretrained``; empty for a single device.

    Raises BackendError where ``"auto"`` finds fewer than two GPUs.
    """
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
            f"spreading a model needs at least two visible GPUs, and on device {device!r} there "
            f"{'is 1' if memory else 'are none'}",
            code="gpus",
            remedy="Leave out {execution.device_map}, or check {execution.device} and CUDA_VISIBLE_DEVICES.",
        )
    return {"device_map": "auto", "max_memory": memory}


def check_placement(name: str, model: Any) -> None:
    """Raise BackendError if part of the model is not on a GPU."""
    devices: dict[str, str | int] = getattr(model, "hf_device_map", {})
    left = [part for part, device in devices.items() if device in ("cpu", "disk")]
    if left:
        size = model.get_memory_footprint() / 2**30
        raise BackendError(
            f"model {excerpt(name)} ({size:.1f} GiB) does not fit into the visible GPUs: there is no room "
            f"for {len(left)} of its parts, such as {excerpt(left[0])}. Free the GPUs, use more or larger "
            f"ones, or a shorter dtype. {1 - _WEIGHTS_SHARE:.0%} of each GPU's free memory is kept for "
            "computing.",
            code="gpus",
        )


def check_rotary(model: Any) -> None:
    """Refuse rotary embeddings of only part of each head. Raises ValueError.

    The layers of this family cannot: their first pass would fail.
    """
    decoder: Any = getattr(model, "model", None)
    frequencies = getattr(getattr(decoder, "rotary_emb", None), "inv_freq", None)
    if type(decoder).__name__ not in DECODERS or frequencies is None or not len(decoder.layers):
        return
    size = decoder.layers[0].self_attn.head_dim
    if 2 * len(frequencies) != size:
        raise ValueError(
            f"its rotary embedding rotates {2 * len(frequencies)} of the {size} dimensions of a head, but "
            "this architecture must rotate all; remove partial_rotary_factor from config.json, or correct "
            "head_dim"
        )


def check_source(source: ModelSource, *, weights: bool = True) -> None:
    """Check the files of a located model, and render its chat template.

    Args:
        weights: whether to read the headers of its weights.

    Raises:
        BackendError: the model could not be loaded.
    """
    with source.explain_errors():
        tokenizer = source.tokenizer()
        source.architecture()
    if weights:
        check_weights(source)
    ChatTokenizer(tokenizer).render([Message(role="user", content="Hello")])


def check_weights(source: ModelSource) -> None:
    """Compare shapes in all safetensors headers with those that the configuration requires. Models on the
    hub, whose files may not be here yet, and quantised ones are not compared.

    Raises:
        BackendError: a file is damaged or cut off, or holds tensors of another shape.
    """
    folder = Path(source.path)
    if not folder.is_dir():
        return
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        shapes.update(_shapes(file))
    with source.explain_errors():
        import transformers

        config = transformers.AutoConfig.from_pretrained(source.path, **source.options)
        if getattr(config, "quantization_config", None) is not None:  # which packs tensors in its own way
            return
        with torch.device("meta"):
            trust = source.trust_remote_code
            skeleton = source.architecture().from_config(config, trust_remote_code=trust)
    wrong = []
    for name, tensor in skeleton.state_dict().items():
        shape = shapes.get(name)  # the library gives some tensors another name as it loads them
        if shape is not None and shape != tuple(tensor.shape):
            wrong.append(f"{name} is {shape} instead of {tuple(tensor.shape)}")
    if wrong:
        examples = ", ".join(wrong[:_EXAMPLES])
        raise BackendError(
            f"the weights in {excerpt(source.path, 200)} do not fit its config.json: {examples}. Copy the "
            "model again, or correct the configuration.",
            code="damaged",
        )


def _shapes(file: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  # it is no dictionary
                yield name, tuple(tensors.get_slice(name).get_shape())
    except (SafetensorError, OSError, ValueError) as error:
        reason: Any = " ".join(str(error).split())
        raise BackendError(
            f"{excerpt(str(file), 200)} is damaged or cut off ({reason[:200]}). Copy the model again.",
            code="damaged",
        ) from None


@dataclass(frozen=True)
class PeftAdapter:
    """A PEFT adapter directory, with its base model."""

    path: str
    base: str
    """Alias, absolute directory or hub name of the base model."""
    base_revision: str | None
    kind: str
    """Kind in peft's terms: ``LORA``."""
    digest: str
    """Digest of the adapter's two files."""

    def merge(self, model: Any) -> Any:
        """Merge the adapter into its base model's weights.

        Raises:
            MissingExtraError: peft is not installed.
            ValueError, RuntimeError: it is of another kind than :data:`KINDS`, or its weights do not fit the
                base.
        """
        if self.kind not in KINDS:
            raise ValueError(
                f"adapters of the type {excerpt(self.kind)} cannot be loaded, only {', '.join(KINDS)}"
            )
        with optional(f"the adapter in {excerpt(self.path, 200)}", "train"):
            import peft
        from safetensors import safe_open

        with safe_open(Path(self.path) / WEIGHTS, framework="pt") as tensors:
            names = set(tensors.keys())
        adapted = peft.PeftModel.from_pretrained(model, self.path)
        # Left to itself, peft asks the hub whether the base's embeddings were changed.
        embeddings = any(name.endswith(("embed_tokens.weight", "lm_head.weight")) for name in names)
        weights = peft.get_peft_model_state_dict(adapted, save_embedding_layers=embeddings)
        # peft would go on with random or zero numbers in their place, or without them
        if different := sorted(names ^ weights.keys()):
            raise ValueError(
                f"its weights do not match the layers of {excerpt(self.base)}, for example {different[0]}"
            )
        return adapted.merge_and_unload(safe_merge=True)


def find_adapter(folder: Path) -> PeftAdapter | None:
    """Read a directory's adapter; None if it holds none, or a whole model.

    Raises:
        BackendError: its configuration cannot be read or names no base, or it has no safetensors weights.
    """
    where = excerpt(str(folder), 200)
    # a folder with config.json holds a whole model
    if not (folder / CONFIG).is_file() or (folder / "config.json").is_file():
        return None
    try:
        text = (folder / CONFIG).read_bytes()
        config = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise BackendError(
            f"{CONFIG} in {where} cannot be read: {excerpt(str(error), 200)}", code="adapter"
        ) from None
    base = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    if not isinstance(base, str) or not base.strip():
        raise BackendError(
            f"{CONFIG} in {where} names no base model (base_model_name_or_path)", code="adapter"
        )
    if not (folder / WEIGHTS).is_file():
        raise BackendError(
            f"{where} holds an adapter without {WEIGHTS}. Pickled weights (adapter_model.bin) are not loaded "
            "because they can run code; save it again with safetensors.",
            code="pickled",
        )
    revision = config.get("revision")
    digest = hashlib.sha256(text)
    with (folder / WEIGHTS).open("rb") as file:
        digest.update(hashlib.file_digest(file, "sha256").digest())
    return PeftAdapter(
        path=str(folder),
        base=base,
        base_revision=revision if isinstance(revision, str) and revision else None,
        kind=str(config.get("peft_type")),
        digest=digest.hexdigest()[:12],
    )
