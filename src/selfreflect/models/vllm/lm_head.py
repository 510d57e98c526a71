"""A model's vocabulary projection alone, with its tokenizer: what is needed here where the hidden states come
from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from selfreflect.models.local.loading import (
    CausalLM,
    add_up_in_float32,
    explained,
    family,
    local_revision,
    pick_device,
    pick_dtype,
    pinned,
    resolve,
    window_of,
)
from selfreflect.models.local.threads import limit_threads, set_library_defaults
from selfreflect.models.spec import ModelSpec

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


class LMHead(torch.nn.Module):
    """Stands where a judge has its whole model, and holds of it the configuration and the last matrix."""

    def __init__(self, linear: torch.nn.Linear, config: Any) -> None:
        super().__init__()
        self.linear = linear
        self.config = config

    @property
    def device(self) -> torch.device:
        return self.linear.weight.device

    def get_output_embeddings(self) -> torch.nn.Linear:
        return self.linear


def load_lm_head(spec: ModelSpec, progress: Callable[[str], None] | None = None) -> tuple[CausalLM, str]:
    """The projection of a model with its tokenizer, and the directory or hub name they come from.

    Of a model on the hub only its configuration, its tokenizer and the one file that holds the projection are
    fetched.

    Raises:
        BackendError: no such model, or its weights hold no projection that could be describe apart.
    """
    import transformers

    name = spec.bare_name
    where = pick_device(spec.device)
    kind = pick_dtype(spec.dtype, where)
    add_up_in_float32(where)
    set_library_defaults()
    source = resolve(name, progress)
    options: dict[str, Any] = {"trust_remote_code": spec.trust_remote_code}
    with explained(name, source):
        if not Path(source).is_dir():
            options |= pinned(source, spec.revision)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
        config = transformers.AutoConfig.from_pretrained(source, **options)
        with torch.device("meta"):
            skeleton = family(source, options).from_config(config, trust_remote_code=spec.trust_remote_code)
        projection = (
            LMHead(_linear(skeleton, source, options), config).to(where, kind).eval().requires_grad_(False)
        )
    if where == "cpu":
        limit_threads()
    lm = CausalLM(
        model=projection,
        tokenizer=tokenizer,
        name=name,
        revision=options.get("revision") or local_revision(name) or spec.revision or "",
        device=where,
        dtype=str(kind).removeprefix("torch."),
        window=window_of(skeleton, tokenizer),
    )
    return lm, source


def _linear(skeleton: Any, source: str, options: dict[str, Any]) -> torch.nn.Linear:
    """The projection with its own weights, which tied models keep under the name of their input embedding."""
    empty = skeleton.get_output_embeddings()
    tied = bool(getattr(skeleton.config.get_text_config(), "tie_word_embeddings", False))
    holders = [skeleton.get_input_embeddings(), empty] if tied else [empty]
    names = {id(module): name for name, module in skeleton.named_modules()}
    files = _files(source, options)
    wanted = [f"{names[id(holder)]}.weight" for holder in holders]
    weight = next(
        (found for name in wanted if (found := _tensor(files, name, tuple(empty.weight.shape))) is not None),
        None,
    )
    if weight is None:
        raise ValueError(
            f"its weights hold no single tensor {wanted[-1]} of shape {tuple(empty.weight.shape)}"
        )
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = torch.nn.Parameter(weight, requires_grad=False)
    if getattr(empty, "bias", None) is not None:
        bias = _tensor(files, f"{names[id(empty)]}.bias", tuple(empty.bias.shape))
        if bias is None:
            raise ValueError(f"its weights lack {names[id(empty)]}.bias")
        linear.bias = torch.nn.Parameter(bias, requires_grad=False)
    return linear


def _files(source: str, options: dict[str, Any]) -> dict[str, Callable[[], str]]:
    """For each tensor, what fetches the file that holds it."""
    from safetensors import safe_open
    from transformers.utils import cached_file

    hub = {key: value for key, value in options.items() if key in ("revision", "local_files_only")}

    def fetch(file: str) -> str:
        return str(cached_file(source, file, **hub))

    index = cached_file(source, INDEX, _raise_exceptions_for_missing_entries=False, **hub)
    if index is not None:
        placed = json.loads(Path(index).read_text("utf-8"))["weight_map"]
        return {name: partial(fetch, file) for name, file in placed.items()}
    with safe_open(fetch(SINGLE), framework="pt") as tensors:
        return dict.fromkeys(tensors.keys(), partial(fetch, SINGLE))


def _tensor(files: dict[str, Callable[[], str]], name: str, shape: tuple[int, ...]) -> torch.Tensor | None:
    """The tensor ``name``, or the only one whose name ends alike: checkpoints put other modules around the
    same layers."""
    from safetensors import safe_open

    ending = ".".join(name.split(".")[-2:])
    alike = [name] if name in files else [key for key in files if key == ending or key.endswith(f".{ending}")]
    if len(alike) != 1:
        return None
    with safe_open(files[alike[0]](), framework="pt") as tensors:
        found: torch.Tensor = tensors.get_tensor(alike[0])
    return found if tuple(found.shape) == shape else None
