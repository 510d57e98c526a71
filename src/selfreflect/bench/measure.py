"""Times the schedules on the same items with the same judge, and drawing against that of transformers."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch

from selfreflect.bench.flops import count_flops, peak_seconds, read_shape, synchronise
from selfreflect.bench.machine import allocated, available, describe_machine, peak, reset_peak
from selfreflect.bench.result import SCHEDULES, Figures, Result
from selfreflect.bench.schedules import Distances, batched, longest, one_by_one, requests, token_bytes
from selfreflect.bench.work import ScalingPoint, Work, encode, work_of
from selfreflect.errors import DataError, excerpt
from selfreflect.metric.engine.logits import Reference
from selfreflect.metric.information import control_texts, measure
from selfreflect.metric.prompts import CannotScoreError
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.base import Message, Sampling
from selfreflect.models.judge import Judge
from selfreflect.models.local.decode import Draw, decode
from selfreflect.models.local.loading import CausalLM
from selfreflect.records import Failure
from selfreflect.sources.items import Item

BATCH_SIZES = (1, 4, 16, 64, 256, 1024)

REPETITIONS = 3
"""How often the engine is timed from trees to distances. The fastest repetition counts, as it does for the
machine's peak."""

SAMPLES = (20, 50)
"""Completions of one prompt that are drawn together."""

TOKENS = 24
"""Tokens of each completion. None ends earlier."""

DECODING_REPETITIONS = 2
"""How often this package and transformers draw them, in turn, since the speed of a shared machine drifts. The
fastest counts."""

ROWS = 512
"""Rows of the matrices whose speed is the peak, for engines that do not say how many tokens they compute
together."""


