"""``selfreflect validate``: can a metric be trusted, with this judge and on these data?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfreflect.cli import options as o
from selfreflect.cli.studies import STUDIES, StudyOptions

if TYPE_CHECKING:
    from selfreflect.cli.models import LazyModels
    from selfreflect.models.judge import Judge
    from selfreflect.store.journal import Journal
    from selfreflect.validate.base import MetricInfo, Value
    from selfreflect.validate.study import Study

Source = Annotated[
    str | None,
    typer.Argument(
        metavar="SOURCE",
        help="bundled (eight small items), a file of items as `score --items` reads it, - for stdin, or a run directory.",
        show_default=False,
    ),
]
StudyName = Annotated[
    str | None,
    typer.Option(
        "--study",
        metavar="NAME",
        help=f"{', '.join(STUDIES)}; described above. [default: ranked; for a run directory interventions]",
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="A,B",
        help="Metrics, or groups of them: all, ablations, competitors, controls. See --list-metrics. "
        "[default: all that can be computed with what is given and installed]",
    ),
]
ListMetrics = Annotated[
    bool, typer.Option("--list-metrics", help="Show what every metric is and needs, and stop.")
]
Judges = Annotated[
    list[str] | None,
    typer.Option(
        "--judge",
        metavar="NAME",
        help="Model with full logits: smollm2, a hub name, or a local directory. For --study judges several, as A,B or repeated. "
        "[default: smollm2]",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="Model that rates summaries and lists claims, as `run` takes it (openai:NAME on a server); without it these metrics are left "
        "out.",
    ),
]
Order = Annotated[
    str | None,
    typer.Option(
        "--order",
        metavar="CHAINS",
        help="Names of summaries from best to worst, as in 'good>mid>bad' or 'detailed>terse, detailed>vague'. [default: each item's own "
        "field 'order', or good before all others and mid before bad]",
    ),
]
Controls = Annotated[
    bool,
    typer.Option(
        "--controls/--no-controls", help="Add an empty summary and the repeated question to ranked sets."
    ),
]
Pad = Annotated[
    bool,
    typer.Option(
        "--pad",
        help="Measure the shorter of two ranked summaries once more, padded with filler to the length of the longer one.",
    ),
]
Ratings = Annotated[
    Path | None,
    typer.Option(
        "--ratings",
        metavar="FILE",
        help="CSV with rater, item, summary, rating, or rater, item, summary, other, preferred.",
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        "--groups",
        metavar="HOW",
        help="Group answers by spelling, or by meaning (with the embed extra). [default: spelling]",
    ),
]
Writer = Annotated[
    bool, typer.Option("--writer", help="Let --model put the statements of interventions into its own words.")
]
NumAnswers = Annotated[
    int | None, typer.Option("--num-answers", metavar="N", help="Use the first N answers of each half.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Keep every value here, with tables and plots; what is there is not measured again.",
    ),
]


def command(
    source: Source = None,
    study: StudyName = None,
    judge: Judges = None,
    metrics: Metrics = None,
    list_metrics: ListMetrics = False,
    out: Out = None,
    limit: o.Limit = None,
    num_answers: NumAnswers = None,
    seed: o.Seed = None,
    order: Order = None,
    controls: Controls = True,
    pad: Pad = False,
    groups: Groups = None,
    writer: Writer = False,
    ratings: Ratings = None,
    model: Model = None,
    revision: o.Revision = None,
    base_url: o.BaseUrl = None,
    max_connections: o.MaxConnections = 16,
    timeout: o.Timeout = 600.0,
    judge_url: o.JudgeUrl = None,
    judge_revision: o.JudgeRevision = None,
    judge_dtype: o.JudgeDtype = None,
    compat: o.Compat = None,
    device: o.Device = "auto",
    trust_remote_code: o.TrustRemoteCode = False,
    json: o.Json = False,
) -> None:
    """Does the metric tell good summaries from bad ones with your judge, on your data, and better than simple
    alternatives?

    One command measures SelfReflect beside its ablations, its competitors and the controls that any metric
    must beat, prints tables, and says in plain words what can and what cannot be concluded from the number of
    items at hand. docs/validate.md is the guide.

    \b
    Studies:
      ranked         summaries whose order is known: how often does the better one win?
      interventions  summaries made worse in known ways: does the score notice?
      dose           stated percentages shifted by 10 to 50 points: does the score rise with the shift?
      choice         multiple choice where the truth is known: does the score follow the true distance? (takes
          no SOURCE)
      convergence    how many questions, answers and words does a stable ranking of strategies need?
      judges         do several judges agree on strategies and on single summaries?
      raters         does the score agree with people? (needs --ratings)
      length         do longer summaries score better, whatever they say?

    \b
    A first look at a judge, on eight bundled items, by the main metric and the length of a summary:
      selfreflect validate bundled --judge smollm2 --metrics selfreflect,length
    Your own summaries in a known order, all metrics, everything kept (the same command goes on after an
    interruption):
      selfreflect validate mine.json --judge smollm2 --order 'careful>rushed' --out validation
    Your own run: every summary made worse in known ways, then percentages shifted step by step:
      selfreflect validate runs/mine --judge smollm2 --out validation
      selfreflect validate runs/mine --judge smollm2 --study dose --out validation
    How many questions and answers you need to tell your strategies apart:
      selfreflect validate runs/mine --judge smollm2 --study convergence --out validation
    Do two judges agree? Does the score agree with people?
      selfreflect validate runs/mine --judge smollm2,Qwen/Qwen2.5-7B-Instruct --study judges --out validation
      selfreflect validate runs/mine --judge smollm2 --study raters --ratings ratings.csv
    """
    from selfreflect.cli.console import Watcher, say

    if list_metrics:
        _list_metrics(json)
        return
    from selfreflect.cli.models import LazyModels
    from selfreflect.errors import BackendError
    from selfreflect.pipeline.experiment import ExecutionOptions

    judges = tuple(name.strip() for given in judge or [] for name in given.split(",") if name.strip())
    options = ExecutionOptions(
        device=device, trust_remote_code=trust_remote_code, max_connections=max_connections, timeout=timeout
    )
    models = LazyModels(
        judges, judge_url, judge_revision, judge_dtype, compat, model, revision, base_url, options, Watcher()
    )
    if judge and not judges:
        raise typer.BadParameter("--judge names no judge")
    if writer and models.generator is None:
        raise typer.BadParameter("--writer needs --model NAME")
    wanted = StudyOptions(
        source=source,
        study=study,
        order=order,
        controls=controls,
        pad=pad,
        ratings=ratings,
        groups=groups,
        limit=limit,
        num_answers=num_answers,
        seed=seed or 0,
        writer=models.generator if writer else None,
    )
    wanted.check()
    models.check(several=wanted.name == "judges")
    names = None if metrics is None else [name.strip() for name in metrics.split(",") if name.strip()]
    kept = (
        f"What was measured is kept in {out}; the same command goes on from there."
        if out
        else "Nothing is kept without --out DIR."
    )
    try:
        undefined = _validate(wanted, models, names, out, json)
    except KeyboardInterrupt:
        say(f"interrupted. {kept}")
        raise typer.Exit(130) from None
    except BackendError as error:
        raise BackendError(f"{error} {kept}") from None
    if undefined:
        raise typer.Exit(1)


def _validate(
    wanted: StudyOptions, models: LazyModels, names: Sequence[str] | None, out: Path | None, json: bool
) -> bool:
    """Measure, show and keep; whether values are undefined that should not be."""
    from selfreflect.cli.console import say
    from selfreflect.cli.findings import keep_finding, made_with, show_finding
    from selfreflect.cli.studies import load
    from selfreflect.validate.folder import open_values
    from selfreflect.validate.measure import undefined_counts, undefined_table

    study, note = load(wanted)
    if note:
        say(note)
    with nullcontext() if out is None else open_values(out) as stored:
        values, metrics = _measured(study, wanted, models, names, stored)
        found = study.finding(values, metrics)
        missing = undefined_counts(values)
        tables = (*found.tables, undefined_table(values)) if missing else found.tables
        finding = replace(found, study=wanted.name, tables=tables)
        show_finding(finding, json)
        if out is not None:
            keep_finding(
                finding, made_with(wanted.source, wanted.seed, len(study.items), metrics, values), out
            )
    if missing:
        reasons = ", ".join(f"{count} x {metric} ({reason})" for (metric, reason), count in missing.items())
        say(f"done, with {missing.total()} of {len(values)} values undefined: {reasons}")
    return bool(undefined_counts([value for value in values if not _by_design(study, value)]))


def _by_design(study: Study, value: Value) -> bool:
    """Whether it is undefined because a study's own summary is blank, which is no failure."""
    from selfreflect.validate.ranked.study import RankedSets

    own = isinstance(study, RankedSets) and value.summary in study.controls
    return own and value.undefined is not None and value.undefined.reason == "blank"


