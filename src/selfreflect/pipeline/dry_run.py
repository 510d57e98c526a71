"""Count what a run would take, without writing anything or asking any server.

The stages run with a generator that records requests and replies with placeholders. Texts that exist are
counted exactly, texts to come at most with their token limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from msgspec.structs import replace

from selfreflect.config import Config
from selfreflect.models.openai.endpoint import endpoint
from selfreflect.models.spec import kind_of
from selfreflect.pipeline.cost import NOTHING, UNKNOWN, Amount, StageCost, add_up
from selfreflect.pipeline.counting import (
    Call,
    Kind,
    Placeholders,
    RequestCounter,
    count_bytes,
    count_with,
    try_out,
)
from selfreflect.pipeline.judge_cost import JudgeCost
from selfreflect.pipeline.models import ConfiguredModels, ModelProvider
from selfreflect.pipeline.options import ExecutionOptions, Progress, Quiet
from selfreflect.pipeline.settings import check_model, check_settings, stage_settings
from selfreflect.pipeline.stages import (
    StageSpec,
    StageTask,
    answer_sampling,
    stage_fn,
    strategy_names,
    summary_sampling,
)
from selfreflect.pipeline.todo import has_all_questions, missing_answers, missing_scores, missing_summaries
from selfreflect.prompts import Prompts, load_prompts
from selfreflect.records import Failure, Stage
from selfreflect.sources.items import Item
from selfreflect.sources.questions import load_questions
from selfreflect.store.journal import store_errors
from selfreflect.store.run import MANIFEST, Run, check_run_directory
from selfreflect.strategies import load_strategy
from selfreflect.strategies.driver import Named
from selfreflect.strategies.task import Strategy, StrategyFunction, Task

if TYPE_CHECKING:
    from selfreflect.models.local.generator import HFGenerator

MOST_STEPS = 20
"""Steps after which a strategy is stopped: with placeholders for replies it may never end."""


@contextmanager
def open_dry_run(
    path: Path,
    config: Config,
    stages: Sequence[Stage],
    *,
    fresh: bool = False,
    options: ExecutionOptions | None = None,
    progress: Progress | None = None,
) -> Iterator[DryRun]:
    """Look at the run directory at ``path``, if there is one, and change nothing there.

    The arguments are those of :func:`~selfreflect.pipeline.experiment.open_experiment`.

    Raises:
        StoreError: the directory was made with other settings, or holds something else.
    """
    options = options or ExecutionOptions()
    prompts = load_prompts(options.prompts)
    with store_errors(path):
        if path.exists():
            check_run_directory(path)
        is_resumed = (path / MANIFEST).exists() and not fresh
        run = Run.load(path) if is_resumed else Run.in_memory(path)
    check_settings(run.manifest, stage_settings(config, stages, prompts), path)
    yield DryRun(run, config, prompts, options, ConfiguredModels(config, options, progress or Quiet()))


def dry_run_items(
    items: Iterable[Item], config: Config, options: ExecutionOptions, progress: Progress
) -> DryRun:
    """Count what scoring some items takes, without a run directory."""
    run = Run.in_memory(Path())
    for item in items:
        run.add_in_memory([item.question_record, item.answer_set, *item.summary_records])
    dry_run = DryRun(run, config, load_prompts(), options, ConfiguredModels(config, options, progress))
    dry_run.scores()
    return dry_run


class DryRun:
    """Adds up what each stage would take in ``costs``, and says in ``notes`` how to read the numbers.

    Has the stages of an :class:`~selfreflect.pipeline.experiment.Experiment`. Local models are loaded and
    tried for a few seconds.
    """

    def __init__(
        self, run: Run, config: Config, prompts: Prompts, options: ExecutionOptions, models: ModelProvider
    ) -> None:
        self.costs: list[StageCost] = []
        self.notes: list[str] = []
        self._run = run
        self._config = config
        self._prompts = prompts
        self._options = options
        self._models = models
        self._placeholders = Placeholders()
        self._lengths = _earlier_lengths(run, config)
        """Expected tokens of a completion."""
        self._paces: dict[Kind, float] = {}
        """Seconds per token of a completion."""

    def questions(self) -> None:
        """Load the questions, unless the directory has them all."""
        if not has_all_questions(self._run):
            question_set = load_questions(**self._config.section("questions"))
            self._run.add_in_memory(question_set.questions)

    def answers(self) -> None:
        """Count what the missing answers take."""
        self._count("answers", missing_answers(self._run))

    def summaries(self, strategies: Sequence[Named]) -> None:
        """Count what the missing summaries take, by following the strategies with placeholders."""
        followed: list[Named] = []
        for strategy in strategies:
            if isinstance(strategy, str):
                followed.append((strategy, _stopped(load_strategy(strategy))))
            else:
                name, function = strategy
                followed.append((name, _stopped(function)))
        self._count("summaries", missing_summaries(self._run, strategy_names(followed)), followed)

    def scores(self) -> None:
        """Count the judge's work, exactly where answers and summaries exist."""
        tasks = missing_scores(self._run)
        model = self._config.scores.judge
        tokens = NOTHING
        seconds = NOTHING
        if tasks and kind_of(model) == "vllm+http":
            tokens = UNKNOWN
            seconds = UNKNOWN
            self._note("judge tokens are not known, since no server is asked; count them with a local judge")
        elif tasks:
            tokens, seconds = self._judge_use(tasks)
        to_do = sum(task.size for task in tasks)
        self.costs.append(
            StageCost(stage="scores", model=model, to_do=to_do, judge_tokens=tokens, seconds=seconds)
        )

    def _judge_use(self, tasks: Sequence[StageTask]) -> tuple[Amount, Amount]:
        """Judge tokens and seconds. A budget is never exceeded; with other limits there is no bound."""
        judge = self._models.judge()
        check_model(self._run.manifest, "scores", judge.facts, self._run.path)
        cost = JudgeCost(judge, tasks[0].question, self._placeholders, self._length)
        pace = cost.seconds_per_token()
        limits = self._config.scores.limits
        all_tokens = []
        all_seconds = []
        for task in tasks:
            tokens = cost.tokens(task)
            if limits is not None and limits.tokens is not None:
                tokens = tokens.capped(limits.tokens)
            elif limits is not None:
                tokens = Amount(expected=tokens.expected, most=None)
            seconds = tokens.scaled(pace)
            if limits is not None and limits.seconds is not None:
                seconds = Amount(expected=min(limits.seconds, seconds.expected or limits.seconds), most=None)
            all_tokens.append(tokens)
            all_seconds.append(seconds)
        if cost.estimated:
            self._note(
                "judge tokens of texts to come are estimated: expected for ordinary English, at most as if "
                "every text ran to its token limit and each token were a word to mask"
            )
        if limits is not None and limits.adaptive:
            self._note(
                "limits by time, --se and --race may stop earlier, or compute shared words again each round"
            )
        if self._options.cache is not None:
            self._note("what --cache holds already is not subtracted")
        return add_up(all_tokens), add_up(all_seconds)

    def _count(
        self,
        stage: Literal["answers", "summaries"],
        tasks: Sequence[StageTask],
        strategies: Sequence[Named] = (),
    ) -> None:
        """Run a stage with placeholders for replies."""
        spec = StageSpec(stage, self._config, self._prompts, self._options, tuple(strategies))
        generator = None
        if tasks and spec.kind == "local":
            generator = cast("HFGenerator", self._models.generator(stage))
            check_model(self._run.manifest, stage, generator.facts, self._run.path)
        count_tokens = count_with(generator) if generator else count_bytes
        counter = RequestCounter(spec.model, self._placeholders, count_tokens)
        for results in stage_fn(spec, counter, Quiet())(tasks):
            self._run.add_in_memory(results)
            for result in results:
                if isinstance(result, Failure):
                    self._note(f"{result.name} could not be followed to its end: {result.message}")
        self._measure_paces(stage, counter, generator)
        self._note_assumptions(counter, generator)
        to_do = sum(task.size for task in tasks)
        self.costs.append(self._generation_cost(spec, counter.calls, generator, to_do))

    def _measure_paces(self, stage: Stage, counter: RequestCounter, generator: HFGenerator | None) -> None:
        """Take the pace from the stage's earlier work, else from a trial of a local model."""
        earlier = _earlier_pace(self._run, stage)
        for kind, example in counter.examples.items():
            if earlier is not None:
                self._paces[kind] = earlier
                self._note("times are what the earlier work in this directory took")
            if generator and (earlier is None or kind not in self._lengths):
                length, pace = try_out(generator, example)
                self._lengths.setdefault(kind, length)
                self._paces.setdefault(kind, pace)
                self._note("expected lengths and times come from a trial of a few seconds; they are rough")

    def _generation_cost(
        self, spec: StageSpec, calls: Sequence[Call], generator: HFGenerator | None, to_do: int
    ) -> StageCost:
        prompt = NOTHING
        completion = NOTHING
        seconds = NOTHING
        for call in calls:
            call_prompt = call.prompt + add_up(map(self._length, call.replies))
            if generator is None and call_prompt.most is not None:  # a server may read it for each completion
                call_prompt = replace(call_prompt, most=call.n * call_prompt.most)
            call_completion = self._length(call.kind).scaled(call.n)
            prompt += call_prompt
            completion += call_completion
            seconds += call_completion.scaled(self._paces.get(call.kind))
        price = self._config.prices.get(spec.model)
        money = None
        if price is not None:
            money = prompt.scaled(price.input_per_million / 1e6)
            money += completion.scaled(price.output_per_million / 1e6)
        completions = sum(call.n for call in calls)
        return StageCost(
            stage=spec.stage,
            model=_model_and_place(spec),
            to_do=to_do,
            calls=Amount(expected=len(calls), most=len(calls) if generator else completions),
            completions=Amount.exactly(completions),
            prompt_tokens=prompt,
            completion_tokens=completion,
            seconds=seconds,
            money=money,
        )

    def _length(self, kind: Kind) -> Amount:
        """Tokens of a completion."""
        return Amount(expected=self._lengths.get(kind), most=kind.sampling.max_new_tokens)

    def _note_assumptions(self, counter: RequestCounter, generator: HFGenerator | None) -> None:
        if counter.calls and generator is None:
            self._note(
                "prompts of models that are not loaded are counted as 4 bytes per token, at most 1; "
                "calls repeated after a fault are not counted"
            )
        if any(call.replies for call in counter.calls):
            self._note(
                "replies shown to later steps count there with their token limit; quoting may add to that"
            )

    def _note(self, line: str) -> None:
        if line not in self.notes:
            self.notes.append(line)


