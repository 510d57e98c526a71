"""From command-line options to an experiment: shared by ``run`` and the commands of single stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfreflect.cli.console import Watcher

if TYPE_CHECKING:
    from selfreflect.experiment import Experiment
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
    batch_size: int | None = None,
    trust_remote_code: bool = False,
    prompts: Path | None = None,
) -> Iterator[Experiment]:
    """The run directory ``out``, opened for ``stages`` with the settings of the file and the options."""
    from selfreflect.config import load_config
    from selfreflect.experiment import Experiment, Options

    options = Options(device=device, batch_size=batch_size, trust_remote_code=trust_remote_code, prompts=prompts)
    with Experiment.open(out, load_config(config, overrides), stages, fresh=fresh, options=options, progress=Watcher()) as opened:
        yield opened


def names(strategies: str) -> list[str]:
    """``a,b`` as a list."""
    return [name.strip() for name in strategies.split(",") if name.strip()]


def finish(opened: Experiment, json: bool) -> None:
    """Show where the run stands, and exit with 1 if failures are recorded."""
    from selfreflect.cli.console import say
    from selfreflect.cli.show import emit_overview, exit_with, print_report, run_records, where

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
    exit_with(len(records.failures))
