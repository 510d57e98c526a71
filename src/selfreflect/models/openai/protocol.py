"""Chat completions of OpenAI's API as servers speak it: bodies of requests, parsed responses, errors."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any

import msgspec

from selfreflect.logprobs import (
    UNKNOWN_LOGPROB,
    AnswerTokens,
    LikelyToken,
    NoLogprobs,
    answer_tokens,
    first_token,
    likely_tokens,
)
from selfreflect.models.base import Completion, Reply, Request, Sample
from selfreflect.models.reasoning import UnclosedReasoningError, split_reasoning
from selfreflect.records import FailureKind, Finish

_FINISH: dict[str, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
}
"""Whatever else a server calls the end of a text, the text is whole."""

# Servers fill in their own or the model's defaults where a field is missing (a top-k of 20 or 40, a penalty),
# and the answer distribution would be another one. So fields that the API does not know are sent too, until
# the server rejects them.
_NEUTRAL: dict[str, Any] = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}

MOST_TOKENS = 10**9
"""Of one call. A larger count is the server's mistake, and a record could not hold it."""

_TOO_LONG = re.compile(
    r"context[ _](?:length|window|size|limit)|maximum context|too many (?:input )?tokens|prompt is too long"
    r"|`inputs` (?:tokens \+ `max_new_tokens` )?must (?:be <=|have less than)",  # text-generation-inference
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.-])[0-9]{1,3}(?![\w-])")
_FILTERED = re.compile(r"content[_ ](?:filter|policy)|responsible ?ai", re.IGNORECASE)


@dataclass(eq=False)
class APIError(Exception):
    """A call that gave nothing usable."""

    message: str
    _: KW_ONLY
    kind: FailureKind = "backend"
    server_text: str = ""
    """The server's own words: untrusted."""
    rejected: bool = False
    """The server found fault with the request itself; another request may succeed."""
    retryable: bool = False
    """The same request may succeed later."""
    wait: float | None = None
    """Seconds that the server asks to wait."""
    fatal: bool = False
    """Every other call would fail in the same way."""
    unreachable: bool = False
    """No connection could be made at all."""
    status: int = 0
    """Of HTTP; 0 without a response."""

    def __str__(self) -> str:
        return self.message


def status_error(status: int, server_text: str, wait: float | None = None) -> APIError:
    """What an HTTP status means."""
    http = f"HTTP {status}"
    fatal = ""
    if status == 401:
        fatal = "the server does not accept the key"
    elif status == 402 or (status == 429 and "insufficient_quota" in server_text):
        fatal = "the account has no credit left"
    elif status == 404:
        fatal = (
            "the server knows no such model or path; check --base-url, which usually ends in /v1, and "
            "the names that its /models lists"
        )
    if fatal:
        return APIError(f"{fatal} ({http})", server_text=server_text, fatal=True)
    if status in (408, 409, 425, 429) or status >= 500:
        return APIError(http, server_text=server_text, retryable=True, wait=wait, status=status)
    if _TOO_LONG.search(server_text):
        return APIError(http, server_text=server_text, kind="too_long")
    if _FILTERED.search(server_text):
        return APIError(http, server_text=server_text, kind="content_filter")
    refuses_field = status == 403 and "logprobs" in server_text  # as OpenAI does for some models
    return APIError(http, server_text=server_text, rejected=refuses_field or status in (400, 422))


class _Message(msgspec.Struct):
    content: str | list[Any] | None = None
    refusal: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None
    logprobs: Any = None


class _Token(msgspec.Struct):
    """One of the tokens in the log-probabilities of a choice."""

    token: str
    logprob: Any
    bytes: list[Annotated[int, msgspec.Meta(ge=0, le=255)]] | None = None
    top_logprobs: Any = None


class _Tokens(msgspec.Struct):
    content: list[_Token]


