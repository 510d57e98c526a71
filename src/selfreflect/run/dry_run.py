"""Dry run: counts of calls and tokens without writing or calling anything.

Judge tokens of texts that exist are exact, prompts are estimated, and texts to come count with their limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from selfreflect.metric.measure import TextLimits, Work, measures_of
from selfreflect.metric.texts import control_texts
from selfreflect.models.backend import backend_of
from selfreflect.models.base import Request
from selfreflect.prompts import Prompts, load_prompts
from selfreflect.records import ModelStage, Question, Stage
from selfreflect.run.cost import AMOUNTS, NOTHING, UNKNOWN, Amount, RequestCount
from selfreflect.run.models import ConfiguredModels, Progress, needs_judge, summary_options
from selfreflect.run.resume import (
    check_model,
    check_settings,
    new_questions,
    select_scoring,
    stage_settings,
)
from selfreflect.run.stages import StageTask, total_size
from selfreflect.run.todo import halves_note, missing_answers, missing_scores, missing_summaries
from selfreflect.settings import Config, ExecutionOptions, ScoresConfig
from selfreflect.sources.items import Item
from selfreflect.store.journal import store_errors
from selfreflect.store.manifest import MANIFEST, check_run_directory
from selfreflect.store.run import Run
from selfreflect.strategies import load_strategy
from selfreflect.strategies.builtin import SECOND_REQUESTS
from selfreflect.strategies.task import StrategyFunction, Task

if TYPE_CHECKING:
    from selfreflect.metric.inputs import Limits
    from selfreflect.models.judge import Judge


@dataclass(frozen=True)
class StageCost:
    """Cost of finishing one stage."""

    stage: Stage
    model: str
    """Model name and server, without credentials."""
    to_do: int
    """Number of answer sets, summaries or scores."""
    amounts: dict[str, Amount]
    """All of ``AMOUNTS``; ``money`` in the prices' currency, only for models with a price."""


def dry_run_directory(
    path: Path,
    config: Config,
    stages: Sequence[Stage],
    options: ExecutionOptions,
    progress: Progress,
    *,
    fresh: bool = False,
) -> DryRun:
    """Count the cost of finishing the run at ``path``, without changing anything there.

    It takes the arguments of :func:`~selfreflect.run.experiment.open_experiment`.

    Raises:
        StoreError: the directory was made with other settings, or holds something else.
    """
    prompts = load_prompts(options.prompts)
    with store_errors(path):
        if path.exists():
            check_run_directory(path)
        is_resumed = (path / MANIFEST).exists() and not fresh
        run = Run.load(path) if is_resumed else Run.in_memory(path)
    # one directory may hold scores by several judges; only those of this one count as done
    if is_resumed and "scores" in stages:
        select_scoring(run, config)
    check_settings(run.manifest, stage_settings(config, stages, prompts), path)
    return DryRun(run, config, prompts, options, progress)


def dry_run_items(
    items: Iterable[Item], config: Config, options: ExecutionOptions, progress: Progress
) -> DryRun:
    """Count the cost of scoring items, without a run directory."""
    run = Run.in_memory(Path())
    for item in items:
        run.add_in_memory(item.records)
    dry_run = DryRun(run, config, load_prompts(), options, progress)
    dry_run.fill("scores")
    return dry_run


