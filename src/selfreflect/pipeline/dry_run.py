"""Count what a run would take, without writing anything or asking any server.

The stages run with a generator that counts requests and replies with placeholders. Texts that exist are
counted exactly, texts to come at most with their token limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from selfreflect.config import Config, ExecutionOptions, ScoresConfig
from selfreflect.metric.engine.tree import build_tree
from selfreflect.metric.information import (
    answering,
    choose_reader,
    compared_texts,
    control_texts,
    nodes,
    pasted,
)
from selfreflect.metric.prompts import (
    CannotScoreError,
    encode_each,
    prepare,
    reference_context,
    summary_context,
    summary_prompts,
)
from selfreflect.models.base import ModelSpec, kind_of
from selfreflect.models.openai.endpoint import endpoint
from selfreflect.pipeline.counting import (
    NOTHING,
    UNKNOWN,
    Amount,
    RequestCounter,
    limits_of,
    placeholder,
    prompt_tokens,
    strip,
    typical_length,
)
from selfreflect.pipeline.models import ConfiguredModels, Progress, Quiet, stage_model, typical_judge_tokens
from selfreflect.pipeline.questions import new_questions
from selfreflect.pipeline.rough_time import reading_seconds, writing_seconds
from selfreflect.pipeline.settings import check_model, check_settings, select_scoring, stage_settings
from selfreflect.pipeline.stages import StageSpec, stage_fn
from selfreflect.pipeline.tasks import Result, StageTask, total_size
from selfreflect.pipeline.todo import missing_answers, missing_scores, missing_summaries
from selfreflect.prompts import Prompts, load_prompts
from selfreflect.records import (
    AnswerSet,
    Failure,
    Question,
    Reader,
    ReaderChoice,
    SamplingCheck,
    Stage,
    Summary,
    from_plain,
)
from selfreflect.sources.items import Item
from selfreflect.store.journal import store_errors
from selfreflect.store.layout import check_run_directory
from selfreflect.store.manifest import MANIFEST
from selfreflect.store.run import Run

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge
    from selfreflect.models.local.generator import HFGenerator

AMOUNTS = ("calls", "completions", "prompt_tokens", "completion_tokens", "judge_tokens", "seconds")
"""Calls are conversations to send, at most one per completion, for servers that give one at a time; judge
tokens are nodes of prefix trees."""


@dataclass(frozen=True)
class StageCost:
    """What one stage would still take."""

    stage: Stage
    model: str
    """Its name, and where it is served, without credentials."""
    to_do: int
    """Answer sets, summaries or scores."""
    amounts: dict[str, Amount]
    """All of ``AMOUNTS``, and ``money`` in the currency of the prices, if there is one for the model."""
    rough: bool = False
    """Whether the time is guessed without any earlier work of the model."""


def dry_run_directory(
    path: Path,
    config: Config,
    stages: Sequence[Stage],
    options: ExecutionOptions,
    progress: Progress,
    *,
    fresh: bool = False,
    load_models: bool = True,
) -> DryRun:
    """Look at the run directory at ``path``, if there is one, and change nothing there.

    The arguments are those of :func:`~selfreflect.pipeline.experiment.open_experiment`. Without
    ``load_models``, judge tokens are not known, and prompts of local models are estimated.

    Raises:
        StoreError: the directory was made with other settings, or holds something else.
    """
    prompts = load_prompts(options.prompts)
    with store_errors(path):
        if path.exists():
            check_run_directory(path)
        is_resumed = (path / MANIFEST).exists() and not fresh
        run = Run.load(path) if is_resumed else Run.in_memory(path)
    if is_resumed and "scores" in stages:
        select_scoring(run, config)
    check_settings(run.manifest, stage_settings(config, stages, prompts), path)
    return DryRun(run, config, prompts, options, progress, load_models=load_models)


def dry_run_items(
    items: Iterable[Item], config: Config, options: ExecutionOptions, progress: Progress
) -> DryRun:
    """Count what scoring some items takes, without a run directory."""
    run = Run.in_memory(Path())
    for item in items:
        run.add_in_memory(item.records)
    dry_run = DryRun(run, config, load_prompts(), options, progress)
    dry_run.scores()
    return dry_run


class DryRun:
    """Adds up what each stage would take in ``costs``, and says in ``notes`` how to read the numbers.

    Has the stages of an :class:`~selfreflect.pipeline.experiment.Experiment`. Local models are loaded.
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
        self._options = options
        self._models = ConfiguredModels(config, options, progress)

    def questions(self, *, explicit: bool = True, add: bool = False) -> None:
        """Load the questions that the directory lacks."""
        missing = new_questions(self.run, self._config.section("questions"), explicit=explicit, add=add)
        if missing is not None:
            self.run.add_in_memory(missing.questions)

    def plan(self, stages: Sequence[Stage], strategies: Sequence[str]) -> None:
        """Nothing is remembered."""

    def answers(self) -> None:
        """Count what the missing answers take."""
        self._count("answers", missing_answers(self.run))

    def summaries(self, strategies: Sequence[str]) -> None:
        """Count what the missing summaries take, by following the strategies with placeholders."""
        self._count("summaries", missing_summaries(self.run, strategies), strategies)

    def scores(self) -> None:
        """Count the judge's work."""
        tasks = missing_scores(self.run, self._config.scores)
        to_do = total_size(tasks)
        amounts = dict.fromkeys(AMOUNTS, NOTHING)
        if tasks:
            amounts["judge_tokens"] = self._judge_tokens(tasks)
        earlier = len(self.run.scores.keys() | self.run.information.keys())
        amounts["seconds"] = self._seconds("scores", to_do, earlier)
        rough = amounts["seconds"] == UNKNOWN
        if rough:
            tokens = amounts["judge_tokens"].expected or self._typical_judge_tokens(tasks)
            judge = stage_model(self._config, self._options, "scores")
            amounts["seconds"] = Amount(reading_seconds(judge, tokens), None)
        self.costs.append(StageCost("scores", self._config.scores.judge, to_do, amounts, rough))

    def _typical_judge_tokens(self, tasks: Sequence[StageTask]) -> float:
        scores = self._config.scores
        most = scores.limits.tokens if scores.limits is not None else None
        measures = {
            "scores": "selfreflect" in scores.measure_names,
            "information": "information" in scores.measure_names,
        }
        total = 0.0
        for task in tasks:
            assert task.answers is not None  # a question without answers is not scored
            lengths = map(typical_length, task.answers.masked_out)
            tokens = typical_judge_tokens(lengths, len(task.summary_names), **measures)
            total += tokens if most is None else min(tokens, most)
        return total

    def _judge_tokens(self, tasks: Sequence[StageTask]) -> Amount:
        if not self._load_models:
            return UNKNOWN
        if kind_of(self._config.scores.judge) == "vllm+http":
            self._note("judge tokens are not known, since no server is asked; count them with a local judge")
            return UNKNOWN
        judge = self._models.judge()
        check_model(self.run.manifest, "scores", judge.facts, self.run.path)
        limits = self._config.scores.limits
        total = NOTHING
        for task in tasks:
            tokens = judge_tokens(judge, task, self._config.scores)
            if limits is not None:
                tokens = _limited(tokens, limits.tokens)
            total += tokens
        if limits is not None and limits.adaptive:
            self._note(
                "limits by time, --se and --race may stop earlier, or compute shared words again each round"
            )
        if self._options.cache is not None:
            self._note("what --cache holds already is not subtracted")
        return total

    def _count(
        self,
        stage: Literal["answers", "summaries"],
        tasks: Sequence[StageTask],
        strategies: Sequence[str] = (),
    ) -> None:
        """Run a stage with placeholders for replies."""
        spec = StageSpec(stage, self._config, self._prompts, self._options, tuple(strategies))
        chat = None
        if tasks and spec.model.kind == "local" and self._load_models:
            generator = cast("HFGenerator", self._models.generator(stage))
            check_model(self.run.manifest, stage, generator.facts, self.run.path)
            chat = generator.chat
        elif tasks:
            self._note(
                "prompts of models that are not loaded are counted as 4 bytes per token, at most 1; "
                "calls repeated after a fault are not counted"
            )
        if tasks:
            self._note("at most: each text to come has as many tokens as allowed, and the judge masks each")
        if stage == "answers":
            earlier_tokens = sum(one.tokens for one in self.run.answers.values())
            earlier_completions = sum(len(one.answers) for one in self.run.answers.values())
        else:
            earlier_tokens = sum(one.tokens for one in self.run.summaries.values())
            earlier_completions = sum(one.calls for one in self.run.summaries.values())
        recorded = self.run.manifest.models.get(stage, {})
        counter = RequestCounter(recorded.get("name", spec.model.name), chat, recorded.get("revision", ""))
        work = stage_fn(spec, counter, Quiet())
        for start in range(0, len(tasks), spec.batch_size):
            counter.steps = 0
            for results in work(tasks[start : start + spec.batch_size]):
                formed = list(map(self._as_formed, results))
                self.run.add_in_memory(formed)
                for result in formed:
                    if isinstance(result, Failure):
                        self._note(f"{result.name} could not be followed to its end: {result.message}")
        completion_tokens = Amount(None, counter.most_completion_tokens)
        if earlier_tokens or not tasks:
            mean = earlier_tokens / max(1, earlier_completions)
            likely = min(counter.completions * mean, counter.most_completion_tokens)
            completion_tokens = Amount(likely, counter.most_completion_tokens)
        amounts = {
            "calls": counter.calls,
            "completions": Amount(counter.completions, counter.completions),
            "prompt_tokens": counter.prompt_tokens,
            "completion_tokens": completion_tokens,
            "judge_tokens": NOTHING,
            "seconds": self._seconds(stage, counter.completions, earlier_completions),
        }
        rough = amounts["seconds"] == UNKNOWN
        if rough:
            amounts["seconds"] = self._guess_writing(spec, counter)
        price = self._config.prices.get(spec.model.name)
        if price is not None:
            cost = (
                counter.prompt_tokens * price.input_per_million + completion_tokens * price.output_per_million
            )
            amounts["money"] = cost * 1e-6
        to_do = total_size(tasks)
        self.costs.append(StageCost(stage, _model_and_place(spec.model), to_do, amounts, rough))

    def _guess_writing(self, spec: StageSpec, counter: RequestCounter) -> Amount:
        """A rough time for the requests that were counted."""
        recorded = self.run.manifest.checks.get(spec.stage)
        check = None if recorded is None else from_plain(SamplingCheck, recorded)
        prompts = counter.prompt_tokens.expected or 0
        return Amount(writing_seconds(spec.model, counter.typical_tokens, prompts, check), None)

    def _as_formed(self, result: Result) -> Result:
        """Take a reply that is to come for one of the form that its strategy asks for."""
        if not isinstance(result, Failure) or result.kind != "malformed":
            return result
        text = placeholder(self._config.summaries.max_new_tokens)
        return Summary(question_id=result.question_id, name=result.name, text=text)

    def _seconds(self, stage: Stage, to_do: int, earlier: int) -> Amount:
        """The time for some work, if the directory's earlier work says how long it takes."""
        if not to_do:
            return NOTHING
        seconds = self.run.manifest.wall_time.get(stage)
        if not seconds or not earlier:
            return UNKNOWN
        self._note("times and lengths are expected to be the mean of the earlier work in this directory")
        return Amount(to_do * seconds / earlier, None)

    def _note(self, line: str) -> None:
        if line not in self.notes:
            self.notes.append(line)


