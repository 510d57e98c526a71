"""Load a causal language model: safetensors only, no remote code unless requested."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from selfreflect.models.local.device_map import check_placement, describe_placement, placement
from selfreflect.models.local.source import ModelSource, locate, not_local
from selfreflect.models.local.threads import limit_threads, set_library_defaults
from selfreflect.models.spec import DeviceMap, ModelSpec


@dataclass(frozen=True)
class CausalLM:
    """A model in evaluation mode with its tokenizer, and what names it in a record."""

    model: Any
    tokenizer: Any
    name: str
    revision: str
    device: str
    dtype: str
    window: int | None
    """Most positions the model was made for, None where it does not say."""

    @property
    def facts(self) -> dict[str, str]:
        """What a manifest says of the model."""
        return {"name": self.name, "revision": self.revision, "dtype": self.dtype, "device": self.device}

    @classmethod
    def of(cls, model: Any, tokenizer: Any, source: ModelSource) -> CausalLM:
        return cls(model, tokenizer, **source.facts, window=_window(model, tokenizer))


def load_causal_lm(spec: ModelSpec, progress: Callable[[str], None] | None = None) -> CausalLM:
    """Load a local model. The two that were used last are kept, so generator and judge can share one.

    On a CPU this limits torch's threads, see :func:`~selfreflect.models.local.threads.limit_threads`.

    Raises:
        BackendError: no such model, no safetensors weights, weights that this installation cannot load, or no
            GPUs that they fit into.
    """
    set_library_defaults()
    if spec.kind != "local":
        raise not_local(spec.name)
    source = locate(spec, progress)
    device_map = spec.device_map
    if isinstance(device_map, Mapping):
        device_map = _HashableMap(device_map)
    hits = _load.cache_info().hits
    lm = _load(source, _last_change(source.path), device_map)
    if _load.cache_info().hits > hits:
        return lm
    lines = [describe_placement(lm.model)]
    if source.device == "cpu":
        lines.append(f"computing with {limit_threads()}")
    for line in lines:
        if progress and line:
            progress(line)
    return lm


class _HashableMap(dict[str, str | int]):
    """A device map that can be a key of a cache."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


@lru_cache(maxsize=2)
def _load(source: ModelSource, last_change: int, device_map: DeviceMap) -> CausalLM:
    """``last_change`` makes a directory that was written again another key."""
    import transformers

    if device_map is not None:
        # An earlier model that only this cache holds may fill the GPUs whose free memory is counted next.
        _load.cache_clear()
        gc.collect()
        torch.cuda.empty_cache()
    placed = placement(device_map, source.device)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    accumulate_in_float32(source.device)
    with source.explain_errors():
        tokenizer = source.tokenizer()
        model, report = source.architecture().from_pretrained(
            source.path,
            dtype=source.dtype,
            use_safetensors=True,
            output_loading_info=True,
            **source.options,
            **placed,
        )
        # transformers would go on with random numbers in their place
        if missing := sorted(report["missing_keys"]):
            raise ValueError(
                f"its weights lack {len(missing)} tensors of this architecture, such as {missing[0]}"
            )
        check_placement(source.name, model, device_map)
        if not placed:
            model = model.to(source.device)
    return CausalLM.of(model.eval(), tokenizer, source)


def accumulate_in_float32(device: str) -> None:
    """Torch's default lets cuBLAS add up parts of a sum in half precision."""
    if device == "cuda":
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def _last_change(source: str) -> int:
    """When a file of a model directory was last written, in nanoseconds; 0 for a hub name."""
    return max((path.stat().st_mtime_ns for path in Path(source).glob("*") if path.is_file()), default=0)


def _window(model: Any, tokenizer: Any) -> int | None:
    """The smaller of what the (text) config and the tokenizer allow; tokenizers without a limit say 1e30."""
    config = model.config.get_text_config()
    limits = [getattr(config, "max_position_embeddings", None), getattr(tokenizer, "model_max_length", None)]
    return min((int(limit) for limit in limits if limit is not None and 0 < limit < 10**9), default=None)
