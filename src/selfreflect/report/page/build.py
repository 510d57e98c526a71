"""Construction of the report page: one HTML file without network, other files or models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from markupsafe import Markup

from selfreflect.errors import DataError
from selfreflect.metric.measure import Measure
from selfreflect.records import STAGES, AnswerSet
from selfreflect.report.compare import (
    SHOWN_ROWS,
    Contender,
    changes,
    common_measures,
    comparison,
    contenders,
    judge_tables,
    main_measure_of,
    page_judges,
    plain_label,
    question_and_reply,
    version_pairs,
    worse_table,
)
from selfreflect.report.document import question_columns
from selfreflect.report.figures import (
    difference_intervals,
    difference_name,
    differences_figure,
    length_figure,
    mean_intervals,
    means_figure,
    pasted_figure,
)
from selfreflect.report.findings import findings, headline, show_case_note
from selfreflect.report.length import length_audit, length_table, pasted_table, point_table, run_pasted
from selfreflect.report.measures import any_measures, run_measures, undefined_of
from selfreflect.report.overview import failure_table, overview, reading, undefined_notes
from selfreflect.report.page.frame import UncertaintyPart, packed, render_page
from selfreflect.report.page.view import ClaimsOf, Grouping, run_data
from selfreflect.report.results import sorted_strategies, strategy_results
from selfreflect.report.run_records import RunRecords
from selfreflect.report.wording import say
from selfreflect.sameness import same_groups
from selfreflect.stats import FEWEST_TESTED
from selfreflect.table import Table, compact, to_csv
from selfreflect.text import shorten_paths

COMPARED = 60_000
"""Maximum number of scores in all differences on a page, which limits its time and the size of its plots."""

MOST_GUESSED = 20_000
"""Maximum number of words with guesses on a page; above it, guesses are left out to save bytes."""

# Scores that an interval counts for at least, because its resamples have a fixed cost.
_FEWEST_COUNTED = 100

_SCRIPTS = (
    "dom.js",
    "bits.js",
    "agreement.js",
    "claims.js",
    "question.js",
    "csv.js",
    "rows.js",
    "frame.js",
    "report.js",
)
# Strategies that ask for a summary under the names of the published code.
_PUBLISHED_STRATEGIES = frozenset({"basic", "cot", "twostep_cot", "sample_and_summarize"})
# Sections of a manifest whose values the page shows, by stage.
_SECTIONS = ("sources", "config", "models", "prompts")

GROUPED = {
    "spelling": "spelling",
    "same": "a rule for the same answer, an estimate",
    "meaning": "meaning, an estimate",
}
"""Descriptions for readers of how answers were grouped."""


@dataclass(frozen=True)
class DrawnFigure:
    """A figure of values with their intervals."""

    figure: Markup
    """The figure; empty without a value."""
    ends: str = ""
    """Description of which values have intervals."""
    why: str = ""
    """Reason for a missing figure."""


@dataclass(frozen=True)
class Panel:
    """A figure with its table; ``name`` identifies figure, table and CSV."""

    name: str
    drawn: DrawnFigure
    table: Table
    points: Table | None = None
    """Content of the CSV, if different from the table."""


@dataclass(frozen=True)
class Baseline:
    """Differences of all strategies from one baseline."""

    name: str
    """Identifier on the page."""
    label: str
    panels: Mapping[str, Panel]
    """Panels by measure name."""


@dataclass(frozen=True)
class RunPart:
    """A run with the scores of one judge."""

    label: str
    headline: str
    caution: str
    """Caution that the judge is only for demonstration; empty for other judges."""
    distinct_label: str
    results: Table
    """Table of the strategies alone."""
    overview: Table
    """Table of strategies and controls, with all notes."""
    facts: dict[str, list[tuple[str, str]]]
    """Names and values by stage, see :func:`stage_facts`."""
    failures: Table
    length: Panel
    pasted: Panel | None
    """Panel of pasted answers, if known."""


@dataclass(frozen=True)
class JudgePart:
    """Everything that depends on the judge, except questions."""

    prefix: str
    """Prefix of the names of panels and their CSV."""
    runs: list[RunPart]
    counts: list[tuple[str, str]]
    """Names and values of the numbers at the top of the page."""
    measures: list[Measure]
    means: dict[str, DrawnFigure]
    """Figure of each measure, by name."""
    readings: dict[str, str]
    """Explanation of each measure's values, by name."""
    noun: str
    """Noun for the source of the summaries."""
    baselines: list[Baseline]
    candidates: int
    """Number of strategies that could be the baseline."""

    @property
    def scored(self) -> bool:
        """Whether the length audit has scores to show."""
        return any(measure.is_plain for measure in self.measures)

    @property
    def has_pasted(self) -> bool:
        return any(run.pasted for run in self.runs)

    @property
    def csv(self) -> dict[str, str]:
        """CSV texts by name."""
        csv: dict[str, str] = {}
        panels = list(chain.from_iterable(baseline.panels.values() for baseline in self.baselines))
        for number, run in enumerate(self.runs):
            csv[f"{self.prefix}overview-{number}"] = to_csv(run.overview)
            csv[f"{self.prefix}failures-{number}"] = to_csv(run.failures)
            panels += [run.length] if run.pasted is None else [run.length, run.pasted]
        return csv | {panel.name: to_csv(panel.points or panel.table) for panel in panels}


