"""Put a page together: a template, its style sheets and scripts, and a policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from selfreflect.text import printable

_STYLES = ("style.css", "report.css")
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)


def render_page(template: str, scripts: Sequence[str], **values: Any) -> str:
    """Render a template of this package as text that any UTF-8 file can hold.

    Args:
        scripts: modules, each after those that it imports.
    """
    style = "\n".join(map(_source, _STYLES))
    script = "\n".join(_module(_source(name)) for name in scripts)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    page = _templates().get_template(template)
    return page.render(policy=policy, style=Markup(style), script=Markup(script), **values)


@cache
def _templates() -> Environment:
    """The templates, which take longer to compile than most pages to fill."""
    return Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _printable(value: Any) -> Any:
    """Make everything that the template prints :func:`printable`, before it is escaped."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _source(name: str) -> str:
    return (files("selfreflect.report.page") / name).read_text(encoding="utf-8")


def _module(source: str) -> str:
    """Turn a module into a part of one script, in which modules follow their imports and share one scope."""
    return re.sub(r"^export ", "", _IMPORT.sub("", source), flags=re.MULTILINE)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}"
