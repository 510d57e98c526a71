"""Count what a run would take, without writing anything or asking any server.

The stages run with a generator that counts requests and replies with placeholders. Texts that exist are
counted exactly, texts to come at most with their token limits.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec.structs import replace

from selfreflect.config import Config, ScoresConfig
from selfreflect.metric.engine.tree import build_tree
from selfreflect.metric.information import (
    ReaderChoice,
    answering,
    choose_reader,
    control_texts,
    nodes,
    pasted,
)
from selfreflect.metric.measures import anchors
from selfreflect.metric.prompts import CannotScoreError, prepare, summary_prompts
from selfreflect.metric.tasks import reference_context, summary_context
from selfreflect.models.base import Completion, Message, Refusal, Reply, Request
from selfreflect.models.openai.endpoint import endpoint
from selfreflect.models.spec import kind_of
from selfreflect.pipeline.models import ConfiguredModels
from selfreflect.pipeline.options import ExecutionOptions, Progress, Quiet
from selfreflect.pipeline.questions import new_questions
from selfreflect.pipeline.settings import check_model, check_settings, select_scoring, stage_settings
from selfreflect.pipeline.stages import Result, StageSpec, StageTask, stage_fn
from selfreflect.pipeline.todo import missing_answers, missing_scores, missing_summaries
from selfreflect.prompts import Prompts, load_prompts
from selfreflect.records import AnswerSet, Failure, Question, Reader, Stage, Summary
from selfreflect.sources.items import Item
from selfreflect.store.journal import store_errors
from selfreflect.store.layout import check_run_directory
from selfreflect.store.manifest import MANIFEST
from selfreflect.store.run import Run

if TYPE_CHECKING:
    from selfreflect.models.chat import ChatTokenizer
    from selfreflect.models.judge import Judge
    from selfreflect.models.local.generator import HFGenerator

MOST_STEPS = 20
"""Steps after which strategies are stopped: with placeholders for replies they may never end."""

_NUMBERS = count()
_SECRET = secrets.token_hex(8)
"""Part of each placeholder, so that no question or answer can contain one."""
_PLACEHOLDER = re.compile(rf"⟦{_SECRET}: reply \d+ of (\d+) tokens⟧")


@dataclass(frozen=True)
class Amount:
    """An expected value and an upper bound; None if not known."""

    expected: float | None
    most: float | None

    def __add__(self, other: Amount) -> Amount:
        expected = most = None
        if self.expected is not None and other.expected is not None:
            expected = self.expected + other.expected
        if self.most is not None and other.most is not None:
            most = self.most + other.most
        return Amount(expected, most)

    def __mul__(self, factor: float) -> Amount:
        expected = None if self.expected is None else self.expected * factor
        return Amount(expected, None if self.most is None else self.most * factor)


NOTHING = Amount(0, 0)
UNKNOWN = Amount(None, None)


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
        run.add_in_memory([item.question_record, item.answer_set, *item.summary_records])
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

    def questions(self, *, asked: bool = True, add: bool = False) -> None:
        """Load the questions that the directory lacks."""
        missing = new_questions(self.run, self._config.section("questions"), asked=asked, add=add)
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
        to_do = sum(task.size for task in tasks)
        amounts = dict.fromkeys(AMOUNTS, NOTHING)
        if tasks:
            amounts["judge_tokens"] = self._judge_tokens(tasks)
        earlier = len(self.run.scores.keys() | self.run.information.keys())
        amounts["seconds"] = self._seconds("scores", to_do, earlier)
        self.costs.append(StageCost("scores", self._config.scores.judge, to_do, amounts))

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
        if tasks and spec.kind == "local" and self._load_models:
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
        counter = RequestCounter(recorded.get("name", spec.model), chat, recorded.get("revision", ""))
        work = stage_fn(spec, counter, Quiet())
        for start in range(0, len(tasks), spec.batch_size):
            counter.steps = 0
            for results in work(tasks[start : start + spec.batch_size]):
                formed = [self._as_formed(result) for result in results]
                self.run.add_in_memory(formed)
                for result in formed:
                    if isinstance(result, Failure):
                        self._note(f"{result.name} could not be followed to its end: {result.message}")
        completion_tokens = Amount(None, counter.most_completion_tokens)
        if earlier_tokens or not tasks:
            mean = earlier_tokens / max(1, earlier_completions)
            expected = min(counter.completions * mean, counter.most_completion_tokens)
            completion_tokens = Amount(expected, counter.most_completion_tokens)
        amounts = {
            "calls": counter.calls,
            "completions": Amount(counter.completions, counter.completions),
            "prompt_tokens": counter.prompt_tokens,
            "completion_tokens": completion_tokens,
            "judge_tokens": NOTHING,
            "seconds": self._seconds(stage, counter.completions, earlier_completions),
        }
        price = self._config.prices.get(spec.model)
        if price is not None:
            paid = (
                counter.prompt_tokens * price.input_per_million + completion_tokens * price.output_per_million
            )
            amounts["money"] = paid * 1e-6
        to_do = sum(task.size for task in tasks)
        self.costs.append(StageCost(stage, _model_and_place(spec), to_do, amounts))

    def _as_formed(self, result: Result) -> Result:
        """Take a reply that is to come for one of the form that its strategy asks for."""
        if not isinstance(result, Failure) or result.kind != "malformed":
            return result
        text = _placeholder(self._config.summaries.max_new_tokens)
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
    expected = None if tokens.expected is None else min(tokens.expected, budget)
    return Amount(expected, min(tokens.most, budget))


def _model_and_place(spec: StageSpec) -> str:
    if spec.kind != "openai":
        return spec.model
    base_url = getattr(spec.config, spec.stage).base_url
    return f"{spec.model} at {endpoint(base_url).url}"


def _placeholder(limit: int) -> str:
    """A text that stands for a reply to come. Each is different, as replies are."""
    return f"⟦{_SECRET}: reply {next(_NUMBERS)} of {limit} tokens⟧"


def _limits(text: str) -> list[int]:
    """The most tokens of each reply to come that ``text`` shows."""
    return [int(limit) for limit in _PLACEHOLDER.findall(text)]


def _strip(text: str) -> str:
    """``text`` with one letter in place of each placeholder."""
    return _PLACEHOLDER.sub("x", text)


def prompt_tokens(chat: ChatTokenizer | None, messages: Sequence[Message], thinking: bool = False) -> Amount:
    """Tokens of a conversation, exact if it shows only texts that exist.

    Without a tokenizer, a token has four bytes of UTF-8, at least one; each turn, and the one to come, gets
    eight tokens for its markers.
    """
    bare = [replace(message, content=_strip(message.content)) for message in messages]
    if chat is not None:
        [ids] = chat.encode([chat.render(bare, thinking=thinking)])
        tokens = Amount(len(ids), len(ids))
    else:
        size = sum(len(message.content.encode("utf-8", "surrogatepass")) for message in bare)
        markers = 8 * (1 + len(bare))
        tokens = Amount(size // 4 + markers, size + markers)
    for message in messages:
        for limit in _limits(message.content):
            tokens += Amount(None, limit)
    return tokens


class RequestCounter:
    """A :class:`~selfreflect.models.base.Generator` that adds up requests and replies with placeholders.

    Args:
        chat: a local model's. Of a server it is not known, nor whether it gives one completion per call and
            reads the prompt for each.
        revision: of the model that drew answers of unfinished questions, which count only for it.
    """

    def __init__(self, name: str, chat: ChatTokenizer | None, revision: str = "") -> None:
        self.name = name
        self.revision = revision
        self.calls = NOTHING
        self.completions = 0
        self.prompt_tokens = NOTHING
        self.most_completion_tokens = 0
        self.steps = 0
        """Of the current strategies."""
        self._chat = chat

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        self.steps += 1
        if self.steps > MOST_STEPS:
            return [Refusal(kind="strategy", message=f"more than {MOST_STEPS} steps") for _ in requests]
        return [self._reply(request) for request in requests]

    def _reply(self, request: Request) -> Reply:
        most_calls = len(request.missing) if self._chat is None else 1
        prompt = prompt_tokens(self._chat, request.messages, request.thinking)
        limit = request.sampling.max_new_tokens
        self.calls += Amount(1, most_calls)
        to_draw = len(request.missing)
        self.completions += to_draw
        self.prompt_tokens += Amount(prompt.expected, (prompt * most_calls).most)
        self.most_completion_tokens += to_draw * limit
        texts = [_placeholder(limit) for _ in range(request.n)]
        return Reply(completions=tuple(Completion(text=text, finish="stop", tokens=0) for text in texts))


def judge_tokens(judge: Judge, task: StageTask, settings: ScoresConfig) -> Amount:
    """Nodes of the judge's prefix trees for one question, exact if its texts exist."""
    answers = task.answers
    assert answers is not None  # a question without answers is not scored
    controls = control_texts(task.question.text, answers.conditioning) if task.controls else []
    total = NOTHING
    if "selfreflect" in settings.measure_names:
        texts = [summary.text for summary in task.summaries] + anchors(controls)
        total += _score_tokens(judge, task.question, answers, texts)
    if "information" in settings.measure_names:
        texts = [summary.text for summary in task.uninformed]
        texts += [text for _, text in controls]
        reader: Any = settings.reader  # load_config has checked it
        total += _information_tokens(judge, task.question, answers, texts, reader)
    return total


