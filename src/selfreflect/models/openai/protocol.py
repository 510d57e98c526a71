"""Chat completions of OpenAI's API as servers speak it: bodies of requests, parsed responses, errors."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
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
from selfreflect.models.reasoning import UnclosedReasoningError, split_answer
from selfreflect.records import FailureKind, Finish

_ENDINGS: dict[Finish, str] = {
    "stop": "stop eos eos_token end_turn end_of_turn end_of_text eot stop_sequence stop_token complete "
    "completed finished done end",
    "length": "length max_tokens max_output_tokens max_new_tokens max_length model_length token_limit",
    "content_filter": "content_filter content_filtered safety recitation prohibited_content blocklist spii "
    "image_safety guardrail_intervened moderation flagged sensitive error_toxic",
    "refused": "refusal",
}
"""What servers call the ends of texts, in lower case. With any other word, or none, a text is half of one."""
_FINISH = {word: finish for finish, words in _ENDINGS.items() for word in words.split()}

_SHIFT = 1e-3
"""By how much a token's log-probability may differ from its entry among the likely ones."""

MOST_TOKENS = 10**9
"""Of one call. A larger count is the server's mistake, and a record could not hold it."""

_TOO_LONG = re.compile(
    r"context[ _](?:length|window|size|limit)|maximum context|too many (?:input )?tokens|prompt is too long"
    r"|`inputs` (?:tokens \+ `max_new_tokens` )?must (?:be <=|have less than)",  # text-generation-inference
    re.IGNORECASE,
)
_TEMPLATE = re.compile(r"system role|roles must alternate", re.IGNORECASE)
"""What chat templates raise, which some servers answer with 500."""
_FILTERED = re.compile(
    r"content[_ ](?:filter|policy)|responsible ?ai|\bmoderation\b|\bflagged (?:by|as|for|due)\b",
    re.IGNORECASE,
)


@dataclass(eq=False)
class APIError(Exception):
    """A call that gave nothing usable."""

    message: str
    """What is wrong, without flags and settings."""
    _: KW_ONLY
    code: str = "server"
    """As of a :class:`~selfreflect.errors.SelfReflectError`."""
    remedy: str = ""
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
    status: int = 0
    """Of HTTP; 0 without a response."""
    fields: frozenset[str] = frozenset()
    """Fields of the request that the structure of the error names."""

    def __str__(self) -> str:
        return self.message


def status_error(
    status: int, server_text: str, wait: float | None = None, fields: frozenset[str] = frozenset()
) -> APIError:
    """Make the error that an HTTP status means."""
    error = _meaning(status, server_text)
    if error.code == "credit":  # no wait helps, so nobody must take it for a limit of the rate
        return error
    return replace(error, status=status, wait=wait, fields=fields)


_NO_CREDIT = ("credit", "the account has no credit left", "")
_FATAL = {
    401: ("key", "the server does not accept the key", ""),
    402: _NO_CREDIT,
    404: (
        "not_found",
        "the server knows no such model or path",
        "Check {base_url}, which usually ends in /v1, and the names that its /models lists.",
    ),
}
"""By HTTP status: code, message and remedy of what every other call would meet, too."""


def _meaning(status: int, server_text: str) -> APIError:
    http = f"HTTP {status}"
    is_spent = status == 429 and "insufficient_quota" in server_text
    if fatal := _NO_CREDIT if is_spent else _FATAL.get(status):
        code, message, remedy = fatal
        return APIError(f"{message} ({http})", code=code, remedy=remedy, server_text=server_text, fatal=True)
    if status == 500 and _TEMPLATE.search(server_text):
        return APIError(http, server_text=server_text, rejected=True, status=status)
    if status in (408, 409, 425, 429) or status >= 500:
        return APIError(http, server_text=server_text, retryable=True)
    if _TOO_LONG.search(server_text):
        return APIError(http, server_text=server_text, kind="too_long")
    if _FILTERED.search(server_text):
        return APIError(http, server_text=server_text, kind="content_filter")
    refuses_field = status == 403 and "logprobs" in server_text  # as OpenAI does for some models
    rejected = refuses_field or status in (400, 422)
    code = "forbidden" if status == 403 else "server"
    return APIError(http, code=code, server_text=server_text, rejected=rejected)


