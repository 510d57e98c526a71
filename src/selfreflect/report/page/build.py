"""Build the report page: one HTML file that needs no network, no other file and no model."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from selfreflect.grouping import group_indices
from selfreflect.records import STAGES
from selfreflect.render.table import Table, to_csv
from selfreflect.render.text import printable
from selfreflect.report.comparison import Contender, comparison, contenders
from selfreflect.report.figures import differences_figure, length_figure, means_figure, paste_figure
from selfreflect.report.headline import headline
from selfreflect.report.length import length_audit, length_table, point_table
from selfreflect.report.measures import INFORMATION, SELFREFLECT, Measure
from selfreflect.report.overview import QUESTION_COLUMNS, failure_table, overview, sorted_strategies
from selfreflect.report.page.view import Grouping, packed, run_data
from selfreflect.report.paste_curve import paste_table, run_curve
from selfreflect.report.run_records import RunRecords
from selfreflect.store.trim import PARTS

COMPARED = 60_000
"""Maximum number of scores in all differences together, which bounds the time and the size of the plots."""

_LEAST = 100
"""Scores that an interval counts for at least, because its resamples have a fixed cost."""

_STYLES = ("style.css", "report.css")
_SCRIPTS = ("dom.js", "bits.js", "question.js", "csv.js", "rows.js", "report.js")
_SECTIONS = ("sources", "config", "models", "prompts")
"""Sections of a manifest whose values the page shows, by stage."""
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)


@dataclass(frozen=True)
class Panel:
    """A figure with its table; ``name`` identifies both and their CSV."""

    name: str
    figure: Markup
    table: Table
    baseline: str = ""
    information: Panel | None = None
    """The same of usable information, if it was measured."""


def report_page(
    runs: Sequence[RunRecords],
    manifests: Sequence[Mapping[str, Any]],
    *,
    baseline: str | None = None,
    grouping: Grouping = group_indices,
    grouped: str = "spelling",
    left_out: Collection[str] = (),
) -> str:
    """Render the whole page as text that any UTF-8 file can hold.

    Args:
        manifests: the manifest of each run as plain values.
        baseline: strategy of the first run that the page compares with first; by default its first.
        grouped: what ``grouping`` goes by, for readers.
        left_out: :data:`~selfreflect.store.trim.PARTS` to leave out.

    Raises:
        DataError: the first run has no such strategy.
    """
    headlines = [(run.label, headline(run)) for run in runs]
    overviews = {run.label: overview(run) for run in runs}
    differences, baselines = _differences(runs, baseline)
    csv = {}
    for panel in differences:
        csv[panel.name] = to_csv(panel.table)
        if panel.information is not None:
            csv[panel.information.name] = to_csv(panel.information.table)
    lengths = []
    pasted = []
    failures = []
    facts = []
    indices = []
    chunks = []
    for number, (run, manifest) in enumerate(zip(map(sorted_strategies, runs), manifests, strict=True)):
        csv[f"overview-{number}"] = to_csv(overviews[run.label])
        failure_rows = failure_table(run)
        csv[f"failures-{number}"] = to_csv(failure_rows)
        if failure_rows.rows:
            failures.append((f"failures-{number}", failure_rows))
        audits = length_audit(run)
        length = f"length-{number}"
        csv[length] = to_csv(point_table(audits))
        lengths.append(Panel(length, _markup(length_figure(length, audits, "page")), length_table(audits)))
        placed = run_curve(run)
        if placed is not None:
            name = f"pasted-{number}"
            table = paste_table(*placed)
            csv[name] = to_csv(table)
            pasted.append(Panel(name, _markup(paste_figure(name, *placed, "page")), table, run.label))
        facts.append(stage_facts(run, manifest))
        index, run_chunks = run_data(run.without(left_out), grouping)
        indices.append(index)
        chunks.append(run_chunks)
    columns = [column.heading for column in QUESTION_COLUMNS]
    has_information = any(run.information for run in runs)
    scored = not has_information or any(run.scores for run in runs)  # empty figures only if there is no other
    return _render(
        runs=runs,
        scored=scored,
        means=_markup(means_figure(overviews, "page")),
        tells=_markup(means_figure(overviews, "page", INFORMATION) if has_information else ""),
        overviews=list(overviews.values()),
        differences=differences,
        baselines=baselines,
        lengths=lengths,
        pasted=pasted,
        failures=failures,
        facts=facts,
        prompts=[prompt_texts(manifest) for manifest in manifests],
        headlines=headlines,
        counts=_run_counts(runs, manifests),
        left_out=[PARTS[name] for name in left_out],
        index=packed(
            {"runs": indices, "columns": columns, "left_out": list(left_out), "csv": csv, "grouped": grouped}
        ),
        chunks=chunks,
    )


def _differences(runs: Sequence[RunRecords], baseline: str | None) -> tuple[list[Panel], int]:
    """Differences from each baseline, the chosen one first, as far as time allows; and the number of possible
    baselines."""
    sides = contenders(runs, baseline)
    if len(sides) < 2:
        return [], len(sides)
    several_runs = len({side.label for side in sides}) > 1
    cost = (len(sides) - 1) * max(_LEAST, *(len(side.scores) for side in sides))
    panels = []
    for number, base in enumerate(sides[: max(1, COMPARED // cost)]):
        label = f"{base.strategy} ({base.label})" if several_runs else base.strategy
        others = [side for side in sides if side is not base]
        information = None
        if all(side.run.information for side in sides):
            information = _difference(f"differences-tells-{number}", base, others, label, INFORMATION)
        panel = _difference(f"differences-{number}", base, others, label, SELFREFLECT)
        panels.append(replace(panel, information=information))
    return panels, len(sides)


def _difference(
    name: str, base: Contender, others: Sequence[Contender], label: str, measure: Measure
) -> Panel:
    table = comparison(base, others, measure)
    return Panel(name, _markup(differences_figure(name, table, "page", measure)), table, label)


def _run_counts(runs: Sequence[RunRecords], manifests: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Names and values of the figures at the top of the page."""
    questions: set[tuple[str, str]] = set()
    judges: set[str] = set()
    others: dict[str, None] = {}
    answers = 0
    scores = 0
    measured = 0
    for run in runs:
        questions.update((id_, question.text) for id_, question in run.questions.items())
        judges.update(score.judge for score in run.scores.values())
        judges.update(information.judge for information in run.information.values())
        others |= dict.fromkeys(run.other_judges)
        answers += sum(len(run.answers[id_].answers) for id_ in run.questions if id_ in run.answers)
        scores += sum(len(run.strategy_scores(name)) for name in run.strategies)
        measured += sum(len(run.strategy_information(name)) for name in run.strategies)
    days = sorted(str(time)[:10] for one in manifests for time in one.get("finished", {}).values())
    figures = [
        *([("date", days[-1])] if days else []),
        ("questions", f"{len(questions):,}"),
        ("sampled answers", f"{answers:,}"),
        ("scores", f"{scores:,}") if scores or not measured else ("summaries measured", f"{measured:,}"),
        ("judge", ", ".join(sorted(judges)) or "none"),
    ]
    if others:  # each has a page of its own, with --judge
        figures.append(("also scored by", "; ".join(others)))
    return figures


