"""A user's function as a model: ``--model module:function`` and ``reflect(generate=function)``.

The function gets a conversation, and returns a text or a list of texts::

    def generate(messages, *, n, temperature, top_p, max_tokens, seed):
        prompt = messages[-1]["content"]
        return [my_model(prompt, temperature) for _ in range(n)]

``messages`` is a list of ``{"role": ..., "content": ...}``, as chat APIs take it. Of these keyword
arguments the function gets those that it names, or all if it takes ``**options``:

- ``n``: how many texts are wanted. It may return fewer, or one; then it is called again.
- ``temperature``, ``top_p``: as everywhere; temperature 0 means greedy decoding.
- ``max_tokens``: of each text.
- ``seed``: below 2**31, another one in every call of a question.

It may be ``async``. Calls for several questions run at once where ``workers`` says so, and for an async
function always. An exception in it, or a result that is not text, becomes the failure of that one question.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any, TypeAlias

from selfreflect.errors import ConfigError, excerpt, nearest
from selfreflect.models.backend import Backend, prefixes
from selfreflect.models.base import (
    Completion,
    ModelSpec,
    Refusal,
    Reply,
    Request,
    Sample,
    StreamingGenerator,
)
from selfreflect.models.reasoning import UnclosedReasoningError, split_answer
from selfreflect.plugins import USER_ERRORS, error_text, load_function

TextFunction: TypeAlias = Callable[..., "str | Sequence[str]"]
"""Function of a user that answers questions."""

OPTIONS: tuple[str, ...] = ("n", "temperature", "top_p", "max_tokens", "seed")


ASYNC_WORKERS = 16
"""Default number of parallel requests to an async function."""


class FunctionGenerator(StreamingGenerator):
    """Generator that calls a user's :data:`TextFunction`.

    Args:
        workers: requests that are under way at once, each in a thread of its own, for which the function must
            be made; the calls of one request follow each other. By default 1, or 16 if it is async.

    Raises:
        ConfigError: it is not a function that can be called with messages and options, or there are no
            workers.
    """

    revision = ""

    def __init__(self, function: TextFunction, name: str = "", *, workers: int | None = None) -> None:
        if workers is not None and (not isinstance(workers, int) or workers < 1):
            raise ConfigError(f"workers must be at least 1, not {excerpt(workers)}", code="workers")
        self._loop = _Loop() if _is_async(function) else None
        self.workers = workers or (ASYNC_WORKERS if self._loop else 1)
        self._function = function
        self.name = name or _name_of(function)
        self._options = _accepted_options(function, self.name)
        code = getattr(function, "__code__", None)
        self._file: str | None = code.co_filename if code else None
        self.facts: dict[str, Any] = {"name": self.name, "revision": "", "source_sha256": _digest(self._file)}

    @classmethod
    def load(cls, spec: ModelSpec, progress: Callable[[str], None] | None = None) -> FunctionGenerator:
        """Import the function named ``module:function``. Raises ConfigError if it does not exist."""
        try:
            function = load_function(spec.name, "model")
            return cls(function, spec.name, workers=spec.max_connections if _is_async(function) else 1)
        except ConfigError as error:
            prefix = spec.name.partition(":")[0]
            hint = nearest(prefix, prefixes())
            raise ConfigError(f"{error}.{hint}" if hint else str(error), code="function") from error

    def stream_samples(self, requests: Sequence[Request]) -> Iterator[tuple[int, Sample | Reply | Refusal]]:
        """Yield each call's texts, then each result, with the request's index."""
        if min(self.workers, len(requests)) > 1:
            yield from self._answer_at_once(requests)
            return
        for index, request in enumerate(requests):
            for event in self._answer(request):
                yield index, event

    def _answer_at_once(self, requests: Sequence[Request]) -> Iterator[tuple[int, Sample | Reply | Refusal]]:
        """Answer requests in parallel threads. Closing the iterator drops waiting requests."""
        events: SimpleQueue[tuple[int, Sample | Reply | Refusal | BaseException]] = SimpleQueue()
        is_closed = Event()

        def work(index: int, request: Request) -> None:
            try:
                for event in self._answer(request):
                    events.put((index, event))
                    if is_closed.is_set():
                        return
            except BaseException as error:  # such as a bug, which ends the run as in one thread
                events.put((index, error))

        # No context manager: leaving it would wait for calls that nobody wants any more.
        pool = ThreadPoolExecutor(min(self.workers, len(requests)))
        try:
            for index, request in enumerate(requests):
                pool.submit(work, index, request)
            to_come = len(requests)
            while to_come:
                index, event = events.get()
                if isinstance(event, BaseException):
                    raise event
                to_come -= not isinstance(event, Sample)
                yield index, event
        finally:
            is_closed.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, request: Request) -> Iterator[Sample | Reply | Refusal]:
        completions: list[Completion] = []
        for sample in request.samples:
            if sample.index == len(completions):  # calls give texts in order: those after a gap are lost
                completions.append(sample.completion)
        while len(completions) < request.n:
            # a new list for each call: the function may change it
            messages = [{"role": turn.role, "content": turn.content} for turn in request.messages]
            arguments = self._arguments(request, len(completions))
            try:
                returned = self._function(messages, **arguments)
                if self._loop and inspect.iscoroutine(returned):
                    returned = self._loop.result(returned)
            except USER_ERRORS as error:  # an error must cost one question only
                yield self._refusal(f"raised {error_text(error, self._file)}")
                return
            texts = [returned] if isinstance(returned, str) else returned
            if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
                yield self._refusal(f"returned {excerpt(returned)} instead of a text or a list of texts")
                return
            if not texts:
                yield self._refusal("returned an empty list")
                return
            first = len(completions)
            completions += list(map(_completion, texts[: request.n - first]))
            if len(completions) < request.n:
                for index, completion in enumerate(completions[first:], first):
                    yield Sample(index=index, completion=completion)
        yield Reply(completions=tuple(completions))

    def _arguments(self, request: Request, count: int) -> dict[str, Any]:
        """Build the function's keyword arguments for the texts after the first ``count``."""
        values = {
            "n": request.n - count,
            "temperature": request.sampling.temperature,
            "top_p": request.sampling.top_p,
            "max_tokens": request.sampling.max_new_tokens,
            # with one seed, further calls for a question would repeat its texts
            "seed": (request.seed + count) % 2**31,
        }
        return {name: values[name] for name in self._options}

    def _refusal(self, problem: str) -> Refusal:
        return Refusal(kind="backend", message=f"{self.name} {problem}")