class _Message(msgspec.Struct):
    content: str | list[Any] | None = None
    refusal: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None
    logprobs: Any = None
    error: Any = None


class _Token(msgspec.Struct):
    """One of the tokens in the log-probabilities of a choice."""

    token: str
    logprob: Any
    bytes: list[Annotated[int, msgspec.Meta(ge=0, le=255)]] | None = None
    top_logprobs: Any = None


class _Tokens(msgspec.Struct):
    content: list[_Token]


class _CompletionTokens(msgspec.Struct):
    """Log-probabilities in the layout of the older completions, which some servers give for chats."""

    tokens: list[str]
    token_logprobs: list[Any]
    top_logprobs: list[dict[str, Any] | None] | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None


@dataclass
class ParsedResponse:
    """Completions of one request. Each may show whether the chat template began a trace in all of them,
    which no server reports."""

    samples: list[Sample]
    prompt_tokens: int
    broken: list[int] = field(default_factory=list)
    """Places of choices that did not end, so that they are no answers."""

    @property
    def size(self) -> int:
        """How many completions the server gave, whole or not."""
        return len(self.samples) + len(self.broken)

    @property
    def unclosed(self) -> int:
        """How many completions hold reasoning alone."""
        return sum(sample.completion.finish == "unclosed_reasoning" for sample in self.samples)

    @property
    def opens_trace(self) -> bool | None:
        """Whether the prompt began a reasoning trace, by majority of the finished completions."""
        votes = []
        for sample in self.samples:
            if sample.closes_trace or sample.completion.finish == "stop":
                votes.append(sample.closes_trace)
        return sum(votes) * 2 > len(votes) if votes else None

    def reply(self, opens_trace: bool) -> Reply:
        """Make the reply. If the prompt began a trace, what was cut off before its end holds no answer."""
        completions = []
        for sample in self.samples:
            completion = sample.completion
            if opens_trace and not sample.closes_trace and completion.finish == "length":
                completion = Completion(text="", finish="unclosed_reasoning", tokens=completion.tokens)
            completions.append(completion)
        return Reply(completions=tuple(completions), prompt_tokens=self.prompt_tokens)


