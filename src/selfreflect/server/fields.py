"""The table of the fields of requests: which the endpoint reads, hands on, ignores, or cannot reflect."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from msgspec import Raw

Fields = dict[str, Raw]
"""A JSON object whose values are not decoded."""

EMPTY = frozenset((b"null", b"false", b"0", b"0.0", b"[]", b"{}", b'""'))
"""Values that say nothing in any field that is not read."""

NAME = re.compile(r"[a-z_]{1,40}")
"""Names of fields that may stand in notes, headers and errors."""

RESPONSE_FORMAT = "response_format"
"""Asks for answers that are JSON."""

Use = Literal["read", "hand_on", "ignore", "relay"]


@dataclass(frozen=True)
class FieldUse:
    """What the endpoint does with a field of a question.

    Attributes:
        use: ``read``; ``hand_on`` to the model's server with every call; ``ignore``; or ``relay`` the whole
            request, because no distribution of plain texts can honour the field.
        absent: values that mean the same as no field, as JSON.
    """

    use: Use
    absent: frozenset[bytes] = frozenset()


def _rows(use: Use, names: str, *absent: bytes) -> dict[str, FieldUse]:
    return dict.fromkeys(names.split(), FieldUse(use, frozenset(absent)))


_COMMON = {
    **_rows("read", "model stream stream_options temperature top_p selfreflect store"),
    # what a server needs to know to think, to bill or to find its cache
    **_rows("hand_on", "chat_template_kwargs enable_thinking thinking_budget reasoning_effort verbosity"),
    **_rows("hand_on", "service_tier safety_identifier prompt_cache_key prompt_cache_retention user"),
    # notes of a client, and hints that change no text of a question
    **_rows("ignore", "metadata parallel_tool_calls prediction frequency_penalty presence_penalty"),
    **_rows("ignore", "repetition_penalty repeat_penalty cache_prompt keep_alive max_tool_calls"),
    **_rows("relay", "tools tool_choice functions function_call", b'"none"', b'"auto"', b'{"type":"auto"}'),
}

CHAT = {
    **_COMMON,
    **_rows("read", "messages n stop"),
    # -1 is the way of local servers to say "no limit" and "no seed"
    **_rows("read", "max_tokens max_completion_tokens seed top_k", b"-1"),
    **_rows("read", "min_p"),
    # answers are objects then, see structured.py
    **_rows("hand_on", RESPONSE_FORMAT, b'{"type":"text"}', b'{"type": "text"}'),
    **_rows("relay", "modalities", b'["text"]'),
    **_rows("relay", "audio logprobs top_logprobs logit_bias web_search_options prompt_logprobs echo"),
    **_rows("relay", "best_of stop_token_ids structured_outputs grammar json_schema guided_json"),
    **_rows("relay", "guided_regex guided_choice guided_grammar ebnf regex continue_final_message"),
}
"""Fields of ``/v1/chat/completions``."""

RESPONSES = {
    **_COMMON,
    **_rows("read", "input instructions max_output_tokens previous_response_id reasoning text seed stop"),
    **_rows("ignore", "include truncation context_management moderation"),
    **_rows("relay", "background conversation prompt top_logprobs"),
}
"""Fields of ``/v1/responses``."""

MESSAGES = {
    **_COMMON,
    **_rows("read", "messages system max_tokens stop_sequences top_k seed output_config"),
    **_rows("ignore", "thinking cache_control context_management inference_geo speed betas"),
    **_rows("relay", "output_format container mcp_servers"),
}
"""Fields of ``/v1/messages``."""

TURN = {
    **_rows("read", "role content selfreflect"),
    **_rows("relay", "tool_calls tool_call_id function_call audio images prefix partial"),
}
"""Fields of a turn of a conversation; any other is ignored."""


@dataclass
class SortedFields:
    """The fields of one request, sorted by their use."""

    read: Fields = field(default_factory=dict)
    """By their names in chat completions."""
    handed_on: dict[str, Any] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    reason: str = ""
    """The first field that no distribution can honour."""

    def sort(
        self, fields: Fields, rows: Mapping[str, FieldUse], *, hands_on: bool, ignores: Collection[str] = ()
    ) -> None:
        """Sort the fields of an object by the table, but for those that are ignored in any case.

        Args:
            hands_on: whether unknown fields are handed on: newer clients send more than any table knows.
        """
        for name, value in fields.items():
            unknown = FieldUse("hand_on" if hands_on and NAME.fullmatch(name) else "ignore")
            row = rows.get(name, unknown)
            data = bytes(value)
            if data in row.absent or (row.use != "read" and data in EMPTY):
                continue
            if name in ignores:
                self.ignore(name)
            elif row.use == "read":
                self.read[name] = value
            elif row.use == "relay":
                self.relay(shown(name))
            elif row.use == "ignore":
                self.ignore(shown(name))
            else:
                self.handed_on[name] = msgspec.json.decode(data)

    def relay(self, reason: str) -> None:
        """Note why the request cannot be reflected, unless another reason came first."""
        self.reason = self.reason or reason

    def ignore(self, name: str) -> None:
        if name not in self.ignored:
            self.ignored.append(name)

    def put(self, name: str, value: Any) -> None:
        """Set a field of chat completions."""
        self.read[name] = Raw(msgspec.json.encode(value))


def shown(name: str, within: str = "") -> str:
    """Name a field in notes and headers; a name of other characters is called ``field``."""
    return within + (name if NAME.fullmatch(name) else "field")
