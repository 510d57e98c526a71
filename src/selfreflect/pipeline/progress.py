"""Who watches a stage, what its models tell of their work, and what that says of the time left."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from selfreflect.models.base import Refusal, Reply, Request, Sample, StreamingGenerator, as_drawn

if TYPE_CHECKING:
    from selfreflect.metric.measures import Measures
    from selfreflect.records import AnswerSet

_SECONDS_BETWEEN_RATES = 5
_READINGS = 7
"""Together the half minute in which the present speed is measured."""

FEWEST_ENDED = 8
"""Sequences that must have ended before they tell how long the others take: the first to end are short."""


_CONTEXTS = 3
"""Contexts that the judge reads besides the summaries: the answers themselves, and the controls."""

_MASKED = 0.6
"""Masked words per token of an answer: stopwords are not masked."""

_TASK_TOKENS = 30
"""Of what the judge reads after an answer, to be told its task."""


@dataclass(frozen=True)
class WorkDone:
    """What a stage has begun and done since the last report."""

    units: int = 0
    """Questions or summaries that were begun."""
    asked: int = 0
    """Sequences that a model was asked for."""
    ended: int = 0
    """Sequences that have ended."""
    tokens: int = 0
    planned: int = 0
    """Tokens of what was begun: of sequences at most, of what a judge reads about."""

    def __add__(self, other: WorkDone) -> WorkDone:
        return WorkDone(
            self.units + other.units,
            self.asked + other.asked,
            self.ended + other.ended,
            self.tokens + other.tokens,
            self.planned + other.planned,
        )


class Counter(Protocol):
    def advance(self, count: int = 1, failures: int = 0) -> None:
        """Count what is finished, and what has failed and is not."""


class Progress(Protocol):
    """Watches an experiment."""

    def note(self, line: str) -> None: ...

    def warn(self, line: str) -> None:
        """Say what must not be overlooked."""

    def stage(self, name: str, total: int) -> AbstractContextManager[Counter]: ...

    def add(self, work: WorkDone) -> None:
        """Called often: for a local model with every token."""


class Quiet:
    """A :class:`Progress` that says nothing."""

    def note(self, line: str) -> None:
        pass

    def warn(self, line: str) -> None:
        pass

    def stage(self, name: str, total: int) -> AbstractContextManager[Counter]:
        return nullcontext(self)

    def add(self, work: WorkDone) -> None:
        pass

    def advance(self, count: int = 1, failures: int = 0) -> None:
        pass


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
def watched_judge(
    measures: Measures, progress: Progress, answers: AnswerSet, summaries: int
) -> Iterator[None]:
    """Report that a question with so many summaries is begun, and the tokens that a judge of this process
    reads of it: about the typical number until the metric knows better."""
    progress.add(WorkDone(units=max(1, summaries)))
    judge = measures.metric.judge
    if judge.last_states is not None:  # its model runs elsewhere
        yield
        return
    reading = JudgeReading(progress)
    lengths = [len(answer.encode("utf-8", "surrogatepass")) / 4 for answer in answers.masked_out]
    wanted = {"scores": measures.scores, "information": measures.information}
    reading.plan(round(typical_judge_tokens(lengths, summaries, **wanted)))
    measures.metric.on_begin = reading.plan
    handle = judge.lm.model.get_input_embeddings().register_forward_pre_hook(reading.count)
    try:
        yield
    finally:
        handle.remove()
        reading.plan(0)


def typical_judge_tokens(
    answers: Iterable[float], summaries: int, *, scores: bool, information: bool
) -> float:
    """What a judge reads of one question, about: for information each answer after each context, for scores
    what follows each masked word, too.

    Args:
        answers: the tokens of each answer whose words are masked.
    """
    contexts = summaries + _CONTEXTS
    total = 0.0
    for tokens in answers:
        if information:
            total += contexts * tokens
        if scores:
            total += contexts * _MASKED * tokens * (tokens / 2 + _TASK_TOKENS)
    return total


def duration(seconds: float) -> str:
    """A time for people: ``45 s``, ``1 min 30 s``, ``12 min`` or ``3 h 20 min``."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    if seconds < 595:
        tens = round(seconds / 10) * 10
        return f"{tens // 60} min {tens % 60} s" if tens % 60 else f"{tens // 60} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


