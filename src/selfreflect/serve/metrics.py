"""What the server counts of itself, for Prometheus. No label holds a text of a client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from selfreflect.serve.faults import ChatError
from selfreflect.serve.reply import Belief

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_SHARES = tuple(tenth / 10 for tenth in range(1, 11))


class ServerMetrics:
    """Counters in a registry of their own: importing a library adds nothing to it."""

    def __init__(self, running: Callable[[], float], waiting: Callable[[], float]) -> None:
        self._registry = registry = CollectorRegistry()
        self._responses = Counter(
            "selfreflect_responses_total", "Chat completions by outcome.", ["outcome"], registry=registry
        )
        self._seconds = Histogram(
            "selfreflect_response_seconds", "From request to response.", buckets=_SECONDS, registry=registry
        )
        self._answers = Counter("selfreflect_answers_total", "Answers drawn.", registry=registry)
        self._tokens = Counter("selfreflect_tokens_total", "Tokens spent.", ["kind"], registry=registry)
        self._confidence = Histogram(
            "selfreflect_confidence", "Confidence of answers.", buckets=_SHARES, registry=registry
        )
        self.not_kept = Counter(
            "selfreflect_not_kept_total", "Answers that the run directory could not keep.", registry=registry
        )
        Gauge("selfreflect_running", "Requests under way.", registry=registry).set_function(running)
        Gauge("selfreflect_waiting", "Requests that wait.", registry=registry).set_function(waiting)

    @contextmanager
    def counting(self, success: str, *, timed: bool = True) -> Iterator[None]:
        """Count how a request ended, and how long it took if it is ``timed``."""
        began = time.perf_counter()
        outcome = "failed"
        try:
            yield
            outcome = success
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except ChatError as error:
            outcome = "refused" if error.status < 500 else "failed"
            raise
        finally:
            self._responses.labels(outcome).inc()
            if timed:
                self._seconds.observe(time.perf_counter() - began)

    def count(self, belief: Belief) -> None:
        """Count what one answer took."""
        self._answers.inc(belief.num_answers)
        self._tokens.labels("prompt").inc(belief.cost.prompt_tokens)
        self._tokens.labels("completion").inc(belief.cost.completion_tokens)
        if belief.confidence is not None:
            self._confidence.observe(belief.confidence)

    def page(self) -> bytes:
        """All values in the text format of Prometheus."""
        return generate_latest(self._registry)