def _information_tokens(
    judge: Judge, question: Question, answers: AnswerSet, texts: Sequence[str], choice: ReaderChoice
) -> Amount:
    """Tokens of usable information; for answers to come every context holds each of them in full."""
    if not texts:
        return NOTHING
    limits = _limits(" ".join(answers.masked_out))
    if not limits and not _limits(" ".join([*answers.conditioning, *texts])):
        try:
            exact = nodes(judge, question, answers, texts, choose_reader(choice, judge, question, answers))
        except CannotScoreError:
            return NOTHING
        return Amount(exact, exact)
    most = 0.0
    for text in (None, pasted(answers.conditioning), *texts):
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
    limits = _limits(" ".join(answers.masked_out))
    if not limits and not _limits(" ".join(texts)):
        total = sum(tree_nodes(judge, question, answers, texts))
        return Amount(total, total)
    most = 0.0
    if not limits:
        reference, blank = tree_nodes(judge, question, answers, ["x"]) or (0, 0)
        most = reference
        for text in texts:
            most += blank + _token_count(judge, _strip(text)) + sum(_limits(text))
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
    for text in summaries:
        try:
            prompts = summary_prompts(judge, task, text)
        except CannotScoreError:
            continue
        if prompts not in contexts:
            contexts.append(prompts)
    return [build_tree(prompts).computed_tokens for prompts in contexts]
