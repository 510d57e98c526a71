"""Reading of requests: whether to reflect on a question, or pass the request on unchanged."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw

from selfreflect.models.base import Message, Role
from selfreflect.server.errors import ChatError
from selfreflect.server.reply import ToolKind

Fields = dict[str, Raw]
"""A JSON object whose values are not decoded."""

UNSAID = frozenset((b"null", b"[]", b"{}", b'""'))
"""Values without meaning in a field that is passed on."""
EMPTY = UNSAID | {b"false", b"0", b"0.0"}
"""Values without meaning in other unread fields."""

# Characters of the longest value that says nothing, with its white space.
_LONGEST_ABSENT = 100

NAME = re.compile(r"[a-z_]{1,40}")
"""Field names that may appear in notes, headers and errors."""

RESPONSE_FORMAT = "response_format"
"""Field that requests JSON answers."""
TOOLS = "tools"
"""Field that offers tools to answers."""
OF_TOOLS = (TOOLS, "tool_choice", "parallel_tool_calls")
"""Fields without meaning if there are no tools."""

Use = Literal["read", "hand_on", "ignore", "relay"]


@dataclass(frozen=True)
class FieldUse:
    """The endpoint's use of a request field.

    Attributes:
        use: ``read``; ``hand_on`` to the model's server with every call; ``ignore``; or ``relay`` the whole
            request, because no distribution of plain texts can honour the field.
        absent: values that mean the same as no field, as JSON.
        said: a value that looks empty and is not.
    """

    use: Use
    absent: frozenset[bytes] = frozenset()
    said: bytes = b""


def _rows(use: Use, names: str, *absent: bytes) -> dict[str, FieldUse]:
    return dict.fromkeys(names.split(), FieldUse(use, frozenset(absent)))


_COMMON = {
    **_rows("read", "model stream stream_options temperature top_p selfreflect store"),
    # what a server needs to know to think, to bill or to find its cache
    **_rows("hand_on", "chat_template_kwargs enable_thinking thinking_budget reasoning_effort verbosity"),
    **_rows("hand_on", "service_tier safety_identifier prompt_cache_key prompt_cache_retention user"),
    # notes of a client, and hints that change no text of a question
    **_rows("ignore", "metadata prediction frequency_penalty presence_penalty"),
    **_rows("ignore", "repetition_penalty repeat_penalty cache_prompt keep_alive max_tool_calls"),
    # answers are calls then, see structured.py
    **_rows("hand_on", "tools tool_choice parallel_tool_calls"),
    **_rows("relay", "functions function_call", b'"none"', b'"auto"'),
}

CHAT = {
    **_COMMON,
    **_rows("read", "messages n stop"),
    # -1 is the way of local servers to say "no limit" and "no seed"
    **_rows("read", "max_tokens max_completion_tokens seed top_k", b"-1"),
    **_rows("read", "min_p"),
    # answers are objects then, see structured.py
    **_rows("hand_on", RESPONSE_FORMAT, b'{"type":"text"}'),
    **_rows("relay", "modalities", b'["text"]'),
    **_rows("relay", "audio logprobs top_logprobs logit_bias prompt_logprobs echo"),
    "web_search_options": FieldUse("relay", said=b"{}"),
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
    **_rows("read", "messages system max_tokens stop_sequences top_k seed output_config output_format"),
    **_rows("ignore", "thinking cache_control context_management inference_geo speed betas"),
    **_rows("relay", "container mcp_servers"),
}
"""Fields of ``/v1/messages``."""

TURN = {
    **_rows("read", "role content selfreflect"),
    **_rows("relay", "tool_calls tool_call_id function_call audio images prefix partial"),
}
"""Fields of a turn of a conversation; any other is ignored."""


@dataclass
class SortedFields:
    """A request's fields, sorted by use."""

    read: Fields = field(default_factory=dict)
    """Fields by their names in chat completions."""
    handed_on: dict[str, Any] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    reason: str = ""
    """First field that no distribution can honour."""
    instructions: str = ""
    """Instructions for this request alone, not for requests that continue from its response."""

    def sort(
        self, fields: Fields, rows: Mapping[str, FieldUse], *, hands_on: bool, ignores: Collection[str] = ()
    ) -> None:
        """Sort the fields of an object by the table, except fields that are always ignored.

        Args:
            hands_on: whether unknown fields are handed on: newer clients send more than any table knows.
        """
        for name, value in fields.items():
            unknown = FieldUse("hand_on" if hands_on and NAME.fullmatch(name) else "ignore", EMPTY)
            row = rows.get(name, unknown)
            data = bytes(value)
            if len(data) <= _LONGEST_ABSENT:  # without the white space of JSON that is printed for people
                data = msgspec.json.format(data, indent=-1)
            # a field that is read is decoded later, and null with it
            empty = {"read": frozenset[bytes](), "hand_on": UNSAID}.get(row.use, EMPTY)
            if data in row.absent or (data in empty and data != row.said):
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
                self.handed_on[name] = decode(data, Any, shown(name))

    def relay(self, reason: str) -> None:
        """Record the first reason why the request cannot be reflected."""
        self.reason = self.reason or reason

    def ignore(self, name: str) -> None:
        if name not in self.ignored:
            self.ignored.append(name)

    def put(self, name: str, value: Any) -> None:
        """Set a chat completions field."""
        self.read[name] = Raw(msgspec.json.encode(value))