class DryRun:
    """Counter of each stage's cost in ``costs``, with explanations in ``notes``.

    Has the stages of an :class:`~selfreflect.run.experiment.Experiment`. Without ``load_models``, judge
    tokens are not known.
    """

    def __init__(
        self,
        run: Run,
        config: Config,
        prompts: Prompts,
        options: ExecutionOptions,
        progress: Progress,
        *,
        load_models: bool = True,
    ) -> None:
        self.costs: list[StageCost] = []
        self.notes: list[str] = []
        self.run = run
        self._config = config
        self._prompts = prompts
        self._load_models = load_models
        self._models = ConfiguredModels(config, options, progress)
        self._to_come: Counter[int] = Counter()
        """Number of questions by their number of missing summaries."""
        self._longest: Question | None = None
        """Longest question with missing summaries, as an upper bound for all of them."""

    def questions(self, *, explicit: bool = True, add: bool = False) -> None:
        """Load the questions that the directory lacks."""
        missing = new_questions(self.run, self._config.section("questions"), explicit=explicit, add=add)
        if missing is not None:
            self.notes += missing.note.splitlines()
            self.run.add_in_memory(missing.questions)

    def fill(self, stage: ModelStage, strategies: Sequence[str] = ()) -> None:
        """Count the missing tasks, calls and tokens of a stage."""
        if stage == "answers":
            self._count_answers()
        elif stage == "summaries":
            self._count_summaries(strategies)
        else:
            self._count_scores()

    def _count_answers(self) -> None:
        settings = self._config.answers
        count = RequestCount(backend_of(settings.model).is_torch)
        to_do = 0
        for task in missing_answers(self.run):
            request = Request(
                messages=self._prompts.messages(task.question),
                sampling=settings.sampling,
                n=2 * settings.num_answers,
                thinking=settings.thinking,
            )
            count.add(request, stored_count=min(len(task.samples), request.n))
            to_do += 1
        if to_do:
            self._note(halves_note(settings.num_answers))
        counts = [(answer_set.tokens, len(answer_set.answers)) for answer_set in self.run.answers.values()]
        self._add("answers", count, to_do, counts)

    def _count_summaries(self, strategies: Sequence[str]) -> None:
        """Count the cost of the missing summaries, which is unknown for a user's strategy."""
        count = RequestCount(backend_of(self._config.summaries.model).is_torch)
        functions = {name: load_strategy(name) for name in strategies if ":" not in name}
        to_do = 0
        for task in missing_summaries(self.run, strategies):
            self._to_come[len(task.strategies)] += 1
            if self._longest is None or len(task.question.text) > len(self._longest.text):
                self._longest = task.question
            seeds = set()
            for name in task.strategies:
                if name not in functions:
                    count.add_unknown()
                    self._note(f"the requests of {name} are unknown, because its code is not run")
                    continue
                first, second = self._requests(task.question, name, functions[name])
                if second is not None:
                    count.add(second, reply_tokens=first.n * first.sampling.max_new_tokens)
                # strategies that draw samples share them
                if first.seed not in seeds:
                    count.add(first)
                seeds.add(first.seed)
            to_do += task.size
        counts = [(summary.tokens, summary.calls) for summary in self.run.summaries.values()]
        self._add("summaries", count, to_do, counts)

    def _requests(
        self, question: Question, name: str, function: StrategyFunction
    ) -> tuple[Request, Request | None]:
        """Make the requests of a built-in strategy."""
        options = summary_options(self._config.summaries)
        task = Task(question=question, prompts=self._prompts, name=name, **options)
        strategy = function(task)
        # the strategies of this package make their first request without a reply
        first = next(strategy)
        strategy.close()
        assert isinstance(first, Request)
        second = SECOND_REQUESTS.get(name.partition("#")[0])
        return first, second(task) if second else None

    def _add(
        self,
        stage: Literal["answers", "summaries"],
        count: RequestCount,
        to_do: int,
        stored_texts: Sequence[tuple[int, int]],
    ) -> None:
        """Add the cost of a stage with a model.

        Args:
            stored_texts: tokens and completions of each record that is there.
        """
        if to_do:
            self._note(
                "'at most' assumes that each text is as long as allowed, and that the judge masks each of "
                "its words"
            )
            self._note(
                "a prompt is expected to have one token per 4 bytes, and at most one per byte; requests "
                "repeated after an error are not counted"
            )
        stored_tokens = sum(tokens for tokens, _ in stored_texts)
        stored_completions = sum(completions for _, completions in stored_texts)
        amounts = count.amounts | {"judge_tokens": NOTHING}
        completions, most_tokens = amounts["completions"].bound, amounts["completion_tokens"].bound
        likely = None
        if completions is not None and most_tokens is not None and (stored_tokens or not to_do):
            likely = min(completions * stored_tokens / max(1, stored_completions), most_tokens)
            if to_do:
                self._note("texts are expected to be as long as the mean of those already in this directory")
        amounts["completion_tokens"] = Amount(likely, most_tokens)
        section = getattr(self._config, stage)
        backend = backend_of(section.model)
        # prices are per million tokens, without a unit: any currency will do
        price = self._config.price_of(section.model)
        if price is not None:
            price_sum = amounts["prompt_tokens"] * price.input_per_million
            price_sum += amounts["completion_tokens"] * price.output_per_million
            amounts["money"] = price_sum * 1e-6
        elif to_do and backend.may_charge(section.base_url):
            self._note(f"the price of {section.model} is unknown: see [prices] in docs/models.md")
        # without an address, LiteLLM knows that of the provider in the name
        server = backend.server(section.base_url) if backend.is_remote else None
        address = f" at {server.url}" if server and server.host else ""
        self.costs.append(StageCost(stage, section.model + address, to_do, amounts))

    def _count_scores(self) -> None:
        settings = self._config.scores
        # without a summary there is nothing to score, and missing_scores() would refuse that
        to_come = sum(count * questions for count, questions in self._to_come.items())
        tasks = missing_scores(self.run, settings) if self.run.summaries or not to_come else []
        to_do = total_size(tasks) + to_come
        amounts = {name: NOTHING for name in AMOUNTS if name != "money"}
        if to_do:
            amounts["judge_tokens"] = self._judge_tokens(tasks)
        judge = settings.judge if needs_judge(self._config) else ""
        self.costs.append(StageCost("scores", judge, to_do, amounts))

    def _judge_tokens(self, tasks: Sequence[StageTask]) -> Amount:
        if not needs_judge(self._config):
            return NOTHING
        if not self._load_models:
            return UNKNOWN
        if backend_of(self._config.scores.judge).is_remote:
            self._note(
                "judge tokens are unknown, because a dry run calls no server; count them with a local judge"
            )
            return UNKNOWN
        judge = self._models.judge()
        check_model(self.run.manifest, "scores", judge.facts, self.run.path)
        limits = self._config.scores.limits
        total = NOTHING
        for task in tasks:
            total += _limited(judge_tokens(judge, task, self._config.scores), limits)
        for tokens, questions in self._tokens_to_come(judge):
            total += _limited(tokens, limits) * questions
        return total

    def _tokens_to_come(self, judge: Judge) -> Iterator[tuple[Amount, int]]:
        """Bound the judge's tokens for questions with missing summaries, and yield the number of such
        questions.

        The longest question stands for all, with answers as long as they may become.
        """
        config = self._config
        half = [config.answers.max_new_tokens] * config.answers.num_answers
        controls = config.scores.controls and config.scores.limits is None
        for count, questions in self._to_come.items():
            assert self._longest is not None
            summaries = [config.summaries.max_new_tokens] * count
            limits = TextLimits(self._longest, half, half, summaries, controls)
            yield most_judge_tokens(judge, limits, config.scores), questions

    def _note(self, line: str) -> None:
        if line not in self.notes:
            self.notes.append(line)


