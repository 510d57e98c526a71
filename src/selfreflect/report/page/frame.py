"""Assembly of pages from a template, styles, scripts and a policy, and the uncertainty page."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from selfreflect.records import dump_line
from selfreflect.table import Table
from selfreflect.text import counted, printable

_STYLES = ("style.css", "report.css")
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)


def packed(value: Any) -> str:
    """Encode plain values as gzipped JSON in base64, which is inert in HTML. Equal values give equal text."""
    data = gzip.compress(dump_line(value, is_compact=True).encode("utf-8"), compresslevel=6, mtime=0)
    return base64.b64encode(data).decode("ascii")


def render_page(template: str, scripts: Sequence[str], **values: Any) -> str:
    """Render a template of this package as encodable UTF-8 text.

    Args:
        scripts: modules, each after those that it imports.
    """
    # one script and one style, whose hashes the policy names: a browser runs nothing else
    style = "\n".join(map(_source, _STYLES))
    script = "\n".join(_module(_source(name)) for name in scripts)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    page = templates().get_template(template)
    return page.render(policy=policy, style=Markup(style), script=Markup(script), **values)


def unbroken(value: object) -> str:
    """Keep each percent sign on the line of its number."""
    return str(value).replace(" %", "\u00a0%")


@cache
def templates() -> Environment:
    """Load the templates once, since compiling takes longer than rendering."""
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"counted": counted, "unbroken": unbroken}
    return environment


def _printable(value: Any) -> Any:
    """Make all template output :func:`printable` before it is escaped."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _source(name: str) -> str:
    folder = files("selfreflect.report") / ("templates" if name.endswith(".html") else "page")
    return (folder / name).read_text(encoding="utf-8")


def _module(source: str) -> str:
    """Convert a module into part of one script with a shared scope, in import order."""
    return re.sub(r"^export ", "", _IMPORT.sub("", source), flags=re.MULTILINE)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}"


@dataclass(frozen=True)
class UncertaintyFigure:
    """A figure with its table, or the reason for its absence."""

    title: str
    caption: str
    figure: Markup
    """The figure; empty if undefined."""
    table: Table | None = None
    name: str = ""
    """Name of the table's CSV."""
    undefined: str = ""


@dataclass(frozen=True)
class EstimatorPanel:
    """Figures of one estimator."""

    estimator: str
    name: str
    """Identifier of the panel on the page."""
    figures: list[UncertaintyFigure]


@dataclass(frozen=True)
class ShadedAnswer:
    """An answer with words shaded by the model's uncertainty."""

    question: str
    words: list[tuple[str, int]]
    """Each word with a level from 0 to 3, by the entropy of its likely tokens."""
    table: Table
    """Table of the values behind the levels."""


@dataclass
class UncertaintyPart:
    """Estimators on one set of questions, evaluated by one kind of correctness."""

    name: str
    """Identifier of the part on the page, and prefix of its CSV names."""
    label: str
    """Label that distinguishes the part."""
    lead: str
    """Main finding in one sentence."""
    table: Table
    """Table of estimators and baselines by ranking measures."""
    whole: Table
    """Table with all measures."""
    baselines: frozenset[int]
    """Indices of baseline rows."""
    panels: list[EstimatorPanel]
    shaded: list[ShadedAnswer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    csv: dict[str, str] = field(default_factory=dict)
    """CSV texts by name."""


def part_html(part: UncertaintyPart) -> str:
    """Render a section for a page that provides styles and `frame.js`."""
    return str(templates().get_template("parts.html").module.uncertainty_part(part))  # type: ignore[attr-defined]


def uncertainty_page(title: str, parts: Sequence[UncertaintyPart], facts: Sequence[tuple[str, str]]) -> str:
    """Render a separate page: one HTML file without network or other files.

    Args:
        title: what the questions are called; may be untrusted.
        facts: names and values of the figures at the top.
    """
    csv: dict[str, str] = {}
    for part in parts:
        csv |= part.csv
    return render_page(
        "uncertainty.html",
        ("dom.js", "csv.js", "frame.js", "uncertainty.js"),
        title=title,
        parts=parts,
        facts=facts,
        blocks={"index": packed({"csv": csv})},
    )
