"""What a stage has done, how fast, and how long the rest will take."""

from __future__ import annotations

from collections import deque
from time import monotonic

from selfreflect.pipeline.options import WorkDone

_SECONDS_BETWEEN_RATES = 5
_READINGS = 7
"""Together the half minute in which the present speed is measured."""

FEWEST_ENDED = 8
"""Sequences that must have ended before they tell how long the others take: the first to end are short."""


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