def shown(name: str, within: str = "") -> str:
    """Name a field in notes and headers, or call it ``field`` if the name has special characters."""
    return within + (name if NAME.fullmatch(name) else "field")


PREFIX = "selfreflect/"
"""Prefix of a model whose distribution is drawn."""


def reflected_model(name: str) -> str:
    """Remove the prefix of a served name, which leaves the model's own."""
    return name.removeprefix(PREFIX)


ID_PREFIX = "sr-"
"""Prefix of response ids."""

MAX_ANSWERS = 200
MAX_CHOICES = 8
MAX_TURNS = 2000
"""Maximum number of turns. No question has as many, and a body of nothing but turns would block all requests
for seconds."""

Reflect = Literal["always", "auto", "never"]
"""When to reflect on a request to ``selfreflect/NAME``: always, for questions, or never."""

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}

_NULL = Raw(b"null")

Turns = Annotated[list[Fields], Meta(max_length=MAX_TURNS)]
T = TypeVar("T")


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The request field ``selfreflect``, completed by the server's defaults."""

    strategy: Annotated[str, Meta(max_length=100)] | None = None
    num_answers: Annotated[int, Meta(ge=2, le=MAX_ANSWERS)] | None = None
    confidence: Annotated[str, Meta(max_length=100)] | None = None
    """Name of an estimator, or ``none``."""
    measures: tuple[Annotated[str, Meta(max_length=100)], ...] | None = None
    reflect: Reflect | None = None
    claims: bool | None = None
    """Whether the response lists the claims of the answers."""


_DEFAULTS = ChatOptions()


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


Tokens = Annotated[int, Meta(ge=1, le=1_000_000)]


class Envelope(msgspec.Struct):
    """Fields read from every request."""

    model: Annotated[
        str,
        Meta(min_length=1, max_length=400, description="selfreflect/NAME, or NAME for the model itself."),
    ]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    store: bool | None = None


