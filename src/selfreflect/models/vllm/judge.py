"""Judges whose decoder runs in vLLM: hidden states come from there, the vocabulary projection stays here.

vLLM's pooling runner returns the normed last hidden state of a prompt. With the last matrix that is all the
metric needs of a model, so such a judge is exact.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from selfreflect.errors import JudgeError, excerpt
from selfreflect.models.backend import bare_name
from selfreflect.models.base import Compat, DType, ModelSpec
from selfreflect.models.judge import Judge
from selfreflect.models.local.loading import CausalLM, ModelSource, locate
from selfreflect.models.local.machine import limit_threads, set_library_defaults
from selfreflect.models.local.pretrained import accumulate_in_float32
from selfreflect.models.openai.endpoint import endpoint

if TYPE_CHECKING:
    from selfreflect.models.vllm.engine import PoolingLLM
    from selfreflect.models.vllm.server import PoolingServer

Floats = npt.NDArray[np.float32]

PROBE = (3, 5, 7, 9, 11)
"""Token ids that exist in every vocabulary."""
SHORT, LONG = 10, 400
"""Tokens before the last one of the prompts that are compared at the start."""

_POOLER = '--pooler-config \'{"seq_pooling_type": "LAST", "use_activation": false}\''

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


class PooledJudge(Judge):
    """A judge with the tokenizer and projection of :func:`load_lm_head`, in the dtype of the decoder, and
    hidden states from ``pool``."""

    def __init__(self, lm: CausalLM, pool: PoolingLLM | PoolingServer, *, compat: Compat = "") -> None:
        super().__init__(lm, compat=compat)
        self.pool = pool
        self.last_states = self._last_states

    @property
    def facts(self) -> dict[str, Any]:
        return {**super().facts, **self.pool.facts}

    def _last_states(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        states = self.pool.last_states(prompts)
        weight = self.lm.model.get_output_embeddings().weight
        if states.shape[1] != weight.shape[1]:
            raise JudgeError(
                f"judge {self.name!r}: its hidden states have {states.shape[1]} numbers, and the projection "
                f"of that model takes {weight.shape[1]}. Another model runs there, or one that shortens its "
                "states."
            )
        return torch.from_numpy(states).to(weight)

    def check_states(self) -> None:
        """Look at the states of prompts that differ in their last token, two short and two long ones.

        A mean over tokens is told by its change with the last token, which fades as prompts become longer. In
        bfloat16 rounding may hide that.

        Raises:
            JudgeError: they are equal, scaled to length 1, which loses what the projection needs, or means.
        """
        longest = min(LONG, (self.lm.window or LONG + 1) - 1)
        prompts = []
        for length in (SHORT, longest):
            start = [PROBE[place % len(PROBE)] for place in range(length)]
            prompts += [[*start, PROBE[0]], [*start, PROBE[-1]]]
        states = self._last_states(prompts).float()
        if torch.equal(states[0], states[1]):
            raise JudgeError(
                f"judge {self.name!r}: its hidden states are the same whatever it reads, so every summary "
                "would look perfect. Check the server and its weights."
            )
        if abs(torch.linalg.vector_norm(states[0]).item() - 1) < 1e-2:
            raise JudgeError(
                f"judge {self.name!r}: its hidden states come scaled to length 1. Serve it with {_POOLER}"
            )
        short, long = (torch.linalg.vector_norm(one - other) for one, other in (states[:2], states[2:]))
        if long < 0.1 * short:  # 0.03 for a mean, 0.5 and more for the last state
            raise JudgeError(
                f"judge {self.name!r}: its hidden states hardly depend on the last token of a long prompt, "
                f"so they are not those of the last token. Serve it with {_POOLER}"
            )


def load_in_process(spec: ModelSpec, compat: Compat, progress: Callable[[str], None] | None) -> PooledJudge:
    """The judge ``vllm:NAME``: load the projection here and start vLLM with the same model."""
    from selfreflect.models.vllm.engine import PoolingLLM, check_installed

    check_installed("A judge vllm:NAME")
    lm, source = load_lm_head(spec, progress)
    judge = PooledJudge(replace(lm, name=spec.name), PoolingLLM(source), compat=compat)
    return _checked(judge, progress)


def load_served(spec: ModelSpec, compat: Compat, progress: Callable[[str], None] | None) -> PooledJudge:
    """The judge ``vllm+http:NAME`` behind ``vllm serve`` in pooling mode at ``base_url``. NAME is what the
    server calls it, and the model whose projection is loaded here, on ``device``. ``dtype`` must be the one
    of the server's decoder, or ``"auto"``."""
    from selfreflect.models.vllm.server import PoolingServer

    server = endpoint(spec.base_url, setting="scores.base_url")
    pool = PoolingServer(bare_name(spec.name), server, timeout=spec.timeout, progress=progress)
    longest = pool.longest()
    dtype = precision(pool.last_states([PROBE]))
    if spec.dtype not in ("auto", dtype):
        raise JudgeError(
            f"judge {excerpt(spec.name)} is served in {dtype}, not in {spec.dtype}",
            code="dtype",
            remedy="Leave {scores.dtype} out.",
        )
    lm, _ = load_lm_head(replace(spec, dtype=dtype), progress)
    window = lm.window if longest is None else min(longest, lm.window or longest)
    judge = PooledJudge(replace(lm, name=spec.name, window=window), pool, compat=compat)
    return _checked(judge, progress)


