"""Load a causal language model from the embedded alias, a hub name or a local directory: safetensors only, no
remote code unless asked."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import torch

from selfreflect.errors import BackendError, excerpt, nearest
from selfreflect.models.local.device_map import Parts, check_placed, describe, parts_of, placement
from selfreflect.models.local.threads import limit_threads, set_library_defaults
from selfreflect.models.spec import LOCAL_NAMES, Device, DType, ModelSpec

ALIASES: dict[str, str] = {"smollm2": "selfreflect.models.smollm2:model_directory"}
"""Embedded models: alias -> the function that makes their directory ready."""


@dataclass(frozen=True)
class CausalLM:
    """A model in evaluation mode with its tokenizer, and the facts a record needs to name it."""

    model: Any
    tokenizer: Any
    name: str
    revision: str
    device: str
    dtype: str
    window: int | None
    """Most positions the model was made for, None where it does not say."""


def load_causal_lm(spec: ModelSpec, progress: Callable[[str], None] | None = None) -> CausalLM:
    """Load a model once per process; generator and judge share a model that both use.

    On a CPU, torch gets as many threads as it may use cores, see :mod:`selfreflect.models.local.threads`;
    ``progress`` hears how many.

    Raises:
        BackendError: no such model, no safetensors weights, weights that this installation cannot load, or no
            GPUs that they fit into; says what is known.
    """
    where = pick_device(spec.device)
    kind = pick_dtype(spec.dtype, where)
    source = resolve(spec.name, progress)
    set_library_defaults()
    hits = _load.cache_info().hits
    lm = _load(
        spec.name,
        source,
        _last_change(source),
        where,
        kind,
        spec.revision,
        spec.trust_remote_code,
        parts_of(spec.device_map),
    )
    if _load.cache_info().hits > hits:
        return lm
    threads = limit_threads() if where == "cpu" else None
    if progress and (places := describe(lm.model)):
        progress(places)
    if progress and threads:
        progress(f"computing with {threads}")
    return lm


def add_up_in_float32(where: str) -> None:
    """Torch's default lets cuBLAS add up parts of a sum in half precision."""
    if where == "cuda":
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


@lru_cache(maxsize=2)
def _load(
    name: str,
    source: str,
    last_change: int,
    where: str,
    kind: torch.dtype,
    revision: str | None,
    trust_remote_code: bool,
    parts: Parts,
) -> CausalLM:
    """``last_change`` only keeps a directory that was written again in the meantime from being answered from
    memory."""
    import transformers

    if parts is not None:
        # Placement counts the memory that is free, and an earlier model that only this cache still holds may
        # fill the GPUs.
        _load.cache_clear()
        gc.collect()
        torch.cuda.empty_cache()
    placed = placement(parts, where)

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    add_up_in_float32(where)
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    with explained(name, source):
        if not Path(source).is_dir():
            options |= pinned(source, revision)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
        model, report = family(source, options).from_pretrained(
            source, dtype=kind, use_safetensors=True, output_loading_info=True, **options, **placed
        )
        # transformers would go on with random numbers in their place
        if missing := sorted(report["missing_keys"]):
            raise ValueError(
                f"its weights lack {len(missing)} tensors of this architecture, such as {missing[0]}"
            )
        check_placed(name, model, parts)
        model = (model if placed else model.to(where)).eval()
    return CausalLM(
        model=model,
        tokenizer=tokenizer,
        name=name,
        revision=options.get("revision") or local_revision(name) or revision or "",
        device=where,
        dtype=str(kind).removeprefix("torch."),
        window=window_of(model, tokenizer),
    )


@contextmanager
def explained(name: str, source: str) -> Iterator[None]:
    """Turn what loading raises into a BackendError that says what to do."""
    from huggingface_hub.errors import HTTPError, StrictDataclassError
    from safetensors import SafetensorError

    # A device map may name a GPU where torch has no CUDA, and torch asserts that it has.
    usual = (
        OSError,
        ValueError,
        ImportError,
        RuntimeError,
        LookupError,
        AttributeError,
        TypeError,
        AssertionError,
    )
    try:
        yield
    except Exception as error:
        if (
            not isinstance(error, (*usual, HTTPError, StrictDataclassError, SafetensorError))
            and type(error) is not Exception
        ):
            # what remains is our own mistake; the tokenizers library raises nothing better than a bare
            # Exception
            raise
        raise BackendError(_explain(name, source, error)) from error


def pinned(source: str, revision: str | None) -> dict[str, Any]:
    """Options that load one commit of a hub model, the one that ``revision`` (by default the main branch)
    means now."""
    from transformers.utils import cached_file

    local = not _hub_answers()
    config = Path(str(cached_file(source, "config.json", revision=revision, local_files_only=local)))
    return {"revision": config.parent.name, "local_files_only": local}


