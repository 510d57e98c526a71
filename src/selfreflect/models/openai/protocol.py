"""OpenAI's chat completions as servers implement them: responses, and errors other than refused fields."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import chain
from typing import Annotated, Any, NamedTuple

import msgspec

from selfreflect.logprobs import (
    UNKNOWN_LOGPROB,
    AnswerTokens,
    LikelyToken,
    NoLogprobs,
    answer_tokens,
    first_token,
    likely_tokens,
)
from selfreflect.models.base import CallingCompletion, Completion, Reply, Request, Sample, ToolCall
from selfreflect.models.reasoning import UnclosedReasoningError, split_answer
from selfreflect.records import FailureKind, Finish

_ENDINGS: dict[Finish, str] = {
    "stop": "stop stopped eos eosid eostoken eostokenid eosfound stoppedeos eot eotid endturn endofturn "
    "endoftext endofsequence imend stopsequence stopsequencehit stopsequencereached stopstring stopword "
    "stoppedword stoptoken stoptokenid matchedstop complete completed finish finished done end normal "
    "natural",
    "length": "length maxtokens maximumtokens maxoutput maxoutputtokens maxnewtokens maxcompletiontokens "
    "maxgeneratedtokens maxlength maximumlength modellength limit stoppedlimit tokenlimit lengthlimit "
    "lengthcapped tokenlimitreached maxtokensreached maxnewtokensreached maxlengthreached context "
    "contextlength maxcontext contextwindowexceeded modelcontextwindowexceeded",
    "content_filter": "contentfilter contentfiltered contentpolicy contentpolicyviolation policyviolation "
    "safety safetyblock recitation prohibitedcontent blocklist spii modelarmor jailbreak imagesafety "
    "imageprohibitedcontent imagerecitation guardrail guardrailintervened moderation moderated flagged "
    "sensitive toxic errortoxic language blocked blockedbysafety",
    "refused": "refusal refused",
}
"""Finish reasons of servers, as lower-case letters only. With any other reason, or none, a text is
incomplete."""
_FINISH = {word: finish for finish, words in _ENDINGS.items() for word in words.split()}
_CALLING = frozenset(("toolcalls", "toolcall", "tooluse", "functioncall"))
"""Finish reasons of texts that call a tool."""
_END_TOKENS = (
    "</s> <eos> <end_of_turn> <|im_end|> <|eot_id|> <|eom_id|> <|endoftext|> <|end_of_text|> <|end|> "
    "<|return|> <|END_OF_TURN_TOKEN|> <|end_of_turn|> <|endofturn|> <｜end▁of▁sentence｜>"
).split()
"""End-of-turn tokens that some servers leave in the text."""
_NO_LETTER = re.compile(r"[\W\d_]+")

_SHIFT = 1e-3
"""Largest difference between a token's log-probability and its entry among likely tokens."""

MOST_TOKENS = 10**9
"""Maximum token count of one call. A larger count is the server's mistake, and a record could not hold it."""

