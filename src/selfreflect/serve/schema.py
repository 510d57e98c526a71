"""What the OpenAPI document says of requests. They are read by :mod:`selfreflect.serve.chat`."""

from __future__ import annotations

from typing import Any

import msgspec

from selfreflect.serve.chat import ChatOptions

_, _COMPONENTS = msgspec.json.schema_components([ChatOptions])

CHAT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["model", "messages"],
                    "additionalProperties": True,
                    "properties": {
                        "model": {
                            "type": "string",
                            "description": "selfreflect/NAME, or NAME for the model itself.",
                        },
                        "messages": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "required": ["role"],
                                "properties": {
                                    "role": {"enum": ["system", "developer", "user", "assistant"]},
                                    "content": {"type": "string"},
                                },
                            },
                        },
                        "stream": {"type": "boolean"},
                        "n": {"type": "integer", "minimum": 1, "maximum": 8},
                        "seed": {"type": "integer"},
                        "temperature": {"type": "number", "minimum": 0, "maximum": 2},
                        "max_tokens": {"type": "integer", "minimum": 1},
                        "selfreflect": _COMPONENTS["ChatOptions"],
                    },
                }
            }
        },
    }
}
