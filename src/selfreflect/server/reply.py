"""Responses with an answer distribution, as chat completions, whole or streamed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from selfreflect.models.base import Sampling, ToolCall
from selfreflect.records import Count, Number, Share
from selfreflect.server.errors import ChatError
from selfreflect.uncertainty.claims.placed import ToldClaim

KEEP_ALIVE = b": the answers are being drawn\n\n"
"""Event that clients ignore."""
DONE = b"data: [DONE]\n\n"

# Some words of a text.
_PIECE = re.compile(r"\s*\S+\s*(?:\S+\s+){0,3}|\s+")


class AnswerShare(msgspec.Struct, frozen=True, kw_only=True):
    """A class of answers with the same meaning."""

    text: str
    """Most frequent spelling of the class."""
    share: Share


class Guaranteed(msgspec.Struct, frozen=True, kw_only=True):
    """Guarantee on shown answers: at most ``risk`` are wrong."""

    risk: Share
    confidence: Share
    """Confidence over samples of labelled questions."""
    n: Count
    """Number of labelled questions behind the guarantee."""
    answer: str
    """Answer that the guarantee covers: the most frequent one, summarised in the text."""


NoGuarantee = Literal[
    "below",  # the threshold of the guarantee
    "drift",  # the scores of late are not distributed as those of the labelled questions
    "known_question",  # the guarantee was found on it
    "other_model",
    "other_number",  # of answers
    "other_confidence",  # than the calibrator's, as the request wanted
    "no_value",  # of the estimator
    "cut_off",  # by the request's limit of tokens, which the labelled answers did not have
]
"""Reason for an answer without guarantee, if the server has one."""


class Confidence(NamedTuple):
    """A model's confidence and its kind."""

    value: float | None
    """Confidence in [0, 1]; None if unknown."""
    kind: str | None
    """Name of the estimator."""
    num_answers: int
    calibrator_id: str | None = None
    """Id of the calibrator that made the value a share of right answers, if any."""
    notes: tuple[str, ...] = ()
    guarantee: Guaranteed | None = None
    no_guarantee: NoGuarantee | None = None
    """Reason for a missing guarantee; None also if the server has none."""


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of one request."""

    completions: Count
    """Number of texts that the model wrote."""
    prompt_tokens: Count | None
    """Prompt tokens; None if uncounted, like ``completion_tokens``."""
    completion_tokens: Count | None
    seconds: float
    money: float | None = None
    """Cost in the currency of the price; None without a price or token counts."""

    @property
    def usage(self) -> dict[str, int] | None:
        """Token counts as flat integers, which clients add up; None if uncounted."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


class Belief(msgspec.Struct, frozen=True, kw_only=True):
    """The response object ``selfreflect``: answer distribution and confidence.

    Attributes:
        reflected: whether the text comes from a distribution; without one the model answered once.
        reason: what kind of text the request is, if it was not reflected; else ``question`` or ``always``.
        confidence: in [0, 1]; None where nobody wants one, or the estimator has no value.
        confidence_kind: the estimator; None without a confidence.
        calibrated: whether a calibrator made the confidence of the estimator's value.
        calibrator_id: digest of its file.
        classes: by falling share.
        classes_by: the rule that sorted the answers, which is an estimate of what they mean.
        entropy: of the shares, in nats; None without a distribution.
        recovered: the share of what test answers tell that the summary tells; None if not measured.
        score: SelfReflect score; None if not measured.
        measured: the value of each measure that was wanted, by its name.
        action: what became of a summary whose confidence was too low.
        guarantee: what holds of this answer and others like it, if a guarantee covers it.
        no_guarantee: why it does not; None where the server has none.
        cost: None where the model's server answers by itself, which says it in ``usage``.
    """

    id: str
    model: str
    reflected: bool = True
    reason: str = ""
    strategy: str = ""
    confidence: Share | None = None
    confidence_kind: str | None = None
    calibrated: bool = False
    calibrator_id: str | None = None
    num_answers: Count = 0
    classes: tuple[AnswerShare, ...] = ()
    classes_by: str = ""
    entropy: float | None = None
    recovered: Number | None = None
    score: Share | None = None
    measured: dict[str, Number | None] = {}
    action: Literal["abstain", "hedge", "ask"] | None = None
    guarantee: Guaranteed | None = None
    no_guarantee: NoGuarantee | None = None
    cost: Spending | None = None
    notes: tuple[str, ...] = ()
    """Reasons for missing values, in sentences."""
    fields: dict[str, Any] | None = None
    """Distribution of each field by JSON Pointer and of the whole object, for an answer that is JSON or calls
    a tool."""
    claims: tuple[ToldClaim, ...] | None = None
    """Claims of the answers and the text; None unless requested."""