class Function(Backend):
    """Backend of functions named ``module:function``."""

    generator = f"{__name__}:FunctionGenerator.load"
    runs_foreign_code = True
    gives_logprobs = False
    loads_model = False


class _Loop:
    """One event loop in a thread, for all calls of an async function."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def result(self, coroutine: Coroutine[Any, Any, object]) -> object:
        """Run a coroutine in the loop and wait for its result."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                Thread(target=self._loop.run_forever, name="selfreflect-async", daemon=True).start()
        result = asyncio.run_coroutine_threadsafe(_without_exit(coroutine), self._loop).result()
        if isinstance(result, SystemExit):
            # in the thread of the call, where it costs one question
            raise result
        return result


async def _without_exit(coroutine: Coroutine[Any, Any, object]) -> object:
    """Catch SystemExit and return it, since it would end the loop for all callers."""
    try:
        return await coroutine
    except SystemExit as error:
        return error


def _is_async(function: object) -> bool:
    """Check whether a callable is asynchronous."""
    call = getattr(type(function), "__call__", None)  # noqa: B004  # what it is matters, not whether it is there
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _completion(text: str) -> Completion:
    try:
        return Completion(text=split_answer(text).visible, finish="stop", tokens=0)
    except UnclosedReasoningError:
        return Completion(text="", finish="unclosed_reasoning", tokens=0)


def _accepted_options(function: TextFunction, name: str) -> tuple[str, ...]:
    """List the ``OPTIONS`` that the function accepts."""
    subject = f"the model function {excerpt(name)}"
    if not callable(function):
        raise ConfigError(f"a model function must be callable, not {excerpt(function)}", code="function")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return ()
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        accepted = OPTIONS
    else:
        accepted = tuple(option for option in OPTIONS if option in signature.parameters)
    try:
        signature.bind([], **dict.fromkeys(accepted))
    except TypeError as error:
        raise ConfigError(
            f"{subject} cannot be called with messages and {', '.join(accepted) or 'nothing else'}: {error}. "
            f"It must accept messages, and may accept any of {', '.join(OPTIONS)}.",
            code="function",
        ) from None
    return accepted


def _name_of(function: object) -> str:
    module = getattr(function, "__module__", None) or type(function).__module__
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def _digest(file: str | None) -> str:
    """Compute the SHA-256 (hex) of the function's file; empty if there is no file."""
    try:
        return hashlib.sha256(Path(file or "").read_bytes()).hexdigest()
    except OSError:
        return ""
