"""What the report page shows of one judge: figures and tables of all runs, from its scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from markupsafe import Markup

from selfreflect.report.comparison import Contender, comparison, contenders
from selfreflect.report.figures import differences_figure, length_figure, means_figure, paste_figure
from selfreflect.report.length import length_audit, length_table, point_table
from selfreflect.report.overview import failure_table, overview
from selfreflect.report.paste_curve import paste_table, run_curve
from selfreflect.report.results import INFORMATION, SELFREFLECT, Measure, sorted_strategies
from selfreflect.report.run_records import RunRecords
from selfreflect.report.sentences import headline
from selfreflect.table import Table, to_csv

COMPARED = 60_000
"""Maximum number of scores in all differences of a page together, which bounds the time and the size of the
plots."""

_LEAST = 100
"""Scores that an interval counts for at least, because its resamples have a fixed cost."""


@dataclass(frozen=True)
class Panel:
    """A figure with its table; ``name`` identifies both and their CSV."""

    name: str
    figure: Markup
    table: Table
    baseline: str = ""
    information: Panel | None = None
    """The same of usable information, if it was measured."""


@dataclass
class JudgePart:
    """Everything that depends on the judge, but for questions."""

    prefix: str
    """In front of the names of its panels and of their CSV."""
    runs: list[str]
    """Labels."""
    headlines: list[str]
    """One for each run."""
    counts: list[tuple[str, str]]
    """Names and values of the figures at the top."""
    scored: bool
    """Whether there are SelfReflect scores to show."""
    means: Markup
    tells: Markup
    """Empty if usable information was not measured."""
    overviews: list[Table]
    differences: list[Panel]
    baselines: int
    """Strategies that could be the baseline."""
    lengths: list[Panel] = field(default_factory=list)
    pasted: list[Panel] = field(default_factory=list)
    failures: list[tuple[str, Table]] = field(default_factory=list)
    csv: dict[str, str] = field(default_factory=dict)
    """By name."""


def judge_part(runs: Sequence[RunRecords], prefix: str, baseline: str | None, judges: int) -> JudgePart:
    """Draw the figures and tables of one judge.

    Args:
        runs: each run as this judge scored it.
        prefix: tells its figures from those of other judges.
        judges: how many share the time of a page.

    Raises:
        DataError: the first run has no strategy ``baseline``.
    """
    overviews = {run.label: overview(run) for run in runs}
    differences, baselines = _differences(runs, prefix, baseline, COMPARED // judges)
    has_information = any(run.information for run in runs)
    tells = means_figure(overviews, "page", INFORMATION, prefix=prefix) if has_information else ""
    part = JudgePart(
        prefix=prefix,
        runs=[run.label for run in runs],
        headlines=list(map(headline, runs)),
        counts=_run_counts(runs),
        # empty figures only if there is no other
        scored=not has_information or any(run.scores for run in runs),
        means=_markup(means_figure(overviews, "page", prefix=prefix)),
        tells=_markup(tells),
        overviews=list(overviews.values()),
        differences=differences,
        baselines=baselines,
    )
    for panel in differences:
        part.csv[panel.name] = to_csv(panel.table)
        if panel.information is not None:
            part.csv[panel.information.name] = to_csv(panel.information.table)
    for number, run in enumerate(runs):
        part.csv[f"{prefix}overview-{number}"] = to_csv(overviews[run.label])
        _add_run(part, sorted_strategies(run), number)
    return part


def _add_run(part: JudgePart, run: RunRecords, number: int) -> None:
    """Add a run's failures, length audit and paste curve."""
    failures = f"{part.prefix}failures-{number}"
    table = failure_table(run)
    part.csv[failures] = to_csv(table)
    if table.rows:
        part.failures.append((failures, table))
    length = f"{part.prefix}length-{number}"
    audits = length_audit(run)
    part.csv[length] = to_csv(point_table(audits))
    part.lengths.append(Panel(length, _markup(length_figure(length, audits, "page")), length_table(audits)))
    curve = run_curve(run)
    if curve is not None:
        pasted = f"{part.prefix}pasted-{number}"
        table = paste_table(*curve)
        part.csv[pasted] = to_csv(table)
        figure = _markup(paste_figure(pasted, *curve, "page"))
        part.pasted.append(Panel(pasted, figure, table, run.label))


def _differences(
    runs: Sequence[RunRecords], prefix: str, baseline: str | None, budget: int
) -> tuple[list[Panel], int]:
    """Differences from each baseline, the chosen one first, as far as ``budget`` scores allow; and the
    number of possible baselines."""
    sides = contenders(runs, baseline)
    if len(sides) < 2:
        return [], len(sides)
    several_runs = len({side.label for side in sides}) > 1
    cost = (len(sides) - 1) * max(_LEAST, *(len(side.scores) for side in sides))
    panels = []
    for number, base in enumerate(sides[: max(1, budget // cost)]):
        label = f"{base.strategy} ({base.label})" if several_runs else base.strategy
        others = [side for side in sides if side is not base]
        information = None
        if all(side.run.information for side in sides):
            information = _difference(f"{prefix}differences-tells-{number}", base, others, label, INFORMATION)
        panel = _difference(f"{prefix}differences-{number}", base, others, label, SELFREFLECT)
        panels.append(replace(panel, information=information))
    return panels, len(sides)


def _difference(
    name: str, base: Contender, others: Sequence[Contender], label: str, measure: Measure
) -> Panel:
    table = comparison(base, others, measure)
    return Panel(name, _markup(differences_figure(name, table, "page", measure)), table, label)


def _run_counts(runs: Sequence[RunRecords]) -> list[tuple[str, str]]:
    """Names and values of the figures at the top of the page."""
    questions: set[tuple[str, str]] = set()
    judges: set[str] = set()
    answers = 0
    scores = 0
    measurements = 0
    for run in runs:
        questions.update((id_, question.text) for id_, question in run.questions.items())
        judges.update(score.judge for score in run.scores.values())
        judges.update(information.judge for information in run.information.values())
        answers += sum(len(run.answers[id_].answers) for id_ in run.questions if id_ in run.answers)
        scores += sum(len(run.strategy_scores(name)) for name in run.strategies)
        measurements += sum(len(run.strategy_information(name)) for name in run.strategies)
    times = chain.from_iterable(run.manifest.get("finished", {}).values() for run in runs)
    days = sorted(str(time)[:10] for time in times)
    return [
        *([("date", days[-1])] if days else []),
        ("questions", f"{len(questions):,}"),
        ("sampled answers", f"{answers:,}"),
        ("scores", f"{scores:,}")
        if scores or not measurements
        else ("summaries measured", f"{measurements:,}"),
        ("judge", ", ".join(sorted(judges)) or "none"),
    ]


def _markup(svg: str) -> Markup:
    """Mark an SVG as safe: matplotlib escapes text, and :mod:`selfreflect.plots` serialises it again
    from its parsed tree."""
    return Markup(svg)
