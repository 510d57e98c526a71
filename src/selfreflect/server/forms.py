"""Request formats: chat completions, OpenAI's responses and Anthropic's messages.

Each is one path, one way to read a request as a chat completion, and one to write what comes of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import Raw

from selfreflect.models.base import Message, ToolCall
from selfreflect.server import reply
from selfreflect.server.chat import (
    CHAT_DIALECT,
    MESSAGES,
    PREFIX,
    RESPONSE_FORMAT,
    RESPONSES,
    TOOLS,
    ChatRequest,
    Dialect,
    Envelope,
    Fields,
    SortedFields,
    Turns,
    decode,
    shown,
    typed,
    without_ours,
)
from selfreflect.server.errors import ChatError
from selfreflect.server.reply import FUNCTION, ChatChoice, ChatResponse, pieces, to_json


def _value(fields: Fields, name: str) -> bytes:
    return bytes(fields.get(name, Raw(b"null")))


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), to_json({"type": kind, **fields}))


def _take_format(value: dict[str, Any], name: str, reading: SortedFields) -> None:
    """Convert a JSON answer format to that of chat completions, which nests all fields but the type."""
    kind = value.get("type")
    if kind == "json_schema":
        schema = {name: part for name, part in value.items() if name != "type"}
        reading.handed_on[RESPONSE_FORMAT] = {"type": kind, kind: schema}
    elif kind == "json_object":
        reading.handed_on[RESPONSE_FORMAT] = {"type": kind}
    elif kind != "text":
        reading.relay(name)


# --- OpenAI's responses

# Fields of a request that its response repeats, with what stands there if the request has none.
_NULL_ECHOES = (
    "instructions max_output_tokens max_tool_calls prompt_cache_key reasoning safety_identifier text user"
)
_ECHOES: Mapping[str, Any] = {
    **dict.fromkeys(_NULL_ECHOES.split()),
    **dict.fromkeys(("frequency_penalty", "presence_penalty", "top_logprobs"), 0),
    **{"background": False, "metadata": {}, "service_tier": "default", "truncation": "disabled"},
    **{"parallel_tool_calls": True, "tool_choice": "auto", "tools": []},
}

_UNSAID_OF_TOOL = dict.fromkeys(("description", "parameters", "strict"))

# Types of parts that are plain text.
_TEXTS = ("input_text", "output_text", "text")


class _Reasoning(msgspec.Struct):
    effort: str | None = None


class _Text(msgspec.Struct):
    format: dict[str, Any] | None = None
    verbosity: str | None = None


def _read_responses(reading: SortedFields) -> None:
    """Convert the fields that were read to those of chat completions."""
    fields = reading.read
    turns = []
    reading.instructions = decode(_value(fields, "instructions"), str | None, "instructions") or ""
    items = decode(_value(fields, "input"), str | Turns | None, "input")
    if isinstance(items, str):
        turns.append({"role": "user", "content": items})
    else:
        turns += [turn for item in items or [] if (turn := _turn(item, reading))]
    reading.put("messages", turns)
    if "max_output_tokens" in fields:
        reading.read["max_tokens"] = fields["max_output_tokens"]
    reasoning = decode(_value(fields, "reasoning"), _Reasoning | None, "reasoning")
    if reasoning and reasoning.effort:
        reading.handed_on["reasoning_effort"] = reasoning.effort
    text = decode(_value(fields, "text"), _Text | None, "text") or _Text()
    if text.format:
        _take_format(text.format, "text.format", reading)
    if text.verbosity:
        reading.handed_on["verbosity"] = text.verbosity
    for name in (TOOLS, "tool_choice"):
        if name in reading.handed_on:
            reading.handed_on[name] = _as_chat_tool(reading.handed_on[name])


def _as_chat_tool(value: Any) -> Any:
    """Convert tools or a tool choice to those of chat completions, which nest all fields but the type."""
    if isinstance(value, list):
        return list(map(_as_chat_tool, value))
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in (FUNCTION, "allowed_tools"):
        return value
    parts = {name: part for name, part in value.items() if name != "type"}
    if kind != FUNCTION:
        parts |= {TOOLS: _as_chat_tool(parts.get(TOOLS))}
    return {"type": kind, kind: parts}


def _turn(item: Fields, reading: SortedFields) -> dict[str, Any] | None:
    """Convert an input item to a turn; None for an item without content."""
    kind = decode(_value(item, "type"), str | None, "input") or "message"
    if kind == "reasoning":
        reading.ignore("input.reasoning")
        return None
    if kind != "message":
        reading.relay(shown(kind, "input."))
        return None
    content = decode(_value(item, "content"), str | list[dict[str, Any]] | None, "input")
    parts = content if isinstance(content, list) else []
    texts = [part.get("text", "") if part.get("type") in _TEXTS else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        reading.relay("input.content")
    turn = {name: value for name, value in item.items() if name not in ("type", "id", "status", "phase")}
    if isinstance(content, list):
        turn["content"] = Raw(msgspec.json.encode("".join(text for text in texts if isinstance(text, str))))
    return turn


def _responses_for_upstream(fields: Fields, model: str, history: tuple[Message, ...]) -> bytes:
    """Build the upstream's body, including turns that only this server remembers."""
    cleaned = without_ours(fields, model)
    if history:
        items = decode(_value(fields, "input"), str | list[Raw], "input")
        rest = [{"role": "user", "content": items}] if isinstance(items, str) else items
        turns = [{"role": turn.role, "content": turn.content} for turn in history]
        cleaned["input"] = Raw(msgspec.json.encode([*turns, *rest]))
        del cleaned["previous_response_id"]
    return msgspec.json.encode(cleaned)


