"""Times this package's sampling against ``generate`` of transformers, with the same model and prompt."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from selfreflect.bench.flops import synchronise
from selfreflect.bench.result import Figures
from selfreflect.models.base import Sampling
from selfreflect.models.local.decode import Draw, decode
from selfreflect.models.local.loading import CausalLM

SAMPLES = (20, 50)
"""Completions of one prompt that are drawn together."""

TOKENS = 24
"""Tokens of each completion. None ends earlier."""

REPETITIONS = 2
"""How often each of the two is timed, in turn, since the speed of a shared machine drifts. The fastest
counts."""


def time_decoding(lm: CausalLM, prompt: tuple[int, ...], samples: int) -> Figures:
    """Tokens per second of all samples together, from the prompt to the last token, and their ratio."""
    device = next(lm.model.parameters()).device
    own, library = both_ways(lm, prompt, samples)

    def seconds(run: Callable[[], None]) -> float:
        synchronise(device)
        start = time.perf_counter()
        run()
        synchronise(device)
        return time.perf_counter() - start

    times = [(seconds(own), seconds(library)) for _ in range(REPETITIONS)]
    fastest = min(first for first, _ in times), min(second for _, second in times)
    return {
        "samples": samples,
        "prompt_tokens": len(prompt),
        "tokens_per_second": samples * TOKENS / fastest[0],
        "tokens_per_second_transformers": samples * TOKENS / fastest[1],
        "ratio": fastest[1] / fastest[0],
    }


def both_ways(
    lm: CausalLM, prompt: tuple[int, ...], samples: int
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Two functions that draw the same number of samples: this package's, and transformers'."""
    ids = torch.tensor([prompt], device=next(lm.model.parameters()).device)

    def own() -> None:
        sampling = Sampling(max_new_tokens=TOKENS)
        draws = [Draw(prompt=prompt, sampling=sampling, seed=seed, limit=TOKENS) for seed in range(samples)]
        for _ in decode(lm.model, draws, frozenset(), 0):
            pass

    def library() -> None:
        lm.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            min_new_tokens=TOKENS,
            max_new_tokens=TOKENS,
            num_return_sequences=samples,
            pad_token_id=0,
        )

    return own, library
