"""The files of the page. They are read once, and no other file can be requested."""

from __future__ import annotations

from importlib import resources
from pathlib import PurePosixPath

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.exceptions import HTTPException

_REPORT_FILES = ("style.css", "dom.js", "question.js", "csv.js", "rows.js")
"""Files that the page shares with the report page."""

_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
"""Content types by suffix, because the machine's own registry may be wrong, and browsers refuse scripts of
another type."""


def page_routes() -> APIRouter:
    """``/``, ``/docs`` and ``/static/NAME``."""
    routes = APIRouter(include_in_schema=False)
    files = _read_files()

    def respond(name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        return Response(files[name], media_type=_TYPES[PurePosixPath(name).suffix])

    @routes.api_route("/", methods=["GET", "HEAD"])
    def index() -> Response:
        return respond("index.html")

    @routes.api_route("/docs", methods=["GET", "HEAD"])
    def docs() -> Response:
        return respond("docs.html")

    @routes.get("/static/{name}")
    def static(name: str) -> Response:
        return respond(name)

    return routes


def _read_files() -> dict[str, bytes]:
    report = resources.files("selfreflect.report") / "page"
    files = {name: (report / name).read_bytes() for name in _REPORT_FILES}
    for file in (resources.files("selfreflect.app") / "static").iterdir():
        files[file.name] = file.read_bytes()
    return files
