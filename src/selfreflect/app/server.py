"""The ASGI application and its server: join the routes, answer errors in one shape, hand out the files of the
page, and run until a signal."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from http import HTTPStatus
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from selfreflect import __version__
from selfreflect.app.checks import Preflight
from selfreflect.app.choices import ModelChoices
from selfreflect.app.guard import APP_POLICY, problem
from selfreflect.app.jobs import JobQueue
from selfreflect.app.library import Library
from selfreflect.app.meaning import Meaning
from selfreflect.app.routes import Services, routes
from selfreflect.app.schemas import ErrorAnswer
from selfreflect.app.worker import PATIENCE, JobProcess
from selfreflect.errors import SelfReflectError
from selfreflect.settings import ExecutionOptions
from selfreflect.web.access import Access
from selfreflect.web.guard import Guard
from selfreflect.web.paths import without_paths
from selfreflect.web.server import HttpServer, log_to_stderr

_REPORT_FILES = ("style.css", "dom.js", "bits.js", "agreement.js", "question.js", "csv.js", "rows.js")
"""Files that the page shares with the report page."""

_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
"""Content types by suffix, because the machine's own registry may be wrong, and browsers refuse scripts of
another type."""


_SHUTDOWN = PATIENCE + 5.0
"""Seconds that the running job has to end, or its process to be killed, when the server stops."""


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
    app.include_router(routes)
    app.include_router(_page_routes())
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(SelfReflectError, _failure)
    app.add_exception_handler(Exception, _failure)
    return Guard(app, access, APP_POLICY)


def _page_routes() -> APIRouter:
    """``/`` and ``/static/NAME``. The files are read once, and no other file can be requested."""
    routes = APIRouter(include_in_schema=False)
    report = resources.files("selfreflect.report") / "page"
    files = {name: (report / name).read_bytes() for name in _REPORT_FILES}
    for file in (resources.files("selfreflect.app") / "static").iterdir():
        files[file.name] = file.read_bytes()

    @routes.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        return Response(files[name], media_type=_TYPES[PurePosixPath(name).suffix])

    @routes.api_route("/", methods=["GET", "HEAD"])
    def index() -> Response:
        return static("index.html")

    return routes


def _respond(status: int, error: dict[str, str], headers: Any = None) -> JSONResponse:
    return _AsciiResponse({"error": {"remedy": "", **error}}, status, headers)


def _http_error(_: Request, error: Any) -> JSONResponse:
    phrase = HTTPStatus(error.status_code).phrase
    code = "too_large" if error.status_code == 413 else phrase.lower().replace(" ", "_")
    return _respond(error.status_code, {"code": code, "message": error.detail or phrase}, error.headers)


def _invalid_request(_: Request, error: Any) -> JSONResponse:
    """Name each wrong field and the reason, without repeating what was sent."""
    lines = []
    for failure in error.errors()[:5]:
        field = ".".join(map(str, failure["loc"][1:])) or "body"
        lines.append(f"{field}: {failure['msg']}")
    return _respond(422, {"code": "invalid", "message": without_paths("; ".join(lines))})


_STATUS = {"busy": 429, "unknown_run": 404}
"""HTTP statuses of errors by their code. Any other error on purpose is 422, an unexpected one 500."""


def _failure(_: Request, error: Any) -> JSONResponse:
    described = problem(error)
    status = _STATUS.get(described["code"], 422 if isinstance(error, SelfReflectError) else 500)
    return _respond(status, described, {"Retry-After": "10"} if status == 429 else None)


def url(host: str, port: int, token: str | None) -> str:
    """Write the address to open. The token is in the fragment, which browsers do not send."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    if ":" in name:
        name = f"[{name}]"
    fragment = f"#token={quote(token, safe='')}" if token else ""
    return f"http://{name}:{port}/{fragment}"


def serve(
    bound: socket.socket, root: Path, *, models: ModelChoices, options: ExecutionOptions, allowed: Access
) -> None:
    """Serve until SIGINT or SIGTERM, which also stop the running job."""
    log_to_stderr(logging.getLogger("selfreflect.app"))
    library = Library(root)
    checks = Preflight(models, options)
    work = JobProcess(root, models, options, checks)
    queue = JobQueue(work)
    services = Services(queue, library, models, Meaning(), checks)
    try:
        AppServer(services, allowed).run([bound])
    finally:
        work.close()


class AppServer(HttpServer):
    """A server that stops its jobs when it ends, and with them the streams of their events."""

    def __init__(self, services: Services, allowed: Access) -> None:
        super().__init__(application(services, allowed))
        self._queue = services.queue

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._queue.close()
        await super().shutdown(sockets)
        await asyncio.to_thread(self._queue.close, _SHUTDOWN)  # after SIGTERM nothing follows
