"""The ASGI application: joins the routes, and answers errors in one shape."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from selfreflect import __version__
from selfreflect.app import job_routes, run_routes
from selfreflect.app.guard import Access, Guard
from selfreflect.app.jobs import QueueFullError
from selfreflect.app.library import UnknownRunError
from selfreflect.app.page_routes import page_routes
from selfreflect.app.safe import problem, without_paths
from selfreflect.app.schemas import ErrorAnswer
from selfreflect.app.services import Services
from selfreflect.errors import SelfReflectError


class _AsciiResponse(JSONResponse):
    """JSON in ASCII, because texts of models and files may hold lone surrogates, which UTF-8 lacks."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def application(services: Services, access: Access) -> Guard:
    """Build the whole application behind its guard."""
    app = FastAPI(
        title="selfreflect",
        version=__version__,
        description="Ask a question, draw the answer distribution, summarise it, and score how faithful the "
        "summaries are.",
        docs_url=None,  # FastAPI's pages load scripts from other sites
        redoc_url=None,
        openapi_url="/api/openapi.json",
        default_response_class=_AsciiResponse,
        responses={status: {"model": ErrorAnswer} for status in (400, 401, 403, 421, 422)},
    )
    app.state.services = services
    app.include_router(job_routes.routes, prefix="/api")
    app.include_router(run_routes.routes, prefix="/api")
    app.include_router(page_routes())
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(SelfReflectError, _expected_error)
    app.add_exception_handler(Exception, _unexpected_error)
    return Guard(app, access)


def _respond(status: int, error: dict[str, str], headers: Any = None) -> JSONResponse:
    return _AsciiResponse({"error": error}, status, headers)


def _http_error(_: Request, error: Any) -> JSONResponse:
    phrase = HTTPStatus(error.status_code).phrase
    kind = phrase.lower().replace(" ", "_")
    return _respond(error.status_code, {"kind": kind, "message": error.detail or phrase}, error.headers)


def _invalid_request(_: Request, error: Any) -> JSONResponse:
    """Name each wrong field and the reason, without repeating what was sent."""
    lines = []
    for failure in error.errors()[:5]:
        field = ".".join(map(str, failure["loc"][1:])) or "body"
        lines.append(f"{field}: {failure['msg']}")
    return _respond(422, {"kind": "invalid", "message": without_paths("; ".join(lines))})


def _expected_error(_: Request, error: Any) -> JSONResponse:
    if isinstance(error, QueueFullError):
        return _respond(429, {"kind": "busy", "message": str(error)}, {"Retry-After": "10"})
    status = 404 if isinstance(error, UnknownRunError) else 422
    return _respond(status, problem(error))


def _unexpected_error(_: Request, error: Any) -> JSONResponse:
    return _respond(500, problem(error))
