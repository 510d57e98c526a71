"""Requests to a model, responses, and model specifications."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from selfreflect.errors import BackendError, ConfigError, excerpt
from selfreflect.logprobs import AnswerTokens, LikelyToken, NoLogprobs
from selfreflect.records import FailureKind, Finish, Record

Role = Literal["system", "user", "assistant"]


class Message(Record, frozen=True, kw_only=True):
    """One turn of a conversation. Untrusted ``content`` never becomes a special token.

    Nothing can guard role markers that a template writes in ordinary letters (``USER:``).
    """

    role: Role
    content: str


SUMMARY_TOKENS = 512
"""Token limit of strategies with several steps. A small model that repeats itself would run up to any
limit."""

PUBLISHED_SUMMARY_TOKENS = 4096
"""Published token limit, which reasoning models need for their traces."""


class Sampling(Record, frozen=True, kw_only=True):
    """Sampling settings of a request. ``temperature=0`` is greedy decoding; ``top_k=0``, ``top_p=1`` and
    ``min_p=0`` switch a filter off."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_new_tokens: int = 256


class Completion(Record, frozen=True, kw_only=True):
    text: str
    """Generated text, without reasoning trace, special tokens and surrounding white space."""
    finish: Finish
    tokens: int
    logprobs: AnswerTokens | NoLogprobs | None = None
    """Log-probabilities of the tokens of ``text``, or the reason why there are none; None unless
    requested."""
    first_tokens: tuple[LikelyToken, ...] = ()
    """Likeliest tokens at the start of ``text``. Empty if not requested, not provided by the model, or
    without text."""


class ToolCall(Record, frozen=True, kw_only=True):
    """A model's call of a tool."""

    id: str
    """Id from the server, expected with the tool's result; empty if there is none."""
    name: str
    arguments: str
    """Arguments as the model wrote them; JSON if they are correct."""


class CallingCompletion(Completion, frozen=True, kw_only=True):
    """A completion that calls tools; ``text`` shows the calls as JSON."""

    calls: tuple[ToolCall, ...]


class Sample(Record, frozen=True, kw_only=True):
    """One finished completion of a request that still awaits others."""

    index: int
    """Index in the response."""
    completion: Completion
    closes_trace: bool = False
    """Whether the text ends a reasoning trace that the prompt began, if only the text shows that."""


class Request(Record, frozen=True, kw_only=True):
    """``n`` completions of one conversation. The same request with the same seed gives the same texts,
    whatever it is batched with."""

    messages: tuple[Message, ...]
    sampling: Sampling
    n: int = 1
    seed: int = 0
    """Seed for the question and step; requests with equal seeds share random numbers."""
    thinking: bool = False
    """Whether a reasoning model may think first. Its trace is removed from the response either way."""
    logprobs: bool = False
    """Whether completions come with the log-probabilities of their tokens."""
    top_logprobs: int = 0
    """Number of largest log-probabilities per token, with ``logprobs``; servers give at most 20."""
    first_tokens: int = 0
    """Number of likely first tokens per completion; servers give at most 20."""
    label: str = ""
    """Id of the question if it identifies the request; no model sees it."""
    samples: tuple[Sample, ...] = ()
    """Existing completions. They become part of the response, and only the missing ones are drawn."""

    @property
    def ranks(self) -> int:
        """Number of likely tokens to return per position."""
        return max(self.first_tokens, self.top_logprobs if self.logprobs else 0)

    @property
    def missing(self) -> list[int]:
        """Indices of the completions that ``samples`` lacks, in order."""
        present = {sample.index for sample in self.samples}
        return [index for index in range(self.n) if index not in present]


