"""Runs to one HTML file that needs nothing else: no network, no other file, no model."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from selfreflect.grouping import group_indices
from selfreflect.render.table import Table, to_csv
from selfreflect.render.text import printable
from selfreflect.report.comparison import Contender, comparison
from selfreflect.report.figures import contenders, differences_figure, length_figure, means_figure
from selfreflect.report.length import length_audit, length_table, point_table
from selfreflect.report.overview import RunRecords, failure_table, overview
from selfreflect.report.page.data import packed, run_data
from selfreflect.report.page.facts import facts_tables
from selfreflect.report.page.trim import without
from selfreflect.report.page.view import Grouping
from selfreflect.store.trim import PARTS

COMPARED = 60_000
"""Scores that go through the intervals of all differences together, which bounds their time and the size of
their plots."""

_LEAST = 100
"""Scores that any one interval counts for: its resamples cost something however few scores there are."""

_STYLES = ("style.css", "report.css")
_SCRIPTS = ("dom.js", "question.js", "csv.js", "rows.js", "report.js")
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)


@dataclass(frozen=True)
class Shown:
    """A figure with its table and the name of its CSV."""

    name: str
    figure: Markup
    table: Table
    baseline: str = ""


def report_page(
    runs: Sequence[RunRecords],
    manifests: Sequence[Mapping[str, Any]],
    *,
    baseline: str | None = None,
    grouping: Grouping = group_indices,
    left_out: Collection[str] = (),
) -> str:
    """The whole page as text that any UTF-8 file can hold.

    Args:
        manifests: the manifest of each run as plain values.
        baseline: strategy of the first run to compare with at first; by default its first.
        left_out: those of :data:`~selfreflect.store.trim.PARTS` that the page does without.

    Raises:
        DataError: the first run has no such strategy.
        MissingExtraError: matplotlib is not installed.
    """
    overviews = {run.label: overview(run) for run in runs}
    differences, baselines = _differences(runs, baseline)
    audits = {run.label: length_audit(run) for run in runs}
    lengths = [
        Shown(
            f"length-{place}", _figure(length_figure(f"length-{place}", audit, "page")), length_table(audit)
        )
        for place, audit in enumerate(audits.values())
    ]
    failures = {f"failures-{place}": failure_table(run) for place, run in enumerate(runs)}
    tables = {f"overview-{place}": table for place, table in enumerate(overviews.values())}
    tables |= {shown.name: shown.table for shown in differences} | failures
    tables |= {f"length-{place}": point_table(audit) for place, audit in enumerate(audits.values())}
    indices, chunks = zip(*(run_data(without(run, left_out), grouping) for run in runs), strict=True)
    return _rendered(
        runs=runs,
        means=_figure(means_figure(overviews, "page")),
        overviews=list(overviews.values()),
        differences=differences,
        baselines=baselines,
        lengths=lengths,
        failures=[(name, table) for name, table in failures.items() if table.rows],
        facts=[facts_tables(run, manifest) for run, manifest in zip(runs, manifests, strict=True)],
        headline=_headline(runs, overviews),
        left_out=[PARTS[name] for name in left_out],
        index=packed(
            {
                "runs": indices,
                "left_out": list(left_out),
                "csv": {name: to_csv(table) for name, table in tables.items()},
            }
        ),
        chunks=chunks,
    )


def _differences(runs: Sequence[RunRecords], baseline: str | None) -> tuple[list[Shown], int]:
    """Differences to as many baselines as may be, the chosen one first; and how many strategies could be
    one."""
    sides = contenders(runs, baseline)
    if len(sides) < 2:
        return [], len(sides)
    cost = (len(sides) - 1) * max(_LEAST, *(len(side.values) for side in sides))
    bases = sides[: max(1, COMPARED // cost)]
    return [_difference(f"differences-{place}", base, sides) for place, base in enumerate(bases)], len(sides)


def _difference(name: str, base: Contender, sides: Sequence[Contender]) -> Shown:
    table = comparison(base, [side for side in sides if side is not base])
    label = base.strategy + (f" ({base.label})" if len({side.label for side in sides}) > 1 else "")
    return Shown(name, _figure(differences_figure(name, table, "page")), table, label)


def _headline(runs: Sequence[RunRecords], overviews: Mapping[str, Table]) -> list[tuple[str, str]]:
    """A few numbers that say what this is about."""
    questions = {(id_, question.text) for run in runs for id_, question in run.questions.items()}
    answers = sum(
        len(run.answers[id_].answers) for run in runs for id_ in run.questions if id_ in run.answers
    )
    scores = sum(len(run.values(name)) for run in runs for name in run.strategies)
    judges = sorted({score.judge for run in runs for score in run.scores.values()})
    found = [
        ("questions", f"{len(questions):,}"),
        ("sampled answers", f"{answers:,}"),
        ("scores", f"{scores:,}"),
    ]
    return [*found, ("judge", ", ".join(judges) or "none")]


def _figure(svg: str) -> Markup:
    """matplotlib escapes what it writes, and :mod:`selfreflect.report.figures` writes it anew from its parsed
    tree."""
    return Markup(svg)


def _rendered(**values: Any) -> str:
    style = "\n".join(_source(name) for name in _STYLES)
    script = "\n".join(_module(_source(name)) for name in _SCRIPTS)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_printable, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_source("report.html"))
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"
    return template.render(policy=policy, style=Markup(style), script=Markup(script), **values)


def _printable(value: Any) -> Any:
    """Applied to whatever the template prints, before it is escaped: nothing hidden, nothing that UTF-8
    cannot hold."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _source(name: str) -> str:
    return (files("selfreflect.report.page") / name).read_text(encoding="utf-8")


def _module(source: str) -> str:
    """A module as a part of one script: the modules stand in the order of their imports, and share one
    scope."""
    return re.sub(r"^export ", "", _IMPORT.sub("", source), flags=re.MULTILINE)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}"