def parse_response(data: bytes, request: Request, first: int, count: int) -> ParsedResponse:
    """Read 1 to ``count`` completions of a request, from its ``first`` on, from the body of a response.
    Raises APIError if it holds none that has ended."""
    try:
        body = _decoded(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if _holds_half_a_character(data):
            raise APIError("the response holds half of a character (a lone surrogate escape)") from None
        raise APIError(f"the response is not a chat completion ({error})", retryable=True) from None
    if body.error:
        raise _embedded_error(body.error)
    # Some servers give more than were asked for.
    choices = (body.choices or [])[:count]
    if not choices:
        raise APIError("the response holds no completions", kind="empty", retryable=True)
    usage = body.usage if isinstance(body.usage, dict) else {}
    # A server counts the tokens of a call, not of each completion: they are shared out evenly.
    share, rest = divmod(_count(usage.get("completion_tokens")), len(choices))
    samples, broken = [], []
    for index, choice in enumerate(choices):
        finish = _ending(choice)
        if finish is None:
            broken.append(first + index)
            continue
        completion, closes_trace = _parse(choice, finish, share + (index < rest))
        if request.logprobs:
            completion = msgspec.structs.replace(
                completion,
                logprobs=_answer_tokens(completion.text, choice.logprobs, request.top_logprobs),
            )
        if request.first_tokens:
            likely = _first_tokens(completion.text, choice.logprobs)[: request.first_tokens]
            completion = msgspec.structs.replace(completion, first_tokens=likely)
        samples.append(Sample(index=first + index, completion=completion, closes_trace=closes_trace))
    if not samples:
        raise _unfinished(choices[0])
    return ParsedResponse(samples, _count(usage.get("prompt_tokens")), broken)


def _ending(choice: _Choice) -> Finish | None:
    """Read how a choice ended; None if it did not."""
    if choice.message.refusal:
        return "refused"
    word = (choice.finish_reason or "").lower().removeprefix("finish_reason_")
    return None if choice.error else _FINISH.get(word)


def _unfinished(choice: _Choice) -> APIError:
    """Make the error of a choice that did not end."""
    if choice.error:
        error = _embedded_error(choice.error)
        if error.kind != "backend" or error.fatal:
            return error
    ending = "no finish_reason" if choice.finish_reason is None else "finish_reason"
    server_text = choice.finish_reason or ""
    if choice.error:
        server_text = f"{server_text} {error_message(choice.error)}".strip()
    return APIError(f"the text did not end: it came with {ending}", server_text=server_text, retryable=True)


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


def _holds_half_a_character(data: bytes) -> bool:
    """Check for a lone surrogate, which the standard library accepts and msgspec does not."""
    try:
        json.dumps(json.loads(data), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def error_text(data: bytes) -> str:
    """Read what the body of an error says, as far as it follows any convention."""
    return error_message(_error_value(data))


def error_fields(data: bytes) -> frozenset[str]:
    """List fields of the request that the structure of an error names, with the parts of their paths."""
    return frozenset(_paths(_error_value(data)))


def is_moderation(data: bytes) -> bool:
    """Tell whether the structure of an error gives reasons of moderation, as gateways do."""
    error = _error_value(data)
    metadata = error.get("metadata") if isinstance(error, dict) else None
    return isinstance(metadata, dict) and bool(metadata.get("reasons"))


def _error_value(data: bytes) -> Any:
    """Find the error in a body: the body itself, or what stands under ``error``, in a list or not."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return data[:2000].decode("utf-8", "replace")
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value.get("error", value) if isinstance(value, dict) else value


def _embedded_error(error: Any) -> APIError:
    """Make the error that came with HTTP 200, as gateways send it in mid-answer.

    Its code may be an HTTP status.
    """
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return status_error(status, error_message(error), fields=frozenset(_paths(error)))


def error_message(error: Any) -> str:
    """Read the message of an error in any of the usual layouts, else its JSON."""
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        code = error.get("code")
        return f"{error['message']} ({code})" if isinstance(code, str) else str(error["message"])
    if isinstance(error, dict) and isinstance(error.get("detail"), str):
        return str(error["detail"])
    if problems := _problems(error):
        lines = []
        for problem in problems:
            path = ".".join(map(str, problem["loc"])).removeprefix("body.") if "loc" in problem else ""
            lines.append(": ".join(filter(None, [path, str(problem.get("msg") or problem.get("type", ""))])))
        return "; ".join(lines)
    return error if isinstance(error, str) else msgspec.json.encode(error).decode()


def _problems(error: Any) -> list[dict[str, Any]]:
    """List the entries of a validation error in the layout of pydantic: ``{"detail": [{"loc": …, "msg":
    …}]}``."""
    detail = error.get("detail") if isinstance(error, dict) else None
    entries = detail if isinstance(detail, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("loc", []), list)]


def _paths(error: Any) -> Iterator[str]:
    """Yield the parts of all paths of an error, such as ``messages``, ``0`` and ``role``."""
    paths = [problem.get("loc", []) for problem in _problems(error)]
    if isinstance(error, dict) and isinstance(error.get("param"), str):
        paths.append(re.split(r"[.\[\]]+", error["param"]))
    for path in paths:
        yield from (str(part) for part in path if isinstance(part, str | int))


def _parse(choice: _Choice, finish: Finish, tokens: int) -> tuple[Completion, bool]:
    """Read a completion, and whether it ends a reasoning trace that the prompt began."""
    message = choice.message
    text, closes_trace = "", False
    if message.refusal:
        text = message.refusal.strip()
    else:
        try:
            text, closes_trace = split_answer(_text(message.content))
        except UnclosedReasoningError:
            finish = "unclosed_reasoning"
        if not text and finish == "length" and (message.reasoning_content or message.reasoning):
            finish = "unclosed_reasoning"
    return Completion(text=text, finish=finish, tokens=tokens), closes_trace


def _tokens(value: Any) -> list[_Token]:
    """Read the tokens in the log-probabilities of a choice. Raises ValidationError if it holds none."""
    try:
        return msgspec.convert(value, _Tokens).content
    except msgspec.ValidationError:
        layout = msgspec.convert(value, _CompletionTokens)
    if len(layout.tokens) != len(layout.token_logprobs):
        raise msgspec.ValidationError("there is not one log-probability for each token")
    likely = layout.top_logprobs or []
    tokens = []
    for index, (text, logprob) in enumerate(zip(layout.tokens, layout.token_logprobs, strict=True)):
        likely_here = (likely[index] or {}) if index < len(likely) else {}
        top = [{"token": name, "logprob": value} for name, value in likely_here.items()]
        tokens.append(_Token(text, logprob, top_logprobs=top))
    return tokens


def _answer_tokens(answer: str, value: Any, ranks: int = 0) -> AnswerTokens | NoLogprobs:
    """Read the tokens of an answer, with ``ranks`` likely ones each, from those of a choice."""
    try:
        tokens = _tokens(value)
    except msgspec.ValidationError:
        return "not_returned"
    if answer and not tokens:
        return "not_returned"
    values = []
    for token in tokens:
        is_number = isinstance(token.logprob, int | float) and not isinstance(token.logprob, bool)
        values.append(token.logprob if is_number and token.logprob != UNKNOWN_LOGPROB else None)
    lists = []
    for token, logprob in zip(tokens, values, strict=True) if ranks else ():
        likely = _likely(token)
        # parts of characters look alike
        is_whole = bool(token.token.strip("\ufffd"))
        same = [value for text, value in likely if text == token.token and value is not None and is_whole]
        # lists that are shifted by a place, as some gateways send them, belong to other tokens
        if logprob is not None and same and all(abs(value - logprob) > _SHIFT for value in same):
            return "other_text"
        lists.append([value for _, value in likely])
    return answer_tokens(answer, _texts(tokens), values, top=lists, ranks=ranks)


def _likely(token: _Token) -> list[tuple[str, float | None]]:
    """List the likely tokens at the place of a token; those without a number have None."""
    likely: list[tuple[str, float | None]] = []
    for candidate in msgspec.convert(token.top_logprobs or [], list[_Token]):
        is_number = isinstance(candidate.logprob, int | float) and not isinstance(candidate.logprob, bool)
        likely.append((candidate.token, float(candidate.logprob) if is_number else None))
    return likely


def _first_tokens(answer: str, value: Any) -> tuple[LikelyToken, ...]:
    """List the likeliest tokens where an answer begins, from the log-probabilities of a choice."""
    try:
        tokens = _tokens(value)
        index = first_token(answer, _texts(tokens))
        candidates = [] if index is None else _likely(tokens[index])
    except msgspec.ValidationError:
        return ()
    return likely_tokens((text, logprob) for text, logprob in candidates if logprob is not None)


def _texts(tokens: Sequence[_Token]) -> list[str | None]:
    """Find the text that each token adds. A part of a character is told by its bytes alone."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts: list[str | None] = []
    for token in tokens:
        text = decoder.decode(bytes(token.bytes)) if token.bytes is not None else token.token
        texts.append(text)
    return texts


def _text(content: str | list[Any] | None) -> str:
    """Join the parts of type ``text`` of a content; other parts hold the reasoning."""
    if not isinstance(content, list):
        return content or ""
    text = ""
    for part in content:
        if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
            text += part["text"]
    return text


def _count(value: Any) -> int:
    """Read a number of tokens; 0 where the server gives none, or one that no call can have."""
    return value if isinstance(value, int) and 0 < value <= MOST_TOKENS else 0