Ending = Literal["stop", "length", "content_filter", "tool_calls"]


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One returned text."""

    text: str
    finish: Ending = "stop"
    stopped_at: str | None = None
    """The string of ``stop`` at which the text was cut."""
    calls: tuple[ToolCall, ...] = ()
    """Tool calls in place of a text."""


def to_json(value: Any) -> bytes:
    """Encode a body as JSON. A lone surrogate, which a user's function may return, becomes an escape."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # msgspec writes UTF-8 only; the json module escapes a lone surrogate
        return json.dumps(msgspec.to_builtins(value), allow_nan=False).encode()


def pieces(text: str) -> Iterator[str]:
    """Split a text into pieces of a few words for streaming."""
    for match in _PIECE.finditer(text):
        yield match[0]


ToolKind = Literal["function"]
"""Kind of tools that clients run themselves, in the API's terms."""
[FUNCTION] = get_args(ToolKind)


def _wire_call(call: ToolCall, **fields: Any) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {**fields, "id": call.id, "type": FUNCTION, FUNCTION: function}


@dataclass(frozen=True, kw_only=True)
class ChatResponse:
    """A completion before serialisation."""

    id: str
    created: int = field(default_factory=lambda: int(time.time()))
    choices: tuple[ChatChoice, ...] = ()
    """Choices; empty before the text is known."""
    spending: Spending
    belief: Belief | None = None
    previous: str = ""
    """Id of the response that the conversation continues."""
    stores: bool = True
    """Whether the server remembers the response."""
    sampling: Sampling
    """Sampling settings of the text."""
    echo: Mapping[str, Any] = field(default_factory=dict)
    """Request fields that the format repeats."""

    @property
    def headers(self) -> dict[str, str]:
        if self.belief is None or self.belief.confidence is None:
            return {}
        return {"x-selfreflect-confidence": f"{self.belief.confidence:.4f}"}

    def body(self, model: str) -> bytes:
        """Build the complete response."""
        choices = []
        for index, choice in enumerate(self.choices):
            # the API has null for the text of a message that calls tools
            content = None if choice.calls else choice.text
            message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
            if choice.calls:
                message["tool_calls"] = list(map(_wire_call, choice.calls))
            choices.append(
                {"index": index, "message": message, "logprobs": None, "finish_reason": choice.finish}
            )
        body = {"id": self.id, "object": "chat.completion", "created": self.created, "model": model}
        body |= {"choices": choices, "usage": self.spending.usage}
        body |= {"system_fingerprint": None if self.belief is None else self.id}
        return to_json(body if self.belief is None else {**body, "selfreflect": self.belief})

    def events(self, model: str, include_usage: bool) -> Iterator[bytes]:
        """Write the events of a stream up to ``[DONE]``. The last event contains the belief, as gateways do
        that add a score to a stream. Every event repeats the id in ``system_fingerprint``, since LangChain
        replaces a stream's id with its own."""
        head = {"id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": model}
        closing: dict[str, Any] = {}
        if self.belief is not None:
            head["system_fingerprint"] = self.id
            closing["selfreflect"] = self.belief

        def event(choices: list[dict[str, Any]], **fields: Any) -> bytes:
            return b"data: " + to_json({**head, "choices": choices, **fields}) + b"\n\n"

        def part(index: int, delta: dict[str, Any], finish: str | None = None) -> list[dict[str, Any]]:
            return [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}]

        final = len(self.choices) - 1
        for index, choice in enumerate(self.choices):
            # as OpenAI's streams begin: the role, and no text yet
            yield event(part(index, {"role": "assistant", "content": None if choice.calls else ""}))
            for place, call in enumerate(choice.calls):
                yield event(part(index, {"tool_calls": [_wire_call(call, index=place)]}))
            # the text is whole already; pieces only look like a stream to clients that draw as they read
            for piece in () if choice.calls else pieces(choice.text):
                yield event(part(index, {"content": piece}))
            # after the usage no client expects another chunk
            is_last = index == final and not include_usage
            yield event(part(index, {}, choice.finish), **(closing if is_last else {}))
        if include_usage:
            # OpenAI's chunk of the usage has no choices
            yield event([], usage=self.spending.usage, **closing)
        yield DONE


def error_event(error: ChatError, number: int = 0) -> bytes:
    """Write an error within a stream."""
    return b"data: " + to_json(error.body) + b"\n\n" + DONE
