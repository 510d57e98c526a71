"""Run stages of an experiment, or their dry run, for the commands that fill a run directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from selfreflect.cli.console import Watcher
from selfreflect.cli.settings import Overrides
from selfreflect.pipeline.options import ExecutionOptions

if TYPE_CHECKING:
    from selfreflect.pipeline.dry_run import DryRun
    from selfreflect.pipeline.experiment import Experiment
    from selfreflect.records import Stage


def run_stages(
    out: Path,
    stages: Sequence[Stage],
    overrides: Overrides,
    options: ExecutionOptions,
    *,
    strategies: str = "",
    fresh: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Fill the run directory ``out`` with some stages, and show what it then holds; or only show the cost.

    A directory that exists keeps its settings unless ``overrides`` change them, so that a command need not
    repeat them.

    Raises:
        SelfReflectError: a setting, the directory or a model cannot be used.
        Exit: with 1 if failures are recorded.
    """
    from selfreflect.pipeline.dry_run import open_dry_run
    from selfreflect.pipeline.experiment import open_experiment
    from selfreflect.pipeline.settings import settings_of
    from selfreflect.store.run import Run

    names = strategy_names(strategies) if "summaries" in stages else []
    if stages[0] != "questions":
        Run.load(out)  # a mistyped name is an error, not a new directory
    base = {} if fresh else settings_of(out)
    open_run = open_dry_run if dry_run else open_experiment
    with open_run(
        out,
        overrides.config(base),
        stages,
        fresh=fresh,
        options=replace(options, devices=None),
        progress=Watcher(),
    ) as experiment:
        for stage in stages:
            if stage == "summaries":
                experiment.summaries(names)
            else:
                getattr(experiment, stage)()
        _finish(experiment, json)


def strategy_names(strategies: str) -> list[str]:
    """Split ``a,b``, and check the names before anything costly begins.

    Raises:
        ConfigError: one is unknown or given twice, or there is none.
    """
    from selfreflect.errors import ConfigError, excerpt
    from selfreflect.strategies import load_strategy

    names = [name.strip() for name in strategies.split(",") if name.strip()]
    if not names:
        raise ConfigError("--strategies needs at least one name")
    for index, name in enumerate(names):
        load_strategy(name)
        if name in names[:index]:
            raise ConfigError(f"--strategies names {excerpt(name)} twice")
    return names


def _finish(experiment: Experiment | DryRun, json: bool) -> None:
    """Show what the run holds, or what a dry run would cost; exit with 1 if failures are recorded."""
    from selfreflect.cli.console import exit_with, say, where
    from selfreflect.cli.costs import show_costs
    from selfreflect.cli.show import emit_overview, print_report
    from selfreflect.pipeline.dry_run import DryRun
    from selfreflect.pipeline.records import run_records
    from selfreflect.render.text import one_line

    if isinstance(experiment, DryRun):
        show_costs(experiment, json)
        return
    records = run_records(experiment.run)
    if json:
        emit_overview(records)
    elif records.scores:
        print_report(records)
    run = experiment.run
    say(
        f"{where(run.path)}: {len(run.questions)} questions, {len(run.answers)} answer sets, "
        f"{len(run.summaries)} summaries, {len(run.scores)} scores"
    )
    if records.failures and not records.scores:  # the report, which lists failures, was not shown
        first = records.failures[0]
        say(one_line(f"{first.stage}, question {first.question_id}: {first.message}"))
    exit_with(len(records.failures))
