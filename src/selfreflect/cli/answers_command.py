"""``selfreflect answers``: draw answer distributions into a run directory."""

from __future__ import annotations

from selfreflect.cli import settings as o
from selfreflect.cli.settings import GENERATING, Overrides, takes
from selfreflect.errors import ConfigError
from selfreflect.pipeline.options import ExecutionOptions


@takes("questions", "answers", defaults={"--questions": None}, config_file=True, execution=GENERATING)
def command(
    *,
    out: o.Out,
    overrides: Overrides,
    fresh: o.Fresh = False,
    options: ExecutionOptions,
    dry_run: o.DryRun = False,
    json: o.Json = False,
) -> None:
    """Draw an answer distribution for every question.

    It has 2N answers: N whose words are masked, N shown to the judge. Without --questions, the questions of
    the run directory are used.
    """
    from selfreflect.cli.stages import run_stages
    from selfreflect.records import Stage

    questions = overrides.section("questions")
    if "source" not in questions and questions.keys() - {"seed"}:
        raise ConfigError(
            "--limit, --shard, --split, --subset and --question-column belong to --questions SOURCE"
        )
    stages: list[Stage] = ["questions", "answers"] if "source" in questions else ["answers"]
    run_stages(out, stages, overrides, options, fresh=fresh, dry_run=dry_run, json=json)
