"""OpenAI's ``/v1/responses``: its requests as chat completions, and its responses and streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from selfreflect.models.base import Message
from selfreflect.server.chat import Dialect, Turns, decode, without_ours
from selfreflect.server.errors import ChatError
from selfreflect.server.fields import RESPONSES, Fields, SortedFields, shown
from selfreflect.server.reply import ChatChoice, ChatResponse, to_json

# Types of parts that are plain text.
_TEXTS = ("input_text", "output_text", "text")


class _Reasoning(msgspec.Struct):
    effort: str | None = None


class _Format(msgspec.Struct):
    type: str = "text"


class _Text(msgspec.Struct):
    format: _Format | None = None
    verbosity: str | None = None


def _translate(reading: SortedFields) -> None:
    """Turn what was read into fields of chat completions."""
    fields = reading.read
    turns = []
    if instructions := decode(_value(fields, "instructions"), str | None, "instructions"):
        turns.append({"role": "system", "content": instructions})
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
    if text.format and text.format.type != "text":
        reading.relay("text.format")
    if text.verbosity:
        reading.handed_on["verbosity"] = text.verbosity


def _value(fields: Fields, name: str) -> bytes:
    return bytes(fields.get(name, Raw(b"null")))


def _turn(item: Fields, reading: SortedFields) -> dict[str, Any] | None:
    """Read an item of the input as a turn; None for one that says nothing."""
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


def _for_upstream(fields: Fields, model: str, history: tuple[Message, ...]) -> bytes:
    """Make the body for the upstream, which does not know the turns that were remembered here."""
    cleaned = without_ours(fields, model)
    if history:
        items = decode(_value(fields, "input"), str | list[Raw], "input")
        rest = [{"role": "user", "content": items}] if isinstance(items, str) else items
        turns = [{"role": turn.role, "content": turn.content} for turn in history]
        cleaned["input"] = Raw(msgspec.json.encode([*turns, *rest]))
        del cleaned["previous_response_id"]
    return msgspec.json.encode(cleaned)


DIALECT = Dialect(
    RESPONSES,
    _translate,
    _for_upstream,
    names={"messages": "input", "max_tokens": "max_output_tokens"},
)


def body(response: ChatResponse, model: str) -> bytes:
    """Write the whole response."""
    return to_json(_object(response, model, "completed"))


def _object(response: ChatResponse, model: str, status: str) -> dict[str, Any]:
    """Make the object ``response``: empty while it is in progress."""
    is_whole = status == "completed"
    choice = response.choices[0] if is_whole else ChatChoice(text="")
    is_cut = choice.finish == "length"
    fields: dict[str, Any] = {
        "id": response.id,
        "object": "response",
        "created_at": response.created,
        "status": "incomplete" if is_cut else status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": model,
        "output": [_item(response, choice.text, "incomplete" if is_cut else status)] if is_whole else [],
        "parallel_tool_calls": True,
        "previous_response_id": response.previous or None,
        "reasoning": {"effort": None, "summary": None},
        "store": response.stores,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "truncation": "disabled",
        "usage": _usage(response) if is_whole else None,
    }
    if is_whole and response.belief is not None:
        fields["selfreflect"] = response.belief
    return fields


def _item(response: ChatResponse, text: str | None, status: str) -> dict[str, Any]:
    """Make the one item of the output; without a text it has no content yet."""
    return {
        "id": f"msg_{response.id}",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [] if text is None else [_part(text)],
    }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(response: ChatResponse) -> dict[str, Any]:
    prompt, completion = response.spending.prompt_tokens, response.spending.completion_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + completion,
    }


class ResponseStream:
    """The events of one stream. The last one has the whole response with its distribution.

    Args:
        response: before its text is known.
    """

    def __init__(self, response: ChatResponse, model: str) -> None:
        self._response = response
        self._model = model
        self._number = 0
        self._output = {"output_index": 0}
        self._content = {**self._output, "item_id": f"msg_{response.id}", "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = to_json({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)

    def begin(self) -> bytes:
        response = _object(self._response, self._model, "in_progress")
        events = [self._event(f"response.{name}", response=response) for name in ("created", "in_progress")]
        item = _item(self._response, None, "in_progress")
        events.append(self._event("response.output_item.added", item=item, **self._output))
        events.append(self._event("response.content_part.added", part=_part(""), **self._content))
        return b"".join(events)

    def piece(self, text: str) -> bytes:
        return self._event("response.output_text.delta", delta=text, logprobs=[], **self._content)

    def end(self, response: ChatResponse) -> bytes:
        text = response.choices[0].text
        whole = _object(response, self._model, "completed")
        return b"".join(
            (
                self._event("response.output_text.done", text=text, logprobs=[], **self._content),
                self._event("response.content_part.done", part=_part(text), **self._content),
                self._event("response.output_item.done", item=whole["output"][0], **self._output),
                # a text at its limit of tokens ends as incomplete
                self._event(f"response.{whole['status']}", response=whole),
            )
        )


def error_event(error: ChatError) -> bytes:
    """Write an error after the stream has begun."""
    fields: Mapping[str, Any] = error.body["error"]
    data = {"type": "error", "sequence_number": 0, **fields, "error": fields}
    return b"event: error\ndata: " + to_json({**data, "type": "error"}) + b"\n\n"
