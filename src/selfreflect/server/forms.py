"""The table of forms in which requests come: one path each, one way to read it, and one to answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from selfreflect.server import messages, reply, responses
from selfreflect.server.chat import CHAT_DIALECT, Dialect
from selfreflect.server.errors import ChatError
from selfreflect.server.reply import ChatResponse, pieces


class EventStream(Protocol):
    """Writes the events of one stream."""

    def begin(self) -> bytes: ...

    def piece(self, text: str) -> bytes: ...

    def end(self, response: ChatResponse) -> bytes: ...


NewStream = Callable[[ChatResponse, str], EventStream]
"""Begins a stream with a response whose text is not known yet, and the requested name of the model."""


def _whole(kind: NewStream) -> Callable[..., Iterator[bytes]]:
    """Make the function that writes a whole stream in some form."""

    def events(response: ChatResponse, model: str, include_usage: bool) -> Iterator[bytes]:
        stream = kind(response, model)
        yield stream.begin()
        yield from map(stream.piece, pieces(response.choices[0].text))
        yield stream.end(response)

    return events


@dataclass(frozen=True)
class Form:
    """One form of requests.

    Attributes:
        path: below ``/v1`` here, and below the address of the upstream there.
        body: writes a whole response, of the model by its requested name.
        events: writes a whole stream, with its usage if the client wants it.
        stream: writes a stream piece by piece; None where the upstream's own events are the client's.
        error: makes the JSON of an error.
        error_event: writes an error into a stream.
        headers: of a client's request that the upstream gets, too.
        id_header: the name under which clients look for the id of a response.
    """

    path: str
    dialect: Dialect
    body: Callable[[ChatResponse, str], bytes]
    events: Callable[[ChatResponse, str, bool], Iterator[bytes]]
    stream: NewStream | None
    error: Callable[[ChatError], dict[str, Any]]
    error_event: Callable[[ChatError], bytes]
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
            stream=None,
            error=lambda error: error.body,
            error_event=reply.error_event,
        ),
        Form(
            path="/responses",
            dialect=responses.DIALECT,
            body=responses.body,
            events=_whole(responses.ResponseStream),
            stream=responses.ResponseStream,
            error=lambda error: error.body,
            error_event=responses.error_event,
        ),
        Form(
            path="/messages",
            dialect=messages.DIALECT,
            body=messages.body,
            events=_whole(messages.MessageStream),
            stream=messages.MessageStream,
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