def _limited(tokens: Amount, limits: Limits | None) -> Amount:
    """Limit a bound on the judge tokens of a question to its budget. Only token budgets are strict."""
    if limits is None:
        return tokens
    if limits.tokens is None or tokens.bound is None:
        return Amount(tokens.mean, None)
    likely = None if tokens.mean is None else min(tokens.mean, limits.tokens)
    return Amount(likely, min(tokens.bound, limits.tokens))


def judge_tokens(judge: Judge, task: StageTask, settings: ScoresConfig) -> Amount:
    """Count the nodes of the judge's prefix trees for a question with complete texts."""
    answers = task.answers
    assert answers is not None  # a question without answers is not scored
    controls = control_texts(task.question.text, answers.conditioning) if task.controls else []
    total = 0
    for measure in measures_of(settings.measure_names):
        summaries = task.summaries if task.missing is None else task.missing.get(measure.name, ())
        work = Work(task.question, answers, summaries, controls=controls if measure.control else ())
        total += measure.judge_tokens(judge, work, settings.reader)
    return Amount(total, total)


def most_judge_tokens(judge: Judge, limits: TextLimits, settings: ScoresConfig) -> Amount:
    """Compute an upper bound on a question's tree nodes before all its texts are written."""
    measures = measures_of(settings.measure_names)
    return Amount(None, sum(measure.most_judge_tokens(judge, limits) for measure in measures))
