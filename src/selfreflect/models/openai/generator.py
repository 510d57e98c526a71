"""Generator for OpenAI-compatible servers: hosted APIs, vLLM, llama.cpp, Ollama, TGI."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from selfreflect.errors import ConfigError, excerpt
from selfreflect.logprobs import WHY, NoLogprobs
from selfreflect.models.backend import bare_name
from selfreflect.models.base import (
    Message,
    ModelSpec,
    Refusal,
    Reply,
    Request,
    Sample,
)
from selfreflect.models.openai.client import Connection, RetryPolicy, ServerClient, http_errors, together
from selfreflect.models.openai.endpoint import Endpoint, endpoint
from selfreflect.models.openai.protocol import APIError, ParsedResponse, only_reasoning, parse_response
from selfreflect.models.openai.refusals import (
    FIELDS,
    THINKING_OFF,
    Learned,
    LearningGenerator,
    Wording,
    refused_field,
    runs,
)

if TYPE_CHECKING:
    import httpx2

OFFER_SECONDS = 120
"""Time limit in seconds for a call that tries another wording."""
MOST_CRASHES = 2
"""Number of server errors after which a text is requested without fields that crash some servers."""
CRASHES = (500, 502)
"""Statuses of server crashes."""
AHEAD_SECONDS = 5
"""Maximum number of seconds that calls wait for the first call of their kind, which may be refused."""
EQUAL_CALLS = 3
"""Number of calls with several equal texts that are each followed by a call to test whether the server copies
texts."""
DECIDING_TEXTS = 8
"""Number of texts in a call that distinguishes a copying server from chance."""
SAMPLES = 0.5
"""Lowest temperature at which equal texts are suspicious."""

MEETING_TOKENS = 16
"""Token limit of short calls that find out what a server accepts."""

FAILURES_IN_A_ROW = 3
"""Number of failed requests in a row after which the server is given up."""


class OpenAIGenerator(LearningGenerator):
    """Generator that uses a server's chat completions.

    Args:
        name: what the server calls the model.
        max_connections, timeout: see :class:`~selfreflect.models.openai.client.ServerClient`.
        extra_body: fields that each request gets as well; they are never left out.
        progress: called when a server lacks a field or has to be asked again.
    """

    prefix = "openai"

    def __init__(
        self,
        name: str,
        server: Endpoint,
        *,
        max_connections: int = 16,
        timeout: float = 600.0,
        retries: RetryPolicy | None = None,
        extra_body: Mapping[str, Any] | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(f"{self.prefix}:{name}")
        self.client = ServerClient(
            "A model of an OpenAI-compatible server",
            server,
            max_connections=max_connections,
            timeout=timeout,
            progress=progress,
        )
        self._model = name
        self._extra = extra_body or {}
        self._retries = retries or RetryPolicy()
        self._opens_trace: dict[bool, bool] = {}
        """Whether the chat template begins a reasoning trace, with and without thinking."""
        self._failures = 0
        self._gave_logprobs = False
        self._missing_logprobs: set[NoLogprobs] = set()
        """Reasons already reported."""

    @property
    def url(self) -> str:
        return self.client.server.url

    @classmethod
    def load(cls, spec: ModelSpec, progress: Callable[[str], None] | None = None) -> OpenAIGenerator:
        """Load the model ``openai:NAME`` at ``base_url`` (default: OpenAI). Nothing is sent yet.

        Raises ConfigError for a wrong address or key, or without a key that OpenAI needs; MissingExtraError
        without the client.
        """
        server = endpoint(spec.base_url)
        generator = cls.of(spec, server, progress)
        if server.lacks_key:
            raise ConfigError(
                f"{excerpt(spec.name)} needs a key",
                code="key",
                remedy=f"{server.key_advice}, or name another server with {{{server.setting}}}.",
            )
        return generator

    @classmethod
    def of(cls, spec: ModelSpec, server: Endpoint, progress: Callable[[str], None] | None) -> Self:
        """Make the generator of a model on a server."""
        return cls(
            bare_name(spec.name),
            server,
            max_connections=spec.max_connections,
            timeout=spec.timeout,
            extra_body=spec.extra_body,
            progress=progress,
        )

    def with_extra(self, fields: Mapping[str, Any]) -> OpenAIGenerator:
        """Copy the generator with the user's further fields."""
        # a shallow copy shares the client and its connections
        generator = copy(self)
        generator._extra = {**self._extra, **fields}
        # what a server says to these fields is no rule for other calls
        generator.learned = Learned(self.learned.wording, set(self.learned.accepted))
        return generator

    def meet(self, request: Request) -> Refusal | None:
        """Find out with short calls which fields the server accepts, before the first request.

        Each of a few short calls has something that the one before lacks, so a refusal that names no cause
        costs one call, and what else the server takes is kept. None if it is usable, or known already.
        """
        if self.learned.is_met:
            return None
        self.learned.is_met = True
        [(_, refusal)] = self.client.run([partial(self._meet, request)])
        return refusal

    def stream_samples(self, requests: Sequence[Request]) -> Iterator[tuple[int, Sample | Reply | Refusal]]:
        """Yield each request's early completions, then its result, with the request's index."""
        tasks = [partial(self.answer, request) for request in requests]
        return self.client.run(tasks)

    async def answer(self, request: Request, connection: Connection) -> Reply | Refusal:
        """Answer one request, adding completions to the connection's events as they come. Raises the errors
        of :meth:`generate`."""
        try:
            response = await self._complete(connection, request)
        except APIError as error:
            return self._refusal(error)
        # A response that is cut off in every completion does not show whether the template opens a trace;
        # earlier ones may.
        if response.opens_trace is not None:
            self._opens_trace[request.thinking] = response.opens_trace
        return response.reply(self._opens_trace.get(request.thinking, False))

    def _refusal(self, error: APIError) -> Refusal:
        """Turn a failure into a refusal, or raise it if the server is unusable."""
        problem = self.client.problem(error)
        # A fault found with one request says nothing of the next, so only others count towards giving up.
        if error.kind == "backend" and not error.rejected:
            self._failures += 1
        # from a server that has never taken a call, what a setting mends comes again each time
        is_wrong_setting = error.remedy and not (error.retryable or self.learned.accepted)
        if error.fatal or is_wrong_setting:
            raise problem from None
        if self._failures >= FAILURES_IN_A_ROW:
            problem.remedy = (
                f"{problem.remedy} Giving up after {self._failures} failed requests in a row.".strip()
            )
            raise problem from None
        return Refusal(
            kind=error.kind,
            message=str(problem),
            status=error.status,
            wait=error.wait,
            code=problem.code,
        )

    async def _complete(self, connection: Connection, request: Request) -> ParsedResponse:
        """Collect all completions of a request, including the ones it already has."""
        # What an interrupted run has stored is kept: only the gaps are drawn.
        gaps = runs(request.missing)
        draws = [self._draw(connection, request, first, count) for first, count in gaps]
        # an error gets out of a group late, after another call has begun
        responses = [await draws[0]] if len(draws) == 1 else await together(draws)
        samples = list(request.samples)
        for response in responses:
            samples += response.samples
        samples.sort(key=lambda sample: sample.index)
        return ParsedResponse(samples, sum(response.prompt_tokens for response in responses))

    async def _draw(self, connection: Connection, request: Request, first: int, count: int) -> ParsedResponse:
        """Draw completions ``first`` to ``first + count`` of a request.

        Where a call gives fewer, further calls of that size run at once, and calls of their own for texts
        that broke off.
        """
        response = await self._call(connection, request, first, count)
        if second := await self._other_text(connection, request, response, first):
            response.samples[1:] = [second]
        size = response.size
        if size < request.n or response.broken:
            for sample in response.samples:
                connection.report(sample)
        if response.broken:
            self.learned.drawn_again += len(response.broken)
            self.client.note(f"{self.url}: texts that did not end are drawn again")
        end = first + count
        rest = [self._draw(connection, request, index, 1) for index in response.broken]
        for start in range(first + size, end, size):
            rest.append(self._draw(connection, request, start, min(size, end - start)))
        for further in await together(rest):
            response.samples += further.samples
            response.prompt_tokens += further.prompt_tokens
        response.broken = []
        return response

    async def _other_text(
        self, connection: Connection, request: Request, response: ParsedResponse, first: int
    ) -> Sample | None:
        """Draw the second text again if all texts of a call are equal, to detect a server that copies.

        Later calls ask for one text each if the two differ; None if not, or if texts of the call did.
        """
        texts = [sample.completion.text for sample in response.samples]
        may_differ = request.sampling.temperature >= SAMPLES and request.sampling.top_p >= SAMPLES
        if len(texts) < 2 or len({*texts}) > 1 or not texts[0] or response.broken or not may_differ:
            return None
        if self.learned.equal_calls >= EQUAL_CALLS or self.learned.wording.most_texts == 1:
            return None
        self.learned.equal_calls += 1
        [sample] = (await self._call(connection, request, first + 1, 1)).samples
        if not sample.completion.text or sample.completion.text == texts[0]:
            return None
        # two of few possible texts may be equal by chance, so many texts of one call decide
        many = (await self._call(connection, request, first + 2, DECIDING_TEXTS)).samples
        if len(many) < 2 or len({each.completion.text for each in many}) > 1:
            return None
        if self.learned.wording.most_texts != 1:
            self.learned.wording = replace(self.learned.wording, most_texts=1)
            self.client.note(
                f"{self.url} returns the same text several times when a call asks for several "
                "texts; from now on each call asks for one text"
            )
        return sample

    async def _call(self, connection: Connection, request: Request, first: int, count: int) -> ParsedResponse:
        """Send one call in the wording that the server accepts.

        The first one of each kind, and of each larger number of texts, goes ahead: otherwise each of those
        at once would be refused.
        """
        # what may be refused differs in these
        kind = (
            request.logprobs,
            request.ranks > 0,
            request.sampling.temperature == 0,
            any(message.role == "system" for message in request.messages),
        )
        size = min(count, self.learned.wording.most_texts or count)
        if size <= self.learned.asked.get(kind, 0):
            return await self._negotiate(connection, request, first, count)
        key = (self.name, kind, size)  # several models may share a connection
        if key not in connection.first:
            connection.first[key] = asyncio.Event()
            # counted from here, so that calls which come later do not wait longer for a slow one
            asyncio.get_running_loop().call_later(AHEAD_SECONDS, connection.first[key].set)
            try:
                return await self._negotiate(connection, request, first, count)
            finally:
                self.learned.asked[kind] = max(size, self.learned.asked.get(kind, 0))
                connection.first[key].set()
        await connection.first[key].wait()
        return await self._negotiate(connection, request, first, count)

    async def _meet(
        self, request: Request, connection: Connection, tokens: int = MEETING_TOKENS
    ) -> Refusal | None:
        system = [message for message in request.messages if message.role == "system"]
        short = replace(
            request,
            # harmless texts: no refusal is about them
            messages=(*system, Message(role="user", content="Name a colour.")),
            sampling=replace(request.sampling, max_new_tokens=tokens),
            n=1,
        )
        # values that change the distribution are in the first call: nothing is paid where it is refused
        withheld = Wording.spare(self.learned.wording.body(self._model, short, 0, 1, self._extra))
        withheld -= {"temperature", "stream", *self._extra}
        try:
            await self._negotiate(connection, short, 0, 1, withheld)
            for added in ({"seed"}, {"logprobs", "top_logprobs"}):
                if withheld & added:
                    withheld -= added
                    await self._negotiate(connection, short, 0, 1, withheld)
            if request.n > 1:
                await self._negotiate(connection, replace(short, n=2), 0, 2, withheld)
        except APIError as error:
            longest = request.sampling.max_new_tokens
            if self.learned.wording.limit in error.fields and tokens < longest:  # there may be a least
                return await self._meet(request, connection, longest)
            return self._refusal(error)
        return None

    async def _negotiate(
        self,
        connection: Connection,
        request: Request,
        first: int,
        count: int,
        withheld: Collection[str] = (),
    ) -> ParsedResponse:
        """Repeat a call in other wordings while the server's refusals suggest any.

        Other calls say it so, too, once that has helped: a refusal alone may be about this request. A call
        that lacks ``withheld`` fields only finds out what the server takes.
        """
        # how all calls are worded now, and how this one is
        common = wording = self.learned.wording
        body: dict[str, Any] = {}
        crashes = 0
        guesses: Iterator[Wording] | None = None
        without_crashes: Iterator[Wording] = iter(())
        doubted: Wording | None = None

        async def send(http: httpx2.AsyncClient) -> ParsedResponse:
            nonlocal common, wording, body, crashes, guesses, without_crashes, doubted
            while True:
                if self.learned.wording != common:  # another call has found out what the server takes
                    common = wording = self.learned.wording
                size = min(count, wording.most_texts or count)
                body = wording.body(self._model, request, first, size, self._extra)
                for name in withheld:
                    body.pop(name, None)
                # everything in this call was taken before, so nothing can be found out
                if withheld and self.learned.takes(body):
                    return ParsedResponse([], 0)
                try:
                    return await self._send(http, body, request, first, size)
                except APIError as error:
                    if withheld and error.unusable:
                        return ParsedResponse([], 0)
                    accepted = self.learned.accepted
                    if not (error.rejected or wording.refuses(error, body, request)):
                        if error.status in CRASHES:  # a busy server says nothing of the call
                            crashes += 1
                            if crashes == MOST_CRASHES:
                                doubted = wording
                                without_crashes = wording.without_crashes(body, accepted)
                            wording = next(without_crashes, wording)
                        raise
                    if self.learned.wording != common:
                        continue
                    candidate = wording.without(error, body, request, accepted, self._extra, common)
                    # the fields that a refusal names come first; each guess costs a call
                    if candidate is None and not error.retryable:
                        if guesses is None:
                            await self._find_culprit(http, error, body, request)
                            guesses = wording.guesses(body, accepted, self._extra)
                        candidate = next(guesses, None)
                        if candidate is None:
                            self._blame_users(error, body)
                    if candidate is None:
                        raise
                    wording = candidate

        response = await self.client.call(connection, send, self._retries)
        self._failures = 0
        if doubted and doubted != wording and not self._gave_logprobs:
            # the server may have been restarting
            with suppress(TimeoutError):
                if again := await self._offer(connection, doubted, request, first, response.size or count):
                    response, wording = again, doubted
        if not withheld:
            response, wording = await self._without_thinking(connection, response, wording, request, first)
        if self._gave_logprobs and "logprobs" in wording.left_out - common.left_out:
            wording = common  # only these answers have values that cannot be sent
        # an error that passes may name fields, and without them a server may have defaults of its own
        if wording != common and self.learned.doubts(wording, common):
            wording = common
        if wording != common:
            if note := self.learned.note(wording):
                self.client.note(f"{self.url} {note}")
            self.learned.wording = wording
        self.learned.take(body)
        self._gave_logprobs = self._gave_logprobs or "logprobs" in body
        if not withheld:
            self._note_missing_logprobs(response)
        return response

    async def _find_culprit(
        self, http: httpx2.AsyncClient, error: APIError, body: dict[str, Any], request: Request
    ) -> None:
        """Raise an APIError if a call is refused because of indispensable values."""
        new = {name for name, value in body.items() if (name, repr(value)) not in self.learned.accepted}
        new -= {"seed", "messages", *self._extra}
        telling = {name for name in new & FIELDS.keys() if not FIELDS[name].is_neutral(body[name])}
        if not telling:
            return
        if new != telling:  # else all else was taken before
            bare = {name: value for name, value in body.items() if name not in telling}
            try:
                await self._send(http, bare, request, 0, 1)
            except APIError as again:
                if not again.unusable:
                    return
        raise refused_field(sorted(telling), body, error)

    def _blame_users(self, error: APIError, body: dict[str, Any]) -> None:
        """Raise an APIError if the server never accepted some of the user's fields.

        No call goes without them: they may say who must not get the texts.
        """
        accepted = {name for name, _ in self.learned.accepted}
        if new := self._extra.keys() - accepted:
            raise refused_field(sorted(new), body, error, self._extra)

    async def _send(
        self, http: httpx2.AsyncClient, body: dict[str, Any], request: Request, first: int, count: int
    ) -> ParsedResponse:
        try:
            data = await self._post(http, body)
        except APIError as error:
            if error.kind == "unclosed_reasoning":
                return only_reasoning(request, first, count)
            raise
        takes_calls = "tools" in body and body.get("tool_choice") != "none"
        return parse_response(data, request, first, count, takes_calls=takes_calls)

    async def _post(self, http: httpx2.AsyncClient, body: dict[str, Any]) -> bytes:
        return await self.client.send(http, "POST", "/chat/completions", body)

    async def _offer(
        self, connection: Connection, wording: Wording, request: Request, first: int, count: int
    ) -> ParsedResponse | None:
        """Try one other wording; None if it yields fewer complete texts. Raises TimeoutError."""
        body = wording.body(self._model, request, first, count, self._extra)
        try:
            async with asyncio.timeout(OFFER_SECONDS):
                response = await self._send(connection.http, body, request, first, count)
        except APIError:
            return None
        except http_errors() as error:
            raise TimeoutError from error
        return None if len(response.samples) < count else response

    async def _without_thinking(
        self, connection: Connection, response: ParsedResponse, wording: Wording, request: Request, first: int
    ) -> tuple[ParsedResponse, Wording]:
        """Try another way to disable reasoning if a model reasons despite the request."""
        if request.thinking or not response.unclosed or wording.thinking_off is not None:
            return response, wording
        # one call tries, and the others take over what it found
        async with connection.offer:
            current = self.learned.wording.thinking_off
            ways: Sequence[int] = range(len(THINKING_OFF)) if current is None else [current]
            if self.learned.tried_thinking_off and current is None:
                return response, wording
            self.learned.tried_thinking_off = True
            with suppress(TimeoutError):
                for way in ways:
                    candidate = replace(wording, thinking_off=way)
                    again = await self._offer(connection, candidate, request, first, response.size)
                    if again is None or again.unclosed >= response.unclosed:
                        continue
                    if current is None:
                        self.client.note(f"{self.url} {self.learned.note(candidate)}")
                        self.learned.wording = candidate
                    return again, candidate
            return response, wording

    def _note_missing_logprobs(self, response: ParsedResponse) -> None:
        """Report once per reason why requested log-probabilities are missing."""
        for sample in response.samples:
            reason = sample.completion.logprobs
            if isinstance(reason, str) and reason not in self._missing_logprobs:
                self._missing_logprobs.add(reason)
                answers = "the answers are" if reason == "not_returned" else "such an answer is"
                self.client.note(f"{self.url}: {WHY[reason]}; {answers} kept without log-probabilities")
