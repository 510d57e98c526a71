"""Times answers drawn from the embedded model against transformers' ``generate``, in turn, in one process.

``python benchmarks/drawing.py [THREADS] [PAIRS]`` prints for each number of samples the medians of both rates
and the median of the ratios with their range. With one thread it counts processor time, which other processes
disturb less.
"""

import os
import sys
import time
from collections.abc import Callable
from statistics import median

import torch

from selfreflect.bench import TOKENS, both_ways
from selfreflect.models.base import Message, ModelSpec
from selfreflect.models.chat import ChatTokenizer
from selfreflect.models.local.loading import load_causal_lm

QUESTION = "Which river is the longest in Africa, and through which countries does it flow?"


def seconds(run: Callable[[], None], clock: Callable[[], float]) -> float:
    start = clock()
    run()
    return clock() - start


def main(threads: int = 2, pairs: int = 5) -> None:
    lm = load_causal_lm(ModelSpec.of("smollm2"), library=True)
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    chat = ChatTokenizer(lm.tokenizer)
    [prompt] = chat.encode([chat.render([Message(role="user", content=QUESTION)])])
    print(
        f"{threads} threads, {clock.__name__}, {TOKENS} tokens each, load {os.getloadavg()[0]:.1f} to ",
        end="",
    )
    lines = []
    for samples in (1, 20, 50):
        own, library = both_ways(lm, tuple(prompt), samples)
        own()  # compiles, and packs the weights
        times = [(seconds(own, clock), seconds(library, clock)) for _ in range(pairs)]
        ratios = sorted(theirs / ours for ours, theirs in times)
        medians = [median(column) for column in zip(*times, strict=True)]
        rates = [samples * TOKENS / middle for middle in medians]
        lines.append(
            f"{samples:7} {rates[0]:9.0f} {rates[1]:12.0f} {median(ratios):6.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )
    print(f"{os.getloadavg()[0]:.1f}")
    print("samples tokens/s transformers  ratio")
    print("\n".join(lines))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
