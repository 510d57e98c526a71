"""Tables of what was run: the manifest of a run, and totals over its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selfreflect.records import STAGES, Stage
from selfreflect.render.table import Column, Table
from selfreflect.report.run_records import RunRecords

_SECTIONS = ("sources", "config", "models", "prompts")


def facts_tables(run: RunRecords, manifest: Mapping[str, Any]) -> list[Table]:
    """Tabulate each stage and the package versions; ``manifest`` is the run's manifest as plain values."""
    tables = []
    for stage in STAGES:
        facts = _manifest_facts(manifest, stage)
        facts += [(name, f"{count:,}") for name, count in _totals(run, stage).items()]
        seconds = _mapping(manifest.get("wall_time")).get(stage)
        if isinstance(seconds, int | float):
            facts.append(("time", f"{seconds:,.1f} s"))
        tables.append(_table(stage, facts))
    packages = [(str(name), _text(value)) for name, value in _mapping(manifest.get("packages")).items()]
    return [*tables, _table("packages", packages)]


def _table(title: str, facts: Sequence[tuple[str, str]]) -> Table:
    return Table(title, (Column("what"), Column("value")), tuple(facts))


def _manifest_facts(manifest: Mapping[str, Any], stage: Stage) -> list[tuple[str, str]]:
    """Values that are set, each once: a section may repeat what an earlier one says."""
    seen: dict[str, str] = {}
    facts = []
    for section in _SECTIONS:
        values = _mapping(manifest.get(section)).get(stage)
        if not isinstance(values, Mapping):
            values = {section: values}
        for name, value in values.items():
            text = _text(value)
            if text and seen.get(str(name)) != text:
                seen[str(name)] = text
                facts.append((f"model {name}" if section == "models" else str(name), text))
    return facts


def _totals(run: RunRecords, stage: Stage) -> dict[str, int]:
    if stage == "questions":
        return {"questions": len(run.questions)}
    if stage == "answers":
        sets = [run.answers[id_] for id_ in run.questions if id_ in run.answers]
        return {
            "answers sampled": sum(len(answer_set.answers) for answer_set in sets),
            "answers cut off": sum(answer_set.truncated for answer_set in sets),
            "tokens generated": sum(answer_set.tokens for answer_set in sets),
        }
    if stage == "summaries":
        summaries = [summary for (id_, _), summary in run.summaries.items() if id_ in run.questions]
        return {
            "summaries": len(summaries),
            "tokens generated": sum(summary.tokens for summary in summaries),
        }
    scores = [score for (id_, _), score in run.scores.items() if id_ in run.questions]
    return {"scores": len(scores), "token tasks": sum(score.token_tasks for score in scores)}


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
