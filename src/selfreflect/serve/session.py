"""One question on its way: draw its answers, let the model summarise them, and count what that takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from selfreflect.models.base import Generator, Message, Refusal, Reply, Request, Sample, seed_for
from selfreflect.records import Failure, Summary
from selfreflect.serve.clarify import Clarification, Conversation, NoClarification
from selfreflect.serve.faults import failed
from selfreflect.serve.reply import Spending
from selfreflect.strategies.driver import UNUSABLE, StrategyRun
from selfreflect.strategies.task import StrategyFunction, Task
from selfreflect.text import fill


@dataclass(frozen=True, kw_only=True)
class ConversationTask(Task):
    """A strategy's task within a conversation, whose last message is the question. Answers are drawn from the
    conversation as it is, so that the distribution is what the client's model would have said."""

    conversation: tuple[Message, ...]

    def messages(self, template: str | None = None, **values: str) -> tuple[Message, ...]:
        """The conversation, with its last message replaced by ``template`` if there is one."""
        if template is None:
            return self.conversation
        content = fill(template, {"question": self.conversation[-1].content, **values})
        return (*self.conversation[:-1], Message(role="user", content=content))


class ServedModel(Protocol):
    """A model of the endpoint."""

    @property
    def name(self) -> str: ...

    @property
    def generator(self) -> Generator: ...

    async def reply(self, request: Request, report: Callable[[Sample], None]) -> Reply | Refusal: ...


TokenPrice = Callable[[int, int], float]


class Session:
    """Asks one model on behalf of one question.

    Args:
        on_open: called as soon as the model has said anything.
        price: what numbers of prompt and completion tokens cost.
    """

    def __init__(
        self,
        model: ServedModel,
        on_open: Callable[[], None] = lambda: None,
        price: TokenPrice | None = None,
    ) -> None:
        self.model = model
        self._opened = on_open
        self._price = price
        self._began = time.perf_counter()
        self._refusal: Refusal | None = None
        self._completions = self._prompt_tokens = self._completion_tokens = 0

    @property
    def spending(self) -> Spending:
        """What was spent so far."""
        money = None
        if self._price is not None and self._prompt_tokens:
            money = round(self._price(self._prompt_tokens, self._completion_tokens), 9)
        return Spending(
            completions=self._completions,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            seconds=round(time.perf_counter() - self._began, 6),
            money=money,
        )

    async def ask(self, request: Request) -> Reply | Refusal:
        """Send a request to the model."""
        reply = await self.model.reply(request, lambda sample: self._opened())
        if isinstance(reply, Refusal):
            self._refusal = reply
        else:
            self._opened()
            earlier = {sample.index for sample in request.earlier}
            self._prompt_tokens += reply.prompt_tokens
            for index, completion in enumerate(reply.completions):
                if index not in earlier:
                    self._completions += 1
                    self._completion_tokens += completion.tokens
        return reply

    async def draw(
        self, request: Request, more: Callable[[Sequence[str]], Awaitable[int]] | None = None
    ) -> Reply:
        """Draw the answers of a request: all, or as many as ``more`` says after those that are there, until
        it says 0.

        Raises ChatError if there are none to work with.
        """
        if more is None:
            return _usable(await self.ask(request))
        own = replace(request, n=0)
        reply = Reply(completions=())
        while count := await more(reply.texts):
            own = replace(own, n=own.n + count, earlier=_samples(reply))
            reply = _usable(await self.ask(own))
        return reply

    async def summarize(
        self, task: ConversationTask, function: StrategyFunction, reply: asyncio.Task[Reply]
    ) -> Summary:
        """Run a strategy. Where it wants fresh answers, it gets those that are drawn anyway.

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
            run.close()
        if isinstance(outcome, Failure):
            raise failed(outcome.kind, f"{task.name}: {outcome.message}", self._refusal)
        return outcome

    async def converse(self, conversation: Conversation) -> Clarification | NoClarification:
        """Look for a question to ask back. The requests of a round are sent together."""
        try:
            requests = next(conversation)
            while True:
                requests = conversation.send(await asyncio.gather(*map(self.ask, requests)))
        except StopIteration as end:
            clarification: Clarification | NoClarification = end.value
            return clarification


def held_out(task: ConversationTask, number: int) -> Request:
    """Further answers, which no strategy sees, to measure a summary by."""
    seed = seed_for(task.seed, task.question.id, "held-out answers")
    return replace(task.sample_request(), n=number, seed=seed)


def _samples(reply: Reply) -> tuple[Sample, ...]:
    return tuple(Sample(index=index, completion=one) for index, one in enumerate(reply.completions))


def _usable(reply: Reply | Refusal) -> Reply:
    """A reply with answers. Dropping those that did not end would change the distribution."""
    if isinstance(reply, Refusal):
        raise failed(reply.kind, reply.message, reply)
    for kind, reason in UNUSABLE.items():
        if count := reply.ends[kind]:
            raise failed(kind, f"{count} of {len(reply.completions)} answers {reason}")
    if not any(map(str.strip, reply.texts)):
        raise failed("no_answers", f"all {len(reply.completions)} answers are blank")
    return reply
