"""Times scoring and drawing with and without parts of the code that few people use, in turn in one process,
on the embedded model:

    python benchmarks/parts.py [PART ...] [--pairs N]

Prints the processor time of one thread with the part, the median of the ratios of the time without it to the
time with it, and their range.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from selfreflect import Judge, SelfReflect
from selfreflect.metric.engine import attention, engines, logits
from selfreflect.models.base import Message, ModelSpec, Request, Sampling
from selfreflect.models.chat import ChatTokenizer
from selfreflect.models.local import decode, step
from selfreflect.models.local.generator import HFGenerator
from selfreflect.models.local.loading import load_causal_lm
from selfreflect.models.local.machine import set_library_defaults

ITEMS = Path(__file__).parent.parent / "tests" / "data" / "parity_items.json"

QUESTION = "Which river is the longest in Africa, and through which countries does it flow?"
CONTEXT = "The Nile rises south of the equator and flows northward through many lands to the sea. " * 25
"""About 450 tokens."""

Run = Callable[[], object]


class Part(NamedTuple):
    """A part, what is done with and without it, and how to do without."""

    run: Run
    without: Callable[[], AbstractContextManager[object]]


@cache
def judge() -> Judge:
    """The embedded judge in transformers' layers, which all parts can be compared with."""
    spec = ModelSpec.of("smollm2", device="cpu", dtype="float32")
    return Judge(load_causal_lm(spec, library=True))


@cache
def metric() -> SelfReflect:
    return SelfReflect(judge(), reader=None)


@cache
def generator() -> HFGenerator:
    return HFGenerator.load("smollm2", device="cpu")


def score(*, answers: int = 5, summaries: int = 1) -> object:
    """Score summaries of an item of the parity test by some of its masked answers."""
    item = json.loads(ITEMS.read_text("utf-8"))[0]
    texts = {str(number): f"{number}. {item['conditioning_answers'][0]}" for number in range(summaries)}
    return metric().score(
        item["question"],
        masked_out=item["masked_out_task_answers"][:answers],
        conditioning=item["conditioning_answers"],
        summaries=texts,
    )


def tokenise() -> object:
    """Make token ids of 3,000 prompts of about 500 tokens that differ in their last word."""
    message = Message(role="user", content=CONTEXT)
    words = [f"word{number}" for number in range(3000)]
    return judge().encode_tasks([(message,)] * len(words), words)


def draw(top_p: float = 1.0) -> object:
    """Draw 20 answers of at most 24 tokens to one question."""
    message = Message(role="user", content=QUESTION)
    sampling = Sampling(max_new_tokens=24, top_p=top_p)
    return generator().generate([Request(messages=(message,), sampling=sampling, n=20)])


def continue_context(requests: int, calls: int) -> None:
    """Draw an answer to each of several prompts with one context, in each of some calls."""
    sampling = Sampling(max_new_tokens=24)
    generator()._computed = decode.PromptStates(generator().lm.model)
    for call in range(calls):
        group = []
        for number in range(requests):
            message = Message(role="user", content=f"{CONTEXT}\n\n{call}.{number} {QUESTION}")
            group.append(Request(messages=(message,), sampling=sampling))
        generator().generate(group)


def library_decoder() -> AbstractContextManager[object]:
    return patch.object(metric().engine, "decoder", engines.HFDecoder(judge().decoder))


def a_pass_for_each_context() -> AbstractContextManager[object]:
    together = engines.TreeEngine.states

    def states(engine: Any, trees: Sequence[Any]) -> list[torch.Tensor]:
        return [together(engine, [tree])[0] for tree in trees]

    return patch.object(engines.TreeEngine, "states", states)


@contextmanager
def own_weights() -> Iterator[None]:
    step._packed.clear()
    with patch.object(step, "PACKED_FORMS", ()):
        yield
    step._packed.clear()


def torch_race() -> AbstractContextManager[object]:
    def winners(probs: torch.Tensor, sources: Sequence[torch.Generator]) -> torch.Tensor:
        race = torch.empty_like(probs)
        for row, source in zip(race, sources, strict=True):
            row.exponential_(generator=source)
        return probs.div_(race).argmax(dim=-1)

    return patch.object(decode, "_winners", winners)


def sorted_vocabulary() -> AbstractContextManager[object]:
    def largest(probs: torch.Tensor, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
        values, indices = probs.sort(dim=-1, descending=True)
        return values, indices

    return patch.object(decode, "_largest", largest)


def make_parts() -> dict[str, Part]:
    whole_texts = partial(patch.object, ChatTokenizer, "encode_alike", ChatTokenizer.encode)
    return {
        "attention in C": Part(score, partial(patch.object, attention, "native", lambda: None)),
        "own layers": Part(score, library_decoder),
        "shared passes": Part(partial(score, answers=1, summaries=10), a_pass_for_each_context),
        "rows in cache": Part(score, partial(patch.object, logits, "ROWS_IN_CACHE", 2**30)),
        "cut at markers": Part(tokenise, whole_texts),
        "packed weights": Part(draw, own_weights),
        "race": Part(draw, torch_race),
        "nucleus": Part(partial(draw, 0.9), sorted_vocabulary),
        "shared beginnings": Part(
            partial(continue_context, 6, 1), partial(patch.object, decode, "SHORTEST", 2**30)
        ),
        "kept prompts": Part(
            partial(continue_context, 1, 6),
            partial(patch.object, decode.PromptStates, "_keep", lambda *_: None),
        ),
    }


def seconds(run: Run) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def compare(part: Part, pairs: int) -> tuple[float, list[float]]:
    """The time with a part, and the ratios of the times without it to those with it."""
    part.run()  # loads, compiles, packs
    with_part, ratios = [], []
    for _ in range(pairs):
        with_part.append(seconds(part.run))
        with part.without():
            ratios.append(seconds(part.run) / with_part[-1])
    return median(with_part), ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PART")
    parser.add_argument("--pairs", type=int, default=5, metavar="N")
    options = parser.parse_args()
    if options.pairs < 1:
        parser.error("--pairs must be at least 1")
    set_library_defaults()
    torch.set_num_threads(1)  # threads that wait for each other would count
    parts = make_parts()
    if unknown := sorted({*options.names} - {*parts}):
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(parts)}")
    for name in options.names or parts:
        ours, ratios = compare(parts[name], options.pairs)
        print(f"{name:18} {ours:6.2f} s {median(ratios):5.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