class ChatBody(msgspec.Struct):
    """A plain question, with ``messages`` still unparsed."""

    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    stop: str | Annotated[list[str], Meta(max_length=16)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    selfreflect: ChatOptions | None = None


SAMPLING = ("temperature", "top_p", "top_k", "min_p")
"""Fields of a request that set how the summary is sampled."""


class Tool(msgspec.Struct):
    """A tool that the client runs."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    parameters: Any = None
    """JSON schema of the arguments."""


class _OfferedTool(msgspec.Struct):
    type: ToolKind
    function: Tool


class _AllowedTools(msgspec.Struct):
    tools: list[_OfferedTool]
    mode: str = "auto"


class _ToolChoice(msgspec.Struct):
    """The tools that answers may call."""

    type: ToolKind | Literal["allowed_tools"]
    function: Tool | None = None
    allowed_tools: _AllowedTools | None = None

    @property
    def names(self) -> set[str]:
        allowed = self.allowed_tools.tools if self.allowed_tools else []
        return {tool.name for tool in (self.function, *(entry.function for entry in allowed)) if tool}


class _TextPart(msgspec.Struct):
    type: Literal["text"]
    text: str


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """A client's request in any format."""

    data: bytes = field(repr=False)
    """Body as received, or as the upstream gets it."""
    model: str
    """Upstream's model name, without ``selfreflect/``."""
    stream: bool = False
    include_usage: bool = False
    """Whether a stream ends with a chunk for the usage."""
    reflects: bool = True
    """Whether the client wants the distribution instead of the model itself."""
    passthrough: str = ""
    """Reason for passing the request on unchanged; empty for a question, which has the fields below."""
    messages: tuple[Message, ...] = ()
    """Messages, ending with the user's question."""
    n: int = 1
    stop: tuple[str, ...] = ()
    seed: int | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)
    """Settings of the summary that the request names, see ``SAMPLING``."""
    max_tokens: int | None = None
    options: ChatOptions = _DEFAULTS
    handed_on: Mapping[str, Any] = field(default_factory=dict)
    """Fields passed to the model's server with every call."""
    ignored: tuple[str, ...] = ()
    """Fields without effect here."""
    stores: bool = True
    """Whether the server may remember the response."""
    previous: str = ""
    """Id of the response that the conversation continues; its turns are in ``messages``."""
    lasting: tuple[Message, ...] = ()
    """Turns that a later request may continue from."""
    echo: Mapping[str, Any] = field(default_factory=dict)
    """Fields repeated in the response."""

    @property
    def requested_model(self) -> str:
        """Model name as the client requested it."""
        return f"{PREFIX}{self.model}" if self.reflects else self.model

    @property
    def response_format(self) -> Mapping[str, Any] | None:
        """Format of JSON answers; None for plain texts."""
        value = self.handed_on.get(RESPONSE_FORMAT)
        return value if isinstance(value, dict) else None

    @property
    def _tool_choice(self) -> str | _ToolChoice:
        choice = self.handed_on.get("tool_choice", "auto")
        return choice if isinstance(choice, str) else msgspec.convert(choice, _ToolChoice)

    @property
    def tools(self) -> list[Tool]:
        """Tools that answers may call."""
        choice = self._tool_choice
        if choice == "none":
            return []
        declared_tools = msgspec.convert(self.handed_on.get(TOOLS, []), list[_OfferedTool])
        tools = [tool.function for tool in declared_tools]
        names = {tool.name for tool in tools} if isinstance(choice, str) else choice.names
        # a choice of what is not offered is for the upstream to refuse
        return [tool for tool in tools if tool.name in names] or tools

    @property
    def must_call(self) -> bool:
        """Whether each answer must call a tool."""
        choice = self._tool_choice
        if isinstance(choice, _ToolChoice) and choice.allowed_tools:
            choice = choice.allowed_tools.mode
        return bool(self.tools) and choice != "auto"

    @property
    def structure(self) -> str:
        """Name of the field that requires structured answers; empty for plain texts."""
        return TOOLS if self.tools else RESPONSE_FORMAT if self.response_format is not None else ""

    @property
    def question(self) -> str:
        return self.messages[-1].content

    @property
    def context(self) -> str:
        """Text before the question: instructions, documents and earlier turns."""
        turns = []
        for turn in self.messages[:-1]:
            turns.append(turn.content if turn.role == "system" else f"{turn.role}: {turn.content}")
        return "\n\n".join(turns)


Conversations = Callable[[str], tuple[Message, ...] | None]
"""Function from a remembered response's id to its turns."""


@dataclass(frozen=True)
class Dialect:
    """Rules for reading one request format.

    Attributes:
        rows: its fields.
        translate: turns what was read into fields of chat completions.
        for_upstream: makes the body for the upstream of the fields and its own name of the model.
        names: what it calls fields of chat completions, for errors.
        hands_on: whether the upstream gets unknown fields; those of another form would mean nothing to it.
        echoes: fields that the response repeats.
    """

    rows: Mapping[str, FieldUse]
    translate: Callable[[SortedFields], None]
    for_upstream: Callable[[Fields, str, tuple[Message, ...]], bytes]
    names: Mapping[str, str] = field(default_factory=dict)
    hands_on: bool = False
    echoes: tuple[str, ...] = ()


