"""From command-line options to an experiment: shared by ``run`` and the commands of single stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfreflect.cli.console import Watcher

if TYPE_CHECKING:
    from selfreflect.pipeline.experiment import Experiment
    from selfreflect.records import Stage


@contextmanager
def experiment(
    out: Path,
    stages: Sequence[Stage],
    overrides: Mapping[str, Mapping[str, Any]],
    *,
    config: Path | None = None,
    fresh: bool = False,
    device: str = "auto",
    device_map: str | None = None,
    executor: str = "local",
    ray_address: str | None = None,
    from_nothing: bool = False,
    batch_size: int | None = None,
    trust_remote_code: bool = False,
    max_connections: int = 16,
    timeout: float = 600.0,
    prompts: Path | None = None,
    guesses: int = 0,
    cache: Path | None = None,
    dry_run: bool = False,
) -> Iterator[Experiment]:
    """The run directory ``out``, opened for ``stages`` with the settings of the file and the options.

    A directory that exists keeps the settings it was made with where neither says otherwise, so a command
    need not repeat them. With ``dry_run`` it is a rehearsal, which only counts.
    """
    from selfreflect.config import load_config
    from selfreflect.pipeline.dry_run import DryRun
    from selfreflect.pipeline.experiment import ExecutionOptions, Experiment, settings_of
    from selfreflect.store.run import Run

    if stages[0] != "questions" and not from_nothing:
        Run.load(out)  # a mistyped name is an error, not a new directory
    options = ExecutionOptions(
        device=device,
        devices=None,
        device_map=device_map,
        executor=executor,
        ray_address=ray_address,
        batch_size=batch_size,
        trust_remote_code=trust_remote_code,
        max_connections=max_connections,
        timeout=timeout,
        prompts=prompts,
        guesses=guesses,
        cache=cache,
    )
    base = {} if fresh else settings_of(out)
    kind = DryRun if dry_run else Experiment
    with kind.open(
        out, load_config(config, overrides, base), stages, fresh=fresh, options=options, progress=Watcher()
    ) as opened:
        yield opened


def names(strategies: str) -> list[str]:
    """``a,b`` as a list, checked before anything costly begins.

    Raises:
        ConfigError: one is unknown or given twice, or there is none.
    """
    from selfreflect.errors import ConfigError, excerpt
    from selfreflect.strategies import load_strategy

    found = [name.strip() for name in strategies.split(",") if name.strip()]
    if not found:
        raise ConfigError("--strategies names none")
    for place, name in enumerate(found):
        load_strategy(name)
        if name in found[:place]:
            raise ConfigError(f"--strategies names {excerpt(name)} twice")
    return found


def finish(opened: Experiment, json: bool) -> None:
    """Show where the run stands, and exit with 1 if failures are recorded; of a rehearsal, what the rest of
    the run takes."""
    from selfreflect.cli.console import say
    from selfreflect.cli.costs import show_costs
    from selfreflect.cli.show import emit_overview, exit_with, print_report, where
    from selfreflect.pipeline.dry_run import DryRun
    from selfreflect.pipeline.experiment import run_records
    from selfreflect.render.text import one_line

    if isinstance(opened, DryRun):
        show_costs(opened, json)
        return
    records = run_records(opened.run)
    if json:
        emit_overview(records)
    elif records.scores:
        print_report(records)
    run = opened.run
    say(
        f"{where(run.path)}: {len(run.questions)} questions, {len(run.answers)} answer sets, {len(run.summaries)} summaries, "
        f"{len(run.scores)} scores"
    )
    if records.failures and not records.scores:  # otherwise the report has told them
        first = records.failures[0]
        say(one_line(f"{first.stage}, question {first.question_id}: {first.message}"))
    exit_with(len(records.failures))
