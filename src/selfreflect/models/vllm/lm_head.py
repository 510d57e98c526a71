"""Load a model's vocabulary projection alone, with its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from selfreflect.models.local.loading import CausalLM, accumulate_in_float32
from selfreflect.models.local.source import ModelSource, locate
from selfreflect.models.local.threads import limit_threads, set_library_defaults
from selfreflect.models.spec import ModelSpec

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


class LMHead(torch.nn.Module):
    """Takes the place of a judge's whole model, and holds its configuration and last matrix."""

    def __init__(self, linear: torch.nn.Linear, config: Any) -> None:
        super().__init__()
        self.linear = linear
        self.config = config

    @property
    def device(self) -> torch.device:
        return self.linear.weight.device

    def get_output_embeddings(self) -> torch.nn.Linear:
        return self.linear


def load_lm_head(
    spec: ModelSpec, progress: Callable[[str], None] | None = None
) -> tuple[CausalLM, ModelSource]:
    """The projection of a model with its tokenizer, and where they come from.

    Of a model on the hub only its configuration, its tokenizer and the one file that holds the projection are
    fetched.

    Raises:
        BackendError: no such model, or its weights hold no projection that could be loaded alone.
    """
    import transformers

    set_library_defaults()
    source = locate(spec, progress)
    accumulate_in_float32(source.device)
    with source.explain_errors():
        tokenizer = source.tokenizer()
        config = transformers.AutoConfig.from_pretrained(source.path, **source.options)
        with torch.device("meta"):
            skeleton = source.architecture().from_config(config, trust_remote_code=spec.trust_remote_code)
        head = LMHead(_projection(skeleton, source), config)
        head = head.to(source.device, source.dtype).eval().requires_grad_(False)
    if source.device == "cpu":
        limit_threads()
    return CausalLM.of(head, tokenizer, source), source


def _projection(skeleton: Any, source: ModelSource) -> torch.nn.Linear:
    """The projection with its own weights, which tied models keep under the name of their input embedding."""
    empty = skeleton.get_output_embeddings()
    shape = tuple(empty.weight.shape)
    names = {id(module): name for name, module in skeleton.named_modules()}
    name = names[id(empty)]
    checkpoint = _Checkpoint(source)
    weight = None
    if getattr(skeleton.config.get_text_config(), "tie_word_embeddings", False):
        weight = checkpoint.tensor(f"{names[id(skeleton.get_input_embeddings())]}.weight", shape)
    if weight is None:
        weight = checkpoint.tensor(f"{name}.weight", shape)
    if weight is None:
        raise ValueError(f"its weights hold no single tensor {name}.weight of shape {shape}")
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = torch.nn.Parameter(weight, requires_grad=False)
    if getattr(empty, "bias", None) is not None:
        bias = checkpoint.tensor(f"{name}.bias", tuple(empty.bias.shape))
        if bias is None:
            raise ValueError(f"its weights lack {name}.bias")
        linear.bias = torch.nn.Parameter(bias, requires_grad=False)
    return linear


class _Checkpoint:
    """The safetensors files of a model, fetched one by one as their tensors are needed."""

    def __init__(self, source: ModelSource) -> None:
        from safetensors import safe_open
        from transformers.utils import cached_file

        self._path = source.path
        options = source.options
        self._options = {key: options[key] for key in ("revision", "local_files_only") if key in options}
        index = cached_file(self._path, INDEX, _raise_exceptions_for_missing_entries=False, **self._options)
        self._files: Mapping[str, str]
        """The file that holds each tensor."""
        if index is not None:
            self._files = json.loads(Path(index).read_text("utf-8"))["weight_map"]
        else:
            with safe_open(self._fetch(SINGLE), framework="pt") as tensors:
                self._files = dict.fromkeys(tensors.keys(), SINGLE)

    def tensor(self, name: str, shape: tuple[int, ...]) -> torch.Tensor | None:
        """The tensor ``name``, or the only one with its ending: checkpoints wrap layers differently."""
        from safetensors import safe_open

        if name not in self._files:
            ending = ".".join(name.split(".")[-2:])
            alike = [key for key in self._files if f".{key}".endswith(f".{ending}")]
            if len(alike) != 1:
                return None
            [name] = alike
        with safe_open(self._fetch(self._files[name]), framework="pt") as tensors:
            tensor: torch.Tensor = tensors.get_tensor(name)
        return tensor if tuple(tensor.shape) == shape else None

    def _fetch(self, file: str) -> str:
        from transformers.utils import cached_file

        return str(cached_file(self._path, file, **self._options))
