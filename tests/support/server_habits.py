"""Habits of servers and gateways as users report them: layouts of errors, words for ends, odd responses."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from fault_server import Action, Call, Script, chat, choice, status

Refuse = Callable[[str], Action]


def _wrapped(field: str) -> str:
    return json.dumps({"error": {"message": f"property '{field}' is unsupported", "type": "invalid"}})


REFUSALS: dict[str, Refuse] = {
    "title case": lambda field: status(400, f"{field.title()} is not supported with this model"),
    "in words": lambda field: status(400, f"{field.replace('_', ' ')}: extra inputs are not permitted"),
    "beside a short error": lambda field: status(
        400, {"error": "Bad Request", "message": [f"property {field} should not exist"], "statusCode": 400}
    ),
    "a list of errors": lambda field: status(
        400, {"errors": [{"message": "unknown argument", "field": field}, {"message": "try again"}]}
    ),
    "violations": lambda field: status(
        400,
        {
            "error": {
                "code": 400,
                "message": "Invalid JSON payload received.",
                "status": "INVALID_ARGUMENT",
                "details": [{"fieldViolations": [{"field": field, "description": "no such field"}]}],
            }
        },
    ),
    "behind a gateway": lambda field: status(
        400,
        {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": _wrapped(field)}}},
    ),
    "a path": lambda field: status(
        422, {"detail": [{"type": "extra_forbidden", "loc": ["body", field], "msg": "no"}]}
    ),
    "a pointer": lambda field: status(
        400, [{"instancePath": f"/{field}", "message": "must NOT have additional properties"}]
    ),
    "a failed validation": lambda field: status(
        500, {"error": {"message": f"1 validation error: {{'loc': ('body', '{field}'), 'msg': 'Input'}}"}}
    ),
    "not implemented": lambda field: status(501, {"error": {"message": f"{field} is not implemented"}}),
    "in a choice": lambda field: chat(
        {"index": 0, "error": {"code": 400, "message": f"Unsupported parameter: {field}"}}
    ),
    "with HTTP 200": lambda field: chat(
        error={"type": "invalid_request_error", "message": f"unknown field {field}"}
    ),
}
"""How a server says that it does not take a field."""

SYSTEM_REFUSALS: dict[str, Action] = {
    "value": status(
        400,
        {"error": {"message": "'messages[0].role' does not support 'system'", "param": "messages[0].role"}},
    ),
    "allowed roles": status(400, "Only user and assistant turns are supported; got system"),
    "developer": status(400, "Developer instruction is not enabled for this model"),
    "validation": status(
        422, {"detail": [{"loc": ["body", "messages", 0, "role"], "msg": "Input should be 'user'"}]}
    ),
    "template": status(500, "Jinja Exception: Conversation must begin with a user turn"),
    "no word of it": status(400, "Bad request"),
}

FILTERED: dict[str, Action] = {
    "code": status(
        400, {"error": {"message": "The response was filtered", "code": "content_filter", "param": "prompt"}}
    ),
    "inner error": status(
        400,
        {"error": {"message": "no", "innererror": {}, "code": "ResponsibleAIPolicyViolation"}},
    ),
    "policy": status(400, "Your prompt may violate our usage policies"),
    "inspection": status(400, {"error": {"message": "no", "code": "data_inspection_failed"}}),
    "risk": status(400, "Content Exists Risk"),
    "input": status(403, {"error": {"message": "no", "metadata": {"flagged_input": "x", "reasons": []}}}),
    "in a choice": chat(
        {"index": 0, "error": {"code": 403, "message": "no", "metadata": {"reasons": ["violence"]}}}
    ),
    "unmapped": chat({"index": 0, "finish_reason": "BLOCKLIST"}),
}
"""How a server says that it filtered a question."""

ENDED = {
    "stop": "stop STOP eos EOS_TOKEN end_turn endTurn end-turn END_OF_TURN stop_sequence FINISH_REASON_STOP "
    "<|im_end|> completed",
    "length": "length max_tokens MAX_TOKENS maxTokens FINISH_REASON_MAX_TOKENS model_length",
}
"""Words for texts that ended, by what they mean."""

UNFINISHED = (
    "error abort aborted cancelled canceled timeout network_error insufficient_system_resource unknown other "
    "MALFORMED_FUNCTION_CALL OTHER tool_calls function_call load unload overloaded incomplete in_progress "
    "pause_turn null none"
).split()
"""Words for texts that did not."""


def strict(field: str, refuse: Refuse) -> Script:
    """Refuse every call that holds the field."""

    def script(call: Call) -> Action:
        texts = [choice(f"text {call.number} {place}") for place in range(call.n)]
        return refuse(field) if field in call.body else chat(*texts)

    return script


def copying(call: Call) -> Action:
    """Give one text as often as the call asks for texts; another seed gives another."""
    return chat(*[choice(f"text {call.seed}")] * call.n)


def dates(seconds: float) -> list[str]:
    """Write a moment in the three forms that HTTP knows, and in one without its zone."""
    moment = datetime.now(UTC) + timedelta(seconds=seconds)
    forms = ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y")
    return [moment.strftime(form) for form in (*forms, "%d %b %Y %H:%M:%S")]


def odd(word: Any) -> dict[str, Any]:
    """Make a choice that ended with a word."""
    return choice("Emerald C", word)
