"""Records of the endpoint: recent responses, a run directory, and Prometheus counters."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from selfreflect.models.base import Message
from selfreflect.records import AnswerSet, Controls, Failure
from selfreflect.report.run_records import without_words
from selfreflect.server.errors import ChatError
from selfreflect.server.reflector import Exchange
from selfreflect.server.reply import to_json
from selfreflect.store.manifest import StoredRecord
from selfreflect.store.run import Run
from selfreflect.uncertainty.guarantee import DriftWatch

REMEMBERED = 1000
LARGEST = 64 * 2**20
"""Maximum size of all entries together in bytes."""


class _Remembered(NamedTuple):
    body: bytes
    turns: tuple[Message, ...]
    """Conversation up to the response."""

    @property
    def size(self) -> int:
        return len(self.body) + sum(len(turn.content) for turn in self.turns)


class History:
    """Recent responses as JSON by id, with their conversations. The oldest are forgotten first."""

    def __init__(self, remembered: int = REMEMBERED, largest: int = LARGEST) -> None:
        self._entries: OrderedDict[str, _Remembered] = OrderedDict()
        self._remembered = remembered
        self._largest = largest
        self._size = 0

    def add(self, id_: str, content: object, turns: Sequence[Message] = (), text: str = "") -> None:
        """Store the JSON of a request's result, and its turns with the response."""
        answer = Message(role="assistant", content=text)
        entry = self._entries[id_] = _Remembered(to_json(content), (*turns, answer))
        self._size += entry.size
        # by number and by size, since one response may hold megabytes
        while len(self._entries) > self._remembered or self._size > self._largest:
            _, oldest = self._entries.popitem(last=False)
            self._size -= oldest.size

    def find(self, id_: str) -> bytes | None:
        """Find a response's JSON; None if unknown or forgotten."""
        entry = self._entries.get(id_)
        if entry is None:
            return None
        # what clients look at again is forgotten last
        self._entries.move_to_end(id_)
        return entry.body

    def conversation(self, id_: str) -> tuple[Message, ...] | None:
        """Find the turns up to a response; None if unknown or forgotten."""
        entry = self._entries.get(id_)
        # an answer alone was kept without its turns, since nothing can go on from it
        return entry.turns if entry and len(entry.turns) > 1 else None


def detail(exchange: Exchange) -> dict[str, object]:
    """Describe the full result of a question. Each answer has the index of its class in ``classes``."""
    answers = exchange.answers
    # without a measure nothing is held out, and both halves of the record are the sample
    draws = answers.conditioning if exchange.results else answers.answers
    texts = [
        {"text": text, "class": label} for text, label in zip(draws, exchange.classes.labels, strict=True)
    ]
    return {
        **msgspec.structs.asdict(exchange.belief),
        "object": "selfreflect",
        "created": exchange.response.created,
        "question": exchange.question.text,
        "context": exchange.question.context,
        "content": [choice.text for choice in exchange.response.choices],
        "tool_calls": [call for choice in exchange.response.choices for call in choice.calls],
        "answers": texts,
        "held_out": answers.masked_out if exchange.results else (),
        "summaries": [{"name": summary.name, "text": summary.text} for summary in exchange.summaries],
        "measures": [
            {"kind": type(record).__name__.lower(), **record.to_dict()} for record in exchange.results
        ],
    }


class Archive:
    """A run directory that stays open while the server runs.

    Args:
        texts: whether questions, answers and summaries are kept, or only how the answers fall into classes.

    Raises:
        StoreError: the directory cannot be used, or was made with other settings.
    """

    def __init__(self, path: Path, *, texts: bool) -> None:
        self._run = Run.open(path, {"serve": {"texts": texts}})
        self._texts = texts
        self._thread = ThreadPoolExecutor(
            1, "serve-archive"
        )  # a run is for one thread, and waits for the disk

    async def add(self, exchange: Exchange) -> None:
        """Write one exchange, which is on disk when this returns. Raises StoreError if writing fails."""
        records = records_of(exchange) if self._texts else without_texts(exchange)
        loop = asyncio.get_running_loop()
        # a client that goes away must not leave half a record
        await asyncio.shield(loop.run_in_executor(self._thread, self._run.append_all, records))

    def mean_answers(self) -> tuple[float, int]:
        """Return the mean number of answers per stored question, and the number of questions."""
        counts = [len(answers.answers) for answers in self._run.answers.values()]
        return (sum(counts) / len(counts), len(counts)) if counts else (0.0, 0)

    def close(self) -> None:
        """Finish writing, and release the directory."""
        self._thread.shutdown()
        self._run.close()


def records_of(exchange: Exchange) -> list[StoredRecord]:
    """List the records of an exchange."""
    return [exchange.question, exchange.answers, *exchange.summaries, *exchange.results]


def without_texts(exchange: Exchange) -> list[StoredRecord]:
    """List an exchange's records with placeholders for texts."""
    id_ = exchange.question.id
    # one name for each class keeps shares and entropies as they were
    names = [f"answer {label + 1}" for label in exchange.classes.labels]
    answers = _renamed(exchange.answers, names)
    records: list[StoredRecord] = [replace(exchange.question, text=id_, context=""), answers]
    records += [replace(summary, text=f"{summary.name} of {id_}") for summary in exchange.summaries]
    for record in exchange.results:
        if isinstance(record, Failure):
            # a message may quote an answer
            records.append(replace(record, message="(the message is not kept)"))
        elif not isinstance(record, Controls):
            records.append(without_words(record))
    return records


