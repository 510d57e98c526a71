"""Models of the endpoint, with the calls and cost of one question."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from selfreflect.errors import SelfReflectError, excerpt
from selfreflect.models.base import Generator, Message, Refusal, Reply, Request, Sample, as_drawn, seed_for
from selfreflect.records import Failure, Summary
from selfreflect.server.chat import OF_TOOLS, RESPONSE_FORMAT
from selfreflect.server.clarify import Clarification, Conversation, NoClarification
from selfreflect.server.errors import failed
from selfreflect.server.reply import Spending
from selfreflect.strategies.driver import UNUSABLE, StrategyRun
from selfreflect.strategies.task import StrategyFunction, Task
from selfreflect.text import fill

T = TypeVar("T")

BATCH = 16
"""Maximum number of requests in a batch."""

Report = Callable[[Sample], None]
"""Callback for completions of a request before its response is complete."""


# not an Exception, so that no `except Exception` in a model swallows it
class _Abandoned(BaseException):
    """A batch whose callers have all gone."""


@dataclass
class _Pending:
    """A request with its waiting caller."""

    request: Request
    report: Report
    reply: asyncio.Future[Reply | Refusal]
    loop: asyncio.AbstractEventLoop

    @property
    def is_over(self) -> bool:
        return self.reply.done()

    def tell(self, event: Sample | Reply | Refusal) -> None:
        with suppress(RuntimeError):  # the server has ended, and its loop is closed
            self.loop.call_soon_threadsafe(self._take, event)

    def _take(self, event: Sample | Reply | Refusal) -> None:
        if self.reply.done():
            return
        if isinstance(event, Sample):
            self.report(event)
        else:
            self.reply.set_result(event)


async def exclusively(lock: asyncio.Lock, work: Callable[[], T]) -> T:
    """Run ``work`` in a thread, one call at a time. Cancellation waits for its end, since threads cannot be
    stopped."""
    async with lock:
        thread = asyncio.create_task(asyncio.to_thread(work))
        is_cancelled = False
        while not thread.done():
            try:
                await asyncio.wait((thread,))
            except asyncio.CancelledError:
                is_cancelled = True
        if is_cancelled:
            # or asyncio logs that nobody looked at its error
            thread.exception()
            raise asyncio.CancelledError
        return thread.result()


class LocalModel:
    """A blocking generator that answers requests from an event loop."""

    takes_fields = False

    def __init__(self, name: str, generator: Generator) -> None:
        self.name = name
        self.generator = generator
        self._queue: SimpleQueue[_Pending | None] = SimpleQueue()
        self._batch: list[_Pending] = []
        self._workers: int = getattr(
            generator, "workers", 1
        )  # a function may be called several times at once
        # local models call it at each step, the only moment at which they can be stopped
        if hasattr(generator, "on_step"):
            generator.on_step = self._check
        for _ in range(self._workers):
            Thread(target=self._work, name=f"serve-{name}", daemon=True).start()

    async def reply(self, request: Request, report: Report) -> Reply | Refusal:
        """Wait for the response. Cancellation stops the model at its next step, unless others wait for the
        same batch."""
        loop = asyncio.get_running_loop()
        pending = _Pending(request, report, loop.create_future(), loop)
        self._queue.put(pending)
        return await pending.reply

    def asking(self, fields: Mapping[str, Any]) -> AskModel:
        """Return the function that asks the model, which ignores fields."""
        return self.reply

    async def close(self) -> None:
        """End the threads after their current work."""
        for _ in range(self._workers):
            self._queue.put(None)

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            batch = [pending for pending in (first, *self._waiting()) if not pending.is_over]
            if batch:
                self._batch = batch
                self._answer(batch)

    def _waiting(self) -> list[_Pending]:
        """Remove further waiting requests from the queue; none if several workers share it."""
        batch_more: list[_Pending] = []
        while self._workers == 1 and len(batch_more) < BATCH - 1:
            try:
                pending = self._queue.get_nowait()
            except Empty:
                break
            # for the loop that reads the queue, which ends on it
            if pending is None:
                self._queue.put(None)
                break
            batch_more.append(pending)
        return batch_more

    def _answer(self, batch: list[_Pending]) -> None:
        try:
            for index, event in as_drawn(self.generator, [pending.request for pending in batch]):
                batch[index].tell(event)
                # nobody waits for the rest of the batch; the generator closes when it is left
                if all(pending.is_over for pending in batch):
                    return
        except _Abandoned:
            pass
        except BaseException as error:  # a model may raise anything; it must cost this batch only
            reason = str(error) if isinstance(error, SelfReflectError) else type(error).__name__
            # the text of a foreign exception may hold anything: clients get its class
            failure = Refusal(kind="backend", message=f"{excerpt(self.name)} failed: {reason}")
            for pending in batch:
                pending.tell(failure)

    def _check(self, tokens: int, ended: int) -> None:
        """Stop the model at its next step if no caller waits any more."""
        if all(pending.is_over for pending in self._batch):
            raise _Abandoned


# Statuses by which servers refuse a field.
_REFUSED = (400, 404, 415, 422, 501)

AskModel = Callable[[Request, Report], Awaitable[Reply | Refusal]]


class ServedModel(Protocol):
    """Protocol of the endpoint's models."""

    takes_fields: bool
    """Whether calls can include fields of a client."""

    @property
    def name(self) -> str: ...

    @property
    def generator(self) -> Generator: ...

    def asking(self, fields: Mapping[str, Any]) -> AskModel:
        """Make a function that asks the model with further fields."""


