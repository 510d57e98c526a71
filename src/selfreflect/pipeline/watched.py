"""Models that tell an experiment's progress what they are doing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from selfreflect.models.base import Refusal, Reply, Request, Sample, as_drawn, results_of
from selfreflect.pipeline.options import Progress, WorkDone


class WatchedGenerator:
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

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        """One reply or refusal per request, in order."""
        results = dict(self.stream(requests))
        return [results[index] for index in range(len(requests))]

    def stream(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply | Refusal]]:
        """The results as they are done, each with the index of its request."""
        return results_of(self.stream_samples(requests))

    def stream_samples(self, requests: Sequence[Request]) -> Iterator[tuple[int, Sample | Reply | Refusal]]:
        """Like :meth:`stream`, with the completions that replies still wait for."""
        to_come = [len(request.missing) for request in requests]
        tokens = [sum(sample.completion.tokens for sample in request.earlier) for request in requests]
        self._progress.add(WorkDone(asked=sum(to_come)))
        for index, event in as_drawn(self._generator, requests):
            if isinstance(event, Refusal):
                self._progress.add(WorkDone(asked=-to_come[index]))
            else:
                if isinstance(event, Sample):
                    ended, new_tokens = 1, event.completion.tokens
                else:
                    ended, new_tokens = to_come[index], event.tokens - tokens[index]
                to_come[index] -= ended
                tokens[index] += new_tokens
                if not self._counts_steps:
                    self._progress.add(WorkDone(ended=ended, tokens=new_tokens))
            yield index, event

    def _count_step(self, tokens: int, ended: int) -> None:
        self._progress.add(WorkDone(ended=ended, tokens=tokens))


@contextmanager
def watched_judge(judge: Any, progress: Progress) -> Iterator[None]:
    """Report the tokens that a judge of this process reads."""
    if judge.last_states is not None:  # its model runs elsewhere
        yield
        return

    def count(module: Any, inputs: tuple[Any, ...]) -> None:
        progress.add(WorkDone(tokens=inputs[0].numel()))

    handle = judge.lm.model.get_input_embeddings().register_forward_pre_hook(count)
    try:
        yield
    finally:
        handle.remove()