def _limited(tokens: Amount, budget: int | None) -> Amount:
    """Judge tokens of a question that may stop early. Only a budget of tokens is never exceeded."""
    if budget is None or tokens.most is None:
        return Amount(tokens.expected, None)
    likely = None if tokens.expected is None else min(tokens.expected, budget)
    return Amount(likely, min(tokens.most, budget))


def _model_and_place(model: ModelSpec) -> str:
    return f"{model.name} at {endpoint(model.base_url).url}" if model.kind == "openai" else model.name


def judge_tokens(judge: Judge, task: StageTask, settings: ScoresConfig) -> Amount:
    """Nodes of the judge's prefix trees for one question, exact if its texts exist."""
    answers = task.answers
    assert answers is not None  # a question without answers is not scored
    controls = control_texts(task.question.text, answers.conditioning) if task.controls else []
    total = NOTHING
    if "selfreflect" in settings.measure_names:
        texts = [summary.text for summary in task.summaries]
        if controls:
            texts += ["", pasted(answers.conditioning)]
        total += _score_tokens(judge, task.question, answers, texts)
    if "information" in settings.measure_names:
        texts = [summary.text for summary in task.uninformed]
        texts += [text for _, text in controls]
        total += _information_tokens(judge, task.question, answers, texts, settings.reader)
    return total


