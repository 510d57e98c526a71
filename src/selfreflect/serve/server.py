"""The ASGI application and its server."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from selfreflect.errors import SelfReflectError, excerpt
from selfreflect.serve.faults import ChatError, ErrorType, as_chat_error
from selfreflect.serve.routes import ServeServices, routes
from selfreflect.web.access import Access
from selfreflect.web.guard import Guard, Policy
from selfreflect.web.server import HttpServer, log_to_stderr

MAX_BODY = 10_000_000
"""Bytes of a request's body."""

SHUTDOWN_SECONDS = 20
"""How long requests may still run when the server is told to stop."""

_TYPES: dict[int, ErrorType] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
}
_OFFERED = "Try POST /v1/chat/completions, or GET /v1/models, /v1/selfreflect/ID, /metrics or /health."
log = logging.getLogger("selfreflect.serve")


def _refuse(status: HTTPStatus, kind: str, message: str, headers: Mapping[str, str]) -> JSONResponse:
    error = ChatError(status, message, type=_TYPES.get(status, "invalid_request_error"), code=kind)
    return JSONResponse(error.body, status, headers)


SERVE_POLICY = Policy(
    protects=lambda path: path != "/health",
    refuse=_refuse,
    headers={"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"},
    max_body=MAX_BODY,
    token_advice="The API key is missing or wrong. It is the token that the server printed when it started.",
    log=log,
)


def application(services: ServeServices, access: Access) -> Guard:
    """Build the whole application behind its guard."""
    app = FastAPI(openapi_url=None)
    app.state.services = services
    app.include_router(routes)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _http_error)
    app.add_exception_handler(SelfReflectError, _failure)
    app.add_exception_handler(Exception, _failure)
    return Guard(app, access, SERVE_POLICY)


def _http_error(request: Request, error: Any) -> JSONResponse:
    status = HTTPStatus(getattr(error, "status_code", 400))
    detail = getattr(error, "detail", "") or "the address is malformed"
    if detail == status.phrase and status in (404, 405):
        detail = f"{request.method} {excerpt(request.url.path, 200)} is not offered. {_OFFERED}"
    return _refuse(
        status, status.phrase.lower().replace(" ", "_"), detail, getattr(error, "headers", None) or {}
    )


def _failure(_: Request, error: Any) -> JSONResponse:
    answer = as_chat_error(error)
    if answer.status >= 500:
        log.warning("%s", answer)
    headers = {} if answer.retry_after is None else {"Retry-After": str(answer.retry_after)}
    return JSONResponse(answer.body, answer.status, headers)


def serve(
    bound: socket.socket, services: ServeServices, allowed: Access, proxies: Sequence[str] = ()
) -> None:
    """Serve until SIGINT or SIGTERM. Requests under way may end within some seconds."""
    log_to_stderr(log)
    EndpointServer(services, allowed, proxies=proxies).run([bound])


class EndpointServer(HttpServer):
    """A server that releases its services in the event loop that they belong to."""

    def __init__(
        self,
        services: ServeServices,
        allowed: Access,
        *,
        graceful: float = SHUTDOWN_SECONDS,
        proxies: Sequence[str] = (),
    ) -> None:
        super().__init__(application(services, allowed), graceful=graceful, proxies=proxies)
        self._services = services

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await self._services.close()
