"""The work of each stage, wherever it happens: a model from settings, and tasks in, records out.

Workers call the stages and know nothing of the run directory: what is still to do, and what becomes of the
records, is the experiment's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec.structs import replace

from selfreflect.answers import draw_answers
from selfreflect.models import load
from selfreflect.models.base import Generator, Sampling
from selfreflect.models.spec import ModelSpec, kind_of
from selfreflect.pipeline.options import ExecutionOptions, Progress
from selfreflect.prompts import Prompts
from selfreflect.records import AnswerSet, Failure, Question, Record, Score, Summary
from selfreflect.strategies.driver import Named, summarize
from selfreflect.strategies.task import GREEDY, THINKING

if TYPE_CHECKING:
    from selfreflect.config import Config
    from selfreflect.metric.scorer import SelfReflect
    from selfreflect.models.judge import Judge
    from selfreflect.models.local.generator import HFGenerator
    from selfreflect.models.openai.generator import OpenAIGenerator
    from selfreflect.models.spec import Compat
    from selfreflect.models.vllm.engine import VLLMGenerator

Result: TypeAlias = AnswerSet | Summary | Score | Failure


@dataclass(frozen=True)
class StageSpec:
    """What a worker is made from. It holds no key: workers read theirs from their own environment."""

    stage: Literal["answers", "summaries", "scores"]
    config: Config
    prompts: Prompts
    options: ExecutionOptions
    strategies: tuple[Named, ...] = ()

    @property
    def model(self) -> str:
        """The name of the model that does it."""
        return (
            self.config.scores.judge
            if self.stage == "scores"
            else str(getattr(self.config, self.stage).model)
        )

    @property
    def local(self) -> bool:
        """Whether that is a torch model of ours, rather than vLLM's or a server's."""
        return kind_of(self.model) == "local"

    @property
    def batch_size(self) -> int:
        """Questions that a worker takes at a time. Those of a server come back one by one, and more of them
        keep it busy."""
        if self.stage == "scores":
            return 1
        return max(
            self.options.batch_questions,
            2 * self.options.max_connections if kind_of(self.model) == "openai" else 0,
        )


class StageTask(Record, frozen=True, kw_only=True):
    """What is to be done for one question, with all that it takes."""

    question: Question
    names: tuple[str, ...] = ()
    """Strategies whose summaries are wanted."""
    answers: AnswerSet | None = None
    summaries: tuple[Summary, ...] = ()
    """To be scored."""
    beside: tuple[Score, ...] = ()
    """Estimates of other summaries of the question, with which theirs are to be comparable."""


StageFn: TypeAlias = Callable[[Sequence[StageTask]], Iterator[list[Result]]]
"""Tasks to results, in lists that belong together on disk, each as soon as it is there."""


def load_model(job: StageSpec, progress: Progress) -> Any:
    """The generator or judge that a job needs."""
    if job.stage == "scores":
        return load_judge(job.config, job.options, progress)
    wanted = getattr(job.config, job.stage)
    return load_generator(wanted.model, wanted.revision, job.options, progress, base_url=wanted.base_url)


def stage_fn(job: StageSpec, model: Any, progress: Progress) -> StageFn:
    """What a job does with its model."""
    return _WORK[job.stage](job, model, progress)


def _drawing(job: StageSpec, generator: Generator, progress: Progress) -> StageFn:
    wanted = job.config.answers

    def work(tasks: Sequence[StageTask]) -> Iterator[list[Result]]:
        drawn = draw_answers(
            [task.question for task in tasks],
            generator,
            num_answers=wanted.num_answers,
            prompts=job.prompts,
            sampling=Sampling(
                temperature=wanted.temperature, top_p=wanted.top_p, max_new_tokens=wanted.max_new_tokens
            ),
            seed=wanted.seed,
            thinking=wanted.thinking,
            batch_questions=job.batch_size,
        )
        return ([result] for result in drawn)

    return work


def _summarizing(job: StageSpec, generator: Generator, progress: Progress) -> StageFn:
    wanted = job.config.summaries
    names = [strategy if isinstance(strategy, str) else strategy[0] for strategy in job.strategies]

    def work(tasks: Sequence[StageTask]) -> Iterator[list[Result]]:
        made = summarize(
            [task.question for task in tasks],
            job.strategies,
            generator,
            prompts=job.prompts,
            sampling=replace(THINKING if wanted.thinking else GREEDY, max_new_tokens=wanted.max_new_tokens),
            sample_sampling=Sampling(max_new_tokens=wanted.sample_max_new_tokens),
            num_samples=wanted.num_samples,
            seed=wanted.seed,
            thinking=wanted.thinking,
            batch_questions=job.batch_size,
            done={(task.question.id, name) for task in tasks for name in names if name not in task.names},
        )
        return ([result] for result in made)

    return work


def _scoring(job: StageSpec, judge: Judge, progress: Progress) -> StageFn:
    metric = load_metric(judge, job.config, job.options, progress)

    def work(tasks: Sequence[StageTask]) -> Iterator[list[Result]]:
        for task in tasks:
            assert task.answers is not None  # a question without answers is not scored
            yield [*metric.score_records(task.question, task.answers, task.summaries, beside=task.beside)]

    return work


_WORK: dict[str, Callable[[StageSpec, Any, Progress], StageFn]] = {
    "answers": _drawing,
    "summaries": _summarizing,
    "scores": _scoring,
}


def load_generator(
    model: str,
    revision: str | None,
    options: ExecutionOptions,
    progress: Progress,
    *,
    base_url: str | None = None,
) -> HFGenerator | OpenAIGenerator | VLLMGenerator:
    """The generator that ``--model`` names."""
    spec = ModelSpec(
        model,
        revision=revision,
        base_url=base_url,
        batch_size=options.batch_size,
        **_resources(options),
    )
    return load.load_generator(spec, progress.note)


def load_judge(config: Config, options: ExecutionOptions, progress: Progress) -> Judge:
    """The judge that ``--judge`` names. One whose decoder runs elsewhere is compared with a stored score,
    where there is one."""
    scores = config.scores
    spec = ModelSpec(
        scores.judge,
        revision=scores.revision,
        base_url=scores.base_url,
        dtype=scores.dtype,  # type: ignore[arg-type]  # load_config has checked it
        **_resources(options),
    )
    compat: Compat = scores.compat  # type: ignore[assignment]  # load_config has checked it
    judge = load.load_judge(spec, compat=compat, progress=progress.note)
    if judge.last_states is None:
        return judge
    from selfreflect.metric.parity import check_parity

    if not check_parity(judge):
        progress.note(
            f"there is no stored score for {scores.judge} in {judge.lm.dtype}, so its hidden states are taken on trust"
        )
    return judge


def _resources(options: ExecutionOptions) -> dict[str, Any]:
    """What the options say about loading any model."""
    return {
        "device": options.device,
        "device_map": options.device_map,
        "trust_remote_code": options.trust_remote_code,
        "max_connections": options.max_connections,
        "timeout": options.timeout,
    }


def load_metric(judge: Judge, config: Config, options: ExecutionOptions, progress: Progress) -> SelfReflect:
    """The metric with the limits that the settings name."""
    from selfreflect.metric.engine.native import library
    from selfreflect.metric.scorer import SelfReflect

    on_cpu = judge.last_states is None and (judge.lm.device, judge.lm.dtype) == ("cpu", "float32")
    if on_cpu and isinstance(why := library(), str):
        progress.note(f"scoring is slower than it could be, since its attention is not compiled: {why}")
    wanted = config.scores
    return SelfReflect(
        judge,
        limits=wanted.limits,
        guesses=options.guesses,
        cache=options.cache,
        warn=progress.note,
    )
