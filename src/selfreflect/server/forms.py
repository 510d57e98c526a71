"""The table of forms in which requests come: one path each, one way to read it, and one to answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from selfreflect.server import messages, reply, responses
from selfreflect.server.chat import CHAT_DIALECT, Dialect
from selfreflect.server.errors import ChatError
from selfreflect.server.reply import ChatResponse


@dataclass(frozen=True)
class Form:
    """One form of requests.

    Attributes:
        path: below ``/v1`` here, and below the address of the upstream there.
        body: writes a whole response, of the model by its requested name.
        events: writes a stream, with its usage if the client wants it.
        error: makes the JSON of an error.
        error_event: writes an error into a stream.
        is_upstreams: whether every upstream takes requests of this form.
        headers: of a client's request that the upstream gets, too.
        id_header: the name under which clients look for the id of a response.
    """

    path: str
    dialect: Dialect
    body: Callable[[ChatResponse, str], bytes]
    events: Callable[[ChatResponse, str, bool], Iterator[bytes]]
    error: Callable[[ChatError], dict[str, Any]]
    error_event: Callable[[ChatError], bytes]
    is_upstreams: bool = False
    headers: tuple[str, ...] = ()
    id_header: str = "x-request-id"


FORMS: Mapping[str, Form] = {
    form.path: form
    for form in (
        Form(
            path="/chat/completions",
            dialect=CHAT_DIALECT,
            body=ChatResponse.body,
            events=ChatResponse.events,
            error=lambda error: error.body,
            error_event=reply.error_event,
            is_upstreams=True,
        ),
        Form(
            path="/responses",
            dialect=responses.DIALECT,
            body=responses.body,
            events=responses.events,
            error=lambda error: error.body,
            error_event=responses.error_event,
        ),
        Form(
            path="/messages",
            dialect=messages.DIALECT,
            body=messages.body,
            events=messages.events,
            error=messages.error,
            error_event=messages.error_event,
            headers=("anthropic-version", "anthropic-beta"),
            id_header="request-id",
        ),
    )
}
"""By path."""


def form_of(path: str) -> Form:
    """Find the form of a request by its path; errors elsewhere have OpenAI's shape."""
    below = path.removeprefix("/v1")
    return FORMS.get(below) or FORMS["/messages" if below.startswith("/messages/") else "/chat/completions"]