def _measured(
    study: Study,
    wanted: StudyOptions,
    models: LazyModels,
    names: Sequence[str] | None,
    stored: Journal[Value] | None,
) -> tuple[list[Value], list[MetricInfo]]:
    """The values of every judge in turn, so that no two are in memory at once. What needs no judge is
    measured with the first."""
    from selfreflect.validate import catalogue

    judged = [info.name for info in catalogue.METRICS if "judge" in info.needs]
    chosen = judged if names is None and wanted.name == "judges" else names
    values, metrics = _measured_with(study, models, models.loads[0], chosen, stored)
    rest = [info.name for info in metrics if info.name in judged]
    for load in models.loads[1:] if rest else []:
        values += _measured_with(study, models, load, rest, stored)[0]
    return values, metrics


def _measured_with(
    study: Study,
    models: LazyModels,
    judge: Callable[[], Judge],
    names: Sequence[str] | None,
    stored: Journal[Value] | None,
) -> tuple[list[Value], list[MetricInfo]]:
    from selfreflect.validate.catalogue import families
    from selfreflect.validate.measure import measure

    found = families(names, judge=judge, generator=models.generator)
    metrics = [info for family in found for info in family.metrics]
    _say_left_out(names, metrics, models)
    with models.progress.stage("measuring", len(study.items) * len(found)) as counter:
        return measure(study.items, found, stored, counter.advance), metrics


