"""Read requests for chat completions: which are plain questions, whose distribution can be drawn, and which
must reach the upstream unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw

from selfreflect.models.base import Message, Role
from selfreflect.server.errors import ChatError

PREFIX = "selfreflect/"
"""Stands before the name of a model whose distribution is drawn."""

MAX_ANSWERS = 200
MAX_CHOICES = 8
MAX_TURNS = 2000
"""No question has so many. Reading a body of nothing but turns would hold up everybody for seconds."""

_PLAIN = frozenset(
    "model messages n stop seed temperature top_p max_tokens max_completion_tokens stream stream_options "
    "selfreflect".split()
)
"""Fields that a question may have."""
_NO_EFFECT = frozenset(
    "user metadata store safety_identifier prompt_cache_key service_tier parallel_tool_calls".split()
)
"""Fields that change no text of a question."""
_EMPTY = frozenset((b"null", b"false", b"0", b"0.0", b"[]", b"{}", b'""'))
_SAME_AS_MISSING = {
    "response_format": frozenset((b'{"type":"text"}', b'{"type": "text"}')),
    "tool_choice": frozenset((b'"none"', b'"auto"')),
    "modalities": frozenset((b'["text"]',)),
}
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_FIELD = re.compile(r"[a-z_]{1,40}")

_Fields = dict[str, Raw]
_Turns = Annotated[list[_Fields], Meta(max_length=MAX_TURNS)]
T = TypeVar("T")


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The field ``selfreflect`` of a request. What it leaves out, the server's defaults decide."""

    strategy: Annotated[str, Meta(max_length=100)] | None = None
    num_answers: Annotated[int, Meta(ge=2, le=MAX_ANSWERS)] | None = None
    confidence: Annotated[str, Meta(max_length=100)] | None = None
    """An estimator, or ``none``."""
    measures: tuple[Literal["selfreflect", "information"], ...] | None = None


_DEFAULTS = ChatOptions()


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


Tokens = Annotated[int, Meta(ge=1, le=1_000_000)]


class _Envelope(msgspec.Struct):
    """What is read of every request."""

    model: Annotated[
        str,
        Meta(min_length=1, max_length=400, description="selfreflect/NAME, or NAME for the model itself."),
    ]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


