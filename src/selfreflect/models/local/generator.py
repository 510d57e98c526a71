"""The local torch generator: requests to replies with any causal language model that transformers loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from selfreflect.models.base import Refusal, Reply, Request
from selfreflect.models.chat import ChatTokenizer, encode_requests, ends_in_trace
from selfreflect.models.local.decode import Draw, decode
from selfreflect.models.local.loading import CausalLM, load_causal_lm
from selfreflect.models.spec import ModelSpec


class HFGenerator:
    """Answers requests with one local model. ``batch_size`` sequences are decoded together, which does not
    change the texts; None for 64 on a CPU and 256 on a GPU."""

    def __init__(self, lm: CausalLM, *, batch_size: int | None = None) -> None:
        self.lm = lm
        self.name = lm.name
        self.revision = lm.revision
        self.facts = lm.facts
        self.chat = ChatTokenizer(lm.tokenizer)
        self.batch_size = batch_size or (64 if lm.device == "cpu" else 256)
        self._stop_ids = _stop_ids(lm)
        self._pad_id = lm.tokenizer.pad_token_id
        if self._pad_id is None:
            self._pad_id = min(self._stop_ids, default=0)

    @classmethod
    def load(
        cls,
        model: str | ModelSpec = "smollm2",
        progress: Callable[[str], None] | None = None,
        **fields: Any,
    ) -> HFGenerator:
        """Load a model by alias (``smollm2``), hub name or local directory.

        Args:
            progress: called with a line at each step that takes a while.
            fields: of :class:`~selfreflect.models.spec.ModelSpec`, such as ``device="cpu"``.

        Raises:
            BackendError: the model cannot be loaded.
        """
        spec = ModelSpec.of(model, **fields)
        return cls(load_causal_lm(spec, progress), batch_size=spec.batch_size)

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        """One reply or refusal per request, in order. Batches span requests."""
        rendered, prompts, refusals = encode_requests(self.chat, requests, self.lm.window, self.name)
        draws: list[list[Draw]] = []
        for request, prompt, refusal in zip(requests, prompts, refusals, strict=True):
            draws.append([] if refusal else self._draws(request, tuple(prompt)))
        for batch in self._batches(draws):
            decode(self.lm.model, batch, self._stop_ids, self._pad_id)
        results: list[Reply | Refusal] = []
        for refusal, text, prompt, own in zip(refusals, rendered, prompts, draws, strict=True):
            results.append(refusal or self._reply(text, prompt, own))
        return results

    def _draws(self, request: Request, prompt: tuple[int, ...]) -> list[Draw]:
        """The request's completions to draw."""
        limit = request.sampling.max_new_tokens
        if self.lm.window is not None:
            limit = min(limit, self.lm.window - len(prompt))
        # Sample i has the seed of the request plus i, so asking for more samples keeps the first ones.
        return [
            Draw(prompt=prompt, sampling=request.sampling, seed=request.seed + i, limit=limit)
            for i in range(request.n)
        ]

    def _batches(self, draws: Sequence[Sequence[Draw]]) -> list[list[Draw]]:
        """Draws that are decoded together: of one sampling setting, and of prompts of similar length."""
        queue = [draw for own in draws for draw in own]
        queue.sort(key=lambda draw: (repr(draw.sampling), len(draw.prompt), draw.prompt))
        batches: list[list[Draw]] = []
        for draw in queue:
            if not batches or len(batches[-1]) == self.batch_size or batches[-1][0].sampling != draw.sampling:
                batches.append([])
            batches[-1].append(draw)
        return batches

    def _reply(self, rendered: str, prompt: Sequence[int], draws: Sequence[Draw]) -> Reply:
        in_trace = ends_in_trace(rendered)
        completions = [
            self.chat.completion(draw.tokens, in_trace=in_trace, stopped=draw.stopped) for draw in draws
        ]
        return Reply(completions=tuple(completions), prompt_tokens=len(prompt))


def _stop_ids(lm: CausalLM) -> frozenset[int]:
    """End-of-sequence ids of generation config and tokenizer; chat models often name theirs in one only."""
    config = getattr(lm.model, "generation_config", None)
    eos = getattr(config, "eos_token_id", None)
    ids = eos if isinstance(eos, list) else [eos]
    return frozenset(i for i in [*ids, lm.tokenizer.eos_token_id] if i is not None)
