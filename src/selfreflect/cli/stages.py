"""Commands that fill a run directory (``run``, ``questions``, ``answers``, ``summarize``)."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from rich.text import Text

from selfreflect.cli import options as o
from selfreflect.cli.console import (
    ProgressReporter,
    agree,
    agree_to_start,
    can_ask,
    context_line,
    emit,
    exit_with,
    print_table,
    say,
    say_next_step,
    say_notes,
    stderr,
    stdout,
)
from selfreflect.cli.options import BATCHED, GENERATING, JUDGING, Overrides, option, takes
from selfreflect.errors import BackendError, ConfigError, excerpt
from selfreflect.models.backend import backend_of
from selfreflect.prompts import load_prompts
from selfreflect.records import STAGES, ModelStage, Question, SamplingCheck, Stage
from selfreflect.run.experiment import Experiment, open_experiment
from selfreflect.run.models import Quiet
from selfreflect.run.records import run_records
from selfreflect.run.resume import no_questions, settings_of
from selfreflect.run.todo import (
    any_task,
    missing_answers,
    missing_summaries,
    run_strategies,
    stages_with_work,
    strategies_to_continue,
)
from selfreflect.settings import Config, ExecutionOptions
from selfreflect.sources.questions import is_file, load_questions
from selfreflect.store.manifest import MANIFEST, count_records
from selfreflect.store.run import Run
from selfreflect.strategies import load_strategy
from selfreflect.text import counted, listed, one_line

if TYPE_CHECKING:
    from selfreflect.report.run_records import RunRecords
    from selfreflect.report.thresholds import Condition
    from selfreflect.run.dry_run import DryRun


@dataclass(frozen=True)
class Intent:
    """The user's intentions for a run directory, apart from its settings."""

    fresh: bool = False
    names_source: bool = True
    """Whether a source of questions is named. If not, a directory keeps to its questions."""
    names_strategies: bool = True
    """Whether strategies are named. If not, a directory keeps to its strategies."""
    add_questions: bool = False
    yes: bool = False
    user_names: Collection[str] | None = None
    """Models and server addresses that the user names; None if nothing else could name any."""

    def resuming(self, overrides: Overrides) -> Intent:
        """Record the names that the user gives for an existing directory, and whether these include its
        source and strategies."""
        # a directory may come from anybody: only names that the user gives run code or reach other servers
        user_names: set[str] = set()
        for stage in STAGES:
            section = overrides.given(stage)
            user_names |= {str(section[key]) for key in ("model", "base_url") if key in section}
        return dataclasses.replace(
            self,
            user_names=user_names,
            names_source=overrides.sets("questions", "source"),
            names_strategies=overrides.sets("summaries", "strategies"),
        )

    def binding(self, stages: Sequence[Stage]) -> list[Stage]:
        """List the stages whose settings must match the directory."""
        return [stage for stage in stages if stage != "questions" or not self.add_questions]


@takes(*STAGES, defaults={"--questions": None}, config_file=True, execution=(*GENERATING, *JUDGING))
def run_command(
    *,
    out: o.Out,
    only: Literal["questions", "answers", "summaries", "scores"] | None = option(
        "--only", "Do one stage: questions, answers, summaries or scores.", None
    ),
    overrides: Overrides,
    add_questions: o.AddQuestions = False,
    fresh: o.Fresh = False,
    yes: o.Yes = False,
    dry_run: o.DryRun = False,
    log: o.Log = None,
    json: o.Json = False,
) -> None:
    """Run all stages: questions, answers, summaries, scores.

    The results go to a run directory. After an interruption, run the same command to resume. For an existing
    directory, `--out DIR` is enough: its questions, strategies and settings are kept; --strategies adds some.
    """
    intent = Intent(fresh, add_questions=add_questions, yes=yes)
    stages: Sequence[Stage] = [only] if only else STAGES
    # new questions must be stored before they are answered
    if only == "answers" and (overrides.sets("questions", "source") or add_questions):
        stages = ["questions", "answers"]
    run_stages(out, stages, overrides, intent, dry_run=dry_run, log=log, show=Show(json))