def judge_part(runs: Sequence[RunRecords], prefix: str, baseline: str | None, judges: int) -> JudgePart:
    """Draw the figures and tables of one judge.

    Args:
        runs: each run as this judge scored it.
        prefix: tells its figures from those of other judges.
        judges: how many share the time of a page.

    Raises:
        DataError: the first run has no strategy ``baseline``.
    """
    parts = [_run_part(run, prefix, number) for number, run in enumerate(runs)]
    overviews = {part.label: part.overview for part in parts}
    measures = any_measures(runs)
    means = {measure.name: _means(runs, overviews, prefix, measure) for measure in measures}
    sides = contenders(runs, baseline)
    return JudgePart(
        prefix=prefix,
        runs=parts,
        counts=_run_counts(runs),
        measures=measures,
        means=means,
        readings={measure.name: _reading(measure, runs) for measure in measures},
        noun=runs[0].noun,
        baselines=_baselines(sides, prefix, COMPARED // judges),
        candidates=len(sides),
    )


def _means(
    runs: Sequence[RunRecords], overviews: Mapping[str, Table], prefix: str, measure: Measure
) -> DrawnFigure:
    """Draw the means of a measure, or explain their absence."""
    values = [(interval.mean, interval.low) for interval in mean_intervals(overviews, measure)]
    if not _has_value(values):
        measured = [run for run in runs if measure in run_measures(run)]
        notes = [undefined_notes(run, measure, strategy_results(run)) for run in measured]
        reasons = dict.fromkeys(chain.from_iterable(notes))
        return DrawnFigure(Markup(), why="; ".join(reasons) or say("no_value", noun=runs[0].noun))
    figure = means_figure(f"{prefix}{measure.figure}", overviews, measure, "page")
    return DrawnFigure(Markup(figure), _ends(values))


def _has_value(values: Sequence[tuple[float | None, float | None]]) -> bool:
    return any(mean is not None for mean, _ in values)


def _ends(values: Sequence[tuple[float | None, float | None]], *, differing: bool = False) -> str:
    """Describe how many of the values have intervals, given each value with its interval's low end."""
    ends = [low is not None for mean, low in values if mean is not None]
    return say("ends", means=len(ends), intervals=sum(ends), fewest=FEWEST_TESTED, differing=differing)


def _run_part(run: RunRecords, prefix: str, number: int) -> RunPart:
    best_first = sorted_strategies(run)
    name = f"{prefix}length-{number}"
    audits = length_audit(best_first)
    # matplotlib escapes text, and the SVG is serialised anew from its parsed tree, so that figures are safe
    drawn = DrawnFigure(Markup(), why=say("no_value", noun="summary"))
    if any(audits.values()):
        drawn = DrawnFigure(Markup(length_figure(name, audits, "page")))
    length = Panel(name, drawn, length_table(audits, run.noun), point_table(audits))
    pasted = None
    curve = run_pasted(best_first)
    if curve is not None:
        name = f"{prefix}pasted-{number}"
        table = pasted_table(*curve)
        ends = _ends([(point.bits.mean, point.bits.low) for point in curve[1]])
        drawn = DrawnFigure(Markup(pasted_figure(name, *curve, "page")), ends)
        pasted = Panel(name, drawn, compact(table), table)
    failures = failure_table(best_first)
    table = overview(run)
    results = compact(replace(table, rows=table.rows[: len(run.strategies)], notes=()))
    # few questions and their controls are no news on a page of a single question
    summary = headline(run) if len(run.questions) > 1 else " ".join(findings(run))
    return RunPart(
        run.label,
        summary,
        show_case_note(run),
        run.distinct_label,
        results,
        table,
        stage_facts(run),
        failures,
        length,
        pasted,
    )


def worse_lists(runs: Sequence[RunRecords]) -> list[dict[str, Any]]:
    """List the questions that got worse between the first run and each other run.

    Each begins with the result as a sentence. A row holds the address of the question on the page, its text,
    both values, their change, and the reply.
    """
    lists = []
    for number, run in enumerate(runs[1:], start=1):
        try:
            pairs = version_pairs(runs[0], run)
        except DataError:
            continue
        numbers = {id_: index for index, id_ in enumerate(run.questions)}
        for base, candidate in pairs:
            measure = main_measure_of(run)
            rows = []
            for change in changes(base, candidate, measure)[:SHOWN_ROWS]:
                if change.improvement < 0:
                    question, reply = question_and_reply(candidate, change.id)
                    values = [measure.text(value) for value in (change.before, change.after)]
                    difference = measure.difference_text(change.after - change.before)
                    rows.append([f"#r{number}q{numbers[change.id]}", question, *values, difference, reply])
            names = f"{base.name_beside(candidate)} → {candidate.name_beside(base)}"
            title = f"Got worse, {names}: {measure.short}"
            lead = comparison(base, [candidate], measure).notes[0]
            notes = worse_table(base, candidate, measure).notes
            lists.append({"title": title, "lead": f"{lead}.", "rows": rows, "notes": notes})
    return lists


def _baselines(sides: Sequence[Contender], prefix: str, budget: int) -> list[Baseline]:
    """Compare with each baseline, the chosen one first, within a ``budget`` of scores."""
    if len(sides) < 2:
        return []
    has_runs = len({side.label for side in sides}) > 1
    # each further baseline compares all strategies again
    cost = (len(sides) - 1) * max(_FEWEST_COUNTED, *(len(side.scores) for side in sides))
    baselines = []
    for number, base in enumerate(sides[: max(1, budget // cost)]):
        candidates = [side for side in sides if side is not base]
        panels = {}
        for measure in common_measures(base, candidates):
            name = f"{prefix}{difference_name(measure)}-{number}"
            table = comparison(base, candidates, measure)
            values = [(interval.mean, interval.low) for interval in difference_intervals(table)]
            drawn = DrawnFigure(Markup(), why=say("no_common_value"))
            if _has_value(values):
                figure = Markup(differences_figure(name, table, measure, "page"))
                drawn = DrawnFigure(figure, _ends(values, differing=True))
            visible = replace(compact(table), notes=table.notes)
            panels[measure.name] = Panel(name, drawn, visible, table)
        name = base.run.display_name(base.strategy)
        label = f"{name} ({base.label})" if has_runs and name != base.label else name
        baselines.append(Baseline(f"{prefix}differences-{number}", label, panels))
    return baselines


def _run_counts(runs: Sequence[RunRecords]) -> list[tuple[str, str]]:
    """List names and values of the numbers at the top of the page."""
    questions: set[tuple[str, str]] = set()
    judges: set[str] = set()
    sampled: dict[tuple[str, AnswerSet], int] = {}
    scores = 0
    measurements = 0
    for run in runs:
        questions.update((id_, question.text) for id_, question in run.questions.items())
        judges.update(score.judge for score in run.scores.values())
        judges.update(information.judge for information in run.information.values())
        for id_ in run.questions:
            if id_ in run.answers:  # runs that score the same answers share them
                sampled[id_, run.answers[id_]] = len(run.answers[id_].answers)
        scores += sum(len(run.by_question(run.scores, name)) for name in run.strategies)
        measurements += sum(len(run.by_question(run.information, name)) for name in run.strategies)
    times = chain.from_iterable(run.manifest.get("finished", {}).values() for run in runs)
    days = sorted(str(time)[:10] for time in times)
    return [
        *([("date", days[-1])] if days else []),
        ("questions", f"{len(questions):,}"),
        ("sampled answers", f"{sum(sampled.values()):,}"),
        ("scores", f"{scores:,}")
        if scores or not measurements
        else ("summaries measured", f"{measurements:,}"),
        ("judge", ", ".join(sorted(judges)) or "none"),
    ]


def _reading(measure: Measure, runs: Sequence[RunRecords]) -> str:
    """Explain how to read a measure's values, from the first run that has any."""
    return reading(measure, next(run for run in runs if measure in run_measures(run))) or measure.title


def _reasons(scorings: Iterable[RunRecords]) -> dict[str, str]:
    """Map codes of missing values in these scores to explanations."""
    reasons = {}
    for run in scorings:
        for measure in run_measures(run):
            for name in run.strategies:
                for word in undefined_of(measure, run, name).values():
                    reasons[word.replace("_", " ")] = measure.reason(word)
    return reasons


def report_page(
    runs: Sequence[Sequence[RunRecords]],
    *,
    baseline: str | None = None,
    grouping: Grouping = same_groups,
    groups: str = "same",
    uncertainty: Sequence[UncertaintyPart] = (),
    claims_of: ClaimsOf | None = None,
    verdict: Sequence[str] = (),
) -> str:
    """Render the whole page as encodable UTF-8 text.

    Args:
        runs: each run once for every judge that scored it. The page begins with the first judge of the first
            run, and its reader can choose the others.
        baseline: strategy of the first run that the page compares with first; by default its first.
        groups: what ``grouping`` goes by: a key of ``GROUPED``, or words for readers.
        uncertainty: sections on the uncertainty of the runs whose right answers are known.
        claims_of: reads the claims of a question, which its panel then shows.
        verdict: what the conditions of a gate came to, in sentences.

    Raises:
        DataError: the first run has no such strategy.
    """
    judges = page_judges(runs)
    parts = []
    csv: dict[str, str] = {}
    for number, indices in enumerate(judges.values()):
        records = [scorings[index] for scorings, index in zip(runs, indices, strict=True)]
        prefix = f"judge-{number + 1}-" if number else ""
        parts.append(judge_part(records, prefix, baseline, len(judges)))
        csv |= parts[-1].csv
    for section in uncertainty:
        csv |= section.csv
    beside = list(enumerate(chain.from_iterable(map(judge_tables, runs))))
    csv |= {f"judges-{number}": to_csv(table) for number, table in beside}
    columns: dict[str, None] = {}
    for run in chain.from_iterable(runs):
        columns |= dict.fromkeys(column.heading for column in question_columns(run))
    guessed_words = sum(scoring.guessed_words for scoring in chain.from_iterable(runs))
    left_out = ["guesses"] if guessed_words > MOST_GUESSED else []
    run_indices, blocks = _questions(runs, grouping, left_out, claims_of)
    first, *others = parts[0].measures
    reading_lines = [parts[0].readings[first.name]]
    reading_lines += [f"The {measure.short}: {parts[0].readings[measure.name]}" for measure in others]
    index = {
        "runs": run_indices,
        "judges": list(judges.values()),
        "columns": list(columns),
        "left_out": left_out,
        "csv": csv,
        "grouped": GROUPED.get(groups, groups),
        "reasons": _reasons(chain.from_iterable(runs)),
        "reading": " ".join(reading_lines),
        "baseline": baseline or next(iter(runs[0][0].strategies), ""),
    }
    return render_page(
        "report.html",
        _SCRIPTS,
        verdict=verdict,
        title=", ".join(plain_label(scorings[0]) for scorings in runs),
        judges=list(judges),
        parts=parts,
        scored=any(part.scored for part in parts),
        pasted=any(part.has_pasted for part in parts),
        several_runs=len(runs) > 1,
        worse=worse_lists([scorings[0] for scorings in runs]),
        beside=beside,
        uncertainty=uncertainty,
        prompts=[prompt_texts(scorings[0].manifest) for scorings in runs],
        own_prompts=[scorings[0].label for scorings in runs if _has_own_prompts(scorings[0])],
        left_out=left_out,
        blocks={"index": packed(index), **blocks},
    )


def _questions(
    runs: Sequence[Sequence[RunRecords]],
    grouping: Grouping,
    left_out: Sequence[str],
    claims_of: ClaimsOf | None,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Build the index of each run, and the packed questions by block id."""
    indices = []
    blocks: dict[str, str] = {}
    for number, by_judge in enumerate(runs):
        scorings = list(map(sorted_strategies, by_judge))
        if left_out:
            scorings = [scoring.without_guesses() for scoring in scorings]
        index, chunks = run_data(scorings, grouping, claims_of)
        indices.append(index)
        for scoring, texts in enumerate(chunks):
            name = f"scoring-{number}-{scoring}" if scoring else f"chunk-{number}"
            blocks |= {f"{name}-{part}": text for part, text in enumerate(texts)}
    return indices, blocks


def stage_facts(run: RunRecords) -> dict[str, list[tuple[str, str]]]:
    """List facts about each stage and the packages, as pairs of name and value.

    A value is listed once: the manifest's sections repeat each other in part. Paths lose their folders, since
    the page may be sent to anybody.
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
                if isinstance(value, bool):
                    value = "yes" if value else "no"
                if value not in (None, ""):
                    pairs.setdefault((name, shorten_paths(str(value))), f"{prefix}{name}")
        # a model is named by the settings and again by what was loaded
        facts[stage] = [(label, text) for (_, text), label in pairs.items()]
        facts[stage] += [(name, f"{count:,}") for name, count in counts[stage].items() if count is not None]
        seconds = manifest.get("wall_time", {}).get(stage)
        if seconds is not None:
            facts[stage].append(("time", f"{seconds:,.1f} s"))
    facts["packages"] = list(manifest.get("packages", {}).items())
    return facts


def prompt_texts(manifest: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """List names and texts of each stage's prompts. A stage whose texts are unknown is left out: older runs
    kept only a hash."""
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


def _has_own_prompts(run: RunRecords) -> bool:
    """Check whether strategies of the paper used prompts other than the published ones."""
    origin = run.manifest.get("sources", {}).get("summaries", {})
    published = {summary.name.partition("#")[0] for summary in run.summaries.values() if summary.model}
    return origin.get("prompts") != "published" and not _PUBLISHED_STRATEGIES.isdisjoint(published)


def _counts(run: RunRecords) -> Mapping[str, Mapping[str, int | None]]:
    """Count a run's records by stage; None if unknown."""
    answers = [run.answers[id_] for id_ in run.questions if id_ in run.answers]
    summaries = [summary for (id_, _), summary in run.summaries.items() if id_ in run.questions]
    scores = [score for (id_, _), score in run.scores.items() if id_ in run.questions]
    results: dict[str, int | None] = {"summaries measured": len(run.information)}
    if scores:
        results = {"scores": len(scores), "token tasks": sum(score.token_tasks for score in scores)}
    cut = sum(answer_set.truncated for answer_set in answers)
    tokens = sum(answer_set.tokens for answer_set in answers)
    # a file says neither, and some servers count no tokens
    return {
        "questions": {"questions": len(run.questions)},
        "answers": {
            "answers sampled": sum(len(answer_set.answers) for answer_set in answers),
            "answers cut off": cut if cut or tokens else None,
            "tokens generated": tokens or None,
        },
        "summaries": {
            "summaries": len(summaries),
            "tokens generated": sum(summary.tokens for summary in summaries) or None,
        },
        "scores": results,
    }