def _stopped(function: StrategyFunction) -> StrategyFunction:
    """The strategy, stopped after ``MOST_STEPS`` steps."""

    def strategy(task: Task) -> Strategy:
        steps = function(task)
        try:
            request = next(steps)
            for _ in range(MOST_STEPS):
                request = steps.send((yield request))
        except StopIteration as end:
            return cast(str, end.value)
        raise RuntimeError(f"more than {MOST_STEPS} steps")

    return strategy


def _earlier_lengths(run: Run, config: Config) -> dict[Kind, float]:
    """Mean tokens of the completions that the directory holds."""
    lengths: dict[Kind, float] = {}
    answer_sets = [answers for answers in run.answers.values() if answers.tokens]
    if answer_sets:
        kind = Kind(config.answers.model, answer_sampling(config.answers))
        count = sum(len(answers.answers) for answers in answer_sets)
        lengths[kind] = sum(answers.tokens for answers in answer_sets) / count
    # tokens of summaries with samples are mostly those of the samples
    most_calls = config.summaries.num_samples - 1
    summaries = [one for one in run.summaries.values() if one.tokens and 0 < one.calls <= most_calls]
    if summaries:
        kind = Kind(config.summaries.model, summary_sampling(config.summaries))
        lengths[kind] = sum(one.tokens for one in summaries) / sum(one.calls for one in summaries)
    return lengths


def _earlier_pace(run: Run, stage: Stage) -> float | None:
    """Seconds per token of the stage's earlier work."""
    records = run.answers.values() if stage == "answers" else run.summaries.values()
    tokens = sum(record.tokens for record in records)
    seconds = run.manifest.wall_time.get(stage)
    return seconds / tokens if seconds and tokens else None


def _model_and_place(spec: StageSpec) -> str:
    if spec.kind != "openai":
        return spec.model
    base_url = getattr(spec.config, spec.stage).base_url
    return f"{spec.model} at {endpoint(base_url).url}"