_TEXT_KEYS = (
    "msg status_msg error_msg message Message detail error_description description reason title error"
).split()
"""Keys of messages in an error, the most informative first."""
_CODE_KEYS = ("code", "Code", "status", "status_code", "error_code", "type")
"""Keys of codes in an error, the most informative first."""
_NESTED_KEYS = (
    "error errors detail details fieldViolations metadata raw params source base_resp external_model_message "
    "invalid-params invalid_params invalidParams violations validationErrors Response Error"
).split()
"""Keys of nested errors, such as a provider's behind a gateway."""
_CODES = {
    **dict.fromkeys(
        (
            "content_filter invalid_request invalid_argument unsupported_parameter unsupported_value "
            "bad_request"
        ).split(),
        400,
    ),
    "authentication_error": 401,
    "permission_error": 403,
    "rate_limit": 429,
    "too_many_requests": 429,
}
"""Prefixes of error codes with HTTP 200, with the status that each means."""
_STEP = re.compile(r"[.\[\]/'\"$]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_DEEPEST_ERROR = 6
_TAG = re.compile(rb"(?is)<(script|style|svg)\b.*?</\1>|<[^>]*>")
_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")


@dataclass(eq=False)
class APIError(Exception):
    """A call without a usable response."""

    message: str
    """Description of the problem, without flags and settings."""
    _: KW_ONLY
    code: str = "server"
    """Code of a :class:`~selfreflect.errors.SelfReflectError`."""
    remedy: str = ""
    kind: FailureKind = "backend"
    server_text: str = ""
    """Untrusted text of the server."""
    rejected: bool = False
    """Whether the server rejected this request; another may succeed."""
    retryable: bool = False
    """Whether the same request may succeed later."""
    unusable: bool = False
    """Whether the server answered without a complete text."""
    wait: float | None = None
    """Seconds that the server asks to wait."""
    fatal: bool = False
    """Whether every other call would fail in the same way."""
    status: int = 0
    """HTTP status; 0 without a response."""
    fields: frozenset[str] = frozenset()
    """Fields of the request that the structure of the error names."""

    def __str__(self) -> str:
        return self.message


def status_error(status: int, data: bytes, wait: float | None = None, *, said: str = "") -> APIError:
    """Make the error for a response's HTTP status and body.

    ``said`` is what it says, where that is known without the body.
    """
    return _error_of(status, _error_value(data), wait, said)


def _error_of(status: int, value: Any, wait: float | None = None, said: str = "") -> APIError:
    server_text = said or error_message(value)
    words = " ".join([server_text, *_codes(value)])
    row = next(row for row in _MEANINGS if status in row.statuses and row.fits(words))
    # reasons of moderation weigh more than the status that came with them
    if _is_moderation(value) and not (row.error.fatal or row.error.retryable):
        row = _FILTERED
    message = row.error.message
    return replace(
        row.error,
        message=f"{message} (HTTP {status})" if message else f"HTTP {status}",
        server_text=server_text,
        # no wait helps an account without credit, so nobody must take it for a limit of the rate
        status=0 if row.error.code == "credit" else status,
        wait=_asked_wait(value) if wait is None else wait,
        fields=frozenset(_paths(value)),
    )


class _Meaning(NamedTuple):
    """The meaning of a status with certain words."""

    statuses: Container[int]
    words: str
    error: APIError

    def fits(self, text: str) -> bool:
        return re.search(self.words, text, re.IGNORECASE) is not None


_REFUSED = (400, 422)
_NO_CREDIT = APIError("the account has no credit left", code="credit", fatal=True)
_BAD_KEY = APIError("the server does not accept the key", code="key", fatal=True)
_NOT_FOUND = APIError(
    "the server has no such model or path",
    code="not_found",
    remedy="Check {base_url}, which usually ends in /v1, and the names that its /models lists.",
    fatal=True,
)
_FILTERED = _Meaning(
    (*_REFUSED, 403, 451),
    r"content[_ -]?(?:filter|policy|management policy)|responsible ?ai|\bmoderation|usage polic"
    r"|\bsafety (?:system|filter|check|polic|guideline)"
    r"|\bflagged (?:by|as|for|due)\b|data_?inspection|content exists risk|inappropriate|considered high risk"
    r"|blocked by .{0,40}(?:safety|guardrail)|(?:safety|guardrail).{0,40} blocked|\bprohibited_content\b"
    r"|sensitive ?(?:content|information)|_sensitive\b|敏感|违规|审核",
    APIError("", kind="content_filter"),
)

CRASHES_THAT_REFUSE = (500, 424)
"""Crash statuses with which some servers refuse a request; 424 is LoRAX's."""

# the order is part of the table: credit before keys, keys before refusals
_MEANINGS = (
    _Meaning(
        (400, 402, 403, 429),
        r"insufficient[_ ](?:quota|balance|credits?|funds)|credit balance|exceeded_current_quota"
        r"|(?:no|any|out of|enough) credits|billing_(?:hard_limit|not_active)|arrear|余额不足",
        _NO_CREDIT,
    ),
    _Meaning((402,), "", _NO_CREDIT),
    _Meaning((401,), "", _BAD_KEY),
    _Meaning(
        (400, 403),
        r"(?:invalid|incorrect|wrong|unknown)[_ ]api[_ -]?key|api[_ -]?key[_ ](?:is )?(?:not valid|invalid)",
        _BAD_KEY,
    ),
    # OpenRouter knows the model, but no provider of it that takes all fields
    _Meaning((404,), r"requested parameters", APIError("", rejected=True)),
    _Meaning((404, 405, 410), "", _NOT_FOUND),
    _Meaning(
        _REFUSED,
        r"model[_ ]not[_ ](?:found|exist)|not a valid model|\bdecommissioned\b"
        r"|\b(?:invalid|unknown)[_ ]model\b(?![_ ](?:param|field|option|setting|kwarg))"
        r"|\bmodel\b.{0,80} does not exist"
        r"|\bmodel:? \S{1,80} (?:is |was )?not (?:available|served|loaded|installed|found)\b",
        _NOT_FOUND,
    ),
    _Meaning((413,), "", APIError("", kind="too_long")),
    _Meaning((501,), "", APIError("", rejected=True)),
    # what chat templates raise
    _Meaning(CRASHES_THAT_REFUSE, r"\broles?\b|\bjinja|chat template", APIError("", rejected=True)),
    _Meaning((408, 409, 424, 425, 429, *range(500, 600)), "", APIError("", retryable=True)),
    _Meaning(
        range(400, 500),
        r"context[ _](?:length|window|size|limit)|maximum context|too many (?:input )?tokens"
        r"|prompt is too long|(?:prompt|input (?:tokens|length)).{0,80}max_(?:\w+_)?tokens"
        r"|max_(?:\w+_)?tokens.{0,80}(?:prompt|input (?:tokens|length))"
        # text-generation-inference
        r"|`inputs` (?:tokens \+ `max_new_tokens` )?must (?:be <=|have less than)",
        APIError("", kind="too_long"),
    ),
    # of OpenAI's reasoning models, which the limit met before a text began
    _Meaning(
        _REFUSED,
        r"(?:max_(?:\w+_)?tokens|(?:output|completion|reasoning)[ -](?:token[ -])?(?:limit|budget))\b.{0,60}"
        r"\b(?:reached|exhausted|hit|used up)"
        r"|(?:finish|complet|produc|generat)\w*\b.{0,80}\b(?:higher|larger|raise|increase)\b.{0,20}"
        r"max_(?:\w+_)?tokens",
        APIError("the model spent all of its tokens on reasoning", kind="unclosed_reasoning"),
    ),
    _FILTERED,
    # a field that it names as well is left out first
    _Meaning(
        _REFUSED,
        r"\b(?:is|still|currently|being) (?:re)?loading\b|\bwarming up\b|\btry again (?:later|in|soon)\b"
        r"|\btemporar(?:y|ily)\b|\boverloaded\b|\bat capacity\b|\brate limit|\btoo many [a-z ]*requests\b"
        r"|稍后(?:再试|重试)",
        APIError("", rejected=True, retryable=True),
    ),
    _Meaning(_REFUSED, "", APIError("", rejected=True)),
    # as OpenAI does for some models
    _Meaning((403,), "logprobs", APIError("", code="forbidden", rejected=True)),
    _Meaning((403,), "", APIError("", code="forbidden")),
    _Meaning(range(1000), "", APIError("")),
)
"""Meanings of errors; the first matching row counts."""


def _asked_wait(value: Any) -> float | None:
    """Read the wait in a structured error, in seconds, as Google writes it."""
    # Google's RetryInfo: {"retryDelay": "12s"}
    delays = (_DELAY.fullmatch(str(part.get("retryDelay"))) for part in _parts(value))
    return next((float(delay[1]) for delay in delays if delay), None)


class _Message(msgspec.Struct):
    content: str | list[Any] | dict[str, Any] | None = None
    refusal: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    reasoning_text: Any = None
    thinking: Any = None
    thinking_blocks: Any = None
    thought: Any = None
    tool_calls: Any = None
    error: Any = None

    @property
    def reasons(self) -> bool:
        """Whether the message has a separate field with reasoning."""
        return any(getattr(self, name) for name in _REASONING)


_REASONING = (
    "reasoning_content reasoning reasoning_details reasoning_text thinking thinking_blocks thought"
).split()
"""Keys of reasoning in a message."""


class _Choice(msgspec.Struct):
    message: _Message | None = None
    delta: _Message | None = None
    """Piece of a streamed message."""
    finish_reason: Any = None
    logprobs: Any = None
    error: Any = None

    @property
    def ending(self) -> str:
        """The server's finish reason; empty if there is none."""
        reason = self.finish_reason
        word = reason.get("type") if isinstance(reason, dict) else reason
        return word if isinstance(word, str) else ""

    @property
    def fault(self) -> Any:
        """The error that a gateway put next to or inside the message."""
        return self.error or (self.message and self.message.error)


class _Token(msgspec.Struct):
    """A token in a choice's log-probabilities."""

    token: str
    logprob: Any
    bytes: list[Annotated[int, msgspec.Meta(ge=0, le=255)]] | None = None
    top_logprobs: Any = None


class _Tokens(msgspec.Struct):
    content: list[_Token]


class _CompletionTokens(msgspec.Struct):
    """Log-probabilities in the layout of legacy completions, which some servers use for chats."""

    tokens: list[str]
    token_logprobs: list[Any]
    top_logprobs: list[dict[str, Any] | None] | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None


@dataclass
class ParsedResponse:
    """Completions of one request, which may show whether the chat template began a trace."""

    samples: list[Sample]
    prompt_tokens: int
    broken: list[int] = field(default_factory=list)
    """Indices of choices that did not end, and thus are not answers."""

    @property
    def size(self) -> int:
        """Number of the server's completions, broken ones included."""
        return len(self.samples) + len(self.broken)

    @property
    def unclosed(self) -> int:
        """Number of completions with reasoning but no answer."""
        return sum(sample.completion.finish == "unclosed_reasoning" for sample in self.samples)

    @property
    def opens_trace(self) -> bool | None:
        """Whether the prompt opened a reasoning trace, by majority of the finished completions."""
        votes = []
        for sample in self.samples:
            if sample.closes_trace or sample.completion.finish == "stop":
                votes.append(sample.closes_trace)
        # by majority, since an answer may mention a closing tag
        return sum(votes) * 2 > len(votes) if votes else None

    def reply(self, opens_trace: bool) -> Reply:
        """Build the response. A text that never ends a trace begun by the prompt contains no answer."""
        completions = []
        for sample in self.samples:
            completion = sample.completion
            if opens_trace and not sample.closes_trace and completion.finish == "length":
                completion = Completion(text="", finish="unclosed_reasoning", tokens=completion.tokens)
            completions.append(completion)
        return Reply(completions=tuple(completions), prompt_tokens=self.prompt_tokens)


def parse_response(
    data: bytes, request: Request, first: int, count: int, *, takes_calls: bool = False
) -> ParsedResponse:
    """Parse 1 to ``count`` completions of a request, numbered from ``first``, from a response body.

    Args:
        takes_calls: whether a call of a tool is an answer; else it is a text that did not end.

    Raises:
        APIError: it holds no completion that has ended.
    """
    body = _body(data)
    if body.error:
        raise embedded_error(body.error)
    # Some servers give more than were asked for.
    choices = (body.choices or [])[:count]
    if not choices:
        if any(_messages(_error_value(data))):  # in a layout without ``error``
            raise embedded_error(_error_value(data))
        raise APIError("the response contains no completions", kind="empty", retryable=True, unusable=True)
    usage = body.usage if isinstance(body.usage, dict) else {}
    # A server counts the tokens of a call, not of each completion: they are shared out evenly.
    share, rest = divmod(token_count(usage.get("completion_tokens")), len(choices))
    samples, broken = [], []
    for index, choice in enumerate(choices):
        calls = _calls(choice) if takes_calls else ()
        finish = _ending(choice, calls=bool(calls))
        if finish is None:
            broken.append(first + index)
            continue
        completion, closes_trace = _parse(choice, finish, share + (index < rest), calls)
        if request.logprobs:
            completion = msgspec.structs.replace(
                completion,
                logprobs=_answer_tokens(completion.text, choice.logprobs, request.top_logprobs),
            )
        if request.first_tokens:
            likely = _first_tokens(completion.text, choice.logprobs)[: request.first_tokens]
            completion = msgspec.structs.replace(completion, first_tokens=likely)
        samples.append(Sample(index=first + index, completion=completion, closes_trace=closes_trace))
    if not samples:
        raise _unfinished(choices[0])
    return ParsedResponse(samples, token_count(usage.get("prompt_tokens")), broken)


def only_reasoning(request: Request, first: int, count: int) -> ParsedResponse:
    """Make the response for a server error that reasoning used up all tokens."""
    completion = Completion(text="", finish="unclosed_reasoning", tokens=request.sampling.max_new_tokens)
    return ParsedResponse(
        [Sample(index=index, completion=completion) for index in range(first, first + count)], 0
    )


class Piece(NamedTuple):
    """Part of a text in one event of a stream."""

    text: str
    ending: str
    """Finish reason of the server; empty while the text continues."""
    prompt_tokens: int
    completion_tokens: int
    """Tokens so far, 0 if uncounted; ``prompt_tokens`` likewise."""


def read_piece(data: bytes) -> Piece:
    """Parse an event of a stream. Raises APIError if it holds an error, or is not part of a completion."""
    body = _body(data, "surrogatepass")
    # in a layout without ``error``
    if body.error or (body.choices is None and not body.usage and any(_messages(_error_value(data)))):
        raise embedded_error(body.error or _error_value(data))
    choice = body.choices[0] if body.choices else _Choice()
    if choice.fault:
        raise _unfinished(choice)
    delta = choice.delta or _Message()
    usage = body.usage if isinstance(body.usage, dict) else {}
    return Piece(
        text_of(delta.content) or delta.refusal or "",
        choice.ending,
        token_count(usage.get("prompt_tokens")),
        token_count(usage.get("completion_tokens")),
    )


def finish_of(ending: str) -> Finish | None:
    """Translate a finish reason; None if it is missing or unknown."""
    return _FINISH.get(_word(ending))


def _word(ending: str) -> str:
    return _NO_LETTER.sub("", ending.lower()).removeprefix("finishreason")


def _ending(choice: _Choice, *, calls: bool) -> Finish | None:
    """Determine how a choice ended; None if it did not."""
    if choice.fault:
        return None
    # a refusal is an answer that has ended, whatever the server calls its end
    if choice.message is not None and choice.message.refusal:
        return "refused"
    finish = "stop" if calls and _word(choice.ending) in _CALLING else finish_of(choice.ending)
    return None if choice.message is None and finish in ("stop", "length") else finish


def _unfinished(choice: _Choice) -> APIError:
    """Make the error of an unfinished choice."""
    server_text = choice.ending
    if choice.fault:
        error = embedded_error(choice.fault)
        # a filter, a limit or a wrong key must not be tried again as a text that broke off
        if error.kind != "backend" or error.fatal or error.rejected:
            return error
        server_text = f"{server_text} {error_message(choice.fault)}".strip()
    ending = "finish_reason" if choice.ending else "no finish_reason"
    message = f"the text is not complete: it came with {ending}"
    return APIError(message, server_text=server_text, retryable=True, unusable=True)


def _body(data: bytes, halves: str = "replace") -> _Body:
    """Parse a chat completion or a stream event. Raises APIError for anything else.

    ``halves`` of characters are replaced; those of an event pass, as the next one may hold the rest.
    """
    try:
        return _decoded(data, halves)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = f"the response is not a chat completion ({error})"
        raise APIError(message, retryable=True, unusable=True) from None


def _decoded(data: bytes, halves: str) -> _Body:
    data = data.removeprefix(codecs.BOM_UTF8)
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(data, type=_Body)
    # Some servers write NaN or Infinity among log-probabilities, or half of a character in a text, which JSON
    # does not have: they must cost no answers.
    try:
        text = json.dumps(json.loads(data), ensure_ascii=False)
        # UTF-16 joins surrogate pairs that JSON escaped one by one
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", halves)
        value = json.loads(whole, parse_constant=lambda name: None)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None
    return msgspec.convert(value, _Body)


def _is_moderation(error: Any) -> bool:
    """Check whether a structured error gives moderation reasons, as gateways do."""
    metadata = error.get("metadata") if isinstance(error, dict) else None
    return isinstance(metadata, dict) and bool(metadata.get("reasons") or metadata.get("flagged_input"))


def _error_value(data: bytes) -> Any:
    """Find the error in a body, under ``error`` or as the body itself."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        if data.lstrip().startswith(b"<"):  # a page of something in between
            data = _TAG.sub(b" ", data)
        return " ".join(data[:2000].decode("utf-8", "replace").split())
    # Gemini's compatible endpoint puts its error into a list
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    error = value.get("error") if isinstance(value, dict) else None
    return error if isinstance(error, dict | list) and error else value


def embedded_error(error: Any) -> APIError:
    """Make the error that a gateway sent with HTTP 200.

    Its code may be an HTTP status, or a word for one.
    """
    status = 0
    # backwards, so that the nearest code with a meaning has the last word
    for word in reversed([word.lower() for word in _codes(error)]):
        if word.isdecimal() and len(word) == 3 and 400 <= int(word) < 600:
            status = int(word)
        else:
            status = next((code for name, code in _CODES.items() if word.startswith(name)), status)
    if status:
        return _error_of(status, error)
    # without a code the words may say what it is; else the server failed
    told = _error_of(400, error)
    return _error_of(500, error) if told.rejected else told


def _codes(error: Any) -> Iterator[str]:
    """Yield the codes of an error and of nested errors, nearest first."""
    for part in _parts(error):
        for name in _CODE_KEYS:
            if isinstance(part.get(name), str | int):
                yield str(part[name])


def error_message(error: Any) -> str:
    """Read an error's messages in any usual layout, else return its JSON."""
    if isinstance(error, str):
        return error
    return "; ".join(dict.fromkeys(_messages(error))) or msgspec.json.encode(error).decode()


def _messages(error: Any) -> Iterator[str]:
    """Yield the messages of an error and its nested errors, with field path and code."""
    for part in _parts(error):
        text = next(filter(None, (_words(part.get(name)) for name in _TEXT_KEYS)), "")
        for name, entry in part.items():  # some list what is wrong by the names of fields
            if name not in (*_TEXT_KEYS, "loc") and isinstance(entry, list) and _words(entry):
                text = "; ".join(filter(None, [text, f"{name}: {_words(entry)}"]))
        # pydantic gives the path of a field as "loc"
        path = ".".join(map(str, part["loc"])).removeprefix("body.") if "loc" in part else ""
        code = part.get("type" if path else "code")
        if text or path:
            said = ": ".join(filter(None, [path, text]))
            yield f"{said} ({code})" if isinstance(code, str) and not code.isdecimal() else said


def _words(value: Any) -> str:
    """Read a text, or join a list of texts, from an error."""
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return "; ".join(value)
    return value if isinstance(value, str) else ""


def _parts(error: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield an error and its nested errors, even if wrapped as JSON text."""
    error = _unwrapped(error)
    for entry in error if isinstance(error, list) else [error]:
        if isinstance(entry, dict) and depth < _DEEPEST_ERROR:
            if isinstance(entry.get("loc", []), list):
                yield entry
            for name in _NESTED_KEYS:
                yield from _parts(entry.get(name), depth + 1)


def _paths(error: Any, depth: int = 0) -> Iterator[str]:
    """Yield the path steps in an error's words, such as ``messages``, ``0`` and ``role``.

    They stand under too many names for a list; what a server quotes of a call has its fields as names, not
    as values.
    """
    error = _unwrapped(error)
    if isinstance(error, str):
        # a path has no blank: "messages.0.role", "$.top_p", "generationConfig.topP"
        if not any(map(str.isspace, error)):
            yield from (_CAMEL.sub("_", step).lower() for step in _STEP.split(error) if step)
    elif isinstance(error, dict | list) and depth < 2 * _DEEPEST_ERROR:
        # {"temperature": ["must be 1"]}: a reason under the name of a field, which a quoted call lacks
        if isinstance(error, dict) and "messages" not in error:
            named = [name for name, reason in error.items() if _is_sentence(reason)]
            yield from chain.from_iterable(_paths(name, depth + 1) for name in named)
        for entry in error.values() if isinstance(error, dict) else error:
            yield from _paths(entry, depth + 1)


def _is_sentence(reason: object) -> bool:
    """Check whether a value is, or begins with, a text of several words."""
    reason = reason[0] if isinstance(reason, list) and reason else reason
    return isinstance(reason, str) and any(map(str.isspace, reason.strip()))


def _unwrapped(error: Any) -> Any:
    """Parse an error that is JSON text; return other values unchanged."""
    if isinstance(error, str) and error.lstrip()[:1] in ("{", "["):
        with suppress(msgspec.MsgspecError, RecursionError):
            return msgspec.json.decode(error)
    return error


class _Function(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] | None = None


class _WireCall(msgspec.Struct):
    function: _Function
    id: str | None = None


def _calls(choice: _Choice) -> tuple[ToolCall, ...]:
    """Read a choice's tool calls, leaving out unknown layouts."""
    written = choice.message.tool_calls if choice.message is not None else None
    calls = []
    for entry in written if isinstance(written, list) else ():
        with suppress(msgspec.ValidationError):
            call = msgspec.convert(entry, _WireCall)
            arguments = call.function.arguments
            # some servers give the object itself, or nothing where a tool takes no argument
            if not isinstance(arguments, str) or not arguments.strip():
                arguments = json.dumps(arguments if isinstance(arguments, dict) else {}, ensure_ascii=False)
            calls.append(ToolCall(id=call.id or "", name=call.function.name, arguments=arguments))
    return tuple(calls)


def _parse(
    choice: _Choice, finish: Finish, tokens: int, calls: tuple[ToolCall, ...]
) -> tuple[Completion, bool]:
    """Parse a completion, and find out whether it ends a reasoning trace that the prompt began."""
    message = choice.message or _Message()
    if calls:
        text = json.dumps([[call.name, call.arguments] for call in calls], ensure_ascii=False)
        return CallingCompletion(text=text, finish=finish, tokens=tokens, calls=calls), False
    text, closes_trace = "", False
    if message.refusal:
        text = message.refusal.strip()
    else:
        try:
            text, closes_trace = split_answer(_without_end_tokens(text_of(message.content)))
        except UnclosedReasoningError:
            finish = "unclosed_reasoning"
        # a text of no letter that met the limit was spent on reasoning that the server hides
        hides = finish == "length" and not message.content
        if not text and finish in ("stop", "length") and (message.reasons or hides):
            finish = "unclosed_reasoning"
    return Completion(text=text, finish=finish, tokens=tokens), closes_trace


def _tokens(value: Any) -> list[_Token]:
    """Read the tokens in a choice's log-probabilities. Raises ValidationError if there are none."""
    try:
        return msgspec.convert({"content": value} if isinstance(value, list) else value, _Tokens).content
    except msgspec.ValidationError:
        # Together and others answer chats in this layout
        layout = msgspec.convert(value, _CompletionTokens)
    if len(layout.tokens) != len(layout.token_logprobs):
        raise msgspec.ValidationError("the numbers of tokens and log-probabilities differ")
    likely = layout.top_logprobs or []
    tokens = []
    for index, (text, logprob) in enumerate(zip(layout.tokens, layout.token_logprobs, strict=True)):
        likely_here = (likely[index] or {}) if index < len(likely) else {}
        top = [{"token": name, "logprob": value} for name, value in likely_here.items()]
        tokens.append(_Token(text, logprob, top_logprobs=top))
    return tokens


def _answer_tokens(answer: str, value: Any, ranks: int = 0) -> AnswerTokens | NoLogprobs:
    """Read an answer's tokens from a choice's tokens, with ``ranks`` likely tokens each."""
    try:
        tokens = _tokens(value)
    except msgspec.ValidationError:
        return "not_returned"
    if answer and not tokens:
        return "not_returned"
    numbers = [_number(token.logprob) for token in tokens]
    values = [None if number == UNKNOWN_LOGPROB else number for number in numbers]
    lists = []
    for token, logprob in zip(tokens, values, strict=True) if ranks else ():
        likely = _likely(token)
        # parts of characters look alike
        is_whole = bool(token.token.strip("\ufffd"))
        same = [value for text, value in likely if text == token.token and value is not None and is_whole]
        # lists that are shifted by a place, as some gateways send them, belong to other tokens
        if logprob is not None and same and all(abs(value - logprob) > _SHIFT for value in same):
            return "other_text"
        lists.append([value for _, value in likely])
    return answer_tokens(answer, _texts(tokens), values, top=lists, ranks=ranks)


def _likely(token: _Token) -> list[tuple[str, float | None]]:
    """List the likely tokens at one position, with None for missing numbers."""
    likely: list[tuple[str, float | None]] = []
    try:
        candidates = msgspec.convert(token.top_logprobs or [], list[_Token])
    except msgspec.ValidationError:
        return []
    for candidate in candidates:
        likely.append((candidate.token, _number(candidate.logprob)))
    return likely


def _number(value: Any) -> float | None:
    """Read a JSON number; None for other values and integers beyond float range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _first_tokens(answer: str, value: Any) -> tuple[LikelyToken, ...]:
    """List the likeliest first tokens of an answer from a choice's log-probabilities."""
    try:
        tokens = _tokens(value)
        index = first_token(answer, _texts(tokens))
        candidates = [] if index is None else _likely(tokens[index])
    except msgspec.ValidationError:
        return ()
    return likely_tokens((text, logprob) for text, logprob in candidates if logprob is not None)


def _texts(tokens: Sequence[_Token]) -> list[str | None]:
    """Find the text that each token adds. Parts of a character are joined by their bytes."""
    # only the last token completes a character of several
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts: list[str | None] = []
    for token in tokens:
        text = decoder.decode(bytes(token.bytes)) if token.bytes is not None else token.token
        texts.append(text)
    return texts


def text_of(content: str | list[Any] | dict[str, Any] | None) -> str:
    """Join the text parts of a message's content, leaving out reasoning."""
    if isinstance(content, str):
        return content
    parts: list[Any] = content if isinstance(content, list) else [content]
    if all(isinstance(part, str) for part in parts):
        return "".join(parts)
    text = ""
    for part in parts:
        is_text = isinstance(part, dict) and part.get("type", "text") in ("text", "output_text")
        if is_text and isinstance(part.get("text"), str):
            text += part["text"]
    return text


def _without_end_tokens(text: str) -> str:
    """Remove end-of-turn tokens and white space from the end of a text."""
    end = len(text)
    # several end tokens may follow each other, with line ends between them
    while end:
        if text[end - 1].isspace():
            size = 1
        else:
            size = next((len(token) for token in _END_TOKENS if text.endswith(token, 0, end)), 0)
        if not size:
            break
        end -= size
    return text[:end]


def token_count(value: Any) -> int:
    """Read a number of tokens; 0 if missing or impossible."""
    return value if isinstance(value, int) and 0 < value <= MOST_TOKENS else 0
