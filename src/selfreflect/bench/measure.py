"""Time the schedules on the same items with the same judge, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from selfreflect.bench.flops import read_shape, trees_flops
from selfreflect.bench.machine import machine
from selfreflect.bench.memory import allocated, available, watch
from selfreflect.bench.peak import measure_peak, synchronise
from selfreflect.bench.result import Measured, Result, Scaled, Timing
from selfreflect.bench.scaling import ScalingPoint
from selfreflect.bench.schedules import Distances, batched, one_by_one, token_bytes
from selfreflect.bench.work import Work, encode, work_of
from selfreflect.errors import DataError, excerpt
from selfreflect.metric.engine.reference import Reference
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.judge import Judge
from selfreflect.records import Failure
from selfreflect.sources.items import Item

BATCH_SIZES = (1, 4, 16, 64, 256, 1024)
TIMES = 3
"""How often the part of the engine that is compared with the machine's peak is timed. The fastest counts, as
it does for the peak."""

PASS = 512
"""Rows of the matrices whose speed is the peak, for engines that do not say how many tokens they take at
once."""


def steps(only: Sequence[str], items: int) -> int:
    """How often :class:`Bench` calls its ``advance`` for so many items and points."""
    return items * len(only) + len(BATCH_SIZES) * ("b" in only)


class Bench:
    """Times items; what it finds goes into ``result`` at once.

    Args:
        judge: shared by all schedules.
        only: letters of the schedules to run.

    Attributes:
        advance: called after each schedule of each item and each try of a batch size, of which one takes
            minutes at most.
        keep: called when there is more in ``result``.
    """

    def __init__(self, judge: Judge, only: Sequence[str]) -> None:
        self.judge = judge
        self.advance: Callable[[], None] = lambda: None
        self.keep: Callable[[], None] = lambda: None
        self.metric = SelfReflect(judge)
        self.shape = read_shape(judge.lm.model.config.get_text_config())
        weight = next(judge.lm.model.parameters())
        self.device, self.dtype = weight.device, weight.dtype
        self.result = Result(machine=machine(judge), only=tuple(only))
        self.loaded: int | None = None

    def run(self, items: Sequence[Item], scaling: Sequence[ScalingPoint]) -> None:
        """Time every item and every point of the curves.

        Raises:
            DataError: an item has no score; all are looked at before the first is timed, and curves leave out
                what does not fit. Or a schedule gives distances that are not finite.
        """
        works = [work_of(self.judge, item) for item in items]
        self._get_ready(sorted(works, key=lambda work: work.requests)[len(works) // 2])
        for work in works:
            self.result.items.append(self._measure(work))
            self.keep()
        for point in scaling:
            try:
                work = work_of(self.judge, point.item)
            except DataError:
                for _ in self.result.only:
                    self.advance()
                continue
            self.result.scaling.append(Scaled(point.axis, point.value, self._measure(work)))
            self.keep()

    def _get_ready(self, work: Work) -> None:
        """See what the loaded model takes, warm up and find the best batch."""
        for weight in self.judge.lm.model.parameters():
            weight.sum()  # weights are in memory once they have been read
        self.loaded = allocated(self.device)
        if "c" in self.result.only:
            engine(self.metric, work.item)
        if "a" in self.result.only:
            first = [prompts[:1] for prompts in encode(self.judge, work.item)]
            one_by_one(self.judge, first, self.metric.temperature)
        if "b" in self.result.only:
            self._choose_batch(work)

    def _choose_batch(self, work: Work) -> None:
        """Larger batches until one is slower than the one before, or would not fit into half of the free
        memory."""
        contexts = encode(self.judge, work.item)[:2]
        each = token_bytes(self.judge) * max(len(prompt.ids) for prompts in contexts for prompt in prompts)
        most = max(sum(len(prompt.ids) - prompt.first for prompt in prompts) for prompts in contexts)
        trials = self.result.batch_trials
        for size in BATCH_SIZES:
            if trials and (size // 4 >= most or size * each > available(self.device) / 2):
                break
            try:
                trials[size], _ = self._timed(
                    partial(batched, self.judge, contexts, self.metric.temperature, size)
                )
            except torch.OutOfMemoryError:
                if not trials:
                    raise
                break
            self.advance()
            if trials[size] > min(trials.values()):
                break
        for _ in range(len(BATCH_SIZES) - len(trials)):
            self.advance()
        self.result.batch_size = min(trials, key=trials.__getitem__)

    def _measure(self, work: Work) -> Measured:
        timings, found = {}, []
        beside_peak: dict[str, Any] = {}
        # the smallest first: what it leaves in memory disturbs the others least
        for letter in reversed(self.result.only):
            timings[letter], distances_found = self._time(letter, work.item)
            found.append(np.concatenate(distances_found))
            if not np.isfinite(found[-1]).all():
                raise DataError(
                    f"item {excerpt(work.item.id)} cannot be timed: ({letter}) gives distances that are not finite numbers"
                )
            if letter == "c":
                beside_peak = self._beside_peak(work)
            self.advance()
        return Measured(
            id=work.item.id,
            requests=work.requests,
            tree_tokens=work.tree_tokens,
            timings=dict(sorted(timings.items())),
            difference=float(np.max(np.ptp(found, axis=0))) if len(found) > 1 else None,
            **beside_peak,
        )

    def _beside_peak(self, work: Work) -> dict[str, Any]:
        """The engine without texts and the machine's peak, one right after the other, since the speed of a
        shared machine drifts."""
        found: dict[str, Any] = {
            "model_seconds": min(
                self._timed(lambda: through_model(self.metric, work))[0] for _ in range(TIMES)
            )
        }
        if self.shape is not None:
            flops = trees_flops(work.plans, self.shape)
            peak = measure_peak(
                self.shape, getattr(self.metric.engine, "budget", PASS), self.dtype, self.device
            )
            found |= {
                "flops": flops.total,
                "peak_seconds": peak.best.seconds(flops),
                "usual_seconds": peak.usual.seconds(flops),
            }
        return found

    def _time(self, letter: str, item: Item) -> tuple[Timing, Distances]:
        schedules: dict[str, Callable[[], Distances]] = {
            "a": lambda: one_by_one(self.judge, encode(self.judge, item), self.metric.temperature),
            "b": lambda: batched(
                self.judge, encode(self.judge, item), self.metric.temperature, self.result.batch_size or 1
            ),
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
    for score in metric.score_records(item.question_record, item.answer_set, item.summary_records):
        if isinstance(score, Failure):
            raise DataError(f"item {excerpt(item.id)} cannot be timed: {score.message}")
        found.append(np.array([distance for word in score.words for distance in word.distances]))
    return found


def through_model(metric: SelfReflect, work: Work) -> Distances:
    """What the engine does between the trees of all summaries, as one group, and distances: the part that the
    machine's peak bounds."""
    reference, *plans = work.plans
    return Reference(metric.engine, reference).compare(plans).distances(metric.temperature)


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
