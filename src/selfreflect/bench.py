"""Benchmarks of the engine (c) against the published schedule (a), the GEMM peak and ``generate``.

(a) is at its best: its cache is ideal, it projects only the last position of a request, and distances are
those of the metric. Both get the same items and judge, and keep nothing from one item to the next. A
multiplication and an addition are two operations; only what grows with the size of the model is counted:
matrix products and attention, but not norms, rotary embeddings and softmaxes.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import re
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import psutil
import torch
from torch.utils.benchmark import Timer
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from selfreflect.errors import DataError, JudgeError, excerpt
from selfreflect.metric.distance import total_variation
from selfreflect.metric.engine.attention import native
from selfreflect.metric.engine.logits import ROWS_OF_LOGITS, ROWS_ON_GPU, Reference
from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree
from selfreflect.metric.prompts import CannotScoreError, prepare, summary_prompts
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.base import Message, Sampling
from selfreflect.models.judge import Judge
from selfreflect.models.local.decode import Draw, decode
from selfreflect.models.local.layers import linear
from selfreflect.models.local.loading import CausalLM
from selfreflect.records import Failure
from selfreflect.sources.items import Item
from selfreflect.table import Column, Table
from selfreflect.text import common_prefix

# The letters of `--only`, and their names in the keys of `--json`
SCHEDULES = {"a": "requests", "c": "engine"}

# Largest allowed difference between the schedules in one distance, in float32
TOLERANCE = 1e-5

# How often the engine is timed from trees to distances. The fastest repetition counts, as it does
# for the machine's peak.
REPETITIONS = 3

# Completions of one prompt that are drawn together
SAMPLES = (20, 50)

# Tokens of each completion. None ends earlier.
TOKENS = 24

# How often this package and transformers draw them, in turn, since the speed of a shared machine
# drifts. The fastest counts.
DECODING_REPETITIONS = 2

# How long each matrix product is timed
SECONDS = 0.2

# Rows of the matrices whose speed is the peak, for engines that do not say how many tokens they
# compute together
ROWS = 512

Figures = dict[str, Any]
"""Fields of an item's ``--json`` output, by key."""

Ids = tuple[int, ...]

Distances = list[npt.NDArray[np.float64]]
"""The distance of every token task, for each summary in order."""

# How the figures of all items become one, by key of `--json`
FIGURES: dict[str, Callable[[list[float]], float]] = {
    "seconds_requests": median,
    "seconds_engine": median,
    "speedup_against_requests": median,
    "tokens_requests": sum,
    "tokens_engine": sum,
    "tokens_tree": sum,
    "requests": sum,
    "memory_requests_bytes": max,
    "memory_engine_bytes": max,
    "efficiency_of_gemm_peak": median,
    "flop_per_second_engine": median,
    "flop_per_second_gemm_peak": median,
}


@dataclass
class BenchResult:
    """Results of a benchmark, kept up to date while it runs so that interruption loses nothing."""

    machine: dict[str, Any]
    only: tuple[str, ...]
    """Letters of the schedules to run."""
    items: list[Figures] = field(default_factory=list)
    decoding: list[Figures] = field(default_factory=list)
    """Speed of drawing samples of one prompt, one entry per number of samples."""

    @property
    def difference(self) -> float | None:
        """Largest difference between the schedules; None if only one ran."""
        return max((item["difference"] for item in self.items if len(self.only) > 1), default=None)

    @property
    def disagreeing(self) -> list[Figures]:
        """Items whose schedules differ by more than the tolerance; empty unless the judge runs in float32."""
        if self.machine["dtype"] != "float32":
            return []
        return [item for item in self.items if (item["difference"] or 0) > TOLERANCE]


def to_json(result: BenchResult) -> Figures:
    """Build the ``--json`` output: each figure over all items, then each item; None if not measured."""
    figures: Figures = {
        "machine": result.machine,
        "n_items": len(result.items),
        "difference_largest": result.difference,
        "tolerance": TOLERANCE if result.machine["dtype"] == "float32" else None,
    }
    for key, combine in FIGURES.items():
        values = [item[key] for item in result.items if item.get(key) is not None]
        figures[key] = combine(values) if values else None
    return {**figures, "items": result.items, "decoding": result.decoding}


