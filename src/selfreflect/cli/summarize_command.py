"""``selfreflect summarize``: let a model summarise its own belief, with one or several strategies."""

from __future__ import annotations

from selfreflect.cli import settings as o
from selfreflect.cli.settings import GENERATING, Overrides, takes
from selfreflect.pipeline.options import ExecutionOptions


@takes("summaries", config_file=True, execution=GENERATING)
def command(
    *,
    out: o.Out,
    strategies: o.Strategies = o.STRATEGIES,
    overrides: Overrides,
    options: ExecutionOptions,
    dry_run: o.DryRun = False,
    json: o.Json = False,
) -> None:
    """Let the model summarise its own belief.

    Adds the summaries that a run directory lacks. Strategies can be added later; only the new ones are then
    scored.
    """
    from selfreflect.cli.stages import run_stages

    run_stages(out, ["summaries"], overrides, options, strategies=strategies, dry_run=dry_run, json=json)
