"""The work of ``validate``: metrics are measured with each judge, and a study's finding is shown and kept."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from selfreflect import __version__
from selfreflect.cli.console import Watcher, emit, print_table, say, stdout
from selfreflect.cli.options import Overrides
from selfreflect.errors import ConfigError
from selfreflect.models.base import Generator
from selfreflect.pipeline.models import ConfiguredModels
from selfreflect.settings import ScoresConfig
from selfreflect.store.journal import Journal
from selfreflect.text import printable
from selfreflect.validate import catalogue
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.measure import (
    add_undefined,
    measure,
    open_values,
    to_lines,
    write,
)
from selfreflect.validate.study import Finding, Study

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge

_OF_ANSWERS = ("known", "worse", "format", "unclear")
"""Reasons that say something of the answers; the values were measured."""


@dataclass(frozen=True)
class Models:
    """How to load the models of a study, when they are needed."""

    judges: Sequence[Callable[[], Judge]]
    generator: Callable[[], Generator] | None

    @classmethod
    def of(cls, judges: Sequence[str], model: str | None, overrides: Overrides) -> Models:
        """Check the settings of the models; without ``judges`` there is the default one."""
        if model is None and overrides.section("answers"):
            raise ConfigError(
                "--base-url and --revision need --model NAME; for a judge use --judge-url and "
                "--judge-revision"
            )
        configured = []
        for judge in judges or [ScoresConfig().judge]:
            answers = {} if model is None else {"model": model}
            config = overrides.config({"answers": answers, "scores": {"judge": judge}})
            configured.append(ConfiguredModels(config, overrides.execution, Watcher()))
        generator = None if model is None else partial(configured[0].generator, "answers")
        return cls([models.judge for models in configured], generator)


def run_study(
    study: Study,
    names: Sequence[str] | None,
    models: Models,
    made_with: dict[str, Any],
    out: Path | None,
    json: bool,
) -> bool:
    """Measure, show, and keep in ``out``; whether values are undefined that should not be.

    Args:
        names: metrics or groups of them; None for all that can be computed.
        made_with: what else a reader of the finding needs to make it again.
    """
    with nullcontext() if out is None else open_values(out) as store:
        values, metrics = _measure(study, names, models, store)
        finding = study.finding(values, metrics)
        missing = add_undefined(finding, values)
        _show(finding, json)
        if out is not None:
            model_names = dict.fromkeys(value.by for value in values if value.by)
            made_with |= {
                "items": len(study.items),
                "metrics": ", ".join(info.name for info in metrics),
                "models": "; ".join(model_names) or "none",
                "selfreflect": __version__,
            }
            folder = write(finding, made_with, out)
            say(f"The finding with its tables and plots is in {folder}")
    if missing:
        reasons = ", ".join(f"{count} x {metric} ({reason})" for (metric, reason), count in missing.items())
        say(f"done, with {missing.total()} of {len(values)} values undefined: {reasons}")
    controls = getattr(study, "controls", ())
    return any(_is_failure(value, controls) for value in values)


def _is_failure(value: Value, controls: Container[str]) -> bool:
    """Return whether a value is undefined, other than because of the answers or of the text of a control."""
    if value.undefined is None or value.undefined.reason in _OF_ANSWERS:
        return False
    return value.summary not in controls or value.undefined.reason == "backend"


def _measure(
    study: Study, names: Sequence[str] | None, models: Models, store: Journal[Value] | None
) -> tuple[list[Value], list[MetricInfo]]:
    """Measure with one judge after the other. What needs no judge is measured with the first."""
    judged = [info.name for info in catalogue.METRICS if "judge" in info.needs]
    if names is None and len(models.judges) > 1:
        names = judged
    first, *others = models.judges
    values, metrics = _measure_with(first, study, names, models, store)
    again = [info.name for info in metrics if info.name in judged]
    for load_judge in others if again else ():
        values += _measure_with(load_judge, study, again, models, store)[0]
    return values, metrics


def _measure_with(
    load_judge: Callable[[], Judge],
    study: Study,
    names: Sequence[str] | None,
    models: Models,
    store: Journal[Value] | None,
) -> tuple[list[Value], list[MetricInfo]]:
    """A function, so that the judge is gone from memory before the next one is loaded."""
    families = catalogue.families(names, judge=load_judge, generator=models.generator)
    metrics = list(chain.from_iterable(family.metrics for family in families))
    _say_left_out(names, metrics, models)
    with Watcher().stage("measuring", len(study.items) * len(families)) as counter:
        return measure(study.items, families, store, counter.advance), metrics


def _say_left_out(names: Sequence[str] | None, metrics: Sequence[MetricInfo], models: Models) -> None:
    """Name the metrics of the selected groups that cannot be computed here, and what they need."""
    groups = {"all"} if names is None else {*names} & {*catalogue.GROUPS}
    left_out: dict[str, list[str]] = {}
    for info in catalogue.METRICS:
        if info in metrics or not groups & {"all", f"{info.group}s"}:
            continue
        needs_model = "generator" in info.needs and models.generator is None
        need = "--model NAME" if needs_model else "pip install '.[embed,validate]'"
        left_out.setdefault(need, []).append(info.name)
    for need, missing in left_out.items():
        say(f"left out, because they need {need}: {', '.join(missing)}")


def _show(finding: Finding, json: bool) -> None:
    if json:
        for line in to_lines(finding):
            emit(line)
        return
    for table in finding.tables:
        print_table(table)
        stdout.print()
    for sentence in finding.says:
        stdout.print(Text(printable(sentence) + "\n"))
