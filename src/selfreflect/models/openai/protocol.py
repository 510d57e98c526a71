"""The chat completions of OpenAI's API as servers speak it: the body of a request, and what a response
says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from selfreflect.models.base import Completion, Finish, Reply, Request
from selfreflect.models.openai.retry import APIError, status_fault
from selfreflect.models.reasoning import UnclosedReasoningError, closes_prompted, split_reasoning

_FINISH: dict[str, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
}
"""Whatever else a server calls the end of a text, the text is whole."""

# Servers fill in defaults of their own or of the model where a field is missing (a top-k of 20 or 40, a
# penalty), and the answer distribution would be another one. So fields that the API does not know are sent
# too, until the server says that it does not either.
_NEUTRAL: dict[str, Any] = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


class _Message(msgspec.Struct):
    content: str | list[Any] | None = None
    refusal: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


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

    def body(self, model: str, request: Request, first: int, count: int) -> dict[str, Any]:
        """The call for completions ``first`` to ``first + count`` of a request, of which a server may give
        fewer.

        Raises:
            APIError: the request needs a field that the server does not take.
        """
        sampling = request.sampling
        extra = {
            **_NEUTRAL,
            "min_p": sampling.min_p,
            "chat_template_kwargs": {"enable_thinking": request.thinking},
        }
        if sampling.top_k:
            extra["top_k"] = sampling.top_k
        needed = [name for name in self.left_out & _NEUTRAL.keys() if extra[name] != _NEUTRAL[name]]
        if needed:
            raise APIError(f"the server does not take {needed[0]}, which this request needs")
        body: dict[str, Any] = {
            "model": model,
            "messages": [
                {"role": message.role, "content": _sendable(message.content)} for message in request.messages
            ],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            # Completion i has the seed of the request plus i, as servers that take `n` count too. Many of
            # them read 32 bits.
            "seed": (request.seed + first) % 2**31,
            self.limit: sampling.max_new_tokens,
            "extra_body": {name: value for name, value in extra.items() if name not in self.left_out},
        }
        return body if count == 1 else {**body, "n": count}

    def without(self, said: str) -> Dialect | None:
        """Another way to say the same to a server that refused it with these words, if they point to one."""
        named = {name for name in (*_NEUTRAL, "chat_template_kwargs") if name in said} - self.left_out
        if named:
            return replace(self, left_out=self.left_out | named)
        if self.limit == "max_tokens" and "max_completion_tokens" in said:
            return replace(self, limit="max_completion_tokens")
        return None


def _sendable(text: str) -> str:
    """Lone surrogates, which are no characters and which JSON on the wire cannot hold, become question
    marks."""
    return text.encode("utf-8", "replace").decode()


class _Read(NamedTuple):
    """A completion as its own text tells it."""

    completion: Completion
    closes: bool
    """Whether it ends a reasoning trace that the prompt began. No server says what its chat template does,
    but such a reply shows it."""


@dataclass(frozen=True)
class ParsedResponse:
    """Completions of one request, each of which may show how the others are to be read."""

    read: tuple[_Read, ...]
    prompt_tokens: int = 0

    @property
    def opened(self) -> bool | None:
        """Whether the prompt began a reasoning trace, as most completions show that came to an end; None
        where none did."""
        ended = [one.closes for one in self.read if one.closes or one.completion.finish == "stop"]
        return sum(ended) * 2 > len(ended) if ended else None

    def reply(self, opened: bool) -> Reply:
        """The reply. Where the prompt began a trace, what was cut off before the trace ended holds no
        answer."""
        completions = (_cut_trace(one) if opened else one.completion for one in self.read)
        return Reply(completions=tuple(completions), prompt_tokens=self.prompt_tokens)


def _cut_trace(one: _Read) -> Completion:
    completion, closes = one
    if closes or completion.finish != "length":
        return completion
    return Completion(text="", finish="unclosed_reasoning", tokens=completion.tokens)


def drawn_of(data: bytes, count: int) -> ParsedResponse:
    """What a response says: 1 to ``count`` completions.

    Raises:
        APIError: it holds an error instead, no completion, or is no such response.
    """
    try:
        body = msgspec.json.decode(data, type=_Body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise APIError(f"the response is not a chat completion ({error})", retry=True) from None
    if body.error:
        raise _fault_in(body.error)
    choices = (body.choices or [])[:count]
    if not choices:
        raise APIError("the response holds no completions", kind="empty", retry=True)
    usage = body.usage if isinstance(body.usage, dict) else {}
    # A server counts the tokens of a call, not of each completion: they are shared out evenly.
    each, rest = divmod(_count(usage.get("completion_tokens")), len(choices))
    read = tuple(_read(choice, each + (place < rest)) for place, choice in enumerate(choices))
    return ParsedResponse(read, prompt_tokens=_count(usage.get("prompt_tokens")))


def joined(parts: Sequence[ParsedResponse]) -> ParsedResponse:
    return ParsedResponse(
        tuple(one for part in parts for one in part.read),
        prompt_tokens=sum(part.prompt_tokens for part in parts),
    )


def error_text(data: bytes) -> str:
    """What the body of an error says, as far as it follows any convention."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return data[:2000].decode("utf-8", "replace")
    return _words(value.get("error", value) if isinstance(value, dict) else value)


def _fault_in(error: Any) -> APIError:
    """An error that came with HTTP 200: gateways send them when they had begun to answer. Its code may be
    that of a status."""
    code = error.get("code") if isinstance(error, dict) else None
    return status_fault(code if isinstance(code, int) and 400 <= code < 600 else 500, _words(error))


def _words(error: Any) -> str:
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        code = error.get("code")
        return f"{error['message']} ({code})" if isinstance(code, str) else str(error["message"])
    return error if isinstance(error, str) else msgspec.json.encode(error).decode()


def _read(choice: _Choice, tokens: int) -> _Read:
    message = choice.message
    finish = _FINISH.get(choice.finish_reason or "", "stop")
    if message.refusal:
        return _Read(Completion(text=message.refusal.strip(), finish="refused", tokens=tokens), closes=False)
    content = _text(message.content)
    try:
        text = split_reasoning(content).visible
    except UnclosedReasoningError:
        return _Read(Completion(text="", finish="unclosed_reasoning", tokens=tokens), closes=False)
    if not text and finish == "length" and (message.reasoning_content or message.reasoning):
        finish = "unclosed_reasoning"
    return _Read(Completion(text=text.strip(), finish=finish, tokens=tokens), closes=closes_prompted(content))


def _text(content: str | list[Any] | None) -> str:
    """Plain text, or the parts of type ``text`` of a content in parts, of which others hold the reasoning."""
    if isinstance(content, list):
        parts = [
            part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"
        ]
        return "".join(part for part in parts if isinstance(part, str))
    return content or ""


def _count(value: Any) -> int:
    """A number of tokens; 0 where the server gives none."""
    return value if isinstance(value, int) and value > 0 else 0