def item_table(result: BenchResult) -> Table:
    """Tabulate time, memory and speed-up of each item; the last row has medians."""
    columns = {
        "id": Column("item"),
        "requests": Column("requests", ",d"),
        "tokens_tree": Column("tree nodes", ",d"),
        "seconds_requests": Column("(a) s", ".2f"),
        "seconds_engine": Column("(c) s", ".2f"),
        "speedup_against_requests": Column("(a)/(c)", ".2f"),
        "efficiency_of_gemm_peak": Column("of peak", ".0%"),
        "memory_engine_bytes": Column("(c) bytes", ",d"),
    }
    figures = to_json(result)
    columns = {key: column for key, column in columns.items() if key == "id" or figures[key] is not None}
    notes = [
        "Schedule (a) sends one request per token, (c) is this engine. Memory is what each needs "
        "beyond the loaded model."
    ]
    if figures["efficiency_of_gemm_peak"] is not None:
        rates = [figures[f"flop_per_second_{name}"] / 1e9 for name in ("engine", "gemm_peak")]
        notes.append(
            f"From trees to distances, the engine reaches {rates[0]:,.1f} GFLOP/s. "
            f"Matrix products alone, at the model's shapes, reach {rates[1]:,.1f}: the peak."
        )
    elif "c" in result.only:
        notes.append("The share of the peak is unknown: operations of this architecture are not counted.")
    median_row = {
        **figures,
        "id": "median",
        "requests": None,
        "tokens_tree": None,
        "memory_engine_bytes": None,
    }
    return _table("Time per item", columns, [*result.items, median_row], tuple(notes))


def decoding_table(result: BenchResult) -> Table:
    """Tabulate decoding speed in tokens per second, for this package and for transformers."""
    columns = {
        "samples": Column("samples", "d"),
        "prompt_tokens": Column("prompt tokens", "d"),
        "tokens_per_second": Column("tokens/s", ",.0f"),
        "tokens_per_second_transformers": Column("transformers", ",.0f"),
        "ratio": Column("ratio", ".2f"),
    }
    return _table("Sampling answers, against transformers' generate", columns, result.decoding)


def _table(
    title: str, columns: dict[str, Column], rows: Sequence[Figures], notes: tuple[str, ...] = ()
) -> Table:
    return Table(
        title, tuple(columns.values()), tuple(tuple(row.get(key) for key in columns) for row in rows), notes
    )


def agreement(result: BenchResult) -> str:
    """Report whether the schedules gave the same distances."""
    if result.difference is None:
        return "Only one schedule ran, so there are no distances to compare."
    dtype = result.machine["dtype"]
    message = f"Distances of the schedules differ by at most {result.difference:.1e}"
    if dtype != "float32":
        return f"{message}. The limit of {TOLERANCE:.0e} holds for float32 only; this is {dtype}."
    if not result.disagreeing:
        return f"{message}; at most {TOLERANCE:.0e} is allowed."
    items = [f"{excerpt(item['id'])} ({item['difference']:.1e})" for item in result.disagreeing[:5]]
    return (
        f"{message}, but at most {TOLERANCE:.0e} is allowed, so one schedule is wrong. "
        f"Too far apart: {', '.join(items)}."
    )


