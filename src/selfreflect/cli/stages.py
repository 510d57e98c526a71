"""Run stages, or their dry run, for the commands that fill a run directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from selfreflect.cli.settings import Overrides
from selfreflect.pipeline.options import ExecutionOptions
from selfreflect.records import Stage

if TYPE_CHECKING:
    from selfreflect.pipeline.dry_run import DryRun
    from selfreflect.pipeline.experiment import Experiment
    from selfreflect.store.run import Run


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
    """Fill the run directory ``out`` and show what it holds, or only show what that would cost.

    An existing directory keeps its settings unless ``overrides`` change them, so that a command need not
    repeat them.

    Raises:
        SelfReflectError: a setting, the directory or a model cannot be used.
        Exit: with 1 if failures are recorded.
    """
    from selfreflect.cli.console import Watcher
    from selfreflect.cli.costs import show_costs
    from selfreflect.pipeline.dry_run import dry_run_directory
    from selfreflect.pipeline.experiment import open_experiment
    from selfreflect.pipeline.settings import settings_of
    from selfreflect.store.run import Run

    names = strategy_names(strategies) if "summaries" in stages else []
    if stages[0] != "questions":
        Run.load(out)  # a mistyped name is an error, not a new directory
    config = overrides.config({} if fresh else settings_of(out))
    options = replace(options, devices=None)
    watcher = Watcher()
    if dry_run:
        costs = dry_run_directory(out, config, stages, options, watcher, fresh=fresh)
        fill(costs, stages, names)
        show_costs(costs, json)
        return
    with open_experiment(out, config, stages, fresh=fresh, options=options, progress=watcher) as experiment:
        fill(experiment, stages, names)
        _show(experiment.run, json)


def fill(experiment: Experiment | DryRun, stages: Sequence[Stage], strategies: Sequence[str]) -> None:
    """Run some stages, in order."""
    for stage in stages:
        if stage == "summaries":
            experiment.summaries(strategies)
        else:
            getattr(experiment, stage)()


def strategy_names(strategies: str) -> list[str]:
    """Split ``a,b``, and check the names before anything costly begins.

    Raises:
        ConfigError: a name is unknown or given twice, or there is none.
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


def _show(run: Run, json: bool) -> None:
    """Show what a run holds, and exit with 1 if failures are recorded."""
    from selfreflect.cli.console import exit_with, say, where
    from selfreflect.cli.show import emit_overview, print_report
    from selfreflect.pipeline.records import run_records
    from selfreflect.render.text import one_line

    records = run_records(run)
    if json:
        emit_overview(records)
    elif records.scores:
        print_report(records)
    say(
        f"{where(run.path)}: {len(run.questions)} questions, {len(run.answers)} answer sets, "
        f"{len(run.summaries)} summaries, {len(run.scores)} scores"
    )
    if records.failures and not records.scores:  # the report, which lists failures, was not shown
        first = records.failures[0]
        say(one_line(f"{first.stage}, question {first.question_id}: {first.message}"))
    exit_with(len(records.failures))