@takes("questions", config_file=True)
def questions_command(
    *,
    overrides: Overrides,
    out: Path | None = option("--out DIR", "Store the questions in this run directory; show nothing."),
    add_questions: o.AddQuestions = False,
    fresh: o.Fresh = False,
    yes: o.Yes = False,
    json: o.Json = False,
) -> None:
    """Show the questions of a source, or store them."""
    if out is not None:
        intent = Intent(fresh, add_questions=add_questions, yes=yes)
        run_stages(out, ["questions"], overrides, intent, show=Show(json))
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
    say_notes(source.notes)
    if source.with_images:
        say(f"Left out: {counted(source.with_images, 'question')} with a picture.")
    say(f"{len(source.questions):,} of {source.total:,} questions of {source.source}")


@takes("questions", "answers", defaults={"--questions": None}, config_file=True, execution=BATCHED)
def answers_command(
    *,
    out: o.Out,
    overrides: Overrides,
    add_questions: o.AddQuestions = False,
    fresh: o.Fresh = False,
    yes: o.Yes = False,
    dry_run: o.DryRun = False,
    json: o.Json = False,
) -> None:
    """Sample answers to every question.

    Each question gets 2N answers (N is --num-answers): N whose words are masked, and N shown to the judge.
    Without --questions, the questions of the run directory are used.
    """
    has_source = overrides.sets("questions", "source")
    if not has_source and overrides.section("questions").keys() - {"seed"}:
        raise ConfigError(
            "options that choose questions need a source of questions",
            code="no_source",
            remedy="Name it with {questions.source}.",
        )
    stages: list[Stage] = ["questions", "answers"] if has_source or add_questions else ["answers"]
    intent = Intent(fresh, add_questions=add_questions, yes=yes)
    run_stages(out, stages, overrides, intent, dry_run=dry_run, show=Show(json))


@takes("summaries", config_file=True, execution=BATCHED)
def summarize_command(
    *, out: o.Out, overrides: Overrides, yes: o.Yes = False, dry_run: o.DryRun = False, json: o.Json = False
) -> None:
    """Let the model summarise its own belief.

    Adds the summaries that a run directory lacks. Strategies can be added later; only the new ones are then
    scored.
    """
    run_stages(out, ["summaries"], overrides, Intent(yes=yes), dry_run=dry_run, show=Show(json))


@dataclass(frozen=True)
class Show:
    """Display options for a run directory, and conditions for failure."""

    json: bool = False
    explain: bool = False
    conditions: Sequence[Condition] = ()


def run_stages(
    out: Path,
    stages: Sequence[Stage],
    overrides: Overrides,
    intent: Intent,
    *,
    dry_run: bool = False,
    log: str | None = None,
    next_step: bool = True,
    show: Show = Show(),
) -> None:
    """Fill the run directory ``out`` and show its results, or show the costs of a dry run.

    An existing directory keeps its settings unless ``overrides`` change them, so that a command need not
    repeat them. Exits with 1 if failures are recorded.
    """
    if log is not None:
        from selfreflect.report.export import check_installed

        check_installed(log)
    # a command that makes no questions needs a directory that exists
    if stages[0] != "questions":
        run = Run.load(out)  # a mistyped name is an error, not a new directory
        if stages == ["scores"]:
            _say_unfinished(out, run)
    # the directory's own settings, so that a command need not repeat them
    base = {} if intent.fresh else settings_of(out, overrides.given("scores"), scoring="scores" in stages)
    config = overrides.config(base)
    is_resumed = (out / MANIFEST).exists() and not intent.fresh
    options = overrides.execution
    if stages == STAGES and not is_resumed and not overrides.sets("questions", "source"):
        raise no_questions()
    if is_resumed:
        intent = intent.resuming(overrides)
    if intent.names_strategies and "summaries" in stages:
        check_strategies(config.summaries.strategies)
    if dry_run:
        from selfreflect.cli.show import show_costs
        from selfreflect.run.dry_run import dry_run_directory

        costs = dry_run_directory(
            out, config, intent.binding(stages), options, ProgressReporter(), fresh=intent.fresh
        )
        strategies = _begin(costs, stages, config, intent)
        for stage in model_stages(stages):
            costs.fill(stage, strategies)
        show_costs(costs, show.json)
        return
    with begin(out, config, stages, options, intent) as (experiment, strategies):
        for stage in model_stages(stages):
            experiment.fill(stage, strategies)
        records = run_records(experiment.run)
        is_complete = not stages_with_work(experiment.run, stages, strategies, config.scores)
    # the requests are in a file now; nothing was answered
    if options.write_batch is not None:
        if is_complete:
            say(f"Nothing is missing, so {options.write_batch} was not written.")
            return
        command = "summarize" if stages[-1] == "summaries" else stages[-1]
        read = f"selfreflect {command} --out {shlex.quote(str(out))} --read-batch OUTPUT"
        say(f"Once the output file of the batch is there: {read}")
        return  # failures of earlier commands are not of this one
    _show_outcome(out, records, show)
    from selfreflect.cli.show import exit_if, log_result
    from selfreflect.report.thresholds import versions

    log_result(log, records, out)
    if next_step and not show.json:
        say_next_step(out, records)
    exit_if(show.conditions, versions([records]))
    exit_with(records.failed)