def read_request(
    data: bytes,
    dialect: Dialect,
    *,
    ignore_tools: bool = False,
    in_full: bool = False,
    remembered: Conversations = lambda id_: None,
) -> ChatRequest:
    """Read the body of a request. A request to a model itself is parsed only if ``in_full``.

    Args:
        ignore_tools: whether a question stays one if tools come with it, which the model then does not see.
        remembered: finds the turns of the response that a request goes on from.

    Raises:
        ChatError: status 400: it is no JSON object, has no model, or a field of a question is wrong.
    """
    fields = decode(data, Fields)
    envelope = typed(fields, Envelope)
    reflects = envelope.model.startswith(PREFIX)
    model = reflected_model(envelope.model)
    if not reflects and not in_full:
        return ChatRequest(
            data=data, model=model, stream=bool(envelope.stream), reflects=False, passthrough="model"
        )
    common: dict[str, Any] = {
        "model": model,
        "reflects": reflects,
        "stream": bool(envelope.stream),
        "include_usage": bool(envelope.stream_options and envelope.stream_options.include_usage),
        "stores": envelope.store is not False,
    }
    reading = SortedFields()
    ignores = (TOOLS,) if ignore_tools else ()
    reading.sort(fields, dialect.rows, hands_on=dialect.hands_on, ignores=ignores)
    dialect.translate(reading)
    _check_tools(reading)
    turns = decode(bytes(reading.read.get("messages", _NULL)), Turns, "messages")
    history, previous = _history(reading, remembered)
    messages = [*history, *_messages(turns, reading)]
    if not reading.reason and not messages:
        name = dialect.names.get("messages", "messages")
        message = f"{name} is empty: the last turn, from the user, is the question"
        raise ChatError(400, message, param=name, code="no_messages")
    instructions = [Message(role="system", content=reading.instructions)] if reading.instructions else []
    all_messages = _system_first([*instructions, *messages], reading)
    if not reading.reason and all_messages[-1].role != "user":
        reading.relay("messages.last")
    # what is relayed is for the upstream to check
    body = typed({} if reading.reason else reading.read, ChatBody, dialect.names)
    if body.n and body.n > 1 and {RESPONSE_FORMAT, TOOLS} & reading.handed_on.keys():
        reading.relay("n")  # only one object is the most common
    if reading.reason:
        cleaned = dialect.for_upstream(fields, model, history)
        return ChatRequest(data=cleaned, passthrough=reading.reason, **common)
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    return ChatRequest(
        data=dialect.for_upstream(fields, model, history),
        messages=all_messages,
        n=body.n or 1,
        stop=tuple(filter(None, stop)),
        seed=body.seed,
        sampling={name: value for name in SAMPLING if (value := getattr(body, name)) is not None},
        max_tokens=body.max_completion_tokens or body.max_tokens,
        options=body.selfreflect or _DEFAULTS,
        handed_on=reading.handed_on,
        ignored=tuple(reading.ignored),
        previous=previous,
        lasting=tuple(messages),
        echo={
            name: value
            for name in dialect.echoes
            if (value := decode(bytes(fields.get(name, _NULL)), Any, name)) is not None
        },
        **common,
    )


def _check_tools(reading: SortedFields) -> None:
    """Mark server-side tools for relaying, and drop tool fields without tools."""
    tools = reading.handed_on.get(TOOLS)
    if tools is None:
        choice, *_ = [reading.handed_on.pop(name, None) for name in OF_TOOLS[1:]]
        # a demand for a tool without any is for the upstream to refuse
        if choice not in (None, "auto", "none"):
            reading.relay("tool_choice")
        return
    kinds: dict[str, Any] = {TOOLS: list[_OfferedTool], "tool_choice": str | _ToolChoice}
    for name in filter(reading.handed_on.__contains__, kinds):
        try:
            msgspec.convert(reading.handed_on[name], kinds[name])
        except msgspec.ValidationError:
            reading.relay(name)