class WithFields:
    """A model for one request that adds the client's fields to every call."""

    def __init__(self, model: ServedModel, fields: Mapping[str, Any]) -> None:
        self.name = model.name
        self.generator = model.generator
        self.refused = () if model.takes_fields else tuple(fields)
        """Fields that the model does not receive."""
        self._model = model
        # what decides which answers count is never left out
        self._needed = {name: fields[name] for name in (RESPONSE_FORMAT, *OF_TOOLS) if name in fields}
        self._optional = {name: value for name, value in fields.items() if name not in self._needed}
        self._askers: dict[tuple[bool, bool], AskModel] = {}

    @property
    def takes_fields(self) -> bool:
        """Whether calls include the client's fields."""
        return bool(self._needed or self._optional) and not self.refused

    async def reply(self, request: Request, report: Report, *, in_words: bool = False) -> Reply | Refusal:
        """Wait for the response. If the server refuses the fields, omit them from then on.

        Args:
            in_words: whether only a text can answer, so that fields for other answers are left out.
        """
        is_plain = bool(self.refused) or not self._optional
        reply = await self._asker(is_plain, in_words)(request, report)
        if is_plain or not isinstance(reply, Refusal) or reply.status not in _REFUSED:
            return reply
        # the fault may lie in anything else of the request: then the fields are not to blame
        plain = await self._asker(True, in_words)(request, report)
        if isinstance(plain, Reply):
            self.refused = tuple(self._optional)
        return plain

    def _asker(self, is_plain: bool, in_words: bool) -> AskModel:
        # made once, since it learns what the server says to these fields
        if (is_plain, in_words) not in self._askers:
            fields = {**({} if is_plain else self._optional), **({} if in_words else self._needed)}
            self._askers[is_plain, in_words] = self._model.asking(fields)
        return self._askers[is_plain, in_words]


@dataclass(frozen=True, kw_only=True)
class ConversationTask(Task):
    """A strategy's task within a conversation that ends with the question. Answers are drawn from the
    unchanged conversation, so that the distribution is of what the client's model would have answered."""

    conversation: tuple[Message, ...]

    def messages(self, template: str | None = None, **values: str) -> tuple[Message, ...]:
        """Return the conversation, with its last message replaced with ``template``."""
        if template is None:
            return self.conversation
        content = fill(template, {"question": self.conversation[-1].content, **values})
        return (*self.conversation[:-1], Message(role="user", content=content))


TokenPrice = Callable[[int, int], float]


