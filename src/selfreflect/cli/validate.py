"""Command ``selfreflect validate``: test whether a metric is valid with this judge and data."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Container, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from msgspec import Struct, to_builtins
from msgspec.structs import replace
from rich.text import Text

from selfreflect import __version__
from selfreflect.cli import options as o
from selfreflect.cli.console import ProgressReporter, emit, print_table, say, stdout
from selfreflect.cli.options import ItemOptions, Overrides, argument, option, takes
from selfreflect.errors import BackendError, ConfigError, DataError, unknown_name
from selfreflect.flags import Flag, flags_of
from selfreflect.removed import STUDIES as REMOVED_STUDIES
from selfreflect.run.models import ConfiguredModels
from selfreflect.run.records import run_items
from selfreflect.settings import SEED, ScoresConfig
from selfreflect.sources.items import Item, bundled_items
from selfreflect.store.run import Run
from selfreflect.table import Column, Table
from selfreflect.text import name_list, printable
from selfreflect.validate.base import METRICS, MetricInfo, Value, families

if TYPE_CHECKING:
    from selfreflect.models.base import Generator
    from selfreflect.models.judge import Judge
    from selfreflect.store.journal import Journal
    from selfreflect.validate.study import Finding, Study


class StudyRow(NamedTuple):
    """A row of the table of studies."""

    path: str
    """Module below ``selfreflect.validate`` and class, imported on use."""
    takes: tuple[str, ...]
    """Fields of :class:`StudyOptions` that its constructor accepts."""
    about: str
    """One line for ``--help``."""


_RANKED = "summaries whose order is known: how often does the better one win?"
_EDITS = "summaries made worse in known ways: does the score notice?"
_CHOICE = "multiple choice with a known truth: does the score follow the true distance? (takes no SOURCE)"
_RATERS = "does the score agree with people? (needs --ratings)"
STUDIES = {
    "ranked": StudyRow("ranked:RankedSets", ("order", "controls"), _RANKED),
    "interventions": StudyRow("edits:Interventions", ("groups", "seed"), _EDITS),
    "choice": StudyRow("choice:MultipleChoice", ("seed",), _CHOICE),
    "convergence": StudyRow(
        "convergence:Convergence", ("seed",), "how many questions give a stable ranking?"
    ),
    "judges": StudyRow("agreement:JudgeAgreement", (), "do several judges agree?"),
    "raters": StudyRow("agreement:HumanAgreement", ("ratings",), _RATERS),
}


class StudyOptions(Struct, frozen=True, kw_only=True):
    """Options that choose and configure a study."""

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
            default="the field 'order' of each item; without it, good before all others, and mid before bad",
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
        "Metrics, see --list-metrics. [default: all that can be computed with what is given and installed]",
    ),
    list_metrics: bool = option("--list-metrics", "Show what every metric is and needs, and stop.", False),
    out: Path | None = option(
        "--out DIR", "Store every value in this directory, with tables; stored values are not measured again."
    ),
    model: str | None = option(
        "--model NAME",
        "Model that rates summaries, as in `run` (openai:NAME on a server). Without "
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
    is_run = source is not None and Path(source).is_dir()
    name = options.study or ("interventions" if is_run else "ranked")
    check(name, source, options, reading)
    judges = _judge_names(judge, name, overrides)
    from selfreflect.validate.statistics import scipy_stats
    from selfreflect.validate.study import add_undefined, open_values, write

    scipy_stats()  # better missing now than after the measurements
    models = Models.of(judges, model, overrides)
    advice = "Nothing is kept without --out DIR."
    if out is not None:
        advice = f"Finished measurements are kept in {out}; run the same command to resume."
    try:
        study = load(name, source, options, reading)
        made_with = {"source": source or "made up", "seed": options.seed}
        names = None if metrics is None else name_list(metrics)
        with nullcontext() if out is None else open_values(out) as store:
            values, infos = _measure(study, names, models, store)
            finding = study.finding(values, infos)
            missing = add_undefined(finding, values)
            _show(finding, json)
            if out is not None:
                made_with |= _facts(study, values, infos)
                say(f"The finding with its tables is in {write(finding, made_with, out)}")
    except KeyboardInterrupt:
        say(f"Interrupted. {advice}")
        raise typer.Exit(130) from None
    except BackendError as error:
        error.remedy = f"{error.remedy} {advice}".strip()
        raise
    if missing:
        reasons = ", ".join(f"{count} x {metric} ({reason})" for (metric, reason), count in missing.items())
        say(f"done, with {missing.total():,} of {len(values):,} values undefined: {reasons}")
    controls = getattr(study, "controls", ())
    if any(_is_failure(value, controls) for value in values):
        raise typer.Exit(1)


# columns of a help text on a terminal of 80
_STUDIES = "\n".join(
    textwrap.fill(row.about, 76, initial_indent=f"  {name:14} ", subsequent_indent=" " * 17)
    for name, row in STUDIES.items()
)
validate_command.__doc__ = f"""Test whether a metric can be trusted with your judge.

