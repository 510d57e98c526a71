"""The generator for OpenAI-compatible servers: hosted APIs, vLLM, llama.cpp, Ollama, TGI."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from selfreflect.errors import BackendError, ConfigError, excerpt
from selfreflect.logprobs import WHY, NoLogprobs
from selfreflect.models.base import ModelSpec, Refusal, Reply, Request, Sample, StreamingGenerator
from selfreflect.models.openai.client import Connection, RetryPolicy, ServerClient, together
from selfreflect.models.openai.endpoint import Endpoint, endpoint
from selfreflect.models.openai.protocol import (
    APIError,
    Dialect,
    ParsedResponse,
    parse_response,
)

if TYPE_CHECKING:
    import httpx2

FAILURES_IN_A_ROW = 3
"""Failed requests without a success in between after which the server is given up."""


class OpenAIGenerator(StreamingGenerator):
    """Answers requests through a server's chat completions.

    Args:
        name: what the server calls the model.
        max_connections, timeout: see :class:`~selfreflect.models.openai.client.ServerClient`.
        progress: called when a server lacks a field or has to be asked again.
    """

    revision = ""

    def __init__(
        self,
        name: str,
        server: Endpoint,
        *,
        max_connections: int = 16,
        timeout: float = 600.0,
        retries: RetryPolicy | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.name = f"openai:{name}"
        self.facts: dict[str, Any] = {"name": self.name, "revision": "", "base_url": server.url}
        self.client = ServerClient(
            "A model of an OpenAI-compatible server",
            server,
            max_connections=max_connections,
            timeout=timeout,
            progress=progress,
        )
        self._model = name
        self._retries = retries or RetryPolicy()
        self._dialect = Dialect()
        """That of the last call which succeeded after a refusal."""
        self._asked_for_likely_tokens = False
        self._opens_trace: dict[bool, bool] = {}
        """For requests with and without thinking: whether the chat template begins a reasoning trace."""
        self._failures = 0
        self._missing_logprobs: set[NoLogprobs] = set()
        """Reasons that were said."""

    @classmethod
    def load(cls, spec: ModelSpec, progress: Callable[[str], None] | None = None) -> OpenAIGenerator:
        """The model ``openai:NAME`` at ``base_url`` (default: OpenAI). Nothing is sent yet.

        Raises ConfigError for a wrong address or key, or without a key that OpenAI needs; MissingExtraError
        without the client.
        """
        server = endpoint(spec.base_url)
        generator = cls(
            spec.bare_name,
            server,
            max_connections=spec.max_connections,
            timeout=spec.timeout,
            progress=progress,
        )
        if server.lacks_key:
            raise ConfigError(
                f"{excerpt(spec.name)} needs a key. {server.key_advice}, or name another server with "
                "--base-url."
            )
        return generator

    def stream_samples(self, requests: Sequence[Request]) -> Iterator[tuple[int, Sample | Reply | Refusal]]:
        """Like :meth:`stream`, with the completions of each call that gave some of a request's only. Raises
        as :meth:`generate`."""
        tasks = [partial(self.answer, request) for request in requests]
        return self.client.run(tasks)

    async def answer(self, request: Request, connection: Connection) -> Reply | Refusal:
        """Answer one request; the connection gets the completions that the reply still waits for. Raises as
        :meth:`generate`."""
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
        """What a request gets that failed for good, unless the server is given up."""
        message = self.client.describe(error)
        if error.kind == "backend" and not error.rejected:
            self._failures += 1
        if error.fatal:
            raise BackendError(f"{message}.", status=error.status, wait=error.wait) from None
        if self._failures >= FAILURES_IN_A_ROW:
            raise BackendError(
                f"{message}. Giving up after {self._failures} failed requests in a row.",
                status=error.status,
                wait=error.wait,
            ) from None
        return Refusal(kind=error.kind, message=message, status=error.status, wait=error.wait)

    async def _complete(self, connection: Connection, request: Request) -> ParsedResponse:
        """All completions of a request, those that it has already included."""
        gaps = _runs(request.missing)
        draws = [self._draw(connection, request, first, count) for first, count in gaps]
        # an error gets out of a group late, after another call has begun
        responses = [await draws[0]] if len(draws) == 1 else await together(draws)
        samples = list(request.earlier)
        for response in responses:
            samples += response.samples
        samples.sort(key=lambda sample: sample.index)
        return ParsedResponse(samples, sum(response.prompt_tokens for response in responses))

    async def _draw(self, connection: Connection, request: Request, first: int, count: int) -> ParsedResponse:
        """Completions ``first`` to ``first + count`` of a request. Where a call gives fewer, further calls of
        that size run at once."""
        response = await self._call(connection, request, first, count)
        size = len(response.samples)
        if size < request.n:
            for sample in response.samples:
                connection.report(sample)
        if size == count:
            return response
        end = first + count
        rest = []
        for start in range(first + size, end, size):
            rest.append(self._draw(connection, request, start, min(size, end - start)))
        for further in await together(rest):
            response.samples += further.samples
            response.prompt_tokens += further.prompt_tokens
        return response

    async def _call(self, connection: Connection, request: Request, first: int, count: int) -> ParsedResponse:
        """One call in the dialect that the server takes. The first one that wants likely tokens goes alone,
        because servers differ in how many they give: otherwise each of those at once would be refused."""
        if request.first_tokens and not self._asked_for_likely_tokens:
            async with connection.alone:
                if not self._asked_for_likely_tokens:
                    try:
                        return await self._negotiate(connection, request, first, count)
                    finally:
                        self._asked_for_likely_tokens = True
        return await self._negotiate(connection, request, first, count)

    async def _negotiate(
        self, connection: Connection, request: Request, first: int, count: int
    ) -> ParsedResponse:
        """The response to one call, said in another way as long as the server's refusals point to one. Other
        calls say it so, too, once that has helped: a refusal alone may be about this request."""
        shared = dialect = self._dialect

        async def send(http: httpx2.AsyncClient) -> ParsedResponse:
            nonlocal shared, dialect, count
            while True:
                if self._dialect != shared:  # another call has found out what the server takes
                    shared = dialect = self._dialect
                body = dialect.body(self._model, request, first, count)
                try:
                    data = await self.client.send(http, "POST", "/chat/completions", body)
                except APIError as error:
                    if not error.rejected:
                        raise
                    if self._dialect != shared:
                        continue
                    other = dialect.without(error.server_text, request)
                    if other is not None:
                        dialect = other
                    elif count > 1:  # servers that give one completion at a time say so in many ways
                        count = 1
                    else:
                        raise
                else:
                    return parse_response(data, request, first, count)

        response = await self.client.call(connection, send, self._retries)
        self._failures = 0
        if dialect != shared:
            if lacks := sorted(dialect.left_out - self._dialect.left_out - {"logprobs"}):
                url = self.client.server.url
                self.client.note(f"{url} does not take {', '.join(lacks)}; its own defaults hold there")
            self._dialect = dialect
        self._note_missing_logprobs(response)
        return response

    def _note_missing_logprobs(self, response: ParsedResponse) -> None:
        """Say once for each reason why answers come without the log-probabilities that were asked for."""
        for sample in response.samples:
            reason = sample.completion.logprobs
            if isinstance(reason, str) and reason not in self._missing_logprobs:
                self._missing_logprobs.add(reason)
                answers = "the answers are" if reason == "not_returned" else "such an answer is"
                self.client.note(
                    f"{self.client.server.url}: {WHY[reason]}; {answers} kept without log-probabilities"
                )


def _runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as runs without a gap: the first number of each, and how many there are."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and sum(runs[-1]) == index:
            first, count = runs.pop()
            runs.append((first, count + 1))
        else:
            runs.append((index, 1))
    return runs