class Reply(Record, frozen=True, kw_only=True):
    completions: tuple[Completion, ...]
    prompt_tokens: int = 0

    @property
    def text(self) -> str:
        """Text of the first completion."""
        return self.completions[0].text

    @property
    def tokens(self) -> int:
        return sum(completion.tokens for completion in self.completions)

    @property
    def ends(self) -> Counter[str]:
        """Number of completions by how they ended."""
        return Counter[str](completion.finish for completion in self.completions)

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts of all completions."""
        return tuple(completion.text for completion in self.completions)


class Refusal(Record, frozen=True, kw_only=True):
    """Reason for a missing response, which the stage turns into a :class:`~selfreflect.records.Failure`."""

    kind: FailureKind
    message: str
    status: int = 0
    """HTTP status of a server; 0 if there is none."""
    wait: float | None = None
    """Seconds that the server asked the client to wait."""
    code: str = ""
    """Code of the underlying error, if any."""


class Generator(Protocol):
    """Protocol of generators: results in request order, with failures independent of each other."""

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> str: ...

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]: ...


class StageGenerator(Generator, Protocol):
    """A generator that describes itself for the manifest."""

    @property
    def facts(self) -> dict[str, Any]: ...


def as_done(generator: Generator, requests: Sequence[Request]) -> Iterator[tuple[int, Reply | Refusal]]:
    """Yield each result with the index of its request.

    Results come as soon as they are there if the generator has a ``stream_samples`` method, else in order.

    Raises:
        BackendError: the generator does not give one result per request, or gives up.
    """
    for index, event in as_drawn(generator, requests):
        if not isinstance(event, Sample):
            yield index, event


Watch = Callable[[Sequence[Request]], Callable[[int, Sample | Reply | Refusal], None]]
"""Observer factory: receives starting requests, and returns a callback for each event."""


def as_drawn(
    generator: Generator, requests: Sequence[Request], watch: Watch | None = None
) -> Iterator[tuple[int, Sample | Reply | Refusal]]:
    """Yield results as :func:`as_done`, each after the completions that finish before it.

    Completions come as ``Sample``, from generators that have a ``stream_samples`` method.
    """
    tell = watch(requests) if watch else None
    stream = getattr(generator, "stream_samples", None)
    results = stream(requests) if stream else enumerate(generator.generate(requests))
    # A generator of another package may lose a request or answer it twice, and records would be mixed up.
    missing = set(range(len(requests)))
    for index, result in results:
        if not isinstance(result, Sample):
            if index not in missing:
                raise BackendError(
                    f"generator {excerpt(generator.name)} returned more replies than the {len(requests)} "
                    "that were requested",
                    code="replies",
                )
            missing.remove(index)
        if tell:
            tell(index, result)
        yield index, result
    if missing:
        raise BackendError(
            f"generator {excerpt(generator.name)} returned only {len(requests) - len(missing)} replies to "
            f"{len(requests)} requests",
            code="replies",
        )


class StreamingGenerator(ABC):
    """A generator that yields completions as they end; results follow from these."""

    name: str
    revision: str

    @abstractmethod
    def stream_samples(self, requests: Sequence[Request]) -> Iterator[tuple[int, Sample | Reply | Refusal]]:
        """Yield each request's completions as they end, then its result, with the request's index.

        Raises:
            BackendError: the model or its server stops working, or refuses every call.
        """

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        """Answer requests in order, each with a response or a refusal."""
        results = dict(as_done(self, requests))
        return [results[index] for index in range(len(requests))]


def seed_for(seed: int, *parts: str) -> int:
    """Derive a 63-bit seed for a question, stage or step, independent of order and batching."""
    # with a separator, as "ab" and "c" are other parts than "a" and "bc"
    text = "\x1f".join([str(seed), *parts])
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big") >> 1


Device: TypeAlias = str
"""``auto``, ``cuda``, ``cuda:1`` for one of several GPUs, ``mps`` or ``cpu``."""
DType = Literal["auto", "float32", "bfloat16", "float16"]
Compat = Literal["", "published"]
EXTRA_BODY_REFUSED = frozenset(
    "model messages n seed stream temperature top_p max_tokens max_completion_tokens logprobs top_logprobs "
    "tools functions".split()
)
"""Request fields that settings decide, or that would change the form of responses."""
_CREDENTIALS = re.compile(r"(?:.*[_-])?(?:api[_-]?key|authorization|password|secret)", re.IGNORECASE)
DEVICES = re.compile(r"auto|cuda(:[0-9]{1,3})?|mps|cpu")

LOCAL_NAMES = "smollm2, a local directory, or a hub name such as Qwen/Qwen2.5-7B-Instruct"


def check_extra_body(fields: Mapping[str, Any]) -> None:
    """Refuse fields of ``extra_body`` that are settings or may hold a secret. Raises ConfigError."""
    for name in fields:
        if name in EXTRA_BODY_REFUSED:
            raise ConfigError(
                f"extra_body cannot set {name}, because another setting controls it, or because replies "
                "could not be read with it",
                code="extra_body",
            )
        if _CREDENTIALS.fullmatch(name):
            raise ConfigError(
                f"extra_body holds {excerpt(name)}, which would be stored with the run. Put keys into "
                f"the environment.",
                code="extra_body",
            )


@dataclass(frozen=True)
class ModelSpec:
    """A model and its loading options. Each backend reads the fields that concern it."""

    name: str = "smollm2"
    _: KW_ONLY
    revision: str | None = None
    """Branch, tag or commit on the hub."""
    base_url: str | None = None
    """Address of the server of a remote backend."""
    extra_body: Mapping[str, Any] | None = field(default=None, hash=False)
    """Further fields of each request to a server."""
    device: Device = "auto"
    dtype: DType = "auto"
    device_map: Literal["auto"] | None = None
    """``"auto"`` spreads a local model over all visible GPUs."""
    trust_remote_code: bool = False
    """Whether to run code that comes with the model."""
    batch_size: int | None = None
    """Number of sequences decoded together by a local generator; None lets the generator choose."""
    max_connections: int = 16
    """Maximum number of simultaneous calls to a server."""
    timeout: float = 600.0
    """Seconds per try of a call to a server."""
    write_batch: Path | None = None
    """File to which requests are written instead of being sent."""
    read_batch: Path | None = None
    """File with the responses to requests written earlier."""

    @classmethod
    def of(cls, model: str | ModelSpec, **fields: Any) -> ModelSpec:
        """Make a model's spec from a name or spec, replacing ``fields``.

        Raises ConfigError for anything else.
        """
        if not isinstance(model, ModelSpec | str):
            raise ConfigError(
                f"a model must be a name, such as 'smollm2', not {excerpt(model)}", code="model_name"
            )
        return replace(model if isinstance(model, ModelSpec) else cls(model), **fields)