Prints how often SelfReflect, usable information and simple alternatives order summaries right, and what
can be concluded from this number of items. docs/validate.md is the guide.

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
    """Read the judges' names; empty for the default judge."""
    names = name_list(",".join(judge))
    several = len(names) > 1
    refusals = (
        (judge and not names, "no judge is named", "Give {judge} a name."),
        (
            study == "judges" and not several,
            "the study 'judges' compares two or more judges",
            "Give {judge} A,B.",
        ),
        (
            several and study != "judges",
            "several judges are named, but this study takes one",
            "Give {study} judges.",
        ),
        (len(set(names)) < len(names), "the same judge is named twice", ""),
        (
            several and {"revision", "base_url"} & overrides.section("scores").keys(),
            "a revision or an address belongs to one judge, but several are named",
            "Leave out {scores.revision} and {scores.base_url}.",
        ),
    )
    for is_refused, message, remedy in refusals:
        if is_refused:
            raise ConfigError(message, remedy=remedy)
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
    """Check all arguments that can be checked before reading. Raises ConfigError if one is wrong."""
    if study in REMOVED_STUDIES:
        raise ConfigError(f"{study} is no longer a study", code="removed", remedy=REMOVED_STUDIES[study])
    if study not in STUDIES:
        raise unknown_name("study", study, STUDIES)
    defaults = StudyOptions()
    for field, flag in flags_of(StudyOptions).items():
        users = [name for name, row in STUDIES.items() if field in row.takes]
        if field == "seed" or not users or study in users:  # a seed harms no study without chance
            continue
        if getattr(options, field) != getattr(defaults, field):
            name = flag.negative or flag.name
            raise ConfigError(
                f"{name} belongs to the study {' or '.join(users)}, not to {study}", option=field
            )
    if study == "choice" and source is not None:
        raise ConfigError("the study 'choice' makes its own items and takes no SOURCE")
    if source in (None, "bundled") or Path(source).is_dir():
        reading.refuse_columns()
    if study != "choice" and source is None:
        raise ConfigError(f"the study {study!r} needs a SOURCE: bundled, a file of items, or a run directory")
    if study == "raters" and options.ratings is None:
        raise ConfigError(
            "the study 'raters' needs ratings",
            remedy="Give {ratings} FILE, a CSV with the columns rater, item, summary, rating.",
        )


def load(study: str, source: str | None, options: StudyOptions, reading: ItemOptions) -> Study:
    """Load a study with its items."""
    row = STUDIES[study]
    module, _, class_name = row.path.partition(":")
    make: Callable[..., Study] = getattr(import_module(f"selfreflect.validate.{module}"), class_name)
    arguments: dict[str, Any] = {name: getattr(options, name) for name in row.takes}
    if source is None:
        # a study that makes its items has no file to limit: the options say how many to make
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
    """Read all items of a source, ignoring the limit."""
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
        raise DataError(
            f"{source} has no answers yet", remedy=f"Sample some with: selfreflect answers --out {source}"
        )
    without = len(run.questions) - len(items)
    if without:
        say(f"{without:,} of {len(run.questions):,} questions of the run have no answers and are left out.")
    return items


