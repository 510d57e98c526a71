"""Build the report page: one HTML file that needs no network, no other file and no model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from selfreflect.grouping import group_indices
from selfreflect.records import STAGES
from selfreflect.report.judges import judge_tables, page_judges, plain_label
from selfreflect.report.page.frame import render_page
from selfreflect.report.page.judge_part import judge_part
from selfreflect.report.page.uncertainty_part import UncertaintyPart
from selfreflect.report.page.view import Grouping, packed, run_data
from selfreflect.report.question_table import QUESTION_HEADINGS
from selfreflect.report.results import sorted_strategies
from selfreflect.report.run_records import RunRecords
from selfreflect.store.trim import PARTS
from selfreflect.table import Table, to_csv

_SCRIPTS = (
    "dom.js",
    "bits.js",
    "agreement.js",
    "question.js",
    "csv.js",
    "rows.js",
    "frame.js",
    "report.js",
)
_SECTIONS = ("sources", "config", "models", "prompts")
"""Sections of a manifest whose values the page shows, by stage."""


def report_page(
    runs: Sequence[Sequence[RunRecords]],
    *,
    baseline: str | None = None,
    grouping: Grouping = group_indices,
    grouped: str = "spelling",
    left_out: Collection[str] = (),
    uncertainty: Sequence[UncertaintyPart] = (),
) -> str:
    """Render the whole page as text that any UTF-8 file can hold.

    Args:
        runs: each run once for every judge that scored it. The page begins with the first judge of the first
            run, and its reader can choose the others.
        baseline: strategy of the first run that the page compares with first; by default its first.
        grouped: what ``grouping`` goes by, for readers.
        left_out: :data:`~selfreflect.store.trim.PARTS` to leave out.
        uncertainty: sections on the uncertainty of the runs whose right answers are known.

    Raises:
        DataError: the first run has no such strategy.
    """
    judges = page_judges(runs)
    parts = []
    facts = []
    csv: dict[str, str] = {}
    for number, places in enumerate(judges.values()):
        records = [of_run[place] for of_run, place in zip(runs, places, strict=True)]
        prefix = f"judge-{number + 1}-" if number else ""
        part = judge_part(records, prefix, baseline, len(judges))
        csv |= part.csv
        parts.append(part)
        facts.append(list(map(stage_facts, records)))
    for section in uncertainty:
        csv |= section.csv
    beside: list[tuple[str, Table]] = []
    for of_run in runs:
        for table in judge_tables(of_run):
            name = f"judges-{len(beside)}"
            csv[name] = to_csv(table)
            beside.append((name, table))
    indices, blocks = _questions(runs, grouping, left_out)
    index = {
        "runs": indices,
        "judges": list(judges.values()),
        "columns": QUESTION_HEADINGS,
        "left_out": list(left_out),
        "csv": csv,
        "grouped": grouped,
        "baseline": baseline or next(iter(runs[0][0].strategies), ""),
    }
    return render_page(
        "report.html",
        _SCRIPTS,
        title=", ".join(plain_label(of_run[0]) for of_run in runs),
        judges=list(judges),
        parts=parts,
        scored=any(part.scored for part in parts),
        pasted=any(part.pasted for part in parts),
        several_runs=len(runs) > 1,
        beside=beside,
        facts=facts,
        uncertainty=uncertainty,
        prompts=[prompt_texts(of_run[0].manifest) for of_run in runs],
        left_out=[PARTS[name] for name in left_out],
        blocks={"index": packed(index), **blocks},
    )


def _questions(
    runs: Sequence[Sequence[RunRecords]], grouping: Grouping, left_out: Collection[str]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The index of each run, and the packed questions by the id of their block."""
    indices = []
    blocks: dict[str, str] = {}
    for number, of_run in enumerate(runs):
        scorings = [sorted_strategies(scoring).without(left_out) for scoring in of_run]
        index, (main, *others) = run_data(scorings, grouping)
        indices.append(index)
        blocks |= {f"chunk-{number}-{place}": chunk for place, chunk in enumerate(main)}
        for scoring, chunks in enumerate(others, start=1):
            blocks |= {f"scoring-{number}-{scoring}-{place}": one for place, one in enumerate(chunks)}
    return indices, blocks


def stage_facts(run: RunRecords) -> dict[str, list[tuple[str, str]]]:
    """Name and value of what is known of each stage and of the packages.

    A value is listed once: the manifest's sections repeat each other in part.
    """
    facts: dict[str, list[tuple[str, str]]] = {}
    counts = _counts(run)
    manifest = run.manifest
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
    stored_texts = manifest.get("prompt_texts", {})
    prompts = []
    for stage, digest in manifest.get("prompts", {}).items():
        texts = []
        for table, entries in stored_texts.get(digest, {}).items():
            if (table == "answers") == (stage == "answers"):
                texts += [(f"{table}: {name}", text) for name, text in entries.items()]
        if texts:
            prompts.append((stage, texts))
    return prompts


def _counts(run: RunRecords) -> dict[str, dict[str, int]]:
    answers = [run.answers[id_] for id_ in run.questions if id_ in run.answers]
    summaries = [summary for (id_, _), summary in run.summaries.items() if id_ in run.questions]
    scores = [score for (id_, _), score in run.scores.items() if id_ in run.questions]
    measured = {"summaries measured": len(run.information)}
    if scores:
        measured = {"scores": len(scores), "token tasks": sum(score.token_tasks for score in scores)}
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
        "scores": measured,
    }
