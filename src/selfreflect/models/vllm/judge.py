"""Judges whose decoder runs in vLLM: hidden states come from there, the vocabulary projection stays here.

vLLM's pooling runner returns the normed last hidden state of a prompt. With the last matrix that is all the
metric needs of a model, so such a judge is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch

from selfreflect.errors import BackendError, JudgeError, excerpt
from selfreflect.models.judge import Judge
from selfreflect.models.local.loading import CausalLM
from selfreflect.models.local.source import ModelSource
from selfreflect.models.openai.endpoint import endpoint
from selfreflect.models.spec import Compat, DType, ModelSpec
from selfreflect.models.vllm.lm_head import load_lm_head

Floats = npt.NDArray[np.float32]

PROBE = (3, 5, 7, 9, 11)
"""Token ids that exist in every vocabulary."""


class Pool(Protocol):
    """Runs the decoder."""

    @property
    def facts(self) -> dict[str, Any]:
        """What a manifest says of it."""

    def last_states(self, prompts: Sequence[Sequence[int]]) -> Floats:
        """The final normed hidden state of the last token of each prompt, shape (prompts, width).

        Raises:
            JudgeError: it cannot say.
        """


class PooledJudge(Judge):
    """A judge with its own tokenizer and projection, and with hidden states from a :class:`Pool`.

    Args:
        lm: from :func:`~selfreflect.models.vllm.lm_head.load_lm_head`, in the dtype of the decoder elsewhere.
    """

    def __init__(self, lm: CausalLM, pool: Pool, *, compat: Compat = "") -> None:
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

    def check_scale(self) -> None:
        """Raise JudgeError where states are scaled to length 1, which loses what the projection needs."""
        if abs(torch.linalg.vector_norm(self._last_states([PROBE]).float()).item() - 1) < 1e-2:
            raise JudgeError(
                f"judge {self.name!r}: its hidden states come scaled to length 1. Serve it with "
                '--pooler-config \'{"seq_pooling_type": "LAST", "use_activation": false}\''
            )


class VLLMJudge(PooledJudge):
    """The judge ``vllm:NAME``, with vLLM in this process."""

    @classmethod
    def from_spec(cls, spec: ModelSpec, compat: Compat, progress: Callable[[str], None] | None) -> Self:
        """Load the projection here and start vLLM with the same model.

        Raises:
            JudgeError: no such model, or vLLM cannot run it.
            MissingExtraError: vLLM is not installed.
        """
        from selfreflect.models.vllm.engine import PoolingLLM, check_installed

        check_installed("A judge vllm:NAME")
        lm, source = _lm_head(spec, progress)
        judge = cls(replace(lm, name=spec.name), PoolingLLM(source), compat=compat)
        judge.check_scale()
        return judge


class ServedJudge(PooledJudge):
    """The judge ``vllm+http:NAME`` behind ``vllm serve`` in pooling mode. NAME is what the server calls it,
    and the model whose projection is loaded here."""

    @classmethod
    def from_spec(cls, spec: ModelSpec, compat: Compat, progress: Callable[[str], None] | None) -> Self:
        """Ask the server at ``base_url`` and load the projection here, on ``device``. ``dtype`` must be the
        one of the server's decoder, or ``"auto"``.

        Raises:
            JudgeError: the server cannot be reached, runs another model, or gives something other than last
                hidden states.
        """
        from selfreflect.models.vllm.server import PoolingServer

        pool = PoolingServer(spec.bare_name, endpoint(spec.base_url), timeout=spec.timeout, progress=progress)
        longest = pool.longest()
        served_dtype = precision(pool.last_states([PROBE]))
        if spec.dtype not in ("auto", served_dtype):
            raise JudgeError(
                f"judge {excerpt(spec.name)} is served in {served_dtype}, not in {spec.dtype}. Leave "
                "--judge-dtype out."
            )
        lm, _ = _lm_head(replace(spec, dtype=served_dtype), progress)
        window = min((limit for limit in (longest, lm.window) if limit is not None), default=None)
        judge = cls(replace(lm, name=spec.name, window=window), pool, compat=compat)
        judge.check_scale()
        return judge


def precision(states: Floats) -> DType:
    """The precision in which float32 numbers were computed: the shortest format that holds all of them."""
    if not (states.view(np.uint32) & 0xFFFF).any():
        return "bfloat16"
    with np.errstate(over="ignore"):
        return "float16" if np.array_equal(states.astype(np.float16), states) else "float32"


def _lm_head(spec: ModelSpec, progress: Callable[[str], None] | None) -> tuple[CausalLM, ModelSource]:
    try:
        return load_lm_head(spec, progress)
    except BackendError as error:
        raise JudgeError(str(error)) from error