# Reasons that say something of the answers; the values were measured.
_OF_ANSWERS = ("known", "worse", "format", "unclear")


@dataclass(frozen=True)
class Models:
    """Lazy loaders of a study's models."""

    judges: Sequence[Callable[[], Judge]]
    generator: Callable[[], Generator] | None

    @classmethod
    def of(cls, judges: Sequence[str], model: str | None, overrides: Overrides) -> Models:
        """Build the settings of each judge and of the model; without ``judges``, of the default judge."""
        if model is None and overrides.section("answers"):
            raise ConfigError(
                "an address or revision is given, but no model",
                remedy="Give {answers.model}; for a judge use {scores.base_url} and {scores.revision}.",
            )
        configured = []
        for judge in judges or [ScoresConfig().judge]:
            answers = {} if model is None else {"model": model}
            config = overrides.config({"answers": answers, "scores": {"judge": judge}})
            configured.append(ConfiguredModels(config, overrides.execution, ProgressReporter()))
        generator = None if model is None else partial(configured[0].generator, "answers")
        return cls([models.judge for models in configured], generator)


def _facts(study: Study, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> dict[str, Any]:
    """List the facts needed to reproduce a finding."""
    models = dict.fromkeys(value.by for value in values if value.by)
    return {
        "items": len(study.items),
        "metrics": ", ".join(info.name for info in metrics),
        "models": "; ".join(models) or "none",
        "selfreflect": __version__,
    }


def _is_failure(value: Value, controls: Container[str]) -> bool:
    """Check whether a value is undefined for reasons other than the answers or a control's text."""
    if value.undefined is None or value.undefined.reason in _OF_ANSWERS:
        return False
    return value.summary not in controls or value.undefined.reason == "backend"


def _measure(
    study: Study, names: Sequence[str] | None, models: Models, store: Journal[Value] | None
) -> tuple[list[Value], list[MetricInfo]]:
    """Measure with each judge in turn. Metrics without a judge run once; with several judges, only if
    named."""
    judged = [info.name for info in METRICS if "judge" in info.needs]
    # a metric that needs no judge cannot differ between judges
    if names is None and len(models.judges) > 1:
        names = judged
    first, *further = models.judges
    values, metrics = _measure_with(first, study, names, models, store)
    again = [info.name for info in metrics if info.name in judged]
    for load_judge in further if again else ():
        values += _measure_with(load_judge, study, again, models, store)[0]
    return values, metrics


def _measure_with(
    load_judge: Callable[[], Judge],
    study: Study,
    names: Sequence[str] | None,
    models: Models,
    store: Journal[Value] | None,
) -> tuple[list[Value], list[MetricInfo]]:
    """Measure with one judge, and free its memory."""
    from selfreflect.validate.study import measure

    members = families(names, judge=load_judge, generator=models.generator)
    metrics = list(chain.from_iterable(family.metrics for family in members))
    if names is None:
        _say_left_out(metrics, models)
    with ProgressReporter().stage("measuring", len(study.items) * len(members)) as counter:
        return measure(study.items, members, store, counter.advance), metrics


def _say_left_out(metrics: Sequence[MetricInfo], models: Models) -> None:
    """Name the metrics that cannot be computed here, with the models they need."""
    left_out: dict[str, list[str]] = {}
    for info in METRICS:
        if info not in metrics:
            needs_model = "generator" in info.needs and models.generator is None
            need = "--model NAME" if needs_model else "pip install '.[embed,validate]'"
            left_out.setdefault(need, []).append(info.name)
    for need, missing in left_out.items():
        say(f"left out, because they need {need}: {', '.join(missing)}")


def _show(finding: Finding, json: bool) -> None:
    """Print a finding as text or JSON."""
    if json:
        for line in finding.lines():
            emit(line)
        return
    for sentence in finding.says:
        stdout.print(Text(printable(sentence) + "\n"))
    for table in finding.tables:
        if table.rows:
            print_table(table)
            stdout.print()