_CUT_BY = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Reasons for incomplete texts, by finish reason."""


def _response(response: ChatResponse, model: str, status: str = "completed") -> dict[str, Any]:
    """Build the object ``response``, empty while in progress."""
    is_whole = status == "completed"
    choice = response.choices[0] if is_whole else ChatChoice(text="")
    cut_by = _CUT_BY.get(choice.finish)
    fields: dict[str, Any] = {
        "id": response.id,
        "object": "response",
        "created_at": response.created,
        "completed_at": int(time.time()) if is_whole and cut_by is None else None,
        "status": "incomplete" if cut_by else status,
        "error": None,
        "incomplete_details": {"reason": cut_by} if cut_by else None,
        "model": model,
        "output": [],
        "previous_response_id": response.previous or None,
        "store": response.stores,
        "temperature": response.sampling.temperature,
        "top_p": response.sampling.top_p,
        "usage": _usage(response) if is_whole else None,
        **{name: response.echo.get(name, unsaid) for name, unsaid in _ECHOES.items()},
    }
    # what a client leaves out of these objects, its library expects all the same
    fields["text"] = {"format": {"type": "text"}, **(fields["text"] or {})}
    fields["reasoning"] = {"effort": None, "summary": None, **(fields["reasoning"] or {})}
    offered = fields[TOOLS] if isinstance(fields[TOOLS], list) else []
    fields[TOOLS] = [{**_UNSAID_OF_TOOL, **tool} for tool in offered if isinstance(tool, dict)]
    if choice.calls:
        fields["output"] = [_call_item(call, call.arguments, "completed") for call in choice.calls]
    elif is_whole:
        fields["output"] = [_text_item(response, choice.text, fields["status"])]
    if is_whole and response.belief is not None:
        fields["selfreflect"] = response.belief
    return fields


def _text_item(response: ChatResponse, text: str | None, status: str) -> dict[str, Any]:
    """Build the text output item, without content before the text exists."""
    return {
        "id": f"msg_{response.id}",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [] if text is None else [_part(text)],
    }


def _call_item(call: ToolCall, arguments: str, status: str) -> dict[str, Any]:
    """Build the output item of a tool call."""
    names = {"id": f"fc_{call.id}", "type": "function_call", "call_id": call.id, "name": call.name}
    return {**names, "arguments": arguments, "status": status}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(response: ChatResponse) -> dict[str, Any] | None:
    if (usage := response.spending.usage) is None:
        return None
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }


class ResponseStream:
    """Events of one stream. The last event has the whole response with its distribution.

    Args:
        response: before its text is known, unless it calls tools.
    """

    def __init__(self, response: ChatResponse, model: str) -> None:
        self._response = response
        self._model = model
        self._number = 0
        self._output = {"output_index": 0}
        self._content = {**self._output, "item_id": f"msg_{response.id}", "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = _event(kind, sequence_number=self._number, **fields)
        self._number += 1
        return event

    def begin(self) -> bytes:
        response = _response(self._response, self._model, "in_progress")
        events = [self._event(f"response.{name}", response=response) for name in ("created", "in_progress")]
        if not any(choice.calls for choice in self._response.choices):
            item = _text_item(self._response, None, "in_progress")
            events.append(self._event("response.output_item.added", item=item, **self._output))
            events.append(self._event("response.content_part.added", part=_part(""), **self._content))
        return b"".join(events)

    def piece(self, text: str) -> bytes:
        return self._event("response.output_text.delta", delta=text, logprobs=[], **self._content)

    def end(self, response: ChatResponse) -> bytes:
        choice = response.choices[0]
        whole = _response(response, self._model)
        events = list(map(self._call, range(len(choice.calls)), choice.calls))
        if not choice.calls:
            text = choice.text
            events = [
                self._event("response.output_text.done", text=text, logprobs=[], **self._content),
                self._event("response.content_part.done", part=_part(text), **self._content),
                self._event("response.output_item.done", item=whole["output"][0], **self._output),
            ]
        # a text at its limit of tokens ends as incomplete
        return b"".join([*events, self._event(f"response.{whole['status']}", response=whole)])

    def _call(self, place: int, call: ToolCall) -> bytes:
        """Write the events of one tool call."""
        place_of = {"output_index": place, "item_id": f"fc_{call.id}"}
        arguments = "response.function_call_arguments"
        added, closing = _call_item(call, "", "in_progress"), _call_item(call, call.arguments, "completed")
        return b"".join(
            (
                self._event("response.output_item.added", output_index=place, item=added),
                self._event(f"{arguments}.delta", delta=call.arguments, **place_of),
                self._event(f"{arguments}.done", arguments=call.arguments, name=call.name, **place_of),
                self._event("response.output_item.done", output_index=place, item=closing),
            )
        )

    def failure(self, error: ChatError) -> bytes:
        return _responses_error_event(error, self._number)


def _responses_error_event(error: ChatError, number: int = 0) -> bytes:
    fields = error.body["error"]
    data = {**fields, "type": "error", "sequence_number": number, "error": fields}
    return b"event: error\ndata: " + to_json(data) + b"\n\n"


# --- Anthropic's messages

# Types of blocks in which a model of the history reasoned.
_TRACES = ("thinking", "redacted_thinking")


class _MessageTool(msgspec.Struct):
    """A tool that the client runs, unlike tools that Anthropic runs."""

    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None
    type: Literal["custom"] | None = None

    @property
    def as_chat_tool(self) -> dict[str, Any]:
        function = {"name": self.name, "description": self.description, "strict": self.strict}
        fields = {name: value for name, value in function.items() if value is not None}
        return {"type": FUNCTION, FUNCTION: {**fields, "parameters": self.input_schema}}


class _MessageToolChoice(msgspec.Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str = ""
    disable_parallel_tool_use: bool | None = None


_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
"""Tool choices by Anthropic's names."""