def _information_tokens(
    judge: Judge, question: Question, answers: AnswerSet, texts: Sequence[str], choice: ReaderChoice
) -> Amount:
    """Tokens of usable information; for answers to come every context holds each of them in full."""
    if not texts:
        return NOTHING
    limits = limits_of(" ".join(answers.masked_out))
    if not limits and not limits_of(" ".join([*answers.conditioning, *texts])):
        try:
            exact = nodes(judge, question, answers, texts, choose_reader(choice, judge, question, answers))
        except CannotScoreError:
            return NOTHING
        return Amount(exact, exact)
    most = 0.0
    compared = compared_texts(question.text, answers.conditioning)
    for text in dict.fromkeys([*compared, *texts]):
        readers: tuple[Reader, ...] = ("informed", "blind")
        prompts = [prompt_tokens(judge.chat, answering(question.text, text, one)).most for one in readers]
        most += max(one or 0 for one in prompts)
        most += sum(limits) if limits else sum(_token_count(judge, answer) for answer in answers.masked_out)
    return Amount(None, most)


def _token_count(judge: Judge, text: str) -> int:
    return len(judge.chat.tokenizer(text, add_special_tokens=False).input_ids)


def _score_tokens(judge: Judge, question: Question, answers: AnswerSet, texts: Sequence[str]) -> Amount:
    """Tokens of SelfReflect scores.

    For answers to come the bound lets no two masked words share more than what precedes their task. Each
    costs the task with its answer, in which one ``_`` takes the place of the word, and all tokens of the word
    but the last: at most the tokens of the task and of one answer. An answer of L tokens has L words at most.
    """
    if not texts:
        return NOTHING
    limits = limits_of(" ".join(answers.masked_out))
    if not limits and not limits_of(" ".join(texts)):
        total = sum(tree_nodes(judge, question, answers, texts))
        return Amount(total, total)
    most = 0.0
    if not limits:
        reference, blank = tree_nodes(judge, question, answers, ["x"]) or (0, 0)
        most = reference
        for text in texts:
            most += blank + _token_count(judge, strip(text)) + sum(limits_of(text))
        return Amount(None, most)
    contexts = [reference_context(question.text, answers.conditioning)]
    contexts += [summary_context(question.text, text) for text in texts]
    for context in contexts:
        conversation = context.conversation("_")
        per_task = prompt_tokens(judge.chat, conversation[-1:]).most or 0
        most += prompt_tokens(judge.chat, conversation).most or 0
        most += sum(limit * (per_task + limit) for limit in limits)
    return Amount(None, most)


def tree_nodes(judge: Judge, question: Question, answers: AnswerSet, summaries: Sequence[str]) -> list[int]:
    """Nodes of the tree of the reference, then of each different summary that can be scored.

    Empty if the question cannot be scored.
    """
    try:
        task = prepare(judge, question, answers)
    except CannotScoreError:
        return []
    contexts = [task.reference]
    encoded, _ = encode_each(summaries, partial(summary_prompts, judge, task))
    for prompts in encoded.values():
        if prompts not in contexts:
            contexts.append(prompts)
    return [build_tree(prompts).computed_tokens for prompts in contexts]