class Bench:
    """Looks at all items, then times them one after the other into ``result``.

    Args:
        judge: shared by all schedules.
        items: what to time.
        points: points of the curves. Those that cannot be scored, because they do not fit the judge, are left
            out.
        only: letters of the schedules to run.

    Raises:
        DataError: an item cannot be scored.
    """

    def __init__(
        self, judge: Judge, items: Sequence[Item], points: Sequence[ScalingPoint], only: Sequence[str]
    ) -> None:
        self.judge = judge
        self.metric = SelfReflect(judge)
        weight = next(judge.lm.model.parameters())
        self.device = weight.device
        self.dtype = weight.dtype
        self.items = [work_of(judge, item) for item in items]
        self.points: list[tuple[ScalingPoint, Work]] = []
        for point in points:
            try:
                self.points.append((point, work_of(judge, point.item)))
            except DataError:
                continue
        self.samples = SAMPLES if "c" in only else ()
        self.result = Result(machine=describe_machine(judge), only=tuple(only))

    def __len__(self) -> int:
        """How often :meth:`run` yields."""
        return len(self.items) + len(self.points)

    def run(self) -> Iterator[Figures]:
        """Time every item and every point of the curves, and yield each once it is in ``result``.

        Raises:
            DataError: a schedule gives distances that are not finite.
        """
        by_size = sorted(self.items, key=lambda work: work.requests)
        self._warm_up(by_size[len(by_size) // 2])
        for work in self.items:
            self.result.items.append(self._measure(work))
            yield self.result.items[-1]
        for point, work in self.points:
            self.result.scaling.append({"axis": point.axis, "value": point.value, **self._measure(work)})
            yield self.result.scaling[-1]

    def time_sampling(self) -> Iterator[Figures]:
        """Time how answers to the first question are drawn, if the engine is timed. Yields as :meth:`run`."""
        prompt = self._prompt()
        for samples in self.samples:
            self.result.decoding.append(time_decoding(self.judge.lm, prompt, samples))
            yield self.result.decoding[-1]

    def _prompt(self) -> tuple[int, ...]:
        """The first question, as a model is asked it, or its first tokens if the window has no more room."""
        question = Message(role="user", content=self.items[0].item.question)
        [prompt] = self.judge.chat.encode([self.judge.chat.render((question,))])
        window = self.judge.lm.window
        return tuple(prompt if window is None else prompt[: max(1, window - TOKENS)])

    def _warm_up(self, work: Work) -> None:
        """See what the loaded model takes, run each schedule once, and find the best batch size."""
        for weight in self.judge.lm.model.parameters():
            weight.sum()  # weights are in memory once they have been read
        self.loaded = allocated(self.device)
        if "c" in self.result.only:
            score(self.metric, work.item)
        if "a" in self.result.only:
            first_prompts = [prompts[:1] for prompts in encode(self.judge, work.item)]
            one_by_one(self.judge, first_prompts, self.metric.temperature)
        if "b" in self.result.only:
            self._choose_batch_size(work)

    def _choose_batch_size(self, work: Work) -> None:
        """Try larger batches until one is slower than another, or would not fit into half of the free
        memory."""
        contexts = encode(self.judge, work.item)[:2]
        sequence_bytes = token_bytes(self.judge) * longest(contexts)
        largest = 4 * len(requests(contexts[0]))
        trials = self.result.batch_trials
        for size in BATCH_SIZES:
            too_large = size >= largest or size * sequence_bytes > available(self.device) / 2
            if trials and too_large:
                break
            try:
                start = self._now()
                batched(self.judge, contexts, self.metric.temperature, size)
                trials[size] = self._now() - start
            except torch.OutOfMemoryError:
                if not trials:
                    raise
                break
            if trials[size] > min(trials.values()):
                break
        self.result.batch_size = min(trials, key=trials.__getitem__)

    def _measure(self, work: Work) -> Figures:
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
        """Run one schedule from texts to distances, and add its figures."""
        name = SCHEDULES[letter]
        allocated(self.device)  # frees what the schedule before has left
        watching = reset_peak(self.device)
        with counted_tokens(self.judge) as tokens:
            start = self._now()
            if letter == "c":
                distances = score(self.metric, item)
            else:
                contexts = encode(self.judge, item)
                if letter == "a":
                    distances = one_by_one(self.judge, contexts, self.metric.temperature)
                else:
                    size = self.result.batch_size or 1
                    distances = batched(self.judge, contexts, self.metric.temperature, size)
            figures[f"seconds_{name}"] = self._now() - start
        figures[f"tokens_{name}"] = sum(tokens)
        memory = max(0, peak(self.device) - self.loaded) if watching else None
        figures[f"memory_{name}_bytes"] = memory
        return np.concatenate(distances)

    def _information_figures(self, item: Item, seconds_engine: float) -> Figures:
        """How long the second measure takes on the same summaries, without and with its controls."""
        summaries = list(item.summaries.values())
        controls = [text for _, text in control_texts(item.question, item.conditioning)]
        figures: Figures = {}
        for name, texts in (
            ("information", summaries),
            ("information_with_controls", [*summaries, *controls]),
        ):
            start = self._now()
            measure(self.judge, self.metric.engine, item.question_record, item.answer_set, texts)
            seconds = figures[f"seconds_{name}"] = self._now() - start
            figures[f"{name}_share_of_engine"] = seconds / seconds_engine
        return figures

    def _engine_figures(self, work: Work, figures: Figures) -> Figures:
        """How much faster the engine is than the other schedules, and its share of the machine's peak."""
        engine: Figures = {
            "flops": None,
            "model_seconds_engine": None,
            "efficiency_of_gemm_peak": None,
            "efficiency_with_text": None,
        }
        if "c" not in self.result.only:
            return engine
        seconds = figures["seconds_engine"]
        with suppress(CannotScoreError):  # a judge may take SelfReflect's prompts only
            engine |= self._information_figures(work.item, seconds)
        for letter in self.result.only[:-1]:
            name = SCHEDULES[letter]
            engine[f"speedup_against_{name}"] = figures[f"seconds_{name}"] / seconds
        # one right after the other, since the speed of a shared machine drifts
        model_seconds = engine["model_seconds_engine"] = min(
            timeit.repeat(lambda: compare_trees(self.metric, work), number=1, repeat=REPETITIONS)
        )
        shape = read_shape(self.judge.lm.model.config.get_text_config())
        if shape is None:
            return engine
        flops = count_flops(work.trees, shape)
        rows = getattr(self.metric.engine, "max_rows", ROWS)
        best_seconds, torch_seconds = peak_seconds(flops, shape, rows, self.dtype, self.device)
        return engine | {
            "flops": flops.total,
            "efficiency_of_gemm_peak": best_seconds / model_seconds,
            "efficiency_with_text": best_seconds / seconds,
            "flop_per_second_engine": flops.total / model_seconds,
            "flop_per_second_gemm_peak": flops.total / best_seconds,
            "flop_per_second_torch_gemm": flops.total / torch_seconds,
        }

    def _now(self) -> float:
        """Seconds, after the device has finished its work."""
        synchronise(self.device)
        return time.perf_counter()


def score(metric: SelfReflect, item: Item) -> Distances:
    """Run this project's engine as everyone calls it.

    Raises:
        DataError: a summary has no score.
    """
    distances: Distances = []
    for outcome in metric.score_records(item.question_record, item.answer_set, item.summary_records):
        if isinstance(outcome, Failure):
            raise DataError(f"item {excerpt(item.id)} cannot be timed: {outcome.message}")
        distances.append(np.concatenate([word.distances for word in outcome.words]))
    return distances


def compare_trees(metric: SelfReflect, work: Work) -> Distances:
    """Run the engine from the trees of all summaries, as one group, to distances: the part that the machine's
    peak bounds."""
    reference, *trees = work.trees
    return Reference(metric.engine, reference).compare(trees).distances(metric.temperature)


@contextmanager
def counted_tokens(judge: Judge) -> Iterator[list[int]]:
    """Collect the number of tokens of each forward pass, whatever the schedule."""
    counts: list[int] = []
    embeddings = judge.lm.model.get_input_embeddings()
    hook = embeddings.register_forward_pre_hook(lambda _, inputs: counts.append(inputs[0].numel()))
    try:
        yield counts
    finally:
        hook.remove()


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

    times = [(seconds(own), seconds(library)) for _ in range(DECODING_REPETITIONS)]
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
