"""Time the schedules on the same items with the same judge, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from selfreflect.bench.flops import read_shape, trees_flops
from selfreflect.bench.machine import machine
from selfreflect.bench.memory import allocated, available, watch
from selfreflect.bench.peak import Peak, measure_peak, synchronise
from selfreflect.bench.result import Measured, Result, Scaled, Timing
from selfreflect.bench.scaling import Point
from selfreflect.bench.schedules import Distances, batched, one_by_one, token_bytes
from selfreflect.bench.work import Work, encode, records, work_of
from selfreflect.errors import DataError, excerpt
from selfreflect.items import Item
from selfreflect.metric.engine import distances
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.judge import Judge
from selfreflect.records import Failure

BATCH_SIZES = (1, 4, 16, 64, 256, 1024)
TIMES = 3
"""How often the part of the engine that is compared with the machine's peak is timed. The fastest counts, as it does for the peak."""

PASS = 512
"""Rows of the matrices whose speed is the peak, for engines that do not say how many tokens they take at once."""

Advance = Callable[[], None]


class Bench:
    """Times items; what it finds goes into ``result`` at once.

    Args:
        judge: shared by all schedules.
        only: letters of the schedules to run.
    """

    def __init__(self, judge: Judge, only: Sequence[str]) -> None:
        self.judge = judge
        self.metric = SelfReflect(judge)
        self.shape = read_shape(judge.lm.model.config.get_text_config())
        weight = next(judge.lm.model.parameters())
        self.device, self.dtype = weight.device, weight.dtype
        self.result = Result(machine=machine(judge), only=tuple(only))
        self.peak: Peak | None = None
        self.loaded: int | None = None

    def run(self, items: Sequence[Item], scaling: Sequence[Point], advance: Advance) -> None:
        """Time every item and every point of the curves; ``advance`` is called after each.

        Raises:
            DataError: an item has no score. All are looked at before the first is timed, except that curves leave out what does not fit.
        """
        works = [work_of(self.judge, item) for item in items]
        self._get_ready(works[0])
        for work in works:
            self._find_peak()
            self.result.items.append(self._measure(work))
            advance()
        for point in scaling:
            with suppress(DataError):
                self.result.scaling.append(Scaled(point.axis, point.value, self._measure(work_of(self.judge, point.item))))
            advance()

    def _get_ready(self, work: Work) -> None:
        """Warm up and find the best batch. What the loaded model takes is known only once every weight has been read."""
        if "c" in self.result.only:
            engine(self.metric, work.item)
            self._find_peak()  # it is found again for every item; what it keeps of memory must not count as the engine's
        if "a" in self.result.only:
            first = [prompts[:1] for prompts in encode(self.judge, work.item)]
            one_by_one(self.judge, first, self.metric.temperature)
        self.loaded = allocated(self.device)
        if "b" in self.result.only:
            self._choose_batch(work)

    def _find_peak(self) -> None:
        """Before every item, since the speed of a shared machine drifts."""
        if "c" in self.result.only and self.shape is not None:
            self.peak = measure_peak(self.shape, getattr(self.metric.engine, "budget", PASS), self.dtype, self.device)

    def _choose_batch(self, work: Work) -> None:
        """Larger batches until one is slower than the one before, or would not fit into half of the free memory."""
        contexts = encode(self.judge, work.item)[:2]
        each = token_bytes(self.judge) * max(len(prompt.ids) for prompts in contexts for prompt in prompts)
        most = max(sum(len(prompt.ids) - prompt.first for prompt in prompts) for prompts in contexts)
        trials = self.result.batch_trials
        for size in BATCH_SIZES:
            if trials and (size // 4 >= most or size * each > available(self.device) / 2):
                break
            try:
                trials[size], _ = self._timed(partial(batched, self.judge, contexts, self.metric.temperature, size))
            except torch.OutOfMemoryError:
                if not trials:
                    raise
                break
            if trials[size] > min(trials.values()):
                break
        self.result.batch_size = min(trials, key=trials.__getitem__)

    def _measure(self, work: Work) -> Measured:
        timings, found = {}, []
        for letter in reversed(self.result.only):  # the smallest first: what it leaves in memory disturbs the others least
            timings[letter], distances_found = self._time(letter, work.item)
            found.append(np.concatenate(distances_found))
        flops = None if self.shape is None else trees_flops(work.plans, self.shape)
        return Measured(
            id=work.item.id,
            requests=work.requests,
            tree_tokens=work.tree_tokens,
            timings=dict(sorted(timings.items())),
            difference=float(np.max(np.ptp(found, axis=0))) if len(found) > 1 else None,
            flops=None if flops is None else flops.total,
            model_seconds=min(self._timed(lambda: through_model(self.metric, work))[0] for _ in range(TIMES)) if "c" in timings else None,
            peak_seconds=None if self.peak is None or flops is None else self.peak.best.seconds(flops),
            usual_seconds=None if self.peak is None or flops is None else self.peak.usual.seconds(flops),
        )

    def _time(self, letter: str, item: Item) -> tuple[Timing, Distances]:
        schedules: dict[str, Callable[[], Distances]] = {
            "a": lambda: one_by_one(self.judge, encode(self.judge, item), self.metric.temperature),
            "b": lambda: batched(self.judge, encode(self.judge, item), self.metric.temperature, self.result.batch_size or 1),
            "c": lambda: engine(self.metric, item),
        }
        allocated(self.device)  # gives back what the schedule before has left
        with watch(self.device) as memory, counted_tokens(self.judge) as tokens:
            seconds, found = self._timed(schedules[letter])
        above = None if memory.peak is None or self.loaded is None else max(0, memory.peak - self.loaded)
        return Timing(seconds=seconds, tokens=tokens.count, memory=above), found

    def _timed(self, run: Callable[[], Distances]) -> tuple[float, Distances]:
        synchronise(self.device)
        start = time.perf_counter()
        found = run()
        synchronise(self.device)
        return time.perf_counter() - start, found


def engine(metric: SelfReflect, item: Item) -> Distances:
    """This project's engine, as everyone calls it: every node of the prefix tree once, many in one pass.

    Raises:
        DataError: a summary has no score.
    """
    found: Distances = []
    for score in metric.score_records(*records(item)):
        if isinstance(score, Failure):
            raise DataError(f"item {excerpt(item.id)} cannot be timed: {score.message}")
        found.append(np.array([distance for word in score.words for distance in word.distances]))
    return found


def through_model(metric: SelfReflect, work: Work) -> Distances:
    """What the engine does between token ids and distances: the part that the machine's peak bounds."""
    reference, *plans = work.plans
    expected, *states = metric.engine.states([reference, *plans])
    pairs = [
        np.unique([pair for both in zip(plan.rows, reference.rows, strict=True) for pair in zip(*both, strict=True)], axis=0)
        for plan in plans
    ]
    return distances(metric.engine.head, expected, list(zip(states, pairs, strict=True)), metric.temperature)


@dataclass
class Tokens:
    count: int = 0


@contextmanager
def counted_tokens(judge: Judge) -> Iterator[Tokens]:
    """Count the tokens that are embedded, by whatever schedule."""
    found = Tokens()

    def add(module: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        found.count += inputs[0].numel()

    hook = judge.lm.model.get_input_embeddings().register_forward_pre_hook(add)
    try:
        yield found
    finally:
        hook.remove()