def _renamed(answers: AnswerSet, names: list[str]) -> AnswerSet:
    """Replace an answer set's texts with names; test answers from separate draws have no class."""
    if len(names) == len(answers.answers):
        half = len(answers.masked_out)
        return replace(answers, masked_out=tuple(names[:half]), conditioning=tuple(names[half:]))
    held_out = tuple(f"held-out answer {number}" for number in range(1, len(answers.masked_out) + 1))
    return replace(answers, masked_out=held_out, conditioning=tuple(names))


_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_COMPLETIONS = (1, 2, 4, 6, 8, 11, 16, 21, 31, 41, 61, 101, 201, 401)
_SHARES = tuple(tenth / 10 for tenth in range(1, 11))

# By name: what is counted, and by which label.
_COUNTERS: dict[str, tuple[str, list[str]]] = {
    "responses": ("Requests by outcome; plain requests are not questions.", ["outcome"]),
    "answers": ("Answers drawn.", []),
    "tokens": ("Tokens spent, where the model's server counts them.", ["kind"]),
    "not_kept": ("Answers that the run directory could not keep.", []),
    "guaranteed": ("Answers by whether the guarantee covers them, or by why it does not.", ["guarantee"]),
}
# By name: what is measured, and the bounds of its buckets.
_HISTOGRAMS: dict[str, tuple[str, tuple[float, ...]]] = {
    "response_seconds": ("Time from a request to its response.", _SECONDS),
    "confidence": ("Confidence of answers.", _SHARES),
    "question_completions": (
        "Texts that the model wrote for a question; a plain answer is one.",
        _COMPLETIONS,
    ),
    "question_seconds": ("Time from a question to its response.", _SECONDS),
    "first_answer_seconds": (
        "Time from a question to its first answers, which a plain answer takes too.",
        _SECONDS,
    ),
}


class ServerMetrics:
    """Counters in a separate Prometheus registry."""

    def __init__(
        self,
        running: Callable[[], float],
        waiting: Callable[[], float],
        watch: DriftWatch | None = None,
        at_most: int | None = None,
    ) -> None:
        self._registry = registry = CollectorRegistry()
        self._counters = {
            name: Counter(f"selfreflect_{name}_total", text, labels, registry=registry)
            for name, (text, labels) in _COUNTERS.items()
        }
        self._histograms = {
            name: Histogram(f"selfreflect_{name}", text, buckets=buckets, registry=registry)
            for name, (text, buckets) in _HISTOGRAMS.items()
        }
        self._questions = self._written = 0
        self._took = self._took_first = 0.0
        self._has_guarantee = watch is not None
        self._gauge("running", "Requests under way.", running)
        self._gauge("waiting", "Requests that are waiting.", waiting)
        self._gauge(
            "cost_multiplier",
            "Mean texts of the questions so far; NaN before the first.",
            lambda: self._written / self._questions if self._questions else math.nan,
        )
        self._gauge(
            "latency_multiplier",
            "Time of the questions so far, divided by the time of their first answers; NaN before the first.",
            lambda: self._took / self._took_first if self._took_first else math.nan,
        )
        if at_most is not None:
            text = "Maximum number of texts for a question, without calls that compare answers or ask back."
            self._gauge("completions_at_most", text, lambda: at_most)
        if watch is not None:
            text = "1 while scores are distributed like those of the labelled questions."
            self._gauge("guarantee_applies", text, lambda: float(not watch.has_drifted))
            text = "Kolmogorov-Smirnov distance of the latest window of scores from the labelled questions."
            self._gauge("score_distance", text, lambda: watch.distance or 0.0)

    def _gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        Gauge(f"selfreflect_{name}", text, registry=self._registry).set_function(value)

    @contextmanager
    def counting(self, success: str, *, timed: bool = True) -> Iterator[None]:
        """Count a request by its outcome, and time it if ``timed``."""
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
            self._counters["responses"].labels(outcome).inc()
            if timed:
                self._histograms["response_seconds"].observe(time.perf_counter() - began)

    def count(self, exchange: Exchange) -> None:
        """Count the cost of one question."""
        belief, spending = exchange.belief, exchange.response.spending
        counters, histograms = self._counters, self._histograms
        histograms["question_completions"].observe(spending.completions)
        histograms["question_seconds"].observe(spending.seconds)
        self._questions += 1
        self._written += spending.completions
        if exchange.first_seconds is not None:
            histograms["first_answer_seconds"].observe(exchange.first_seconds)
            self._took += spending.seconds
            self._took_first += exchange.first_seconds
        counters["answers"].inc(belief.num_answers)
        counters["tokens"].labels("prompt").inc(spending.prompt_tokens or 0)
        counters["tokens"].labels("completion").inc(spending.completion_tokens or 0)
        if belief.confidence is not None:
            histograms["confidence"].observe(belief.confidence)
        if self._has_guarantee:
            counters["guaranteed"].labels(belief.no_guarantee or "holds").inc()

    def count_lost(self) -> None:
        """Count an answer that could not be stored."""
        self._counters["not_kept"].inc()

    def page(self) -> bytes:
        """Write all metrics in the Prometheus text format."""
        return generate_latest(self._registry)
