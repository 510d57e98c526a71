"""What was run, as tables: the manifest of a run and what its records add up to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from selfreflect.records import STAGES
from selfreflect.render.table import Column, Table
from selfreflect.report.overview import RunRecords

_SECTIONS = ("sources", "config", "models", "prompts")


def facts_tables(run: RunRecords, manifest: Mapping[str, Any]) -> list[Table]:
    """One table per stage and one of package versions; ``manifest`` is that of the run directory as plain
    values."""
    tables = [_table(stage, _stage_facts(run, manifest, stage)) for stage in STAGES]
    return [
        *tables,
        _table(
            "packages",
            ((str(name), _shown(value)) for name, value in _mapping(manifest.get("packages")).items()),
        ),
    ]


def _table(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    return Table(title, (Column("what"), Column("value")), tuple(rows))


def _stage_facts(run: RunRecords, manifest: Mapping[str, Any], stage: str) -> Iterator[tuple[str, str]]:
    seen: dict[str, str] = {}
    for section in _SECTIONS:
        found = _mapping(manifest.get(section)).get(stage)
        values = found if isinstance(found, Mapping) else {} if found is None else {section: found}
        for name, value in values.items():
            shown = _shown(value)
            if shown and seen.get(str(name)) != shown:
                seen[str(name)] = shown
                yield (f"{section[:-1]} {name}" if section == "models" else str(name)), shown
    yield from _sums(run, stage)
    seconds = _mapping(manifest.get("wall_time")).get(stage)
    if isinstance(seconds, int | float):
        yield "time", f"{seconds:,.1f} s"


def _sums(run: RunRecords, stage: str) -> Iterator[tuple[str, str]]:
    if stage == "questions":
        yield "questions", f"{len(run.questions):,}"
    elif stage == "answers":
        sets = [run.answers[id_] for id_ in run.questions if id_ in run.answers]
        yield "answers drawn", f"{sum(len(one.answers) for one in sets):,}"
        yield "answers cut off", f"{sum(one.truncated for one in sets):,}"
        yield "tokens generated", f"{sum(one.tokens for one in sets):,}"
    elif stage == "summaries":
        made = [summary for (id_, _), summary in run.summaries.items() if id_ in run.questions]
        yield "summaries made", f"{len(made):,}"
        yield "tokens generated", f"{sum(summary.tokens for summary in made):,}"
    else:
        scores = [score for (id_, _), score in run.scores.items() if id_ in run.questions]
        yield "scores", f"{len(scores):,}"
        yield "token tasks", f"{sum(score.token_tasks for score in scores):,}"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _shown(value: Any) -> str:
    """What is not set says nothing and is left out."""
    return "" if value is None else str(value)