def _show_outcome(out: Path, records: RunRecords, show: Show) -> None:
    """Show a directory's results, or its counts of records."""
    from selfreflect.cli.show import show_failures, show_results

    is_measured = bool(records.measures)
    if show.json or is_measured:
        show_results(records, show.json, explain=show.explain)
    results = [f"{len(records.results(measure))} by {measure.name}" for measure in records.measures]
    say(
        f"{out}: {counted(len(records.questions), 'question')}, "
        f"{counted(len(records.answers), 'answer set')}, "
        f"{counted(len(records.summaries), 'summary')}, measured: {', '.join(results) or 'none'}"
    )
    if records.failures and not is_measured:  # the results, which list failures, were not shown
        show_failures(records)


def _say_unfinished(out: Path, run: Run) -> None:
    """Report incomplete strategies, and the commands that complete them."""
    unfinished = []
    for name in strategies_to_continue(run) if run.questions else []:
        missing = len(list(missing_summaries(run, [name])))
        unfinished.append(f"{name} ({len(run.questions) - missing:,} of {len(run.questions):,})")
    if not unfinished:
        return
    stage = "run" if any_task(missing_answers(run)) else "summarize"
    say(
        f"Not all summaries are there yet: {listed(unfinished)}. The existing summaries "
        f"are scored. To make the others: selfreflect {stage} --out {shlex.quote(str(out))}"
    )


@contextmanager
def begin(
    path: Path,
    config: Config,
    stages: Sequence[Stage],
    options: ExecutionOptions,
    intent: Intent,
    *,
    question: Question | None = None,
) -> Iterator[tuple[Experiment, Sequence[str]]]:
    """Open a run directory, add ``question`` if given, and check settings and costs with the user.

    Yields the experiment, and the strategies to work on.
    """
    # before the directory is opened: its records are still where they were if this fails
    if intent.fresh:
        source = config.questions.source
        if "questions" in stages and is_file(source) and source != "-":
            load_questions(**config.section("questions"))  # a mistake in it leaves the records in place
        _agree_to_start_over(path, intent.yes)
    with open_experiment(
        path, config, intent.binding(stages), fresh=intent.fresh, options=options, progress=ProgressReporter()
    ) as experiment:
        # until the work is agreed on, a refusal takes a new directory away again
        with experiment.nothing_left_behind():
            if question is not None:
                experiment.run.append(question)
            strategies = _begin(experiment, stages, config, intent)
            experiment.plan(stages, strategies if "summaries" in stages else ())
            work = stages_with_work(experiment.run, stages, strategies, config.scores)
            _check_named(path, work, config, intent)
            if suspects := experiment.check(stages, strategies):
                _agree_to_one_text(suspects, intent)
                experiment.accept(suspects)
        # scoring asks no server that costs money
        if {"answers", "summaries"} & {*work} and not options.uses_batch:
            _agree_to_costs(experiment.run, config, work, strategies, options, intent)
        yield experiment, strategies


def fill_run(
    path: Path,
    config: Config,
    stages: Sequence[Stage],
    options: ExecutionOptions,
    intent: Intent,
    question: Question | None = None,
) -> RunRecords:
    """Run stages of a run directory in order, with ``question`` added if given."""
    with begin(path, config, stages, options, intent, question=question) as (experiment, strategies):
        for stage in model_stages(stages):
            experiment.fill(stage, strategies)
        return run_records(experiment.run)


def _begin(
    experiment: Experiment | DryRun, stages: Sequence[Stage], config: Config, intent: Intent
) -> Sequence[str]:
    """Store the questions, and return the strategies to run."""
    if "questions" in stages:
        experiment.questions(explicit=intent.names_source, add=intent.add_questions)
    strategies: Sequence[str] = config.summaries.strategies
    if "summaries" in stages:
        strategies = _strategies(experiment.run, stages, strategies, intent)
        check_strategies(strategies)
    return strategies


def model_stages(stages: Sequence[Stage]) -> list[ModelStage]:
    """List the stages that need a model, in order."""
    return [stage for stage in get_args(ModelStage) if stage in stages]