class _OutputConfig(msgspec.Struct):
    effort: str | None = None
    format: dict[str, Any] | None = None


def _read_messages(reading: SortedFields) -> None:
    """Convert the fields that were read to those of chat completions."""
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
    older = decode(_value(fields, "output_format"), dict[str, Any] | None, "output_format")
    if answer_format := config.format or older:
        # chat completions want a name
        _take_format({"name": "answer", **answer_format}, "output_config", reading)
    if config.effort:
        reading.handed_on["reasoning_effort"] = config.effort
    _take_tools(reading)


def _take_tools(reading: SortedFields) -> None:
    """Convert tools and their choice to those of chat completions."""
    fields = reading.handed_on
    try:
        if TOOLS in fields:
            tools = msgspec.convert(fields[TOOLS], list[_MessageTool])
            fields[TOOLS] = [tool.as_chat_tool for tool in tools]
        if "tool_choice" in fields:
            choice = msgspec.convert(fields["tool_choice"], _MessageToolChoice)
            one_tool = {"type": FUNCTION, FUNCTION: {"name": choice.name}}
            fields["tool_choice"] = _CHOICES.get(choice.type, one_tool)
            if choice.disable_parallel_tool_use:
                fields["parallel_tool_calls"] = False
    except msgspec.ValidationError:
        reading.relay(TOOLS)


