"""``selfreflect validate``: can a metric be trusted, with this judge and on these data?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer
from msgspec import to_builtins

from selfreflect.cli import settings as o
from selfreflect.cli.console import emit, print_table, say
from selfreflect.cli.settings import Overrides, argument, option, takes
from selfreflect.cli.studies import STUDIES, StudyOptions, check, load
from selfreflect.errors import BackendError, ConfigError
from selfreflect.render.table import Column, Table
from selfreflect.validate.catalogue import METRICS


@takes(
    "answers",
    "scores",
    only=("--revision", "--base-url", "--judge-url", "--judge-revision", "--judge-dtype", "--compat"),
    execution=("--device", "--trust-remote-code", "--max-connections", "--timeout"),
    others={"study": StudyOptions},
)
def validate_command(
    *,
    source: str | None = argument(
        "SOURCE",
        "bundled (eight small items), a file of items as for `score --items`, - for stdin, or a run.",
    ),
    judge: list[str] = option(
        "--judge NAME",
        "Model with full logits: smollm2, a hub name, or a local directory. For --study judges several, as "
        "A,B or repeated. [default: smollm2]",
        [],
    ),
    metrics: str | None = option(
        "--metrics A,B",
        "Metrics, or groups of them: all, ablations, competitors, controls. See --list-metrics. "
        "[default: all that can be computed with what is given and installed]",
    ),
    list_metrics: bool = option("--list-metrics", "Show what every metric is and needs, and stop.", False),
    out: Path | None = option(
        "--out DIR", "Keep every value here, with tables and plots; stored values are not measured again."
    ),
    model: str | None = option(
        "--model NAME",
        "Model that rates summaries and lists claims, as `run` takes it (openai:NAME on a server). Without "
        "it the metrics that need one are left out.",
    ),
    overrides: Overrides,
    json: o.Json = False,
) -> None:
    """Test whether a metric can be trusted with your judge.

    Does it tell good summaries from bad ones, on your data, and better than simple alternatives?
    One command measures SelfReflect, its ablations, its competitors and the controls that any metric must
    beat, prints tables, and says in plain words what can and what cannot be concluded from this number of
    items. docs/validate.md is the guide.

    \b
    Studies:
    {studies}

    \b
    A first look at a judge, on eight bundled items, by the main metric and the length of a summary:
      selfreflect validate bundled --judge smollm2 --metrics selfreflect,length
    Your own summaries in a known order, all metrics, everything kept (run the same command to resume):
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
    if list_metrics:
        _list_metrics(json)
        return
    study_options = StudyOptions(source=source, **overrides.section("study"))
    if study_options.writer and model is None:
        raise typer.BadParameter("--writer needs --model NAME")
    check(study_options)
    judges = _judge_names(judge, study_options.name, overrides)
    from selfreflect.cli.findings import Models, run_study
    from selfreflect.validate.statistics import scipy_stats

    scipy_stats()  # better missing now than after the measurements
    models = Models.of(judges, model, overrides)
    metric_names = None if metrics is None else _split(metrics)
    advice = "Nothing is kept without --out DIR."
    if out is not None:
        advice = f"Finished measurements are kept in {out}; run the same command to resume."
    try:
        study, note = load(study_options, models.generator)
        if note:
            say(note)
        undefined = run_study(study, study_options, metric_names, models, out, json)
    except KeyboardInterrupt:
        say(f"Interrupted. {advice}")
        raise typer.Exit(130) from None
    except BackendError as error:
        raise BackendError(f"{error} {advice}") from None
    if undefined:
        raise typer.Exit(1)


_STUDIES = "\n".join(f"      {name:14} {row.about}" for name, row in STUDIES.items())
validate_command.__doc__ = (validate_command.__doc__ or "").replace("    {studies}", _STUDIES)


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _judge_names(judge: Sequence[str], study: str, overrides: Overrides) -> list[str]:
    """The judges that are named; none for the default one."""
    names = _split(",".join(judge))
    if judge and not names:
        raise typer.BadParameter("--judge names no judge")
    if study == "judges" and len(names) < 2:
        raise ConfigError("--study judges compares two judges or more: --judge A,B")
    if study != "judges" and len(names) > 1:
        raise ConfigError("several judges belong to --study judges; every other study is about one")
    if len(set(names)) < len(names):
        raise ConfigError("--judge names one judge twice")
    if len(names) > 1 and {"revision", "base_url"} & overrides.section("scores").keys():
        raise ConfigError("--judge-revision and --judge-url go with one judge, and several are named")
    return names


def _list_metrics(json: bool) -> None:
    rows = []
    for info in METRICS:
        if json:
            emit(to_builtins(info))
        rows.append((info.name, info.group, info.better, ", ".join(info.needs) or None, info.about))
    if not json:
        columns = tuple(map(Column, ("name", "group", "better", "needs", "about")))
        print_table(Table("Metrics", columns, tuple(rows)))
