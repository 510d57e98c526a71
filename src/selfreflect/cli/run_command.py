"""``selfreflect run``: all stages, one after the other."""

from __future__ import annotations

from selfreflect.cli import settings as o
from selfreflect.cli.settings import GENERATING, JUDGING, Overrides, takes
from selfreflect.pipeline.options import ExecutionOptions
from selfreflect.records import STAGES


@takes(*STAGES, config_file=True, execution=(*GENERATING, *JUDGING))
def command(
    *,
    out: o.Out,
    overrides: Overrides,
    strategies: o.Strategies = o.STRATEGIES,
    fresh: o.Fresh = False,
    options: ExecutionOptions,
    dry_run: o.DryRun = False,
    json: o.Json = False,
) -> None:
    """Run all stages: questions, answers, summaries, scores.

    The results go to a run directory. After an interruption, run the same command to resume.
    """
    from selfreflect.cli.stages import run_stages

    run_stages(
        out, STAGES, overrides, options, strategies=strategies, fresh=fresh, dry_run=dry_run, json=json
    )
