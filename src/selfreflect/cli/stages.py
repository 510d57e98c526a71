"""The commands that fill a run directory: ``selfreflect run``, ``questions``, ``answers`` and ``summarize``;
and how every command runs stages, or their dry run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from rich.text import Text

from selfreflect.cli import settings as o
from selfreflect.cli.console import Watcher, context_line, emit, exit_with, say, say_next_step, stdout
from selfreflect.cli.settings import GENERATING, JUDGING, Overrides, option, takes
from selfreflect.config import Config
from selfreflect.errors import ConfigError
from selfreflect.pipeline.experiment import Experiment, open_experiment
from selfreflect.pipeline.options import ExecutionOptions
from selfreflect.pipeline.records import run_records
from selfreflect.pipeline.settings import settings_of
from selfreflect.records import STAGES, Question, Stage
from selfreflect.render.text import one_line
from selfreflect.report.run_records import RunRecords
from selfreflect.sources.questions import load_questions
from selfreflect.store.run import Run
from selfreflect.strategies import load_strategy
from selfreflect.text import counted

if TYPE_CHECKING:
    from selfreflect.pipeline.dry_run import DryRun


@takes(*STAGES, config_file=True, execution=(*GENERATING, *JUDGING))
def run_command(
    *,
    out: o.Out,
    overrides: Overrides,
    fresh: o.Fresh = False,
    dry_run: o.DryRun = False,
    json: o.Json = False,
) -> None:
    """Run all stages: questions, answers, summaries, scores.

    The results go to a run directory. After an interruption, run the same command to resume.
    """
    run_stages(out, STAGES, overrides, fresh=fresh, dry_run=dry_run, json=json)


@takes("questions", config_file=True)
def questions_command(
    *,
    overrides: Overrides,
    out: Path | None = option("--out DIR", "Store the questions in this run directory; show nothing."),
    fresh: o.Fresh = False,
    json: o.Json = False,
) -> None:
    """Show the questions of a source, or store them."""
    if out is not None:
        run_stages(out, ["questions"], overrides, fresh=fresh, json=json)
        return
    source = load_questions(**overrides.config().section("questions"))
    for question in source.questions:
        if json:
            emit(question)
            continue
        line = Text(one_line(question.text))
        if question.kind:
            line.append(f"  [{one_line(question.kind)}]", style="dim")
        stdout.print(line, soft_wrap=True)
        if question.context:
            stdout.print(context_line(question), soft_wrap=True)
    say(f"{len(source.questions)} of {source.total} questions of {source.source}")


@takes("questions", "answers", defaults={"--questions": None}, config_file=True, execution=GENERATING)
def answers_command(
    out: o.Out, overrides: Overrides, fresh: o.Fresh = False, dry_run: o.DryRun = False, json: o.Json = False
) -> None:
    """Draw an answer distribution for every question.

    It has 2N answers: N whose words are masked, N shown to the judge. Without --questions, the questions of
    the run directory are used.
    """
    has_source = overrides.sets("questions", "source")
    if not has_source and overrides.section("questions").keys() - {"seed"}:
        raise ConfigError(
            "--limit, --shard, --split, --subset, --question-column and --context-column belong to "
            "--questions SOURCE"
        )
    stages: list[Stage] = ["questions", "answers"] if has_source else ["answers"]
    run_stages(out, stages, overrides, fresh=fresh, dry_run=dry_run, json=json)


@takes("summaries", config_file=True, execution=GENERATING)
def summarize_command(
    *,
    out: o.Out,
    overrides: Overrides,
    dry_run: o.DryRun = False,
    json: o.Json = False,
) -> None:
    """Let the model summarise its own belief.

    Adds the summaries that a run directory lacks. Strategies can be added later; only the new ones are then
    scored.
    """
    run_stages(out, ["summaries"], overrides, dry_run=dry_run, json=json)


def run_stages(
    out: Path,
    stages: Sequence[Stage],
    overrides: Overrides,
    *,
    fresh: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Fill the run directory ``out`` and show what it holds, or only show what that would cost.

    An existing directory keeps its settings unless ``overrides`` change them, so that a command need not
    repeat them. Exits with 1 if failures are recorded.
    """
    if stages[0] != "questions":
        Run.load(out)  # a mistyped name is an error, not a new directory
    config = overrides.config({} if fresh else settings_of(out, overrides.given("scores")))
    options = replace(overrides.execution, devices=None)
    if "summaries" in stages:
        check_strategies(config)
    if dry_run:
        from selfreflect.cli.costs import show_costs
        from selfreflect.pipeline.dry_run import dry_run_directory

        costs = dry_run_directory(out, config, stages, options, Watcher(), fresh=fresh)
        _fill(costs, stages, config)
        show_costs(costs, json)
        return
    records = fill_run(out, config, stages, options, fresh=fresh)
    is_measured = bool(records.scores or records.information)
    if json or is_measured:
        from selfreflect.cli.show import show_results

        show_results(records, json)
    results = counted(len(records.scores), "score")
    if records.information and not records.scores:
        results = f"information on {len(records.information)} of them"
    say(
        f"{out}: {counted(len(records.questions), 'question')}, "
        f"{counted(len(records.answers), 'answer set')}, "
        f"{counted(len(records.summaries), 'summary')}, {results}"
    )
    if records.failures and not is_measured:  # the results, which list failures, were not shown
        from selfreflect.cli.show import show_failures

        show_failures(records)
    if not json:
        say_next_step(out, records)
    exit_with(len(records.failures))


def fill_run(
    path: Path,
    config: Config,
    stages: Sequence[Stage],
    options: ExecutionOptions,
    *,
    fresh: bool = False,
    question: Question | None = None,
) -> RunRecords:
    """Run stages in a run directory, in order, with one more ``question`` if there is one."""
    with open_experiment(
        path, config, stages, fresh=fresh, options=options, progress=Watcher()
    ) as experiment:
        if question is not None:
            experiment.run.append(question)
        _fill(experiment, stages, config)
        return run_records(experiment.run)


def _fill(experiment: Experiment | DryRun, stages: Sequence[Stage], config: Config) -> None:
    for stage in stages:
        if stage == "summaries":
            experiment.summaries(config.summaries.strategies)
        else:
            getattr(experiment, stage)()


def check_strategies(config: Config) -> None:
    """Refuse strategies that do not exist, before anything costly begins."""
    for name in config.summaries.strategies:
        load_strategy(name)