class Session:
    """The calls to one model for one question.

    Args:
        on_open: called as soon as the model has said anything.
        price: what numbers of prompt and completion tokens cost.
    """

    def __init__(
        self,
        model: WithFields,
        on_open: Callable[[], None] = lambda: None,
        price: TokenPrice | None = None,
    ) -> None:
        self.model = model
        self._opened = on_open
        self._price = price
        self._began = time.perf_counter()
        self._refusal: Refusal | None = None
        self._completions = self._prompt_tokens = self._completion_tokens = 0
        self._uncounted: set[str] = set()
        """Kinds of tokens that some call did not report, so that sums would be too low."""
        self.first_seconds: float | None = None
        """Seconds until the model responded, the time of a plain answer."""

    @property
    def spending(self) -> Spending:
        """Total spent so far."""
        money = None
        if self._price is not None and self.counts_tokens:
            money = round(self._price(self._prompt_tokens, self._completion_tokens), 9)
        return Spending(
            completions=self._completions,
            prompt_tokens=None if "prompt" in self._uncounted else self._prompt_tokens,
            completion_tokens=None if "completion" in self._uncounted else self._completion_tokens,
            seconds=round(time.perf_counter() - self._began, 6),
            money=money,
        )

    @property
    def counts_tokens(self) -> bool:
        """Whether the model reported tokens for every call."""
        return not self._uncounted

    async def ask(self, request: Request, *, in_words: bool = False) -> Reply | Refusal:
        """Send a request to the model, with ``in_words`` if only a text can answer it."""
        reply = await self.model.reply(request, lambda sample: self._open(), in_words=in_words)
        if isinstance(reply, Refusal):
            self._refusal = reply
        else:
            self._open()
            # those that came with the request were counted when they were drawn
            known_indices = {sample.index for sample in request.samples}
            drawn = [
                completion for index, completion in enumerate(reply.completions) if index not in known_indices
            ]
            tokens = sum(completion.tokens for completion in drawn)
            self.count([completion.text for completion in drawn], reply.prompt_tokens, tokens)
        return reply

    def count(self, texts: Sequence[str], prompt_tokens: int, completion_tokens: int) -> None:
        """Count one call's texts and tokens, 0 for unreported tokens."""
        self._completions += len(texts)
        self._prompt_tokens += prompt_tokens
        self._completion_tokens += completion_tokens
        # no prompt and no text is without a token
        if texts and not prompt_tokens:
            self._uncounted.add("prompt")
        if any(texts) and not completion_tokens:
            self._uncounted.add("completion")

    def _open(self) -> None:
        if self.first_seconds is None:
            self.first_seconds = time.perf_counter() - self._began
        self._opened()

    async def draw(
        self, request: Request, next_count: Callable[[Sequence[str]], Awaitable[int]] | None = None
    ) -> Reply:
        """Draw a request's answers: all of them, or in steps until ``next_count`` returns 0.

        Raises ChatError if there are none to work with.
        """
        if next_count is None:
            return _usable(await self.ask(request))
        growing = replace(request, n=0)
        reply = Reply(completions=())
        while count := await next_count(reply.texts):
            # with the earlier answers, of which the model draws none again
            samples = tuple(
                Sample(index=index, completion=completion)
                for index, completion in enumerate(reply.completions)
            )
            growing = replace(growing, n=growing.n + count, samples=samples)
            reply = _usable(await self.ask(growing))
        return reply

    async def summarize(
        self, task: ConversationTask, function: StrategyFunction, reply: asyncio.Task[Reply]
    ) -> Summary:
        """Run a strategy. Its request for sampled answers is answered with the distribution's samples.

        Raises ChatError if it fails.
        """
        fresh = task.sample_request()

        async def reply_to(request: Request) -> Reply | Refusal:
            return await reply if request == fresh else await self.ask(request)

        run = StrategyRun(task, function, self.model.generator)
        try:
            outcome = run.advance([])
            while outcome is None:
                outcome = run.advance(await asyncio.gather(*map(reply_to, run.requests)))
        finally:
            # a strategy is a generator, and may hold things open
            run.close()
        if isinstance(outcome, Failure):
            raise failed(outcome.kind, f"{task.name}: {outcome.message}", self._refusal)
        return outcome

    async def converse(self, conversation: Conversation) -> Clarification | NoClarification:
        """Run the conversation that finds a clarifying question, with each round's requests in parallel."""
        try:
            requests = next(conversation)
            while True:
                requests = conversation.send(
                    await asyncio.gather(*(self.ask(request, in_words=True) for request in requests))
                )
        except StopIteration as end:
            clarification: Clarification | NoClarification = end.value
            return clarification


def held_out(task: ConversationTask, number: int) -> Request:
    """Request further answers for measuring, hidden from strategies."""
    # with the seed of the first answers a seeded model would repeat them
    seed = seed_for(task.seed, task.question.id, "held-out answers")
    return replace(task.sample_request(), n=number, seed=seed)


def _usable(reply: Reply | Refusal) -> Reply:
    """Check that a response has usable answers. Dropping unfinished ones would change the distribution."""
    if isinstance(reply, Refusal):
        raise failed(reply.kind, reply.message, reply)
    # dropping such answers would change the distribution
    for kind, reason in UNUSABLE.items():
        if count := reply.ends[kind]:
            raise failed(kind, f"{count} of {len(reply.completions)} answers {reason}")
    if not any(map(str.strip, reply.texts)):
        raise failed("no_answers", f"all {len(reply.completions)} answers are blank")
    return reply