def _markup(svg: str) -> Markup:
    """Mark an SVG as safe: matplotlib escapes text, and :mod:`selfreflect.render.plots` serialises it again
    from its parsed tree."""
    return Markup(svg)


def _render(**values: Any) -> str:
    style = "\n".join(_source(name) for name in _STYLES)
    script = "\n".join(_module(_source(name)) for name in _SCRIPTS)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_printable, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_source("report.html"))
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    return template.render(policy=policy, style=Markup(style), script=Markup(script), **values)


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


def stage_facts(run: RunRecords, manifest: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Name and value of what is known of each stage and of the packages.

    A value is listed once: the manifest's sections repeat each other in part.
    """
    facts: dict[str, list[tuple[str, str]]] = {}
    counts = _counts(run)
    for stage in STAGES:
        pairs: dict[tuple[str, str], str] = {}
        for section in _SECTIONS:
            values = manifest.get(section, {}).get(stage)
            if not isinstance(values, Mapping):
                values = {section: values}
            prefix = "model " if section == "models" else ""
            for name, value in values.items():
                if value not in (None, ""):
                    pairs.setdefault((name, str(value)), f"{prefix}{name}")
        facts[stage] = [(label, text) for (_, text), label in pairs.items()]
        facts[stage] += [(name, f"{count:,}") for name, count in counts[stage].items()]
        seconds = manifest.get("wall_time", {}).get(stage)
        if seconds is not None:
            facts[stage].append(("time", f"{seconds:,.1f} s"))
    facts["packages"] = list(manifest.get("packages", {}).items())
    return facts


def prompt_texts(manifest: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Name and text of the prompts of each stage. A stage is left out if they are not known: older runs kept
    only a hash."""
    known = manifest.get("prompt_texts", {})
    prompts = []
    for stage, digest in manifest.get("prompts", {}).items():
        texts = []
        for table, entries in known.get(digest, {}).items():
            if (table == "answers") == (stage == "answers"):
                texts += [(f"{table}: {name}", text) for name, text in entries.items()]
        if texts:
            prompts.append((stage, texts))
    return prompts


def _counts(run: RunRecords) -> dict[str, dict[str, int]]:
    answers = [run.answers[id_] for id_ in run.questions if id_ in run.answers]
    summaries = [summary for (id_, _), summary in run.summaries.items() if id_ in run.questions]
    scores = [score for (id_, _), score in run.scores.items() if id_ in run.questions]
    return {
        "questions": {"questions": len(run.questions)},
        "answers": {
            "answers sampled": sum(len(answer_set.answers) for answer_set in answers),
            "answers cut off": sum(answer_set.truncated for answer_set in answers),
            "tokens generated": sum(answer_set.tokens for answer_set in answers),
        },
        "summaries": {
            "summaries": len(summaries),
            "tokens generated": sum(summary.tokens for summary in summaries),
        },
        "scores": {"scores": len(scores), "token tasks": sum(score.token_tasks for score in scores)},
    }