def _checked(judge: PooledJudge, progress: Callable[[str], None] | None) -> PooledJudge:
    """Check a few hidden states, and say that the others are trusted."""
    judge.check_states()
    if progress:
        progress(f"the hidden states of {judge.name} are not checked: vLLM must return the last token's")
    return judge


def precision(states: Floats) -> DType:
    """The precision in which float32 numbers were computed: the shortest format that holds all of them."""
    if not (states.view(np.uint32) & 0xFFFF).any():
        return "bfloat16"
    with np.errstate(over="ignore"):
        return "float16" if np.array_equal(states.astype(np.float16), states) else "float32"


class LMHead(torch.nn.Module):
    """Takes the place of a judge's whole model: its configuration and last matrix."""

    def __init__(self, linear: torch.nn.Linear, config: Any) -> None:
        super().__init__()
        self.linear = linear
        self.config = config

    def get_output_embeddings(self) -> torch.nn.Linear:
        return self.linear


def load_lm_head(
    spec: ModelSpec, progress: Callable[[str], None] | None = None
) -> tuple[CausalLM, ModelSource]:
    """The projection of a model with its tokenizer, and where they come from.

    Of a model on the hub only its configuration, its tokenizer and the file with the projection are fetched.

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
    names = {id(module): name for name, module in skeleton.named_modules()}
    name = names[id(empty)]
    sources = [f"{name}.weight"]
    if getattr(skeleton.config.get_text_config(), "tie_word_embeddings", False):
        sources.insert(0, f"{names[id(skeleton.get_input_embeddings())]}.weight")
    shape = tuple(empty.weight.shape)
    checkpoint = _Checkpoint(source)
    weight = checkpoint.first(sources, shape)
    linear = torch.nn.Linear(shape[1], shape[0], bias=False, device="meta")
    linear.weight = torch.nn.Parameter(weight, requires_grad=False)
    if getattr(empty, "bias", None) is not None:
        bias = checkpoint.first([f"{name}.bias"], tuple(empty.bias.shape))
        linear.bias = torch.nn.Parameter(bias, requires_grad=False)
    return linear


class _Checkpoint:
    """The safetensors files of a model, fetched one by one as their tensors are needed."""

    def __init__(self, source: ModelSource) -> None:
        from safetensors import safe_open
        from transformers.utils import cached_file

        self._path = source.path
        self._options = dict(source.options)
        del self._options["trust_remote_code"]
        index = cached_file(self._path, INDEX, _raise_exceptions_for_missing_entries=False, **self._options)
        self._files: Mapping[str, str]
        """The file that holds each tensor."""
        if index is not None:
            self._files = json.loads(Path(index).read_text("utf-8"))["weight_map"]
        else:
            with safe_open(self._fetch(SINGLE), framework="pt") as tensors:
                self._files = dict.fromkeys(tensors.keys(), SINGLE)

    def first(self, names: Sequence[str], shape: tuple[int, ...]) -> torch.Tensor:
        """The first of these tensors that is there, or the only one with its ending: checkpoints wrap layers
        differently. Raises ValueError if none has this shape."""
        from safetensors import safe_open

        for name in names:
            alike = [name]
            if name not in self._files:
                ending = ".".join(name.split(".")[-2:])
                alike = [key for key in self._files if f".{key}".endswith(f".{ending}")]
            if len(alike) != 1:
                continue
            with safe_open(self._fetch(self._files[alike[0]]), framework="pt") as tensors:
                tensor: torch.Tensor = tensors.get_tensor(alike[0])
            if tuple(tensor.shape) == shape:
                return tensor
        raise ValueError(f"its weights hold no single tensor {names[-1]} of shape {shape}")

    def _fetch(self, file: str) -> str:
        from transformers.utils import cached_file

        return str(cached_file(self._path, file, **self._options))
