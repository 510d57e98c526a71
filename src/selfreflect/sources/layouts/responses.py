"""Conversations: chat server responses, batch output, and rows with lists of turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from selfreflect.sources.cells import holds_image
from selfreflect.sources.columns import item_columns
from selfreflect.sources.item_rows import list_in, text_of
from selfreflect.sources.layouts import Layout
from selfreflect.sources.names import IMAGE_COLUMNS, QUESTION_COLUMNS
from selfreflect.sources.rows import Row
from selfreflect.text import counted

_CUT_OFF = ("length", "max_tokens", "max_output_tokens")
_SPEAKERS = {
    **dict.fromkeys(("human", "user", "customer"), "user"),
    **dict.fromkeys(("gpt", "ai", "assistant", "bot", "chatbot", "model"), "assistant"),
    "system": "system",
}
"""Roles by their names in ShareGPT, LangChain and logs of chats."""
_CONVERSATIONS = (
    *("messages", "conversations", "conversation", "turns", "user_input"),
    *("dialog", "dialogue", "history", "chat", "transcript"),
)
# Fields of a turn's speaker and of its text; what a field "role" names need not be known.
_ROLE = "role"
_SPEAKER_FIELDS = (_ROLE, "from", "type", "speaker", "author", "sender")
_TEXT_FIELDS = ("content", "value", "text", "message", "utterance")
# Where a line of a batch holds its request, if a user joined it to the output.
_REQUESTS = ("body", "request", "params")
_OF_BATCH = ("id", "custom_id", "method", "url", "error", "result", "response", *_REQUESTS)


class Responses(Layout):
    """Layout with each response's choices as answers to the last user turn."""

    name = "responses"
    is_free = True
    elsewhere = (
        "The questions of a batch are in its input file. Give each line the field 'question', or the "
        "'messages' of the input line with the same custom_id. selfreflect answers {read_batch} FILE reads "
        "the output of a batch that selfreflect wrote."
    )

    def matches(self, rows: Sequence[Row]) -> bool:
        return all(
            _is_batch_line(row.fields) or _body(row.fields) is not None or _turns(row.fields)[0]
            for row in rows
        )

    def items(self, rows: Iterable[Row]) -> Iterable[Row]:
        failures = cut_off = 0
        for row in rows:
            name, turns = _turns(row.fields)
            fields = {column: value for column, value in row.fields.items() if column != name} | asked(turns)
            body = _body(row.fields)
            if _is_batch_line(row.fields):
                fields = {"id": fields["custom_id"]} | {
                    column: value for column, value in fields.items() if column not in _OF_BATCH
                }
            if body is not None or _is_batch_line(row.fields, "response", "result"):
                choices = _choices(body)
                failures += not choices
                cut_off += sum(_is_cut_off(choice) for choice in choices)
                for column in ("choices", "response", "message"):
                    fields.pop(column, None)
                fields |= {"answers": list(map(text_of, choices)), **_tokens(choices)}
            elif _ends_with_answer(turns) and not item_columns(fields, {}).answers:
                fields["response"] = text_of(turns[-1])  # none if it calls a tool
            yield row._replace(fields=fields)
        notes = {
            f"{counted(failures, 'response')} without an answer, such as failed requests": failures,
            f"{counted(cut_off, 'answer')} cut off at the token limit": cut_off,
        }
        self.notes = [note for note, count in notes.items() if count]

    def explain(self) -> str:
        return "responses of a chat server"


def asked(turns: Sequence[Any], text: Callable[[Any], Any] = text_of) -> dict[str, Any]:
    """Make the fields of a question from turns, with the last user turn as the question."""
    if not turns:
        return {}
    indices = [number for number, turn in enumerate(turns) if turn.get("role") == "user"]
    last = indices[-1] if indices else len(turns) - 1
    context = "\n\n".join(f"{turn.get('role')}: {text(turn) or ''}" for turn in turns[:last])
    fields = {"question": text(turns[last]), **({"context": context} if context else {})}
    if any(holds_image(turn.get("content")) for turn in turns):
        fields[IMAGE_COLUMNS[0]] = True
    return fields


def _ends_with_answer(turns: Sequence[Any]) -> bool:
    """Check whether a conversation ends with an answer to the last user turn."""
    return bool(turns) and turns[-1]["role"] == "assistant" and any(t["role"] == "user" for t in turns)


def _is_batch_line(fields: Mapping[str, Any], *names: str) -> bool:
    """Check whether a batch line has a response or request, null if failed."""
    names = names or ("response", "result", "body")
    return "custom_id" in fields and any(isinstance(fields.get(name, ""), dict | None) for name in names)


def _body(fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Find a server's response in a row, other than the text choices of a multiple-choice question."""
    response = fields.get("response", fields.get("result"))
    for body in (fields, response, response.get("body") if isinstance(response, dict) else None):
        if isinstance(body, dict) and _choices(body):
            return body
    return None


def _choices(body: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """List a response's choices, or its single message."""
    body = body or {}
    choices = body.get("choices", [body] if _holds(body.get("message"), "content") else None)
    if isinstance(output := body.get("output"), list):  # of /v1/responses
        messages = [part for part in output if _holds(part, "type", "content") and part["type"] == "message"]
        details = body.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        choices = [{"message": message, "finish_reason": reason} for message in messages[-1:]]
    is_answer = isinstance(choices, list) and all(
        _holds(choice, "message") or (_holds(choice, "text") and "label" not in choice) for choice in choices
    )
    return choices if is_answer else []


def _holds(value: Any, *names: str) -> bool:
    return isinstance(value, dict) and value.keys() >= {*names}


def _is_cut_off(choice: Mapping[str, Any]) -> bool:
    message = choice.get("message")
    reason = message.get("stop_reason") if isinstance(message, dict) else None
    return choice.get("finish_reason", reason) in _CUT_OFF


def _turns(fields: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Find the field with a question's turns, unless the question is given as text."""
    found = {name: turns_in(fields.get(name)) for name in (*_CONVERSATIONS, *QUESTION_COLUMNS, *_REQUESTS)}
    if any(isinstance(fields.get(name), str) and not found[name] for name in QUESTION_COLUMNS):
        return "", []
    return next(((name, turns) for name, turns in found.items() if turns), ("", []))


def turns_in(value: Any) -> list[Any]:
    """List the turns in a value: a list, also as text in a cell, an object with one, or a single turn."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = list_in(value)
    if isinstance(value, dict):
        value = value.get("messages", [value])
    turns = [_turn(entry) for entry in value] if isinstance(value, list) else []
    return [] if None in turns else turns


def _turn(entry: Any) -> dict[str, Any] | None:
    """Read a conversation turn; None for anything else."""
    for name, text in product(_SPEAKER_FIELDS, _TEXT_FIELDS):
        if _holds(entry, name, text) and isinstance(speaker := entry[name], str):
            role = _SPEAKERS.get(speaker.lower(), speaker if name == _ROLE else None)
            if role:
                return {"role": role, "content": entry[text]}
    return None


def _tokens(choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Collect tokens and log-probabilities, if every choice has them."""
    columns: dict[str, list[Any]] = {"tokens": [], "logprobs": []}
    for choice in choices:
        logprobs = choice.get("logprobs")
        entries = logprobs.get("content") if isinstance(logprobs, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            return {}
        columns["tokens"].append([entry.get("token") for entry in entries])
        columns["logprobs"].append([entry.get("logprob") for entry in entries])
    return columns if choices else {}