class Bench:
    """Benchmark of all items, one after the other, into ``result``.

    Args:
        judge: shared by both schedules.
        items: what to time.
        only: letters of the schedules to run.

    Raises:
        DataError: an item cannot be scored.
    """

    def __init__(self, judge: Judge, items: Sequence[Item], only: Sequence[str]) -> None:
        self.judge = judge
        self.metric = SelfReflect(judge)
        weight = next(judge.lm.model.parameters())
        self.device = weight.device
        self.dtype = weight.dtype
        self.items = [work_of(judge, item) for item in items]
        self.samples = SAMPLES if "c" in only else ()
        self.result = BenchResult(machine=describe_machine(judge), only=tuple(only))

    def __len__(self) -> int:
        """Count the results that :meth:`run` yields."""
        return len(self.items) + len(self.samples)

    def run(self) -> Iterator[Figures]:
        """Time every item, then decoding for the first question; yield each result once stored.

        Raises:
            DataError: a schedule gives distances that are not finite.
        """
        by_size = sorted(self.items, key=lambda work: work.requests)
        self._warm_up(by_size[len(by_size) // 2])
        for work in self.items:
            self.result.items.append(self._measure(work))
            yield self.result.items[-1]
        for samples in self.samples:
            question = Message(role="user", content=self.items[0].item.question)
            [prompt] = self.judge.chat.encode([self.judge.chat.render((question,))])
            window = self.judge.lm.window
            prompt = prompt if window is None else prompt[: max(1, window - TOKENS)]
            self.result.decoding.append(time_decoding(self.judge.lm, tuple(prompt), samples))
            yield self.result.decoding[-1]

    def _warm_up(self, work: ItemWork) -> None:
        """Measure the memory of the loaded model, and run each schedule once."""
        for weight in self.judge.lm.model.parameters():
            weight.sum()  # weights are in memory once they have been read
        self.loaded = allocated(self.device)
        if "c" in self.result.only:
            score(self.metric, work.item)
        if "a" in self.result.only:
            first_prompts = [prompts[:1] for prompts in encode(self.judge, work.item)]
            one_by_one(self.judge, first_prompts, self.metric.temperature)

    def _measure(self, work: ItemWork) -> Figures:
        figures: Figures = {
            "id": work.item.id,
            "requests": work.requests,
            "tokens_tree": work.tree_tokens,
            "difference": None,
        }
        distances = []
        # the smallest first: what it leaves in memory disturbs the others least
        for letter in reversed(self.result.only):
            values = self._time(letter, work.item, figures)
            if not np.isfinite(values).all():
                raise DataError(
                    f"item {excerpt(work.item.id)} cannot be timed: ({letter}) gives distances that are not "
                    "finite numbers"
                )
            distances.append(values)
        if len(distances) > 1:
            figures["difference"] = float(np.max(np.ptp(distances, axis=0)))
        return figures | self._engine_figures(work, figures)

    def _time(self, letter: str, item: Item, figures: Figures) -> np.ndarray[Any, Any]:
        """Time one schedule from texts to distances, and add its figures."""
        name = SCHEDULES[letter]
        allocated(self.device)  # frees what the schedule before has left
        watching = reset_peak(self.device)
        with counted_tokens(self.judge) as tokens:
            start = self._now()
            if letter == "c":
                distances = score(self.metric, item)
            else:
                distances = one_by_one(self.judge, encode(self.judge, item), self.metric.temperature)
            figures[f"seconds_{name}"] = self._now() - start
        figures[f"tokens_{name}"] = sum(tokens)
        memory = max(0, peak(self.device) - self.loaded) if watching else None
        figures[f"memory_{name}_bytes"] = memory
        return np.concatenate(distances)

    def _engine_figures(self, work: ItemWork, figures: Figures) -> Figures:
        """Compare the engine with schedule (a) and with the machine's GEMM peak."""
        engine: Figures = {"flops": None, "model_seconds_engine": None, "efficiency_of_gemm_peak": None}
        if "c" not in self.result.only:
            return engine
        seconds = figures["seconds_engine"]
        if "a" in self.result.only:
            engine["speedup_against_requests"] = figures["seconds_requests"] / seconds
        # one right after the other, since the speed of a shared machine drifts
        model_seconds = engine["model_seconds_engine"] = min(
            timeit.repeat(lambda: compare_trees(self.metric, work), number=1, repeat=REPETITIONS)
        )
        shape = read_shape(self.judge.lm.model.config.get_text_config())
        if shape is None:
            return engine
        flops = count_flops(work.trees, shape)
        rows = getattr(self.metric.engine, "max_rows", ROWS)
        best_seconds = peak_seconds(flops, shape, rows, self.dtype, self.device)
        return engine | {
            "flops": flops.total,
            "efficiency_of_gemm_peak": best_seconds / model_seconds,
            "flop_per_second_engine": flops.total / model_seconds,
            "flop_per_second_gemm_peak": flops.total / best_seconds,
        }

    def _now(self) -> float:
        """Read the clock after the device has finished its work."""
        synchronise(self.device)
        return time.perf_counter()


def score(metric: SelfReflect, item: Item) -> Distances:
    """Score an item through the public interface.

    Raises:
        DataError: a summary has no score.
    """
    distances: Distances = []
    for outcome in metric.score_records(item.question_record, item.answer_set, item.summary_records):
        if isinstance(outcome, Failure):
            raise DataError(f"item {excerpt(item.id)} cannot be timed: {outcome.message}")
        distances.append(np.concatenate([word.distances for word in outcome.words]))
    return distances


def compare_trees(metric: SelfReflect, work: ItemWork) -> Distances:
    """Run the engine on the trees of all summaries: the part that the machine's peak bounds."""
    reference, *trees = work.trees
    return Reference(metric.engine, reference).compare(trees).distances(metric.temperature)


@contextmanager
def counted_tokens(judge: Judge) -> Iterator[list[int]]:
    """Record the number of tokens of each forward pass."""
    counts: list[int] = []
    embeddings = judge.lm.model.get_input_embeddings()
    hook = embeddings.register_forward_pre_hook(lambda _, inputs: counts.append(inputs[0].numel()))
    try:
        yield counts
    finally:
        hook.remove()


def time_decoding(lm: CausalLM, prompt: tuple[int, ...], samples: int) -> Figures:
    """Time decoding in tokens per second, with this package and with transformers."""
    device = next(lm.model.parameters()).device
    ours, library = both_ways(lm, prompt, samples)

    def seconds(run: Callable[[], None]) -> float:
        synchronise(device)
        start = time.perf_counter()
        run()
        synchronise(device)
        return time.perf_counter() - start

    times = [(seconds(ours), seconds(library)) for _ in range(DECODING_REPETITIONS)]
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
    """Make two functions that draw the same number of samples: with this package, and with transformers."""
    ids = torch.tensor([prompt], device=next(lm.model.parameters()).device)

    def by_this_package() -> None:
        sampling = Sampling(max_new_tokens=TOKENS)
        draws = [Draw(prompt=prompt, sampling=sampling, seed=seed, limit=TOKENS) for seed in range(samples)]
        for _ in decode(lm.model, draws, frozenset(), 0):
            pass

    def by_transformers() -> None:
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

    return by_this_package, by_transformers


@torch.inference_mode()
def one_by_one(judge: Judge, contexts: Sequence[Sequence[Prompt]], temperature: float) -> Distances:
    """Run the published algorithm, which requests the prediction of each target token separately.

    The cache is ideal. A request computes only tokens that no earlier request of the item has computed, and
    at least its last one, since a cache holds no predictions. Equal contexts have requests of their own.
    """
    cache = RewindableCache(judge, max(len(prompt.ids) for prompts in contexts for prompt in prompts))

    def logits(sequences: Sequence[Ids]) -> torch.Tensor:
        rows = torch.empty(0)
        # depth first, so that what the cache forgets is not needed again
        for index in sorted(range(len(sequences)), key=lambda i: sequences[i]):
            row = judge.head(cache.go_to(sequences[index]))
            if not len(rows):
                rows = row.new_empty(len(sequences), row.shape[1])
            rows[index] = row
        return rows

    # summaries in lexicographic order, so that neighbours share long prefixes
    groups: dict[tuple[Prompt, ...], list[int]] = {}
    for index, prompts in enumerate(contexts[1:]):
        groups.setdefault(tuple(prompts), []).append(index)
    reference = logits(requests(contexts[0]))
    size = len(reference)
    distances: Distances = [np.zeros(size) for _ in contexts[1:]]
    for context in sorted(groups, key=lambda prompts: min(prompt.ids for prompt in prompts)):
        copies = groups[context]
        rows = logits(requests(context) * len(copies))
        for copy, index in enumerate(copies):
            for start in range(0, size, ROWS_OF_LOGITS):
                block = slice(start, min(size, start + ROWS_OF_LOGITS))
                context_rows = rows[copy * size + block.start : copy * size + block.stop]
                values = total_variation(context_rows, reference[block], temperature)
                distances[index][block] = values.double().cpu().numpy()
    return distances


def requests(prompts: Sequence[Prompt]) -> list[Ids]:
    """List the requests for an item's target tokens in order, each as the tokens before its target."""
    sequences = []
    for prompt in prompts:
        sequences += [prompt.ids[:end] for end in range(prompt.first, len(prompt.ids))]
    return sequences


class RewindableCache:
    """Keys and values of one sequence, in buffers of fixed size. Going back to an earlier token changes a
    length and copies nothing.

    Args:
        capacity: tokens of the longest sequence.

    Raises:
        JudgeError: some layers of the judge keep something other than keys and values of all tokens.
    """

    def __init__(self, judge: Judge, capacity: int) -> None:
        config = judge.lm.model.config
        self.decoder = judge.decoder
        self.device = next(judge.lm.model.parameters()).device
        self.cache = DynamicCache(config=config)
        if any(type(layer) is not DynamicLayer for layer in self.cache.layers):
            raise JudgeError(
                f"judge {judge.name!r} has layers whose cache cannot go back to an earlier token (windows, "
                "states), so the published schedule cannot be timed with an ideal cache",
                code="no_cache",
                remedy="Time the engine alone with {only} c.",
            )
        self.layers = [_Layer(capacity) for _ in range(config.get_text_config().num_hidden_layers)]
        self.cache.layers = self.layers
        self.ids: Ids = ()

    def go_to(self, ids: Ids) -> torch.Tensor:
        """Set the sequence to ``ids``, compute new tokens only, and return the last hidden state, (1,
        hidden).
        """
        size = min(common_prefix(self.ids, ids), len(ids) - 1)
        for layer in self.layers:
            layer.truncate(size)
        new = torch.tensor([ids[size:]], device=self.device)
        output = self.decoder(input_ids=new, past_key_values=self.cache, use_cache=True)
        self.ids = ids
        states: torch.Tensor = output.last_hidden_state
        return states[:, -1]


class _Layer(DynamicLayer):  # type: ignore[misc]
    """A cache layer with buffers of fixed size. ``keys`` and ``values`` are views of the filled part."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        _, heads, _, width = key_states.shape
        self.all_keys = key_states.new_empty(1, heads, self.capacity, width)
        self.all_values = value_states.new_empty(1, heads, self.capacity, value_states.shape[-1])
        self.truncate(0)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.keys.shape[2]
        stop = start + key_states.shape[2]
        self.all_keys[:, :, start:stop] = key_states
        self.all_values[:, :, start:stop] = value_states
        self.truncate(stop)
        return self.keys, self.values

    def truncate(self, length: int) -> None:
        """Forget all but the first ``length`` tokens."""
        if self.is_initialized:
            self.keys = self.all_keys[:, :, :length]
            self.values = self.all_values[:, :, :length]


@dataclass(frozen=True)
class ItemWork:
    """One item, with its trees and the number of its requests."""

    item: Item
    trees: tuple[PrefixTree, ...]
    """Trees of the reference and then the summaries; equal contexts occur once."""
    requests: int
    """Token tasks of all contexts. The published schedule sends one request for each."""

    @property
    def tree_tokens(self) -> int:
        """Total number of nodes in all trees."""
        return sum(tree.computed_tokens for tree in self.trees)


def encode(judge: Judge, item: Item) -> list[list[Prompt]]:
    """Tokenise the prompts of every context: the reference first, then the summaries in their order.

    Raises:
        DataError: the item cannot be scored.
    """
    try:
        task = prepare(judge, item.question_record, item.answer_set)
        summaries = [summary_prompts(judge, task, text) for text in item.summaries.values()]
    except CannotScoreError as error:
        raise DataError(f"item {excerpt(item.id)} cannot be timed: {error}") from error
    return [task.reference, *summaries]


def work_of(judge: Judge, item: Item) -> ItemWork:
    """Build the trees of an item and count its requests. Raises the errors of :func:`encode`."""
    contexts = encode(judge, item)
    trees = []
    for index, prompts in enumerate(contexts):
        if prompts not in contexts[:index]:
            trees.append(build_tree(prompts))
    targets = sum(len(prompt.ids) - prompt.first for prompt in contexts[0])
    return ItemWork(item, tuple(trees), requests=len(contexts) * targets)


# Model types whose layers have exactly the matrices of `DecoderShape`
COUNTED = ("llama", "mistral", "qwen2", "qwen3")

Matrix = tuple[int, int]
"""Numbers of input and output features."""


@dataclass(frozen=True)
class DecoderShape:
    """Sizes of a decoder with grouped-query attention and a gated MLP."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int

    @property
    def key_value(self) -> list[Matrix]:
        """Shapes of a layer's key and value matrices. Every node passes through them in every layer."""
        return [(self.hidden, self.kv_heads * self.head_dim)] * 2

    @property
    def rest(self) -> list[Matrix]:
        """Shapes of the other matrices of a layer: query, output, gate, up, down."""
        attention = self.heads * self.head_dim
        up = (self.hidden, self.ffn)
        return [(self.hidden, attention), (attention, self.hidden), up, up, (self.ffn, self.hidden)]

    @property
    def head(self) -> Matrix:
        """Shape of the vocabulary projection."""
        return (self.hidden, self.vocabulary)


class Flops(NamedTuple):
    decoder: int
    head: int

    @property
    def total(self) -> int:
        return self.decoder + self.head


def read_shape(config: Any) -> DecoderShape | None:
    """Read the shape of a text model; None for architectures without an operation count."""
    if config.model_type not in COUNTED:
        return None
    heads = config.num_attention_heads
    return DecoderShape(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        ffn=config.intermediate_size,
        vocabulary=config.vocab_size,
    )


def count_flops(trees: Sequence[PrefixTree], shape: DecoderShape) -> Flops:
    """Add up the operations of an item's contexts. The reference's head rows count once, because the engine
    keeps them for all summaries.

    Every node passes through all layers but the last. There, every node gives keys and values, and only the
    outputs go on. A node sees itself and all before it on its path. Each key that it sees costs a product
    with the query and one with the attention weight: ``4 * heads * head_dim`` operations.
    """
    layers_before = shape.layers - 1
    decoder = head = 0
    for tree in trees:
        prefix = len(tree.prefix)
        outputs = len(tree.outputs)
        nodes = tree.computed_tokens
        positions = prefix * (prefix + 1) // 2 + int(np.sum(prefix + tree.depth + 1))
        seen_by_outputs = int(np.sum(prefix + tree.depth[tree.outputs] + 1))
        decoder += _operations(nodes * shape.layers, shape.key_value)
        decoder += _operations(nodes * layers_before + outputs, shape.rest)
        decoder += 4 * shape.heads * shape.head_dim * (positions * layers_before + seen_by_outputs)
        head += _operations(outputs, [shape.head])
    return Flops(decoder, head)


def _operations(rows: int, matrices: Sequence[Matrix]) -> int:
    """Count the operations of ``rows`` tokens times each matrix."""
    return 2 * rows * sum(inner * outer for inner, outer in matrices)


@torch.inference_mode()
def peak_seconds(
    flops: Flops, shape: DecoderShape, rows: int, dtype: torch.dtype, device: torch.device
) -> float:
    """Compute the seconds that the operations take at the machine's GEMM peak.

    No engine can be faster. Attention counts as matrix products. The products have ``rows`` tokens."""
    layer = [*shape.key_value, *shape.rest]
    times = {matrix: _time_product(rows, matrix, dtype, device) for matrix in set(layer)}
    head_rows = ROWS_OF_LOGITS if device.type == "cpu" else ROWS_ON_GPU  # as the engine does it
    decoder = flops.decoder / _operations(rows, layer) * sum(times[matrix] for matrix in layer)
    head_time = _time_product(head_rows, shape.head, dtype, device)
    return decoder + flops.head / _operations(head_rows, [shape.head]) * head_time


def _time_product(rows: int, matrix: Matrix, dtype: torch.dtype, device: torch.device) -> float:
    """Time the product of ``rows`` tokens with a weight, by the faster of torch's and our kernel."""
    inner, outer = matrix
    x = torch.randn(rows, inner, device=device).to(dtype)
    weight = torch.randn(outer, inner, device=device).to(dtype)
    out = torch.empty(rows, outer, device=device, dtype=dtype)
    by_torch = _fastest(lambda: torch.mm(x, weight.t(), out=out), device)
    return min(by_torch, _fastest(lambda: linear(x, weight), device))


def _fastest(product: Callable[[], torch.Tensor], device: torch.device) -> float:
    """Time the fastest repetition, in seconds."""

    def repetition() -> None:
        product()
        synchronise(device)

    timer = Timer("repetition()", globals={"repetition": repetition}, num_threads=torch.get_num_threads())
    return min(timer.blocked_autorange(min_run_time=SECONDS).times)


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


_RESET = Path("/proc/self/clear_refs")


def describe_machine(judge: Judge) -> dict[str, Any]:
    """Describe the machine for ``--json``."""
    device = next(judge.lm.model.parameters()).device
    compiled = device.type == "cpu" and judge.lm.dtype == "float32" and native()
    return {
        "judge": judge.name,
        "dtype": judge.lm.dtype,
        "device": device.type,
        "processor": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "attention": "compiled" if compiled else "torch",
        "load": round(os.getloadavg()[0], 2),
        "torch": str(torch.__version__),
        "transformers": version("transformers"),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return match[1] if match else platform.processor()


def allocated(device: torch.device) -> int:
    """Measure the bytes in use: tensors on a GPU, otherwise the process's resident memory."""
    gc.collect()
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    # glibc keeps freed memory, which would count for the next schedule
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


def reset_peak(device: torch.device) -> bool:
    """Reset the counter of peak memory, and return whether that worked: only Linux allows it, and not in
    every container.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return True
    try:
        _RESET.write_text("5")
    except OSError:
        return False
    return True


def peak(device: torch.device) -> int:
    """Read the peak number of bytes in use since :func:`reset_peak`."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    match = re.search(
        r"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE
    )
    assert match is not None
    return 1024 * int(match[1])