def _content(content: str | list[dict[str, Any]], reading: SortedFields, name: str) -> str:
    """Join the texts of a turn, without earlier reasoning."""
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


def to_pass(data: bytes, reason: str) -> ChatRequest:
    """Read the model of a request that only the upstream reads in full.

    Raises ChatError, status 400.
    """
    fields = decode(data, Fields)
    name = typed(fields, Envelope).model
    model = name.removeprefix(PREFIX)
    cleaned = msgspec.json.encode(without_ours(fields, model))
    return ChatRequest(data=cleaned, model=model, reflects=name != model, passthrough=reason)


def _message_head(response: ChatResponse, model: str) -> dict[str, Any]:
    """Build the object ``message`` without content."""
    return {
        "id": response.id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _message_usage(response),
    }


def _message_usage(response: ChatResponse) -> dict[str, int | None]:
    spending = response.spending
    return {"input_tokens": spending.prompt_tokens, "output_tokens": spending.completion_tokens}


def _message(response: ChatResponse, model: str) -> bytes:
    """Build the complete response."""
    choice = response.choices[0]
    content = [_use_block(call, _input_of(call)) for call in choice.calls]
    content = content or [{"type": "text", "text": choice.text}]
    fields = {**_message_head(response, model), "content": content, **_ending(choice)}
    return to_json(fields if response.belief is None else {**fields, "selfreflect": response.belief})


def _use_block(call: ToolCall, value: Raw) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": value}


def _input_of(call: ToolCall) -> Raw:
    """Return a call's arguments as a JSON object, wrapping other values as Anthropic does."""
    try:
        is_object = isinstance(msgspec.json.decode(call.arguments), dict)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        is_object = False
    return Raw(call.arguments.encode() if is_object else to_json({"INVALID_JSON": call.arguments}))


_REASONS = {
    "length": "max_tokens",
    "content_filter": "refusal",
    "tool_calls": "tool_use",
    "stop": "end_turn",
}


def _ending(choice: ChatChoice) -> dict[str, Any]:
    """Describe why the text ends: stop sequence, limit, filter, tool calls or naturally."""
    if choice.stopped_at is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": choice.stopped_at}
    return {"stop_reason": _REASONS[choice.finish], "stop_sequence": None}


class MessageStream:
    """Events of one stream. ``message_delta`` contains the usage and the distribution.

    Args:
        response: before its text is known, unless it calls tools.
    """

    def __init__(self, response: ChatResponse, model: str) -> None:
        usage = {**_message_usage(response), "output_tokens": 0}
        self._head = {**_message_head(response, model), "usage": usage}
        self._has_text = not any(choice.calls for choice in response.choices)

    def begin(self) -> bytes:
        start = _event("message_start", message=self._head)
        if not self._has_text:
            return start
        return start + _event("content_block_start", index=0, content_block={"type": "text", "text": ""})

    def piece(self, text: str) -> bytes:
        return _event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})

    def end(self, response: ChatResponse) -> bytes:
        choice = response.choices[0]
        extra = {} if response.belief is None else {"selfreflect": response.belief}
        usage = _message_usage(response)
        blocks = [_event("content_block_stop", index=0)] if self._has_text else []
        blocks += map(self._call, range(len(choice.calls)), choice.calls)
        delta = _event("message_delta", delta=_ending(choice), usage=usage, **extra)
        return b"".join([*blocks, delta, _event("message_stop")])

    def _call(self, index: int, call: ToolCall) -> bytes:
        """Write the events of one tool call."""
        delta = {"type": "input_json_delta", "partial_json": bytes(_input_of(call)).decode()}
        return b"".join(
            (
                _event("content_block_start", index=index, content_block=_use_block(call, Raw(b"{}"))),
                _event("content_block_delta", index=index, delta=delta),
                _event("content_block_stop", index=index),
            )
        )

    def failure(self, error: ChatError) -> bytes:
        return _messages_error_event(error)


