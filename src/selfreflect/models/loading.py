"""Load a causal language model from the embedded alias, a hub name or a local directory: safetensors only, no remote code unless asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch

from selfreflect.errors import BackendError, excerpt, nearest

Device = Literal["auto", "cuda", "mps", "cpu"]
DType = Literal["auto", "float32", "bfloat16", "float16"]

ALIASES: dict[str, str] = {"smollm2": "selfreflect.models.demo:model_directory"}
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


@lru_cache(maxsize=2)
def load_causal_lm(
    name: str,
    device: Device = "auto",
    dtype: DType = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    progress: Callable[[str], None] | None = None,
) -> CausalLM:
    """Load ``name`` once per process; generator and judge share a model that both use.

    Raises:
        BackendError: no such model, no safetensors weights, or weights that this installation cannot load; says what is known.
    """
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    source = _resolve(name, progress)
    where = _pick_device(device)
    kind = _pick_dtype(dtype, where)
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    if revision is not None:
        options["revision"] = revision
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
        model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=kind, use_safetensors=True, **options)
    except (OSError, ValueError, ImportError, RuntimeError, KeyError, AttributeError) as error:
        raise BackendError(_explain(name, source, error)) from error
    model = model.to(where).eval()
    return CausalLM(
        model=model,
        tokenizer=tokenizer,
        name=name,
        revision=str(revision or getattr(model.config, "_commit_hash", None) or _local_revision(name)),
        device=where,
        dtype=str(kind).removeprefix("torch."),
        window=_window(model, tokenizer),
    )


def _resolve(name: str, progress: Callable[[str], None] | None) -> str:
    """The directory or hub name to load from."""
    if name in ALIASES:
        from selfreflect.models.demo import model_directory

        return str(model_directory(progress))
    path = Path(name)
    if not path.is_dir():
        if path.exists() or name.startswith((".", "/", "~")):
            raise BackendError(f"{excerpt(name, 200)} is not a directory with a model (config.json, tokenizer and *.safetensors)")
        return name
    if not (path / "config.json").is_file():
        raise BackendError(f"{excerpt(name, 200)} has no config.json, so it is not a model directory")
    if not any(path.glob("*.safetensors")):
        raise BackendError(
            f"{excerpt(name, 200)} holds no safetensors weights. Pickled weights (*.bin, *.pt) are not loaded because they can run code; "
            "convert them once with `AutoModelForCausalLM.from_pretrained(...).save_pretrained(...)` where you trust them."
        )
    return name


def _explain(name: str, source: str, error: Exception) -> str:
    known = f"Known names: {', '.join(ALIASES)}, a local directory, or a hub name such as Qwen/Qwen2.5-7B-Instruct."
    reason = " ".join(str(error).split())
    if "trust_remote_code" in reason:
        return f"{excerpt(name)} brings its own code, which is not run unless you pass --trust-remote-code."
    if Path(source).is_dir():
        return f"could not load the model in {excerpt(source, 200)}: {reason[:300]}"
    return (
        f"could not load the model {excerpt(name)}: {reason[:300]} {known}{nearest(name, list(ALIASES))} "
        "Without a network, set HF_HUB_OFFLINE=1 and use a model that is on the disk."
    )


def _local_revision(name: str) -> str:
    if name in ALIASES:
        from selfreflect.models.demo import REVISION

        return REVISION
    return ""


def _pick_device(device: Device) -> str:
    if device == "cuda" and not torch.cuda.is_available():
        raise BackendError("device 'cuda': this torch sees no CUDA GPU. Use --device cpu, or install a CUDA build of torch.")
    if device == "mps" and not torch.backends.mps.is_available():
        raise BackendError("device 'mps': not available here. Use --device cpu.")
    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _pick_dtype(dtype: DType, device: str) -> torch.dtype:
    """float32 wherever it is affordable; bfloat16 weights on CUDA (softmax and accumulation stay in float32 there)."""
    if dtype == "auto":
        return torch.bfloat16 if device == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]


def _window(model: Any, tokenizer: Any) -> int | None:
    """The smaller of what the (text) config and the tokenizer allow; tokenizers without a limit say 1e30."""
    config = model.config.get_text_config()
    limits = [getattr(config, "max_position_embeddings", None), getattr(tokenizer, "model_max_length", None)]
    known = [int(limit) for limit in limits if limit is not None and 0 < limit < 10**9]
    return min(known, default=None)