def _history(reading: SortedFields, remembered: Conversations) -> tuple[tuple[Message, ...], str]:
    """Find the turns before a request that continues an earlier response."""
    data = bytes(reading.read.get("previous_response_id", _NULL))
    previous = decode(data, str | None, "previous_response_id") or ""
    if not previous:
        return (), ""
    history = remembered(previous)
    if history is None:
        if previous.startswith(ID_PREFIX):
            message = (
                "the previous response is not remembered, was made with store: false, or calls a tool: send "
                "the turns themselves"
            )
            raise ChatError(400, message, param="previous_response_id", code="previous_response_not_found")
        # the upstream may know a response that passed through
        reading.relay("previous_response_id")
        return (), previous
    return history, previous


# reading the annotations of a class takes longer than decoding a request
_fields_of = cache(msgspec.structs.fields)


def typed(fields: Fields, kind: type[T], names: Mapping[str, str] = MappingProxyType({})) -> T:
    """Read a struct's fields one by one, so that errors can name the field."""
    values = {}
    for info in _fields_of(kind):  # type: ignore[arg-type]
        if info.name in fields:
            values[info.name] = decode(bytes(fields[info.name]), info.type, names.get(info.name, info.name))
        elif info.required:
            raise ChatError(400, f"the field {info.name} is missing", param=info.name)
    return kind(**values)


def decode(data: bytes, kind: Any, param: str | None = None) -> Any:
    """Parse JSON of a given type. Raises ChatError, status 400, which names the field ``param``."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        name = f"{param}: " if param else ""
        raise ChatError(400, f"{name}{error}", param=param) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ChatError(400, f"the body is not JSON: {error}") from None


def _messages(turns: list[Fields], reading: SortedFields) -> list[Message]:
    """Read turns of plain text, and note unusual features of others."""
    messages = []
    for turn in turns:
        for name, value in turn.items():
            use = TURN[name].use if name in TURN else "ignore"
            if use == "read" or bytes(value) in EMPTY:
                continue
            if use == "relay":
                reading.relay(shown(name, "messages."))
            else:
                reading.ignore(shown(name, "messages."))
        role = decode(bytes(turn.get("role", _NULL)), str, "messages")
        if role not in _ROLES:
            reading.relay("messages.role")
            continue
        text = _text(bytes(turn.get("content", _NULL)))
        if text is None:
            reading.relay("messages.content")
            continue
        messages.append(Message(role=_ROLES[role], content=text))
    return messages


def _text(content: bytes) -> str | None:
    """Join a text from its parts; None for any other content."""
    try:
        parts = msgspec.json.decode(content, type=str | list[_TextPart])
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ChatError(400, f"the body is not JSON: {error}", param="messages") from None
    return parts if isinstance(parts, str) else "".join(part.text for part in parts)


def _system_first(messages: list[Message], reading: SortedFields) -> tuple[Message, ...]:
    """Join system turns at the beginning, since many chat templates refuse them elsewhere."""
    system = [message.content for message in messages if message.role == "system"]
    turns = [message for message in messages if message.role != "system"]
    if not system or not turns:
        return tuple(messages)
    all_messages = (Message(role="system", content="\n\n".join(system)), *turns)
    is_misplaced = any(message.role == "system" for message in messages[len(system) :])
    if is_misplaced:
        reading.ignore("the places of system turns")
    return all_messages if is_misplaced or len(system) > 1 else tuple(messages)


def chat_for_upstream(fields: Fields, model: str, history: tuple[Message, ...] = ()) -> bytes:
    """Build the body for the upstream, with its own model name. All other values keep their bytes."""
    plain_turns = []
    for turn in decode(bytes(fields.get("messages", _NULL)), Turns, "messages"):
        # nulls that the SDKs add are refused by strict servers
        turn = {name: value for name, value in turn.items() if name == "content" or bytes(value) != b"null"}
        turn.pop("selfreflect", None)
        plain_turns.append(turn)
    cleaned = without_ours(fields, model)
    return msgspec.json.encode(cleaned | {"messages": Raw(msgspec.json.encode(plain_turns))})


def without_ours(fields: Fields, model: str) -> Fields:
    """Remove the ``selfreflect`` field, and use the upstream's model name."""
    cleaned = {name: value for name, value in fields.items() if name != "selfreflect"}
    return cleaned | {"model": Raw(msgspec.json.encode(model))}


CHAT_DIALECT = Dialect(CHAT, lambda reading: None, chat_for_upstream, hands_on=True)
