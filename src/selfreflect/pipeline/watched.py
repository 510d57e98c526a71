"""Models that tell an experiment's progress what they are doing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from selfreflect.models.base import Refusal, Reply, Request, Sample, StreamingGenerator, as_drawn
from selfreflect.pipeline.options import Progress, WorkDone


class WatchedGenerator(StreamingGenerator):
    """Passes requests on, and reports the sequences that are asked for and those that have ended.

    A local generator (one with ``on_step``) reports each token; of others the tokens come with the reply.
    """

    def __init__(self, generator: Any, progress: Progress) -> None:
        self.name = generator.name
        self.revision = generator.revision
        self._generator = generator
        self._progress = progress
        self._counts_steps = hasattr(generator, "on_step")
        if self._counts_steps:
            generator.on_step = self._count_step

    def stream_samples(self, requests: Sequence[Request]) -> Iterator[tuple[int, Sample | Reply | Refusal]]:
        """Like :meth:`stream`, with the completions that replies still wait for."""
        to_come = [len(request.missing) for request in requests]
        tokens = [sum(sample.completion.tokens for sample in request.earlier) for request in requests]
        limits = [request.sampling.max_new_tokens for request in requests]
        most = sum(count * limit for count, limit in zip(to_come, limits, strict=True))
        self._progress.add(WorkDone(asked=sum(to_come), planned=most))
        for index, event in as_drawn(self._generator, requests):
            if isinstance(event, Refusal):
                unneeded = to_come[index] * limits[index]
                self._progress.add(WorkDone(asked=-to_come[index], planned=-unneeded))
            else:
                if isinstance(event, Sample):
                    ended, new_tokens = 1, event.completion.tokens
                else:
                    ended, new_tokens = to_come[index], event.tokens - tokens[index]
                to_come[index] -= ended
                tokens[index] += new_tokens
                unneeded = max(0, ended * limits[index] - new_tokens)
                self._progress.add(WorkDone(planned=-unneeded))
                if not self._counts_steps:
                    self._progress.add(WorkDone(ended=ended, tokens=new_tokens))
            yield index, event

    def _count_step(self, tokens: int, ended: int) -> None:
        self._progress.add(WorkDone(ended=ended, tokens=tokens))


class JudgeReading:
    """Reports the tokens that a judge reads of one question, and how many they will be."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tokens = 0
        self._planned = 0

    def count(self, module: Any, inputs: tuple[Any, ...]) -> None:
        """A hook before a forward pass of the embeddings."""
        tokens = inputs[0].numel()
        self._tokens += tokens
        self._progress.add(WorkDone(tokens=tokens))

    def plan(self, tokens: int) -> None:
        """Take so many tokens for what is left of the question."""
        planned = self._tokens + tokens
        self._progress.add(WorkDone(planned=planned - self._planned))
        self._planned = planned


@contextmanager
def watched_judge(judge: Any, metric: Any, progress: Progress, planned: int) -> Iterator[None]:
    """Report the tokens that a judge of this process reads of one question, about ``planned`` of them until
    the metric knows better."""
    if judge.last_states is not None:  # its model runs elsewhere
        yield
        return
    reading = JudgeReading(progress)
    reading.plan(planned)
    metric.on_begin = reading.plan
    handle = judge.lm.model.get_input_embeddings().register_forward_pre_hook(reading.count)
    try:
        yield
    finally:
        handle.remove()
        reading.plan(0)