class StageProgress:
    """What a stage has done, and how long the rest will take. Its texts have no name of the stage."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.failed = 0
        self.work = WorkDone()
        self.note = ""
        """What was said last, unless something was done since."""
        self._start = self._last_end = monotonic()
        self._first_work: float | None = None
        self._readings: deque[tuple[float, int]] = deque(maxlen=_READINGS)
        """Times, some seconds apart, and the tokens until then."""

    def advance(self, count: int = 1, failures: int = 0) -> None:
        self.done += count
        self.failed += failures
        self.note = ""
        self._last_end = monotonic()

    def add(self, work: WorkDone) -> None:
        """Count work, from the first of which on the time is measured: loading a model is none."""
        if self._first_work is None:
            self._first_work = monotonic()
        self.work += work
        if work.ended:
            self._last_end = monotonic()
        if work.ended or work.tokens:
            self.note = ""
        now = monotonic()
        if not self._readings or now - self._readings[-1][0] >= _SECONDS_BETWEEN_RATES:
            self._readings.append((now, self.work.tokens))

    @property
    def fraction(self) -> float:
        """The share that is done, in sequences if a model was asked for any."""
        finished = self.done + self.failed
        work = self.work
        if finished >= self.total:
            return 1.0
        if work.asked <= 0:
            share = min(1.0, work.tokens / work.planned) if work.planned > 0 else 0.0
            return max(finished / self.total, min(1.0, share * work.units / self.total))
        not_begun = max(0, self.total - work.units) / max(1, work.units)
        return min(1.0, work.ended / (work.asked * (1 + not_begun)))

    def seconds_left(self) -> float | None:
        """What remains will go at the speed so far; None before that can be told.

        The last sequences may be the longest, or read the longest prompts. So nothing is expected to end
        sooner than in the time for which nothing has ended by now.
        """
        fraction = self.fraction
        if not fraction or 0 < self.work.ended < min(FEWEST_ENDED, self.work.asked):
            return None
        if self.work.asked <= 0 and 0 < self.work.planned <= self.work.tokens:
            return None  # all is read, and predictions are compared
        since = self._start if self._first_work is None else self._first_work
        left = (monotonic() - since) * (1 - fraction) / fraction
        return left if self.work.asked <= 0 else max(left, monotonic() - self._last_end)

    def most_seconds_left(self) -> float | None:
        """What remains at the present speed if every sequence that was begun becomes as long as it may; None
        before that can be told, or if there are more to begin."""
        work = self.work
        if work.asked <= 0 or work.units < self.total or not self._readings:
            return None
        since, tokens = self._readings[0]
        left, gain = work.planned - work.tokens, work.tokens - tokens
        if left <= 0 or gain <= 0:
            return None
        return (monotonic() - since) * left / gain

    @property
    def counts(self) -> str:
        """``2 of 6, 1 failed``."""
        failures = f", {self.failed} failed" if self.failed else ""
        return f"{self.done} of {self.total}{failures}"

    @property
    def elapsed(self) -> float:
        """Seconds since the stage began."""
        return monotonic() - self._start

    def details(self) -> list[str]:
        """Tokens, their speed and the time left, as far as they are known."""
        parts = []
        if self.work.tokens and self._first_work is not None:
            per_second = self.work.tokens / max(monotonic() - self._first_work, 1e-3)
            parts = [f"{self.work.tokens:,} tokens", f"{per_second:,.0f} tokens/s"]
        left = self.seconds_left()
        most = self.most_seconds_left() if left is None else None
        if self.done + self.failed >= self.total:
            return parts
        if left is not None:
            parts.append(f"about {duration(left)} left")
        elif most is not None:
            parts.append(f"up to {duration(most)} left")
        return parts
