"""Responses of chat servers: output of a batch, or rows with ``choices``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from selfreflect.sources.files import Row
from selfreflect.sources.item_rows import text_of
from selfreflect.sources.layouts import Layout
from selfreflect.text import counted

_CUT_OFF = ("length", "max_tokens")


class Responses(Layout):
    """The choices of each response are the answers to its question."""

    name = "responses"

    def matches(self, rows: Sequence[Row]) -> bool:
        return all(_is_batch_line(row.fields) or _is_response(row.fields) for row in rows)

    def items(self, rows: Iterable[Row]) -> Iterable[Row]:
        failures = cut_off = 0
        for row in rows:
            fields = {
                name: value for name, value in row.fields.items() if name not in ("choices", "response")
            }
            body: Any = row.fields
            if _is_batch_line(row.fields):
                response = row.fields["response"]
                body = response.get("body") if isinstance(response, dict) else None
                fields = {"id": row.fields["custom_id"], **_question(row.fields)}
            choices = body.get("choices") if isinstance(body, dict) else None
            choices = [choice for choice in choices or () if isinstance(choice, dict)]
            failures += not choices
            cut_off += sum(choice.get("finish_reason") in _CUT_OFF for choice in choices)
            yield row._replace(
                fields={**fields, "answers": [text_of(choice) for choice in choices], **_tokens(choices)}
            )
        notes = {
            f"{counted(failures, 'response')} without an answer, such as failed requests": failures,
            f"{counted(cut_off, 'answer')} cut off at the token limit": cut_off,
        }
        self.notes = [note for note, count in notes.items() if count]

    def explain(self) -> str:
        return "responses of a chat server"


def _is_batch_line(fields: Mapping[str, Any]) -> bool:
    return fields.keys() >= {"custom_id", "response"}


def _is_response(fields: Mapping[str, Any]) -> bool:
    """Tell whether choices are a server's; those of a multiple-choice question are texts."""
    choices = fields.get("choices")
    return (
        isinstance(choices, list)
        and bool(choices)
        and all(isinstance(choice, dict) and choice.keys() & {"message", "text"} for choice in choices)
    )


def _question(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Find the question that a user joined to the output from the batch's input."""
    names = [name for name in fields if name not in ("id", "custom_id", "response", "error")]
    return {name: fields[name] for name in names}


def _tokens(choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Collect log-probabilities, if every choice has those of its tokens."""
    columns: dict[str, list[Any]] = {"tokens": [], "logprobs": []}
    for choice in choices:
        logprobs = choice.get("logprobs")
        entries = logprobs.get("content") if isinstance(logprobs, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            return {}
        columns["tokens"].append([entry.get("token") for entry in entries])
        columns["logprobs"].append([entry.get("logprob") for entry in entries])
    return columns if choices else {}
