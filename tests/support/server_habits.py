"""Habits of servers and gateways as users report them: layouts of errors, words for ends, odd responses."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from fault_server import Action, Call, Script, chat, choice, raw, status, text

Refuse = Callable[[str], Action]


def camel(field: str) -> str:
    first, *words = field.split("_")
    return first + "".join(map(str.title, words))


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
    "problem details": lambda field: status(
        400, {"title": "Bad Request", "invalid-params": [{"name": f"#/{field}", "reason": "additional"}]}
    ),
    "Symfony": lambda field: status(
        422, {"title": "Validation Failed", "violations": [{"propertyPath": f"[{field}]", "title": "extra"}]}
    ),
    "ajv": lambda field: status(
        400, {"error": {"message": "no", "validation": [{"params": {"additionalProperty": field}}]}}
    ),
    "GraphQL": lambda field: status(
        400, {"errors": [{"message": "Unknown argument", "extensions": {"argument": f"body.{camel(field)}"}}]}
    ),
    "Tencent": lambda field: status(
        200, {"Response": {"Error": {"Code": "InvalidParameter", "Message": f"{field} is not supported"}}}
    ),
    "Qianfan": lambda field: status(
        200, {"error_code": 336003, "error_msg": f"the parameter {field} is not supported", "id": "as-1"}
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
    "LoRAX": status(424, {"error": "Request failed: Conversation roles must alternate user/assistant"}),
    "template": status(500, "Jinja Exception: Conversation must begin with a user turn"),
    "no word of it": status(400, "Bad request"),
}

FILTERED: dict[str, Action] = {
    "code": status(
        400, {"error": {"message": "The response was filtered", "code": "content_filter", "param": "prompt"}}
    ),
    "inner error": status(
        400, {"error": {"message": "no", "innererror": {}, "code": "ResponsibleAIPolicyViolation"}}
    ),
    "policy": status(400, "Your prompt may violate our usage policies"),
    "inspection": status(400, {"error": {"message": "no", "code": "data_inspection_failed"}}),
    "risk": status(400, "Content Exists Risk"),
    "input": status(403, {"error": {"message": "no", "metadata": {"flagged_input": "x", "reasons": []}}}),
    "in a choice": chat(
        {"index": 0, "error": {"code": 403, "message": "no", "metadata": {"reasons": ["violence"]}}}
    ),
    "unmapped": chat({"index": 0, "finish_reason": "BLOCKLIST"}),
    "a policy": chat({"index": 0, "finish_reason": "policy_violation", "message": {"content": None}}),
    "an armour": chat({"index": 0, "finish_reason": "MODEL_ARMOR", "message": {"content": "half"}}),
    "type": status(400, {"error": {"message": "The request was rejected", "type": "content_filter"}}),
    "Zhipu": status(400, {"error": {"code": "1301", "message": "系统检测到输入可能包含敏感内容"}}),
    "in Chinese": status(400, {"error": {"message": "输入内容涉及违规内容，请修改后重试"}}),
    "a safety system": status(400, "Your request was rejected as a result of our safety system."),
    "Volcengine": status(
        400,
        {
            "error": {
                "code": "InputTextSensitiveContentDetected",
                "message": "the input text may contain sensitive information",
            }
        },
    ),
    "MiniMax": status(200, {"base_resp": {"status_code": 1026, "status_msg": "input new_sensitive"}}),
}
"""How a server says that it filtered a question."""

ENDED = {
    "stop": "stop STOP eos EOS_TOKEN stop_string stopped_eos FINISH normal "
    "end_turn endTurn end-turn END_OF_TURN stop_sequence FINISH_REASON_STOP "
    "<|im_end|> completed",
    "length": "length LENGTH limit max_completion_tokens maximum_tokens max_tokens MAX_TOKENS "
    "maxTokens FINISH_REASON_MAX_TOKENS model_length",
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


@dataclass(frozen=True)
class Habit:
    """A server as its users report it: what it does not take, and how it says so."""

    refuses: str
    """Fields, or ``system`` for such a turn, each with a value from which on (``n>1``) or below which
    (``top_k<0``) it is refused, if not always."""
    said: str
    """In a body: FIELD and CAMEL are the first refused field, EACH repeats what follows for all of them."""
    code: int = 400
    most_refused: int = 1
    """Calls that it may cost to learn that."""
    left: str = "temperature top_p seed"
    """Fields that must not be given up for it."""
    before: bytes = b""
    """Bytes in front of every response."""

    def refused(self, call: Call) -> list[str]:
        values = {name: value for name, value in call.body.items() if value is not False}
        if any(turn["role"] == "system" for turn in call.body["messages"]):
            values["system"] = True
        refused = []
        for word in self.refuses.split():
            name, sign, limit = word.partition(">") if ">" in word else word.partition("<")
            if name in values and (
                not sign or (values[name] > int(limit) if sign == ">" else values[name] < int(limit))
            ):
                refused.append(name)
        return refused

    def __call__(self, call: Call) -> Action:
        if names := self.refused(call):
            return said(self.code, self.said, names)
        texts = [choice(f"text {call.number} {place}") for place in range(call.n)]
        return raw(self.before + json.dumps({"choices": texts, "usage": None}).encode())


def said(code: int, body: str, names: Sequence[str] = ()) -> Action:
    """A response that is what it looks like: JSON, a page or a text."""
    head, repeats, form = body.partition("EACH")
    if repeats:
        form, _, tail = form.partition("HCAE")
        body = head + ", ".join(form.replace("FIELD", name) for name in names) + tail
    for name in names[:1]:
        body = body.replace("FIELD", name).replace("CAMEL", camel(name))
    kind = {"{": "application/json", "[": "application/json", "<": "text/html"}.get(body[:1], "text/plain")
    return text(code, body, kind)


_UNKNOWN = "chat_template_kwargs min_p repetition_penalty top_k"
_OTHERS = "top_k min_p seed"
_TYPED = '{"type": "extra_forbidden", "loc": ["body", "FIELD"], "msg": "Extra inputs are not permitted"}'
_SERDE = "Failed to deserialize the JSON body into the target type:"

_MESSAGE = '{"error": {"message": "%s"}}'

SERVERS: dict[str, Habit] = {
    "two of OpenAI's": Habit("seed n>1", _MESSAGE % "Unsupported parameters: EACHFIELDHCAE", left="top_k"),
    "Groq": Habit(_UNKNOWN, _MESSAGE % "property 'FIELD' is unsupported, did you mean 'top_p'?", 400, 2),
    "OpenRouter": Habit(
        "seed",
        '{"error": {"message": "No endpoints found that can handle the requested parameters.", "code": 404}}',
        404,
        left="temperature",
    ),
    "Groq, several": Habit("n>1", '{"error": {"message": "\'n\' : number must be at most 1"}}'),
    "Fireworks": Habit(
        "chat_template_kwargs",
        '{"error": {"message": "Extra inputs are not permitted, field: \'FIELD\', value: {\'a\': False}"}}',
        left=_OTHERS,
    ),
    "Cohere": Habit("n>1", '{"id": "3", "message": "unprocessable entity: n is not supported"}', 422),
    "Cohere's own field": Habit(
        "n>1", '{"message": "unknown field: parameter \'num_generations\' is not a valid field."}', 422
    ),
    "xAI": Habit(
        _UNKNOWN, '{"code": "Invalid", "error": "Model m does not support parameter CAMEL."}', 400, 2
    ),
    "DeepSeek": Habit(
        _UNKNOWN,
        f"{_SERDE} unknown field `FIELD`, expected one of `model`, `temperature`, `top_p`, `seed`, `n` at 1",
        *(422, 2),
    ),
    "DeepSeek's limit": Habit(
        "max_tokens", '{"error": {"message": "Unsupported: \'FIELD\'. Use \'max_completion_tokens\'."}}'
    ),
    "Databricks": Habit(
        _UNKNOWN,
        '{"error_code": "BAD_REQUEST", "message": "Bad request: json: unknown field \\"FIELD\\""}',
        *(400, 2),
    ),
    "Databricks before a model": Habit(
        "seed",
        '{"error": "Received error from m", "external_model_message": {"message": "FIELD is not permitted"}}',
        left="top_k min_p",
    ),
    "Java": Habit(
        _UNKNOWN,
        '{"error": "Bad Request", "message": "Unrecognized field \\"FIELD\\" (class Chat), not marked as '
        'ignorable (3 known properties: \\"temperature\\", \\"top_p\\", \\"seed\\"])", "path": "/v1"}',
        *(400, 2),
    ),
    "AI21": Habit("seed", '{"detail": "Invalid model parameters: FIELD"}', 422, left="top_k min_p"),
    "ASP.NET": Habit(
        _UNKNOWN, '{"title": "Invalid", "status": 400, "errors": {EACH"FIELD": ["It is unknown."]HCAE}}'
    ),
    "JSON:API": Habit(
        "seed min_p",
        '{"errors": [EACH{"source": {"pointer": "/FIELD"}, "detail": "unknown"}HCAE]}',
        left="top_k",
    ),
    "Mistral": Habit(
        f"seed {_UNKNOWN}",
        f'{{"object": "error", "detail": [EACH{_TYPED}HCAE], "type": "invalid_request_error", "code": 3001}}',
        422,
        left="temperature top_p",
    ),
    "errors as a text": Habit(
        "min_p top_k",
        _MESSAGE % "[EACH{'type': 'extra_forbidden', 'loc': ('body', 'FIELD')}HCAE]",
        left="repetition_penalty seed",
    ),
    "TensorRT-LLM": Habit(
        "min_p",
        _MESSAGE % "1 validation error for ChatCompletionRequest\\nFIELD\\n  Extra inputs are not permitted "
        "[type=extra_forbidden, input_value=0.0, input_type=float]",
        left="top_k seed",
    ),
    "TGI": Habit(
        "top_p>0",
        '{"error": "Input validation error: `FIELD` must be > 0.0 and < 1.0", "error_type": "validation"}',
        422,
        left=_OTHERS,
    ),
    "a limit by another name": Habit(
        "max_tokens", '{"error": {"message": "Invalid parameter", "param": "max_tokens", "code": "invalid"}}'
    ),
    "a smallest number": Habit(
        "top_k<1", '{"detail": "FIELD: ensure this value is greater than or equal to 1"}', 422
    ),
    "a Rust server": Habit(
        "top_k<0", "FIELD: invalid value: integer `-1`, expected u32 at line 1 column 9", 422, left=_OTHERS
    ),
    "Ollama": Habit(
        "top_k<0",
        '{"error": {"message": "json: cannot unmarshal number -1 into Go struct field Chat.FIELD of uint"}}',
        left=_OTHERS,
    ),
    "Bedrock": Habit(
        "min_p repetition_penalty",
        '{"message": "Malformed input request: #: extraneous key [FIELD] is not permitted"}',
        *(400, 2),
    ),
    "OCI": Habit("n>1", '{"message": "OciException - param `n` is not supported on OCI"}', 500),
    "Gemini": Habit("n>1", '[{"error": {"code": 400, "message": "Multiple candidates is not enabled"}}]'),
    "Zhipu": Habit(
        "top_p", '{"error": {"code": "1214", "message": "FIELD 参数非法。取值范围"}}', left=_OTHERS
    ),
    "DashScope": Habit(
        "top_p", '{"error": {"message": "<400> Algo.Invalid: Range of FIELD should be (0, 1)"}}', left=_OTHERS
    ),
    "Cloudflare": Habit(
        "min_p",
        '{"result": null, "success": false, "errors": [{"code": 5006, "message": "AiError: oneOf"}]}',
        left="temperature",
    ),
    "a firewall": Habit(
        "chat_template_kwargs", '<html><body role="main">Bad Request</body></html>', left="temperature"
    ),
    "LM Studio": Habit(
        "system", '{"error": "Error rendering prompt with jinja template: \\"No such role\\"."}', left=_OTHERS
    ),
    "Perplexity": Habit(
        "system",
        '{"error": {"message": "After the (optional) system message(s), roles should be alternating."}}',
        left=_OTHERS,
    ),
    "DeepSeek's roles": Habit(
        "system",
        f"{_SERDE} messages[0].role: unknown variant `system`, expected one of `user`, `assistant`",
        left=_OTHERS,
    ),
    "lines that keep a connection": Habit("", "", most_refused=0, before=b"\n \n\n" * 40),
    "a byte order mark": Habit("", "", most_refused=0, before=b"\xef\xbb\xbf"),
}
"""What servers refuse or send beside a usual call."""

LASTING: dict[str, tuple[int, str, str]] = {
    "OpenAI's key": (401, '{"error": {"message": "Incorrect API key"}}', "key"),
    "OpenAI's model": (404, '{"error": {"message": "The model `m` does not exist"}}', "not_found"),
    "OpenAI's quota": (
        429,
        '{"error": {"code": "insufficient_quota", "message": "see plan"}}',
        "credit",
    ),
    "DeepSeek's balance": (402, '{"error": {"message": "pay"}}', "credit"),
    "Gemini's key": (400, '[{"error": {"code": 400, "message": "API key not valid."}}]', "key"),
    "xAI's key": (400, '{"code": "x", "error": "Incorrect API key provided: xx"}', "key"),
    "xAI's credit": (403, '{"code": "x", "error": "Your team doesn\'t have any credits yet."}', "credit"),
    "Anthropic's credit": (400, '{"error": {"message": "Your credit balance is too low"}}', "credit"),
    "Moonshot's quota": (429, '{"error": {"message": "", "type": "exceeded_current_quota_error"}}', "credit"),
    "DashScope's arrears": (400, '{"code": "Arrearage", "message": "Access denied"}', "credit"),
    "Zhipu's balance": (429, '{"error": {"code": "1113", "message": "您的账户余额不足"}}', "credit"),
    "Groq's model": (400, '{"error": {"message": "m has been decommissioned", "code": "x"}}', "not_found"),
    "DeepSeek's model": (400, '{"error": {"message": "Model Not Exist"}}', "not_found"),
    "Mistral's model": (400, '{"message": "Invalid model: m", "type": "invalid_model"}', "not_found"),
    "OpenRouter's model": (400, '{"error": {"message": "m is not a valid model ID"}}', "not_found"),
    "a wrong path": (405, "Method Not Allowed", "not_found"),
    "DeepSeek's limit": (400, '{"message": "Invalid max_tokens value, the valid range is [1, 8]"}', "field"),
    "a model that is not there": (
        400,
        '{"error": {"message": "The model `m` is not available. Available models: a", "param": "model"}}',
        "not_found",
    ),
    "a smallest limit": (
        400,
        '{"error": {"message": "integer below minimum value: expected >= 16, got 9", "param": "max_tokens"}}',
        "field",
    ),
    "OpenAI's limit": (400, '{"error": {"message": "It is too large: 9", "param": "max_tokens"}}', "field"),
}
"""What every call would meet: status, body, and the code of the error that ends a run."""

UNCLEAR: dict[str, tuple[int, str]] = {
    "two words": (400, '{"error": {"message": "Bad request"}}'),
    "nothing": (400, "{}"),
    "plain text": (400, "Bad Request"),
    "a page": (400, '<html><body role="main"><h1>400</h1>system error</body></html>'),
    "Chinese": (400, '{"error": {"code": "1210", "message": "API 调用参数有误，请检查文档。"}}'),
    "French": (422, '{"message": "La requête est invalide"}'),
    "a body that lacks something": (422, '{"detail": [{"type": "missing", "loc": ["body", "prompt"]}]}'),
    "a schema": (400, '{"errors": [{"code": 5006, "message": "AiError: oneOf at \'/\' not met"}]}'),
}
"""Refusals that name no field that was sent: status and body."""