def _say_left_out(names: Sequence[str] | None, metrics: Sequence[MetricInfo], models: LazyModels) -> None:
    """Which metrics of the groups that were asked for cannot be computed here, and what they need."""
    from selfreflect.cli.console import say
    from selfreflect.validate.catalogue import GROUPS, METRICS

    if names is not None and not set(names) & set(GROUPS):
        return
    measured = {info.name for info in metrics}
    absent = [
        info
        for info in METRICS
        if info.name not in measured and (names is None or "all" in names or f"{info.group}s" in names)
    ]
    asking = [info.name for info in absent if "generator" in info.needs and models.generator is None]
    others = [info.name for info in absent if info.name not in asking]
    if asking:
        say(f"left out, because they need --model NAME: {', '.join(asking)}")
    if others:
        say(f"left out, because they need pip install 'selfreflect[embed,validate]': {', '.join(others)}")


def _list_metrics(json: bool) -> None:
    from msgspec import to_builtins

    from selfreflect.cli.console import emit, stdout
    from selfreflect.render.table import Column, Table, to_rich
    from selfreflect.validate.catalogue import METRICS

    if json:
        for info in METRICS:
            emit(to_builtins(info))
        return
    rows = tuple(
        (info.name, info.group, info.better, ", ".join(info.needs) or None, info.about) for info in METRICS
    )
    stdout.print(
        to_rich(Table("Metrics", tuple(map(Column, ("name", "group", "better", "needs", "about"))), rows))
    )