_TYPES = {
    413: "request_too_large",
    429: "rate_limit_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    504: "timeout_error",
}


def _messages_error(error: ChatError) -> dict[str, Any]:
    """Build the error JSON for Anthropic's clients."""
    kind = "api_error" if error.status >= 500 else "invalid_request_error"
    fields = {"type": _TYPES.get(error.status, kind), "message": str(error), "code": error.code or None}
    return {"type": "error", "error": fields, "request_id": None}


def _messages_error_event(error: ChatError, number: int = 0) -> bytes:
    return b"event: error\ndata: " + to_json(_messages_error(error)) + b"\n\n"


# --- the table


NewStream = Callable[[ChatResponse, str], ResponseStream | MessageStream]
"""Function that begins a stream with a response without text and the requested model name."""


def _whole(kind: NewStream) -> Callable[..., Iterator[bytes]]:
    """Make a function that writes a whole stream in one format."""

    def events(response: ChatResponse, model: str, include_usage: bool) -> Iterator[bytes]:
        stream, choice = kind(response, model), response.choices[0]
        yield stream.begin()
        yield from map(stream.piece, () if choice.calls else pieces(choice.text))
        yield stream.end(response)

    return events


@dataclass(frozen=True)
class Form:
    """A request format.

    Attributes:
        path: below ``/v1`` here, and below the address of the upstream there.
        body: writes a whole response, of the model by its requested name.
        events: writes a whole stream, with its usage if the client wants it.
        stream: writes a stream piece by piece; None where the upstream's own events are the client's.
        error: makes the JSON of an error.
        error_event: writes an error into a stream, with the number of the event.
        headers: of a client's request that the upstream gets, too.
        id_header: the name under which clients look for the id of a response.
    """

    path: str
    dialect: Dialect
    body: Callable[[ChatResponse, str], bytes]
    events: Callable[[ChatResponse, str, bool], Iterator[bytes]]
    stream: NewStream | None
    error: Callable[[ChatError], dict[str, Any]]
    error_event: Callable[[ChatError, int], bytes]
    headers: tuple[str, ...] = ()
    id_header: str = "x-request-id"


FORMS: Mapping[str, Form] = {
    form.path: form
    for form in (
        Form(
            path="/chat/completions",
            dialect=CHAT_DIALECT,
            body=ChatResponse.body,
            events=ChatResponse.events,
            stream=None,
            error=lambda error: error.body,
            error_event=reply.error_event,
        ),
        Form(
            path="/responses",
            dialect=Dialect(
                RESPONSES,
                _read_responses,
                _responses_for_upstream,
                names={
                    "messages": "input",
                    "max_tokens": "max_output_tokens",
                    RESPONSE_FORMAT: "text.format",
                },
                echoes=tuple(_ECHOES),
            ),
            body=lambda response, model: to_json(_response(response, model)),
            events=_whole(ResponseStream),
            stream=ResponseStream,
            error=lambda error: error.body,
            error_event=_responses_error_event,
        ),
        Form(
            path="/messages",
            dialect=Dialect(
                MESSAGES,
                _read_messages,
                lambda fields, model, history: msgspec.json.encode(without_ours(fields, model)),
                names={"stop": "stop_sequences", RESPONSE_FORMAT: "output_config"},
            ),
            body=_message,
            events=_whole(MessageStream),
            stream=MessageStream,
            error=_messages_error,
            error_event=_messages_error_event,
            headers=("anthropic-version", "anthropic-beta"),
            id_header="request-id",
        ),
    )
}
"""Request formats by path."""


def form_of(path: str) -> Form:
    """Find the request format by path; other paths get OpenAI's error format."""
    below = path.removeprefix("/v1")
    return FORMS.get(below) or FORMS["/messages" if below.startswith("/messages/") else "/chat/completions"]
