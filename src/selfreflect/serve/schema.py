"""What the OpenAPI document says of requests and errors. They are read by :mod:`selfreflect.serve.chat`, and
written by :mod:`selfreflect.serve.faults`."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from selfreflect.serve.chat import ChatBody
from selfreflect.serve.faults import ErrorType

_, _SCHEMAS = msgspec.json.schema_components([ChatBody])
_MESSAGES = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["role"],
        "properties": {
            "role": {"enum": ["system", "developer", "user", "assistant"]},
            "content": {"type": "string"},
        },
    },
}
_CHAT = {
    **_SCHEMAS["ChatBody"],
    "title": "Question",
    "description": "A question in the form of OpenAI's chat completions.",
    "required": ["model", "messages"],
    "additionalProperties": True,
    "properties": {
        **_SCHEMAS["ChatBody"]["properties"],
        "messages": _MESSAGES,
        "stream_options": {**_SCHEMAS["_StreamOptions"], "title": "Stream options"},
        "selfreflect": _SCHEMAS["ChatOptions"],
    },
}
CHAT_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": _CHAT}}}
}

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"enum": list(get_args(ErrorType))},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_REASONS = {
    400: "Something in the request is wrong, or the model cannot do it.",
    401: "The API key is missing or wrong.",
    403: "A page of another site asks.",
    404: "There is no such model or answer.",
    413: "The body is too large.",
    421: "The name of the server is wrong.",
    429: "Too many requests; Retry-After says when to try again.",
    500: "Something went wrong; the server's log says what.",
    502: "The upstream failed.",
    504: "The upstream took too long.",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": reason, "content": {"application/json": {"schema": _ERROR}}}
    for status, reason in _REASONS.items()
}
"""What any route may say instead of its answer."""

STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "A completion, or the events of a stream.", "content": {"text/event-stream": {}}}
}
TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Counters in Prometheus' format.", "content": {"text/plain": {}}}
}