def _hub_answers() -> bool:
    """Whether the hub can be reached. Where it cannot, transformers would try for half a minute with each
    file, even if it has them all."""
    from huggingface_hub import constants, get_session
    from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled

    try:
        get_session().head(constants.ENDPOINT, timeout=10)
    except (HTTPError, OfflineModeIsEnabled):
        return False
    return True


def family(source: str, options: dict[str, Any]) -> Any:
    """The transformers class that loads this model: multimodal ones with a causal text part are mostly listed
    under another one."""
    import transformers
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    )

    config = transformers.AutoConfig.from_pretrained(source, **options)
    listed = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if (
        not listed
        and config.model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
        and not config.is_encoder_decoder
    ):
        return transformers.AutoModelForImageTextToText
    return transformers.AutoModelForCausalLM


def _last_change(source: str) -> int:
    """When a file of a local model directory was last written, in nanoseconds; 0 for a hub name."""
    return max((path.stat().st_mtime_ns for path in Path(source).glob("*") if path.is_file()), default=0)


def resolve(name: str, progress: Callable[[str], None] | None) -> str:
    """The directory or hub name to load from."""
    if name in ALIASES:
        from selfreflect.models.smollm2 import model_directory

        return str(model_directory(progress))
    try:
        path = Path(name).expanduser()
        found = path.is_dir()
    except (RuntimeError, OSError) as error:  # "~nobody", or more letters than a path can have
        raise BackendError(f"{excerpt(name, 200)} is neither a directory nor the name of a model") from error
    if not found:
        if ":" in name:  # which no hub name holds
            raise BackendError(
                f"{excerpt(name, 200)} is no local model. Known names: {LOCAL_NAMES}; a server's model begins with openai:, "
                "vllm: or, for a judge, vllm+http:."
            )
        if path.exists() or name.startswith((".", "/", "~")):
            raise BackendError(
                f"{excerpt(name, 200)} is not a directory with a model (config.json, tokenizer and *.safetensors)"
            )
        return name
    if not (path / "config.json").is_file():
        raise BackendError(f"{excerpt(name, 200)} has no config.json, so it is not a model directory")
    if not any(path.glob("*.safetensors")):
        raise BackendError(
            f"{excerpt(name, 200)} holds no safetensors weights. Pickled weights (*.bin, *.pt) are not loaded because they can run code; "
            "convert them once with `AutoModelForCausalLM.from_pretrained(...).save_pretrained(...)` where you trust them."
        )
    return str(path)


def _explain(name: str, source: str, error: Exception) -> str:
    known = f"Known names: {LOCAL_NAMES}."
    reason = " ".join(str(error).split())
    if "trust_remote_code" in reason:
        return f"{excerpt(name)} brings its own code, which is not run unless you pass --trust-remote-code."
    if "offload_folder" in reason:
        return f"model {excerpt(name)} does not fit into the visible GPUs, and weights of its kind cannot wait on disk."
    if Path(source).is_dir():
        return f"could not load the model in {excerpt(source, 200)}: {reason[:300]}"
    return (
        f"could not load the model {excerpt(name)}: {reason[:300]} {known}{nearest(name, list(ALIASES))} "
        "Without a network, only models that are on this disk can be used."
    )


def local_revision(name: str) -> str:
    if name in ALIASES:
        from selfreflect.models.smollm2 import REVISION

        return REVISION
    return ""


def pick_device(device: Device) -> str:
    """The device itself, and for ``auto`` the fastest there is.

    Raises:
        BackendError: this machine has no such device.
    """
    if device not in get_args(Device):
        raise BackendError(f"unknown device {excerpt(device)}; there are {', '.join(get_args(Device))}")
    if device == "cuda" and not torch.cuda.is_available():
        raise BackendError(
            "device 'cuda': this torch sees no CUDA GPU. Use --device cpu, or install a CUDA build of torch."
        )
    if device == "mps" and not torch.backends.mps.is_available():
        raise BackendError("device 'mps': not available here. Use --device cpu.")
    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def pick_dtype(dtype: DType, device: str) -> torch.dtype:
    """float32 wherever it is affordable; bfloat16 weights on CUDA (softmax and accumulation stay in float32
    there)."""
    if dtype not in get_args(DType):
        raise BackendError(f"unknown dtype {excerpt(dtype)}; there are {', '.join(get_args(DType))}")
    if dtype == "auto":
        return torch.bfloat16 if device == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]


def window_of(model: Any, tokenizer: Any) -> int | None:
    """The smaller of what the (text) config and the tokenizer allow; tokenizers without a limit say 1e30."""
    config = model.config.get_text_config()
    limits = [getattr(config, "max_position_embeddings", None), getattr(tokenizer, "model_max_length", None)]
    known = [int(limit) for limit in limits if limit is not None and 0 < limit < 10**9]
    return min(known, default=None)