class ChatBody(_Envelope):
    """A plain question; its ``messages`` are read one by one."""

    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    stop: str | Annotated[list[str], Meta(max_length=16)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    selfreflect: ChatOptions | None = None


class _TextPart(msgspec.Struct):
    type: Literal["text"]
    text: str


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """What a client asks."""

    data: bytes = field(repr=False)
    """The body as it came."""
    model: str
    """The upstream's name of it, without ``selfreflect/``."""
    stream: bool = False
    include_usage: bool = False
    """Whether a stream ends with a chunk for the usage."""
    reflects: bool = True
    """Whether the distribution is wanted, not the model itself."""
    passthrough: str = ""
    """Why the request goes to the upstream as it is; empty for a question, which has what follows."""
    messages: tuple[Message, ...] = ()
    """Ends with the user's question."""
    n: int = 1
    stop: tuple[str, ...] = ()
    seed: int | None = None
    temperature: float | None = None
    """Of the summary, like ``top_p``."""
    top_p: float | None = None
    max_tokens: int | None = None
    options: ChatOptions = _DEFAULTS
    lacks_tools: bool = False
    """Whether tools came with the question that the model does not see."""

    @property
    def requested_model(self) -> str:
        """Give the name by which the client asked for the model."""
        return f"{PREFIX}{self.model}" if self.reflects else self.model

    @property
    def question(self) -> str:
        return self.messages[-1].content

    @property
    def context(self) -> str:
        """Join everything before the question: instructions, documents, earlier turns."""
        turns = []
        for turn in self.messages[:-1]:
            turns.append(turn.content if turn.role == "system" else f"{turn.role}: {turn.content}")
        return "\n\n".join(turns)


def read_chat(data: bytes, ignore_tools: bool = False) -> ChatRequest:
    """Read the body of a request. One to a model itself is not read further.

    Args:
        ignore_tools: whether a question stays one if tools come with it, which the model then does not see.

    Raises:
        ChatError: status 400: it is no JSON object, has no model, or a field of a question is wrong.
    """
    envelope = _typed(_decode(data, _Fields), _Envelope)
    if not envelope.model.startswith(PREFIX):
        return ChatRequest(
            data=data,
            model=envelope.model,
            stream=bool(envelope.stream),
            reflects=False,
            passthrough="model",
        )
    return read_question(data, ignore_tools)


def read_question(data: bytes, ignore_tools: bool = False) -> ChatRequest:
    """Read a request in full, whichever model it names. Arguments and errors as of :func:`read_chat`."""
    fields = _decode(data, _Fields)
    envelope = _typed(fields, _Envelope)
    common: dict[str, Any] = {
        "model": envelope.model.removeprefix(PREFIX),
        "reflects": envelope.model.startswith(PREFIX),
        "stream": bool(envelope.stream),
        "include_usage": bool(envelope.stream_options and envelope.stream_options.include_usage),
    }
    turns = _decode(bytes(fields.get("messages", Raw(b"null"))), _Turns, "messages")
    lacks_tools = ignore_tools and bytes(fields.get("tools", Raw(b"null"))) not in _EMPTY
    plain = {name: value for name, value in fields.items() if name != "tools"} if lacks_tools else fields
    reason = _unusual_field(plain)
    messages: list[Message] = []
    for turn in turns:
        message = _message(turn)
        if isinstance(message, Message):
            messages.append(message)
        else:
            reason = reason or message
    if not reason and not messages:
        message = "messages is empty: the last one, from the user, is the question"
        raise ChatError(400, message, param="messages", code="no_messages")
    if not reason and messages[-1].role != "user":
        reason = "messages.last"
    if reason:
        cleaned = _without_ours(fields, turns, common["model"])
        return ChatRequest(data=cleaned, passthrough=reason, **common)
    body = _typed(fields, ChatBody)
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    return ChatRequest(
        data=data,
        messages=tuple(messages),
        n=body.n or 1,
        stop=tuple(filter(None, stop)),
        seed=body.seed,
        temperature=body.temperature,
        top_p=body.top_p,
        max_tokens=body.max_completion_tokens or body.max_tokens,
        options=body.selfreflect or _DEFAULTS,
        lacks_tools=lacks_tools,
        **common,
    )


def _typed(fields: _Fields, kind: type[T]) -> T:
    """Read the fields that a struct has, one by one, so that an error can name the field."""
    values = {}
    for info in msgspec.structs.fields(kind):  # type: ignore[arg-type]
        if info.name in fields:
            values[info.name] = _decode(bytes(fields[info.name]), info.type, info.name)
        elif info.required:
            raise ChatError(400, f"the field {info.name} is missing", param=info.name)
    return kind(**values)


def _decode(data: bytes, kind: type[T], param: str | None = None) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        name = f"{param}: " if param else ""
        raise ChatError(400, f"{name}{error}", param=param) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ChatError(400, f"the body is not JSON: {error}") from None


def _unusual_field(fields: _Fields) -> str:
    """Name the first field that a question does not have; empty without one."""
    for name, value in fields.items():
        raw = bytes(value)
        neutral = _EMPTY | _SAME_AS_MISSING.get(name, frozenset())
        # an unknown field may change the answer, so the upstream must see it
        if name not in _PLAIN and name not in _NO_EFFECT and raw not in neutral:
            return name if _FIELD.fullmatch(name) else "field"
    return ""


def _message(turn: _Fields) -> Message | str:
    """Read a turn of plain text, or say what is unusual about it."""
    for name, value in turn.items():
        if name not in ("role", "content", "selfreflect") and bytes(value) not in _EMPTY:
            return f"messages.{name}" if _FIELD.fullmatch(name) else "messages.field"
    role = _decode(bytes(turn.get("role", Raw(b"null"))), str, "messages")
    if role not in _ROLES:
        return "messages.role"
    content = bytes(turn.get("content", Raw(b"null")))
    try:
        parts = msgspec.json.decode(content, type=str | list[_TextPart])
    except msgspec.ValidationError:
        return "messages.content"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ChatError(400, f"the body is not JSON: {error}", param="messages") from None
    # some clients split one text into parts
    text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
    return Message(role=_ROLES[role], content=text)


def _without_ours(fields: _Fields, turns: list[_Fields], model: str) -> bytes:
    """Make the body for the upstream, with its own name of the model. All other values keep their bytes."""
    own_turns = []
    for turn in turns:
        # nulls that the SDKs add are refused by strict servers
        turn = {name: value for name, value in turn.items() if name == "content" or bytes(value) != b"null"}
        turn.pop("selfreflect", None)
        own_turns.append(turn)
    cleaned = {name: value for name, value in fields.items() if name != "selfreflect"}
    cleaned |= {"model": Raw(msgspec.json.encode(model)), "messages": Raw(msgspec.json.encode(own_turns))}
    return msgspec.json.encode(cleaned)
