"""Habits of servers and gateways as users report them: layouts of errors, words for ends, odd responses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from fault_server import Action, Call, Script, chat, choice, raw, status, text

Refuse = Callable[[str], Action]


def chat_of(body: dict[str, Any]) -> Action:
    """A response with HTTP 200 in a layout of its own."""
    return status(200, body)


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
    "type": status(400, {"error": {"message": "The request was rejected", "type": "content_filter"}}),
    "Zhipu": status(400, {"error": {"code": "1301", "message": "系统检测到输入可能包含敏感内容"}}),
    "Volcengine": status(
        400,
        {
            "error": {
                "code": "InputTextSensitiveContentDetected",
                "message": "the input text may contain sensitive information",
            }
        },
    ),
    "MiniMax": chat_of({"base_resp": {"status_code": 1026, "status_msg": "input new_sensitive"}}),
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


Words = Callable[[list[str], Call], Action]


@dataclass(frozen=True)
class Habit:
    """A server as its users report it: what it does not take, and how it says so."""

    refuses: dict[str, Callable[[Any], bool]]
    """By field, which values. The field ``system`` is a turn of the system."""
    says: Words
    """Gets the refused fields of a call, sorted, and the call."""
    most_refused: int = 1
    """Calls that it may cost to learn that."""
    left: frozenset[str] = frozenset({"temperature", "top_p", "seed"})
    """Fields that must not be given up for it."""
    body: bytes = b""
    """Bytes in front of every response."""

    def refused(self, call: Call) -> list[str]:
        values = {"system": any(turn["role"] == "system" for turn in call.body["messages"]), **call.body}
        return sorted(name for name in self.refuses.keys() & values if self.refuses[name](values[name]))

    def __call__(self, call: Call) -> Action:
        if names := self.refused(call):
            return self.says(names, call)
        texts = [choice(f"text {call.number} {place}") for place in range(call.n)]
        document = json.dumps({"choices": texts, "usage": None}).encode()
        return raw(self.body + document)


def any_value(value: Any) -> bool:
    return value is not False


def several(value: Any) -> bool:
    return bool(value > 1)


def negative(value: Any) -> bool:
    return bool(value < 0)


def of(*names: str) -> dict[str, Callable[[Any], bool]]:
    return dict.fromkeys(names, any_value)


_EXTENSIONS = ("chat_template_kwargs", "min_p", "repetition_penalty", "top_k")


def _first(form: str, code: int = 400, **fields: Any) -> Words:
    """Name one field at a time, in a message."""
    return lambda names, call: status(code, {**fields, "error": {"message": form.format(names[0])}})


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def _typed(names: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "type": "extra_forbidden",
            "loc": ["body", name],
            "msg": "Extra inputs are not permitted",
            "input": 1,
        }
        for name in names
    ]


SERVERS: dict[str, Habit] = {
    "Groq": Habit(
        of(*_EXTENSIONS), _first("property '{}' is unsupported, did you mean 'top_p'?"), most_refused=2
    ),
    "Groq, several": Habit({"n": several}, _first("'n' : number must be at most 1")),
    "Fireworks": Habit(
        of("chat_template_kwargs"),
        _first("Extra inputs are not permitted, field: '{}', value: {{'enable_thinking': False}}"),
        left=frozenset({"top_k", "min_p", "repetition_penalty", "seed"}),
    ),
    "Cohere": Habit(
        {"n": several},
        lambda names, call: status(422, {"id": "3", "message": "unprocessable entity: n is not supported"}),
    ),
    "Cohere's own field": Habit(
        {"n": several},
        lambda names, call: status(
            422, {"message": "unknown field: parameter 'num_generations' is not a valid field."}
        ),
    ),
    "xAI": Habit(
        of(*_EXTENSIONS),
        lambda names, call: status(
            400,
            {
                "code": "Client specified an invalid argument",
                "error": f"Model m does not support parameter {_camel(names[0])}.",
            },
        ),
        most_refused=2,
    ),
    "DeepSeek": Habit(
        of(*_EXTENSIONS),
        lambda names, call: text(
            422,
            "Failed to deserialize the JSON body into the target type: unknown field "
            f"`{names[0]}`, expected one of `model`, `temperature`, `top_p`, `seed`, `n` at line 1",
        ),
        most_refused=2,
    ),
    "DeepSeek's limit": Habit(
        of("max_tokens"), _first("Unsupported parameter: '{}'. Use 'max_completion_tokens' instead.")
    ),
    "Databricks": Habit(
        of(*_EXTENSIONS),
        lambda names, call: status(
            400,
            {"error_code": "BAD_REQUEST", "message": f'Bad request: json: unknown field "{names[0]}"\n'},
        ),
        most_refused=2,
    ),
    "Databricks before a model": Habit(
        of("seed"),
        lambda names, call: status(
            400,
            {
                "error": "Received error from m",
                "external_model_message": {"error_code": "INVALID", "message": "seed is not permitted"},
            },
        ),
        left=frozenset({"top_k", "min_p"}),
    ),
    "Java": Habit(
        of(*_EXTENSIONS),
        lambda names, call: status(
            400,
            {
                "status": 400,
                "error": "Bad Request",
                "message": f'JSON parse error: Unrecognized field "{names[0]}" (class Chat), not marked as '
                'ignorable (4 known properties: "temperature", "top_p", "seed", "n"])',
                "path": "/v1/chat/completions",
            },
        ),
        most_refused=2,
    ),
    "ASP.NET": Habit(
        of(*_EXTENSIONS),
        lambda names, call: status(
            400,
            {
                "title": "One or more validation errors occurred.",
                "status": 400,
                "errors": {name: ["The field is unknown."] for name in names},
            },
        ),
    ),
    "JSON:API": Habit(
        of("seed", "min_p"),
        lambda names, call: status(
            400,
            {
                "errors": [
                    {"status": "400", "source": {"pointer": f"/{name}"}, "detail": ""} for name in names
                ]
            },
        ),
        left=frozenset({"top_k", "temperature"}),
    ),
    "Mistral": Habit(
        of("seed", *_EXTENSIONS),
        lambda names, call: status(
            422,
            {
                "object": "error",
                "detail": _typed(names),
                "message": _typed(names),
                "type": "invalid_request_error",
                "code": 3001,
            },
        ),
        left=frozenset({"temperature", "top_p"}),
    ),
    "errors as a text": Habit(
        of("min_p", "top_k"),
        lambda names, call: status(400, {"object": "error", "message": repr(_typed(names)), "code": 400}),
        left=frozenset({"repetition_penalty", "seed"}),
    ),
    "TensorRT-LLM": Habit(
        of("min_p"),
        lambda names, call: status(
            400,
            {
                "object": "error",
                "message": "1 validation error for ChatCompletionRequest\nmin_p\n  Extra inputs are not "
                "permitted [type=extra_forbidden, input_value=0.0, input_type=float]",
            },
        ),
        left=frozenset({"top_k", "seed"}),
    ),
    "TGI": Habit(
        {"top_p": lambda value: value >= 1},
        lambda names, call: status(
            422,
            {
                "error": "Input validation error: `top_p` must be > 0.0 and < 1.0",
                "error_type": "validation",
            },
        ),
        left=frozenset({"top_k", "temperature", "seed"}),
    ),
    "a Rust server": Habit(
        {"top_k": negative},
        lambda names, call: text(422, "top_k: invalid value: integer `-1`, expected u32 at line 1 column 9"),
        left=frozenset({"top_k", "seed"}),
    ),
    "Ollama": Habit(
        {"top_k": negative},
        _first("json: cannot unmarshal number -1 into Go struct field ChatRequest.{} of type uint"),
        left=frozenset({"top_k", "seed"}),
    ),
    "Bedrock": Habit(
        of("min_p", "repetition_penalty"),
        _first(
            "Malformed input request: #: extraneous key [{}] is not permitted, please reformat your input"
        ),
        most_refused=2,
    ),
    "OCI": Habit(
        {"n": several},
        lambda names, call: status(500, {"message": "OciException - param `n` is not supported on OCI"}),
    ),
    "Gemini": Habit({"n": several}, _first("Multiple candidates is not enabled for this model")),
    "Zhipu": Habit(
        of("top_p"),
        lambda names, call: status(400, {"error": {"code": "1214", "message": "top_p 参数非法。取值范围"}}),
        left=frozenset({"top_k", "seed"}),
    ),
    "DashScope": Habit(
        of("top_p"),
        _first("<400> InternalError.Algo.InvalidParameter: Range of {} should be (0.0, 1.0)"),
        left=frozenset({"top_k", "seed"}),
    ),
    "Cloudflare": Habit(
        of("min_p"),
        lambda names, call: status(
            400,
            {
                "result": None,
                "success": False,
                "errors": [{"code": 5006, "message": "AiError: Bad input: Error: oneOf at '/' not met"}],
            },
        ),
        left=frozenset({"temperature"}),
    ),
    "a firewall": Habit(
        of("chat_template_kwargs"),
        lambda names, call: text(400, '<html><body role="main">Bad Request</body></html>', "text/html"),
        left=frozenset({"temperature"}),
    ),
    "LM Studio": Habit(
        of("system"),
        lambda names, call: status(
            400, {"error": 'Error rendering prompt with jinja template: "System role not supported".'}
        ),
        left=frozenset({"top_k", "seed"}),
    ),
    "Perplexity": Habit(
        of("system"),
        _first("After the (optional) system message(s), user and assistant roles should be alternating."),
        left=frozenset({"top_k", "seed"}),
    ),
    "DeepSeek's roles": Habit(
        of("system"),
        _first(
            "Failed to deserialize the JSON body into the target type: messages[0].role: unknown variant "
            "`system`, expected one of `user`, `assistant`"
        ),
        left=frozenset({"top_k", "seed"}),
    ),
    "lines that keep a connection": Habit({}, _first(""), most_refused=0, body=b"\n \n\n" * 40),
    "a byte order mark": Habit({}, _first(""), most_refused=0, body=b"\xef\xbb\xbf"),
}
"""What servers refuse or send beside a usual call."""

LASTING: dict[str, tuple[Action, str]] = {
    "Gemini's key": (
        status(
            400,
            [
                {
                    "error": {
                        "code": 400,
                        "message": "API key not valid. Please pass a valid API key.",
                        "status": "INVALID_ARGUMENT",
                        "details": [{"reason": "API_KEY_INVALID"}],
                    }
                }
            ],
        ),
        "key",
    ),
    "xAI's key": (status(400, {"code": "x", "error": "Incorrect API key provided: xx"}), "key"),
    "xAI's credit": (
        status(403, {"code": "x", "error": "Your newly created team doesn't have any credits yet."}),
        "credit",
    ),
    "Anthropic's credit": (status(400, "Your credit balance is too low to access the API"), "credit"),
    "Moonshot's quota": (
        status(429, {"error": {"message": "suspended", "type": "exceeded_current_quota_error"}}),
        "credit",
    ),
    "DashScope's arrears": (status(400, {"code": "Arrearage", "message": "Access denied"}), "credit"),
    "Zhipu's balance": (status(429, {"error": {"code": "1113", "message": "您的账户余额不足"}}), "credit"),
    "DeepSeek's model": (status(400, "Model Not Exist"), "not_found"),
    "Mistral's model": (
        status(400, {"message": "Invalid model: m", "type": "invalid_model", "code": "1500"}),
        "not_found",
    ),
    "OpenRouter's model": (status(400, "m is not a valid model ID"), "not_found"),
    "a wrong path": (text(405, "Method Not Allowed"), "not_found"),
    "DeepSeek's limit": (status(400, "Invalid max_tokens value, the valid range is [1, 8]"), "field"),
    "OpenAI's limit": (
        status(400, {"error": {"message": "max_tokens is too large: 9.", "param": "max_tokens"}}),
        "field",
    ),
}
"""What every call would meet, with the code of the error that ends a run."""