def _strategies(
    run: Run, stages: Sequence[Stage], strategies: Sequence[str], intent: Intent
) -> Sequence[str]:
    """Choose the strategies to run: the user's, otherwise the run's.

    A run that has only summaries by hand gets others from `summarize` alone.
    """
    if intent.names_strategies:
        return strategies
    if not run_strategies(run) and not (run.summaries and len(stages) > 1):
        return strategies
    names = strategies_to_continue(run)
    if any(":" in name for name in names):
        raise ConfigError(
            f"{run.path} names a Python function as a strategy",
            code="foreign_code",
            remedy=f"If you trust that code, run it with {{summaries.strategies}} "
            f"{excerpt(','.join(names))}.",
        )
    return names


def _check_named(path: Path, work: Sequence[ModelStage], config: Config, intent: Intent) -> None:
    """Check the models of the stages with :func:`check_named`, unless the directory is new."""
    if intent.user_names is None:
        return
    models = {}
    for stage in work:
        settings = getattr(config, stage)
        models[settings.judge if stage == "scores" else settings.model, settings.base_url] = stage
    for (model, base_url), stage in models.items():
        check_named(path, model, base_url, intent.user_names, stage)


def check_named(
    path: Path, model: str, base_url: str | None, user_names: Collection[str], stage: Stage = "answers"
) -> None:
    """Refuse to run code or ask a remote server that only an untrusted directory names. Report servers in the
    user's own network.

    Args:
        user_names: the models and addresses that the user has named.
        stage: whose settings name the address.

    Raises:
        ConfigError: the user has not named the function or the address.
    """
    backend = backend_of(model)
    if backend.runs_foreign_code and model not in user_names:
        raise ConfigError(
            f"{path} names a Python function as its model",
            code="foreign_code",
            remedy=f"If you trust that code, run it with {{answers.model}} {excerpt(model)}.",
        )
    if backend.is_remote and base_url is not None:
        server = backend.server(base_url)
        if base_url in user_names or server.is_openai:
            return
        if not server.is_own:
            raise ConfigError(
                f"{path} names a server outside your network",
                code="foreign_server",
                remedy=f"If your questions and key may be sent there, pass {{{stage}.base_url}} "
                f"{excerpt(server.url, 200)}.",
            )
        # a server of the user's own network is asked, but never silently
        key = ", with your key" if server.authorization else ""
        say(f"asking {server.url}{key}, because {path} names it")


def check_strategies(strategies: Sequence[str]) -> None:
    """Refuse unknown strategies before any costly work."""
    for name in strategies:
        load_strategy(name)


def _agree_to_costs(
    run: Run,
    config: Config,
    work: Sequence[Stage],
    strategies: Sequence[str],
    options: ExecutionOptions,
    intent: Intent,
) -> None:
    """Show the cost of the stages, and ask for consent if it is high."""
    from selfreflect.run.cost import cost_table, reasons_to_ask, sum_up
    from selfreflect.run.dry_run import DryRun

    costs = DryRun(run, config, load_prompts(options.prompts), options, Quiet(), load_models=False)
    for stage in model_stages(work):
        costs.fill(stage, strategies)
    if reasons := reasons_to_ask(costs, config):
        print_table(cost_table(*sum_up(costs)), stderr)
        agree_to_start(reasons, yes=intent.yes, otherwise="Nothing was started.")


def _agree_to_one_text(suspects: Sequence[SamplingCheck], intent: Intent) -> None:
    """Stop before the first question if a server repeats one text, unless the user agrees. Raises
    BackendError."""
    if intent.yes or (can_ask() and agree("Continue anyway?")):
        return
    models = " and ".join(dict.fromkeys(check.model for check in suspects))
    raise BackendError(
        f"{models} returns the same text for every sample, so no question has been sent yet",
        code="no_sampling",
        remedy="Turn sampling on at the server, or continue anyway with {yes}; the report then says so.",
    )


def _agree_to_start_over(path: Path, yes: bool) -> None:
    """Ask for consent to move a run's records aside, if there are any."""
    counts = count_records(path)
    if not counts or yes:
        return
    records = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    consequence = f"{path} holds {records}. Starting over moves these records to a folder inside it"
    if not can_ask():
        raise ConfigError(consequence, code="unconfirmed", remedy="Confirm that with {yes}.")
    if not agree(f"{consequence}. Go on?"):
        raise ConfigError("nothing was changed", code="unconfirmed")
