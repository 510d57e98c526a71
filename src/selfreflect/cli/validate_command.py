"""``selfreflect validate``: can a metric be trusted, with this judge and on these data? Here are the studies,
their options and how they get items; :mod:`selfreflect.cli.findings` does the work."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from selfreflect.cli import options as o
from selfreflect.cli.console import emit, print_table, say
from selfreflect.cli.options import ItemOptions, Overrides, argument, option, takes
from selfreflect.errors import BackendError, ConfigError, DataError, excerpt, nearest
from selfreflect.flags import Flag, flags_of
from selfreflect.pipeline.records import run_items
from selfreflect.removed import STUDIES as REMOVED_STUDIES
from selfreflect.settings import SEED
from selfreflect.sources.items import Item, bundled_items
from selfreflect.store.run import Run
from selfreflect.table import Column, Table
from selfreflect.text import name_list
from selfreflect.validate.catalogue import METRICS

if TYPE_CHECKING:
    from selfreflect.validate.study import Study


@dataclass(frozen=True)
class StudyRow:
    path: str
    """Module below ``selfreflect.validate`` and class, imported on use."""
    takes: tuple[str, ...]
    """Fields of :class:`StudyOptions` that its constructor takes."""
    about: str
    """One line for ``--help``."""


STUDIES = {
    "ranked": StudyRow(
        "ranked:RankedSets",
        ("order", "controls"),
        "summaries whose order is known: how often does the better one win?",
    ),
    "interventions": StudyRow(
        "edits:Interventions",
        ("groups", "seed"),
        "summaries made worse in known ways: does the score notice?",
    ),
    "choice": StudyRow(
        "choice:MultipleChoice",
        ("seed",),
        "multiple choice with a known truth: does the score follow the true distance? (takes no SOURCE)",
    ),
    "convergence": StudyRow(
        "convergence:Convergence",
        ("seed",),
        "how many questions does a stable ranking of strategies need?",
    ),
    "judges": StudyRow("agreement:JudgeAgreement", (), "do several judges agree?"),
    "raters": StudyRow(
        "agreement:HumanAgreement",
        ("ratings",),
        "does the score agree with people? (needs --ratings)",
    ),
}


class StudyOptions(Struct, frozen=True, kw_only=True):
    """Which study is made from what."""

    study: Annotated[
        str | None,
        Flag("--study NAME", f"{', '.join(STUDIES)}; see above.", default="ranked; for a run interventions"),
    ] = None
    seed: Annotated[int, SEED] = 0
    order: Annotated[
        str | None,
        Flag(
            "--order CHAINS",
            "Names of summaries, best first, as in 'good>mid>bad' or 'detailed>terse, detailed>vague'.",
            default="each item's own field 'order', or good before all others and mid before bad",
        ),
    ] = None
    controls: Annotated[
        bool,
        Flag(
            "--controls",
            "Add an empty summary, the repeated question, nonsense and pasted answers to ranked sets.",
            negative="--no-controls",
        ),
    ] = True
    groups: Annotated[
        Literal["spelling", "meaning"],
        Flag("--groups", "Group answers by spelling, or by meaning (with the embed extra)."),
    ] = "spelling"
    ratings: Annotated[
        Path | None,
        Flag(
            "--ratings FILE", "CSV: rater, item, summary, rating, or rater, item, summary, other, preferred."
        ),
    ] = None


@takes(
    "answers",
    "scores",
    only=("--revision", "--base-url", "--judge-url", "--judge-revision", "--judge-dtype", "--compat"),
    execution=("--device", "--trust-remote-code", "--max-connections", "--timeout"),
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
    options: StudyOptions,
    reading: ItemOptions,
    overrides: Overrides,
    json: o.Json = False,
) -> None:
    if list_metrics:
        _list_metrics(json)
        return
    name = options.study or ("interventions" if source is not None and Path(source).is_dir() else "ranked")
    check(name, source, options, reading)
    judges = _judge_names(judge, name, overrides)
    from selfreflect.cli.findings import Models, run_study
    from selfreflect.validate.statistics import scipy_stats

    scipy_stats()  # better missing now than after the measurements
    models = Models.of(judges, model, overrides)
    metric_names = None if metrics is None else name_list(metrics)
    advice = "Nothing is kept without --out DIR."
    if out is not None:
        advice = f"Finished measurements are kept in {out}; run the same command to resume."
    try:
        study = load(name, source, options, reading)
        made_with = {"source": source or "made up", "seed": options.seed}
        undefined = run_study(study, metric_names, models, made_with, out, json)
    except KeyboardInterrupt:
        say(f"Interrupted. {advice}")
        raise typer.Exit(130) from None
    except BackendError as error:
        raise BackendError(f"{error} {advice}") from None
    if undefined:
        raise typer.Exit(1)


_WIDTH = 76
"""Columns of a help text on a terminal of 80."""


def _study_line(name: str, about: str) -> str:
    return textwrap.fill(about, _WIDTH, initial_indent=f"  {name:14} ", subsequent_indent=" " * 17)


_STUDIES = "\n".join(_study_line(name, row.about) for name, row in STUDIES.items())
validate_command.__doc__ = f"""Test whether a metric can be trusted with your judge.

