"""Anthropic's ``/v1/messages``: its requests as chat completions, and its responses, streams and errors."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from selfreflect.models.base import Message
from selfreflect.server.chat import PREFIX, ChatRequest, Dialect, Envelope, Turns, decode, typed, without_ours
from selfreflect.server.errors import ChatError
from selfreflect.server.fields import MESSAGES, Fields, SortedFields
from selfreflect.server.reply import ChatChoice, ChatResponse, to_json

# Types of blocks in which a model of the history reasoned.
_TRACES = ("thinking", "redacted_thinking")


class _OutputConfig(msgspec.Struct):
    effort: str | None = None
    format: dict[str, Any] | None = None


def _translate(reading: SortedFields) -> None:
    """Turn what was read into fields of chat completions."""
    fields = reading.read
    turns: list[dict[str, Any]] = []
    system = decode(_value(fields, "system"), str | list[dict[str, Any]] | None, "system")
    if system:
        turns.append({"role": "system", "content": _content(system, reading, "system")})
    for turn in decode(_value(fields, "messages"), Turns | None, "messages") or []:
        content = decode(_value(turn, "content"), str | list[dict[str, Any]], "messages")
        turns.append({**turn, "content": _content(content, reading, "messages.content")})
    reading.put("messages", turns)
    if "stop_sequences" in fields:
        reading.read["stop"] = fields["stop_sequences"]
    config = decode(_value(fields, "output_config"), _OutputConfig | None, "output_config") or _OutputConfig()
    if config.format:
        reading.relay("output_config")
    if config.effort:
        reading.handed_on["reasoning_effort"] = config.effort


def _value(fields: Fields, name: str) -> bytes:
    return bytes(fields.get(name, Raw(b"null")))


def _content(content: str | list[dict[str, Any]], reading: SortedFields, name: str) -> str:
    """Join the texts of a turn, without the reasoning of the history."""
    if isinstance(content, str):
        return content
    texts = []
    for block in content:
        text = block.get("text", "")
        if block.get("type") == "text" and isinstance(text, str):
            texts.append(text)
        elif block.get("type") in _TRACES:
            reading.ignore(f"{name}.thinking")
        else:
            reading.relay(name)
    return "\n\n".join(texts)


def _for_upstream(fields: Fields, model: str, history: tuple[Message, ...]) -> bytes:
    return msgspec.json.encode(without_ours(fields, model))


DIALECT = Dialect(MESSAGES, _translate, _for_upstream, names={"stop": "stop_sequences"})


def for_count(data: bytes) -> ChatRequest:
    """Read a request to count tokens, with its body for the upstream. Raises ChatError, status 400."""
    fields = decode(data, Fields)
    name = typed(fields, Envelope).model
    model = name.removeprefix(PREFIX)
    cleaned = msgspec.json.encode(without_ours(fields, model))
    return ChatRequest(data=cleaned, model=model, reflects=name != model, passthrough="count_tokens")


def body(response: ChatResponse, model: str) -> bytes:
    """Write the whole response."""
    choice = response.choices[0]
    fields = {
        **_head(response, model, response.spending.completion_tokens),
        "content": [{"type": "text", "text": choice.text}],
        **_ending(choice),
    }
    return to_json(fields if response.belief is None else {**fields, "selfreflect": response.belief})


def _head(response: ChatResponse, model: str, tokens: int) -> dict[str, Any]:
    """Make the object ``message`` without its content."""
    return {
        "id": response.id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": response.spending.prompt_tokens, "output_tokens": tokens},
    }


def _ending(choice: ChatChoice) -> dict[str, Any]:
    """Say why the text ends: at a stop sequence, at the limit of tokens, or by itself."""
    if choice.stopped_at is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": choice.stopped_at}
    reason = "max_tokens" if choice.finish == "length" else "end_turn"
    return {"stop_reason": reason, "stop_sequence": None}


class MessageStream:
    """The events of one stream. ``message_delta``, which has the usage, has the distribution too.

    Args:
        response: before its text is known.
    """

    def __init__(self, response: ChatResponse, model: str) -> None:
        self._response = response
        self._model = model

    def begin(self) -> bytes:
        block = {"type": "text", "text": ""}
        start = _event("message_start", message=_head(self._response, self._model, 0))
        return start + _event("content_block_start", index=0, content_block=block)

    def piece(self, text: str) -> bytes:
        return _event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})

    def end(self, response: ChatResponse) -> bytes:
        extra = {} if response.belief is None else {"selfreflect": response.belief}
        spending = response.spending
        usage = {"input_tokens": spending.prompt_tokens, "output_tokens": spending.completion_tokens}
        delta = _event("message_delta", delta=_ending(response.choices[0]), usage=usage, **extra)
        return _event("content_block_stop", index=0) + delta + _event("message_stop")


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), to_json({"type": kind, **fields}))


_TYPES = {
    413: "request_too_large",
    429: "rate_limit_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    504: "timeout_error",
}


def error(error: ChatError) -> dict[str, Any]:
    """Make the JSON that Anthropic's clients expect."""
    kind = "api_error" if error.status >= 500 else "invalid_request_error"
    fields = {"type": _TYPES.get(error.status, kind), "message": str(error), "code": error.code or None}
    return {"type": "error", "error": fields, "request_id": None}


def error_event(failure: ChatError) -> bytes:
    """Write an error after the stream has begun."""
    return b"event: error\ndata: " + to_json(error(failure)) + b"\n\n"