class _Body(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None


@dataclass(frozen=True)
class Dialect:
    """Which fields a server takes."""

    left_out: frozenset[str] = frozenset()
    limit: str = "max_tokens"
    """What it calls the largest number of new tokens."""
    most_likely: int = 1000
    """How many likely tokens it gives at most."""

    def body(self, model: str, request: Request, first: int, count: int) -> dict[str, Any]:
        """The call for completions ``first`` to ``first + count`` of a request; a server may give fewer.
        Raises APIError if the request needs a field that the server does not take."""
        sampling = request.sampling
        extra = {
            **_NEUTRAL,
            "min_p": sampling.min_p,
            "chat_template_kwargs": {"enable_thinking": request.thinking},
        }
        if sampling.top_k:
            extra["top_k"] = sampling.top_k
        for name in self.left_out - {"logprobs"}:
            value = extra.pop(name)
            if name in _NEUTRAL and value != _NEUTRAL[name]:
                raise APIError(f"the server does not take {name}, which this request needs")
        body: dict[str, Any] = {
            "model": model,
            "messages": [
                {"role": message.role, "content": _encodable(message.content)} for message in request.messages
            ],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            # Completion i has the seed of the request plus i, as servers that take `n` count too. Many of
            # them read 32 bits.
            "seed": (request.seed + first) % 2**31,
            self.limit: sampling.max_new_tokens,
            **extra,
        }
        if (request.logprobs or request.first_tokens) and "logprobs" not in self.left_out:
            body["logprobs"] = True
            if request.first_tokens:
                body["top_logprobs"] = min(request.first_tokens, self.most_likely)
        if count > 1:
            body["n"] = count
        return body

    def without(self, server_text: str, request: Request) -> Dialect | None:
        """Another way to say the same to a server that rejected it with these words, if they point to one."""
        names = (*_NEUTRAL, "chat_template_kwargs", "logprobs")
        fields = {name for name in names if name in server_text} - self.left_out
        if request.first_tokens and fields == {"logprobs"}:  # with others, the server repeats the request
            asked = min(request.first_tokens, self.most_likely)
            allowed = [int(number) for number in _NUMBER.findall(server_text) if 0 < int(number) < asked]
            if allowed:
                return replace(self, most_likely=max(allowed))
        if fields:
            return replace(self, left_out=self.left_out | fields)
        if self.limit == "max_tokens" and "max_completion_tokens" in server_text:
            return replace(self, limit="max_completion_tokens")
        return None


def _encodable(text: str) -> str:
    """Replace lone surrogates, which JSON on the wire cannot hold, by question marks."""
    return text.encode("utf-8", "replace").decode()


@dataclass
class ParsedResponse:
    """Completions of one request. Each may show whether the chat template began a trace in all of them,
    which no server reports."""

    samples: list[Sample]
    prompt_tokens: int

    @property
    def opens_trace(self) -> bool | None:
        """Whether the prompt began a reasoning trace, by majority of the finished completions."""
        votes = []
        for sample in self.samples:
            if sample.closes_trace or sample.completion.finish == "stop":
                votes.append(sample.closes_trace)
        return sum(votes) * 2 > len(votes) if votes else None

    def reply(self, opens_trace: bool) -> Reply:
        """The reply. If the prompt began a trace, what was cut off before the trace ended holds no answer."""
        completions = []
        for sample in self.samples:
            completion = sample.completion
            if opens_trace and not sample.closes_trace and completion.finish == "length":
                completion = Completion(text="", finish="unclosed_reasoning", tokens=completion.tokens)
            completions.append(completion)
        return Reply(completions=tuple(completions), prompt_tokens=self.prompt_tokens)


def parse_response(data: bytes, request: Request, first: int, count: int) -> ParsedResponse:
    """Read 1 to ``count`` completions of a request, from its ``first`` on, from the body of a response.
    Raises APIError if it holds none."""
    try:
        body = _decoded(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if "surrogate" in str(error) and _is_json(data):
            raise APIError("the response holds half of a character (a lone surrogate escape)") from None
        raise APIError(f"the response is not a chat completion ({error})", retryable=True) from None
    if body.error:
        raise _embedded_error(body.error)
    choices = (body.choices or [])[:count]
    if not choices:
        raise APIError("the response holds no completions", kind="empty", retryable=True)
    usage = body.usage if isinstance(body.usage, dict) else {}
    # A server counts the tokens of a call, not of each completion: they are shared out evenly.
    share, rest = divmod(_count(usage.get("completion_tokens")), len(choices))
    samples = []
    for index, choice in enumerate(choices):
        completion, closes_trace = _parse(choice, share + (index < rest))
        if request.logprobs:
            completion = msgspec.structs.replace(
                completion, logprobs=_answer_tokens(completion.text, choice.logprobs)
            )
        if request.first_tokens:
            likely = _first_tokens(completion.text, choice.logprobs)[: request.first_tokens]
            completion = msgspec.structs.replace(completion, first_tokens=likely)
        samples.append(Sample(index=first + index, completion=completion, closes_trace=closes_trace))
    return ParsedResponse(samples, _count(usage.get("prompt_tokens")))


def _decoded(data: bytes) -> _Body:
    try:
        return msgspec.json.decode(data, type=_Body)
    except msgspec.DecodeError:
        if b"Infinity" not in data and b"NaN" not in data:
            raise
    # Some servers write these, which JSON does not have, among log-probabilities: they must cost no answers.
    try:
        value = json.loads(data, parse_constant=lambda name: None)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None
    return msgspec.convert(value, _Body)


def _is_json(data: bytes) -> bool:
    """Whether a body is whole: the standard library accepts lone surrogates, and msgspec does not."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def error_text(data: bytes) -> str:
    """What the body of an error says, as far as it follows any convention."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return data[:2000].decode("utf-8", "replace")
    return _message(value.get("error", value) if isinstance(value, dict) else value)


def _embedded_error(error: Any) -> APIError:
    """An error that came with HTTP 200, as gateways send it in mid-answer. Its code may be an HTTP status."""
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return status_error(status, _message(error))


def _message(error: Any) -> str:
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        code = error.get("code")
        return f"{error['message']} ({code})" if isinstance(code, str) else str(error["message"])
    return error if isinstance(error, str) else msgspec.json.encode(error).decode()


def _parse(choice: _Choice, tokens: int) -> tuple[Completion, bool]:
    """A completion, and whether it ends a reasoning trace that the prompt began."""
    message = choice.message
    finish = _FINISH.get(choice.finish_reason or "", "stop")
    text, closes_trace = "", False
    if message.refusal:
        text, finish = message.refusal.strip(), "refused"
    else:
        try:
            text, closes_trace = split_reasoning(_text(message.content))
        except UnclosedReasoningError:
            finish = "unclosed_reasoning"
        if not text and finish == "length" and (message.reasoning_content or message.reasoning):
            finish = "unclosed_reasoning"
    return Completion(text=text, finish=finish, tokens=tokens), closes_trace


def _answer_tokens(answer: str, value: Any) -> AnswerTokens | NoLogprobs:
    """The tokens of an answer, from the log-probabilities of a choice."""
    try:
        tokens = msgspec.convert(value, _Tokens).content
    except msgspec.ValidationError:
        return "not_returned"
    if answer and not tokens:
        return "not_returned"
    values = []
    for token in tokens:
        is_number = isinstance(token.logprob, int | float) and not isinstance(token.logprob, bool)
        values.append(token.logprob if is_number and token.logprob != UNKNOWN_LOGPROB else None)
    return answer_tokens(answer, _texts(tokens), values)


def _first_tokens(answer: str, value: Any) -> tuple[LikelyToken, ...]:
    """The likeliest tokens where an answer begins, from the log-probabilities of a choice."""
    try:
        tokens = msgspec.convert(value, _Tokens).content
        place = first_token(answer, _texts(tokens))
        others = msgspec.convert([] if place is None else tokens[place].top_logprobs, list[_Token])
    except msgspec.ValidationError:
        return ()
    likely = []
    for other in others:
        is_number = isinstance(other.logprob, int | float) and not isinstance(other.logprob, bool)
        if is_number:
            likely.append((other.token, other.logprob))
    return likely_tokens(likely)


def _texts(tokens: Sequence[_Token]) -> list[str | None]:
    """The text that each token adds. A token may be a part of a character, which only its bytes say."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts: list[str | None] = []
    for token in tokens:
        text = decoder.decode(bytes(token.bytes)) if token.bytes is not None else token.token
        texts.append(text)
    return texts


def _text(content: str | list[Any] | None) -> str:
    """Plain text, or the parts of type ``text`` of a content in parts; others hold the reasoning."""
    if not isinstance(content, list):
        return content or ""
    text = ""
    for part in content:
        if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
            text += part["text"]
    return text


def _count(value: Any) -> int:
    """A number of tokens; 0 where the server gives none, or one that no call can have."""
    return value if isinstance(value, int) and 0 < value <= MOST_TOKENS else 0