Does it tell good summaries from bad ones, on your data, and better than simple alternatives?
One command measures SelfReflect, usable information, ablations, competitors and the controls that any
metric must beat, prints tables, and says in plain words what can and what cannot be concluded from this
number of items. docs/validate.md is the guide.

\b
Studies:
{_STUDIES}

\b
A first look at a judge, on eight bundled items and three metrics:
  selfreflect validate bundled --metrics selfreflect,information,length
Your own summaries in a known order, all metrics, everything kept:
  selfreflect validate mine.json --order 'careful>rushed' --out validation
Your own run, every summary made worse in known ways:
  selfreflect validate runs/mine --out validation
How many questions you need to tell your strategies apart:
  selfreflect validate runs/mine --study convergence --out validation
Do two judges agree? Does the score agree with people?
  selfreflect validate runs/mine --judge A,B --study judges --out validation
  selfreflect validate runs/mine --study raters --ratings ratings.csv
"""


def _judge_names(judge: Sequence[str], study: str, overrides: Overrides) -> list[str]:
    """The judges that are named; none for the default one."""
    names = name_list(",".join(judge))
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


def check(study: str, source: str | None, options: StudyOptions, reading: ItemOptions) -> None:
    """Check what can be checked before anything is read, or raise ConfigError."""
    if study in REMOVED_STUDIES:
        raise ConfigError(f"--study {study} is no longer a study. {REMOVED_STUDIES[study]}")
    if study not in STUDIES:
        choices = f"it must be one of {', '.join(STUDIES)}.{nearest(study, list(STUDIES))}"
        raise ConfigError(f"--study {excerpt(study)}: {choices}")
    defaults = StudyOptions()
    for field, flag in flags_of(StudyOptions).items():
        users = [name for name, row in STUDIES.items() if field in row.takes]
        if field == "seed" or not users or study in users:  # a seed harms no study without chance
            continue
        if getattr(options, field) != getattr(defaults, field):
            name = flag.negative or flag.name
            raise ConfigError(f"{name} belongs to --study {' or '.join(users)}, and this study is {study}")
    if study == "choice" and source is not None:
        raise ConfigError("--study choice makes its own items and takes no SOURCE")
    if source in (None, "bundled") or Path(source).is_dir():
        reading.refuse_columns()
    if study != "choice" and source is None:
        raise ConfigError(f"--study {study} needs a SOURCE: bundled, a file of items, or a run directory")
    if study == "raters" and options.ratings is None:
        raise ConfigError(
            "--study raters needs --ratings FILE, a CSV with the columns rater, item, summary, rating"
        )


def load(study: str, source: str | None, options: StudyOptions, reading: ItemOptions) -> Study:
    """Make a study."""
    row = STUDIES[study]
    module, _, class_name = row.path.partition(":")
    make: Callable[..., Study] = getattr(import_module(f"selfreflect.validate.{module}"), class_name)
    arguments: dict[str, Any] = {name: getattr(options, name) for name in row.takes}
    if source is None:
        sizes = {"grid": reading.limit, "answers": reading.num_answers}
        return make(**arguments, **{name: size for name, size in sizes.items() if size is not None})
    items = _read_items(source, reading)
    if options.ratings is not None:
        from selfreflect.validate.agreement import read_ratings

        # with all items, since ratings of items beyond the limit are no mistake
        arguments["ratings"] = read_ratings(options.ratings, items)
    if "groups" in arguments:
        arguments["grouping"] = o.grouping(arguments.pop("groups"))
    return make(items[: reading.limit], **arguments)


def _read_items(source: str, reading: ItemOptions) -> list[Item]:
    """All items of a source, whatever the limit."""
    if source == "bundled":
        return bundled_items("ranked_items", num_answers=reading.num_answers)
    if not Path(source).is_dir():
        return replace(reading, limit=None).read(source, need_summaries=True).items
    run = Run.load(Path(source))
    items = []
    for item in run_items(run):
        half = slice(reading.num_answers)
        items.append(replace(item, masked_out=item.masked_out[half], conditioning=item.conditioning[half]))
    if not items:
        raise DataError(f"{source} holds no answers yet. Draw some with: selfreflect answers --out {source}")
    without = len(run.questions) - len(items)
    if without:
        say(f"{without} of {len(run.questions)} questions of the run have no answers and are left out.")
    return items
