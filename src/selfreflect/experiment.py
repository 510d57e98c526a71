"""The only place that joins settings, the run directory and the stages."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

from selfreflect.answers import draw_answers
from selfreflect.config import Config
from selfreflect.errors import BackendError, ConfigError, StoreError, excerpt
from selfreflect.items import Item
from selfreflect.journal import explained
from selfreflect.models.base import Generator, Sampling
from selfreflect.models.endpoint import POOLED, PREFIX, VLLM, endpoint
from selfreflect.prompts import Prompts, load_prompts
from selfreflect.questions import load_questions
from selfreflect.records import RETRIED, AnswerSet, Failure, Question, Score, Stage, Summary
from selfreflect.report.tables import RunRecords
from selfreflect.store import MANIFEST, Run, check_ours, joined_settings
from selfreflect.strategies import load_strategy
from selfreflect.strategies.driver import Named, summarize
from selfreflect.strategies.task import GREEDY, THINKING

if TYPE_CHECKING:
    from selfreflect.metric.scorer import SelfReflect
    from selfreflect.models.hf import HFGenerator
    from selfreflect.models.judge import Judge
    from selfreflect.models.openai import OpenAIGenerator
    from selfreflect.models.vllm import VLLMGenerator

_PROMPTED: tuple[Stage, ...] = ("answers", "summaries")
"""Stages whose results depend on the prompts file."""

DEFAULT_STRATEGIES = ("greedy", "basic", "cot", "sample_and_summarize")


class Counter(Protocol):
    def advance(self, count: int = 1) -> None: ...


class Progress(Protocol):
    """What the experiment tells whoever watches it."""

    def note(self, line: str) -> None: ...

    def stage(self, name: str, total: int) -> AbstractContextManager[Counter]: ...


class Quiet:
    """A :class:`Progress` that says nothing."""

    def note(self, line: str) -> None:
        pass

    def stage(self, name: str, total: int) -> AbstractContextManager[Counter]:
        return nullcontext(self)

    def advance(self, count: int = 1) -> None:
        pass


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that change speed and place but not results; they are not part of a run's configuration."""

    device: str = "auto"
    batch_size: int | None = None
    batch_questions: int = 8
    trust_remote_code: bool = False
    max_connections: int = 16
    """Calls to a server under way at a time."""
    timeout: float = 600.0
    """Seconds that a server has for one try of a call."""
    prompts: Path | None = None
    guesses: int = 0
    """For each token task, how many of the judge's likeliest tokens in either context are kept beside its distance."""
    cache: Path | None = None
    """Where reference states are kept."""

    def __post_init__(self) -> None:
        if self.device not in ("auto", "cuda", "mps", "cpu"):
            raise ConfigError(f"--device must be auto, cuda, mps or cpu, not {excerpt(self.device)}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(f"--batch-size must be at least 1, not {self.batch_size}")
        if self.max_connections < 1:
            raise ConfigError(f"--max-connections must be at least 1, not {self.max_connections}")
        if not 0 < self.timeout < float("inf"):
            raise ConfigError(f"--timeout must be a number of seconds above 0, not {self.timeout}")
        if not 0 <= self.guesses <= 100:
            raise ConfigError(f"--guesses must be between 0 and 100, not {self.guesses}")


class Experiment:
    """A run directory being filled. Every stage skips what is done, writes each result as it comes, and can be interrupted anywhere."""

    def __init__(self, run: Run, config: Config, stages: Sequence[Stage], prompts: Prompts, options: Options, progress: Progress) -> None:
        self.run = run
        self.config = config
        self.options = options
        self.progress = progress
        self.prompts = prompts
        self._settings = _settings(config, stages, prompts)
        self._loaded: dict[Stage, dict[str, Any]] = {}
        """Facts of generators that have not given anything yet."""

    @classmethod
    @contextmanager
    def open(
        cls,
        path: Path,
        config: Config,
        stages: Sequence[Stage],
        *,
        fresh: bool = False,
        options: Options | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Experiment]:
        """Create or resume the run directory at ``path`` for some stages.

        Raises:
            StoreError: it was made with other settings of these stages, or is in use.
        """
        options = options or Options()
        prompts = load_prompts(options.prompts)
        known = {} if fresh else _known(path, config, stages, prompts)
        opened = cls(Run.open(path, known, fresh=fresh), config, stages, prompts, options, progress or Quiet())
        try:
            yield opened
        finally:
            opened.run.close()

    def questions(self) -> None:
        """Load the questions, unless the directory has them all."""
        recorded = self.run.manifest.sources.get("questions", {})
        if recorded and len(self.run.questions) == recorded.get("count"):
            return
        wanted = self.config.questions
        with self._timed("questions"):
            found = load_questions(
                wanted.source,
                limit=wanted.limit,
                seed=wanted.seed,
                split=wanted.split,
                subset=wanted.subset,
                question_column=wanted.question_column,
            )
            self._begin("questions")
            facts = msgspec.to_builtins(found)
            del facts["questions"]
            self.run.update_manifest(sources={"questions": {**facts, "count": len(found.questions)}})
            self.run.append_all(question for question in found.questions if question.id not in self.run.questions)

    def answers(self) -> None:
        """Draw the answer distributions that are missing."""
        settled = self._settled("answers")
        todo = [question for key, question in self._asked().items() if key not in self.run.answers and (key, "") not in settled]
        wanted = self.config.answers
        if not todo:
            return
        generator = self._generator("answers", wanted.model, wanted.revision)
        sampling = Sampling(temperature=wanted.temperature, top_p=wanted.top_p, max_new_tokens=wanted.max_new_tokens)
        drawn = draw_answers(
            todo,
            generator,
            num_answers=wanted.num_answers,
            prompts=self.prompts,
            sampling=sampling,
            seed=wanted.seed,
            thinking=wanted.thinking,
            batch_questions=self._together(generator),
        )
        self._store("answers", drawn, len(todo))

    def summaries(self, strategies: Sequence[Named]) -> None:
        """Make the summaries that are missing, with every strategy."""
        for strategy in strategies:
            if isinstance(strategy, str):
                load_strategy(strategy)  # an unknown name is an error also where nothing is left to do
        names = [strategy if isinstance(strategy, str) else strategy[0] for strategy in strategies]
        pairs = {(question, name) for question in self._asked() for name in names}
        done = pairs & (set(self.run.summaries) | self._settled("summaries"))
        wanted = self.config.summaries
        if done == pairs:
            return
        open_ids = {question for question, _ in pairs - done}
        generator = self._generator("summaries", wanted.model, wanted.revision)
        made = summarize(
            [question for question in self.run.questions.values() if question.id in open_ids],
            strategies,
            generator,
            prompts=self.prompts,
            sampling=replace(THINKING if wanted.thinking else GREEDY, max_new_tokens=wanted.max_new_tokens),
            sample_sampling=Sampling(max_new_tokens=wanted.sample_max_new_tokens),
            num_samples=wanted.num_samples,
            seed=wanted.seed,
            thinking=wanted.thinking,
            batch_questions=self._together(generator),
            done=done,
        )
        self._store("summaries", made, len(pairs) - len(done))

    def scores(self) -> None:
        """Score the summaries that are not scored yet, where the question has answers."""
        todo = self._unscored()
        if not todo:
            return
        metric = load_metric(self._judge(), self.config, self.options, self.progress)
        earlier: dict[str, list[Score]] = {}
        for (question, _), score in self.run.scores.items():
            earlier.setdefault(question, []).append(score)

        def scored() -> Iterator[list[Score | Failure]]:
            for question, summaries in todo.items():
                beside = earlier.get(question, ())
                yield metric.score_records(self.run.questions[question], self.run.answers[question], summaries, beside=beside)

        with self._timed("scores"), self.progress.stage("scores", sum(map(len, todo.values()))) as counter:
            for results in scored():
                self.run.append_all(results)
                counter.advance(len(results))

    def _unscored(self) -> dict[str, list[Summary]]:
        """The summaries to score, by the id of their question."""
        self._asked()
        if not self.run.summaries and not self.run.failures:
            raise StoreError(f"{self.run.path} holds no summaries yet. Make some with: selfreflect summarize --out {self.run.path}")
        todo: dict[str, list[Summary]] = {}
        done = {*self.run.scores, *self._settled("scores")}
        for key, summary in self.run.summaries.items():
            if key not in done and summary.question_id in self.run.answers and summary.question_id in self.run.questions:
                todo.setdefault(summary.question_id, []).append(summary)
        return todo

    def _settled(self, stage: Stage) -> set[tuple[str, str]]:
        """(question id, name) of the failures of a stage that another try would only repeat."""
        return {(f.question_id, f.name) for f in self.run.failures if f.stage == stage and f.kind not in RETRIED}

    def _asked(self) -> dict[str, Question]:
        if not self.run.questions:
            raise StoreError(f"{self.run.path} holds no questions yet. Give some with --questions SOURCE.")
        return self.run.questions

    def _store(self, stage: Stage, results: Iterable[AnswerSet | Summary | Failure], total: int) -> None:
        done = 0
        with self._timed(stage), self.progress.stage(stage, total) as counter:
            try:
                for result in results:
                    self._settle(stage)
                    self.run.append(result)
                    done += not isinstance(result, Failure)
                    counter.advance()
            except BackendError as error:
                kept = f"{done} of {total} {stage} were made and saved, {total - done} are missing. The same command goes on from there."
                raise BackendError(f"{error} {kept}") from None

    def _settle(self, stage: Stage) -> None:
        """Begin a stage once its generator has given something: a server may yet turn out not to know the model."""
        facts = self._loaded.pop(stage, None)
        if facts is not None:
            self._begin(stage)
            self.run.update_manifest(models={stage: facts})

    def _begin(self, stage: Stage) -> None:
        """Settle a stage's settings when its source or model is there and not before: a mistyped name must not stick to the directory."""
        if stage not in self.run.manifest.config:
            path = self.run.path
            self.run.close()
            self.run = Run.open(path, {stage: self._settings[stage]})
        prompts: dict[str, str] = {stage: self.prompts.hash} if stage in _PROMPTED else {}
        self.run.update_manifest(packages=_packages(), prompts=prompts)

    @contextmanager
    def _timed(self, stage: Stage) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.run.update_manifest(wall_time={stage: time.monotonic() - started})

    def _generator(self, part: Stage, model: str, revision: str | None) -> Generator:
        base_url = getattr(self.config, part).base_url
        generator = load_generator(model, revision, self.options, self.progress, base_url=base_url)
        self._check_model(part, generator.facts)
        self._loaded[part] = generator.facts
        return generator

    def _together(self, generator: Generator) -> int:
        """Questions sent to a generator together. Those of a server come back one by one, and more of them keep it busy."""
        return max(self.options.batch_questions, 2 * self.options.max_connections if hasattr(generator, "stream") else 0)

    def _judge(self) -> Judge:
        judge = load_judge(self.config, self.options, self.progress)
        self._check_model("scores", judge.facts)
        self._begin("scores")
        self.run.update_manifest(models={"scores": judge.facts})
        return judge

    def _check_model(self, part: str, facts: dict[str, Any]) -> None:
        """Refuse a model whose weights changed under the same name since the run began."""
        before = self.run.manifest.models.get(part)
        if before and before["revision"] != facts["revision"]:
            raise StoreError(
                f"{self.run.path}: {part} began with revision {before['revision']!r} of {facts['name']!r}, "
                f"which is now {facts['revision']!r}. Name the old one with --revision, or use another --out."
            )


def _settings(config: Config, stages: Sequence[Stage], prompts: Prompts) -> dict[str, dict[str, Any]]:
    """What a run directory remembers of the settings of some stages."""
    sections: dict[str, dict[str, Any]] = {stage: config.section(stage) for stage in stages}
    for stage in _PROMPTED:
        if stage in sections:
            sections[stage]["prompts"] = prompts.hash
    return sections


def _known(path: Path, config: Config, stages: Sequence[Stage], prompts: Prompts) -> dict[str, dict[str, Any]]:
    """What the directory at ``path`` has to agree with: the settings of those stages that it has begun."""
    begun, wanted = settings_of(path), _settings(config, stages, prompts)
    return {stage: _comparable(stage, wanted[stage], begun[stage]) for stage in stages if stage in begun}


def peek(path: Path, config: Config, stages: Sequence[Stage], prompts: Prompts) -> Run | None:
    """The run directory at ``path`` for reading, where there is one: nothing is made, locked or repaired.

    Raises:
        StoreError: it was made with other settings of these stages, or there is something else.
    """
    with explained(path):
        if path.exists():
            check_ours(path)
    if not (path / MANIFEST).exists():
        return None
    run = Run.load(path)
    joined_settings(run.manifest.config, _known(path, config, stages, prompts), path)
    return run


def _comparable(stage: Stage, wanted: dict[str, Any], begun: dict[str, Any]) -> dict[str, Any]:
    """``wanted`` without the settings that did not exist yet when a directory was made, where they have their defaults."""
    default = Config().section(stage)
    compared = {key: value for key, value in wanted.items() if key in begun or key not in default or value != default[key]}
    # A server may come back at another address, as a model may come back on another device.
    return {**compared, **({"base_url": begun["base_url"]} if begun.get("base_url") and compared.get("base_url") else {})}


def settings_of(path: Path) -> dict[str, dict[str, Any]]:
    """The settings that the run directory at ``path`` was made with, by section; none where there is no such directory yet.

    Raises:
        StoreError: there is one, and it cannot be read.
    """
    if not (path / MANIFEST).exists():
        return {}
    sections = Run.load(path).manifest.config
    return {name: {key: value for key, value in values.items() if key != "prompts"} for name, values in sections.items()}


def load_generator(
    model: str, revision: str | None, options: Options, progress: Progress, *, base_url: str | None = None
) -> HFGenerator | OpenAIGenerator | VLLMGenerator:
    """The generator that ``--model`` names."""
    if model.startswith(PREFIX):
        from selfreflect.models.openai import OpenAIGenerator

        connections, timeout = options.max_connections, options.timeout
        return OpenAIGenerator.load(model, base_url, max_connections=connections, timeout=timeout, progress=progress.note)
    if model.startswith(VLLM):
        from selfreflect.models.vllm import VLLMGenerator

        progress.note(f"loading {model}")
        return VLLMGenerator.load(
            model,
            device=options.device,  # type: ignore[arg-type]  # Options has checked it
            revision=revision,
            trust_remote_code=options.trust_remote_code,
            progress=progress.note,
        )
    from selfreflect.models.hf import HFGenerator

    progress.note(f"loading {model}")
    return HFGenerator.load(
        model,
        device=options.device,  # type: ignore[arg-type]  # Options has checked it
        revision=revision,
        trust_remote_code=options.trust_remote_code,
        batch_size=options.batch_size,
        progress=progress.note,
    )


def load_judge(config: Config, options: Options, progress: Progress) -> Judge:
    """The judge that ``--judge`` names. One whose decoder runs elsewhere is compared with a stored score, where there is one."""
    from selfreflect.models.judge import Judge

    wanted = config.scores
    progress.note(f"loading judge {wanted.judge}")
    settings: dict[str, Any] = {
        "device": options.device,
        "dtype": wanted.dtype,
        "revision": wanted.revision,
        "trust_remote_code": options.trust_remote_code,
        "compat": wanted.compat,
        "progress": progress.note,
    }
    if not wanted.judge.startswith((VLLM, POOLED)):
        return Judge.load(wanted.judge, **settings)
    from selfreflect.metric.parity import check_parity
    from selfreflect.models.pooled import PooledJudge

    if wanted.judge.startswith(VLLM):
        judge = PooledJudge.in_process(wanted.judge, **settings)
    else:
        judge = PooledJudge.served(wanted.judge, endpoint(wanted.base_url), **settings)
    if not check_parity(judge):
        progress.note(f"there is no stored score for {wanted.judge} in {judge.lm.dtype}, so its hidden states are taken on trust")
    return judge


def load_metric(judge: Judge, config: Config, options: Options, progress: Progress) -> SelfReflect:
    """The metric with the limits that the settings name."""
    from selfreflect.metric.scorer import SelfReflect

    wanted = config.scores
    return SelfReflect(
        judge,
        budget=wanted.budget,
        standard_error=wanted.standard_error,
        race=wanted.race,
        seed=wanted.seed,
        guesses=options.guesses,
        cache=options.cache,
        warn=progress.note,
    )


def run_records(run: Run, label: str | None = None) -> RunRecords:
    """What a report needs of a run directory; strategies in the order in which they were made."""
    names = dict.fromkeys(name for _, name in (*run.summaries, *run.scores))
    names |= dict.fromkeys(failure.name for failure in run.failures if failure.name)
    return RunRecords(
        label=label or run.path.name or str(run.path),
        strategies=list(names),
        questions=run.questions,
        answers=run.answers,
        summaries=run.summaries,
        scores=run.scores,
        failures=run.failures,
    )


def run_items(run: Run) -> list[Item]:
    """The questions of a run that have answers, with the summaries made so far, as items. Those without answers are left out."""
    summaries: dict[str, dict[str, str]] = {}
    for (question, name), summary in run.summaries.items():
        summaries.setdefault(question, {})[name] = summary.text
    return [
        Item(
            id=key,
            question=run.questions[key].text,
            masked_out=drawn.masked_out,
            conditioning=drawn.conditioning,
            summaries=summaries.get(key, {}),
        )
        for key, drawn in run.answers.items()
        if key in run.questions
    ]


def _packages() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("selfreflect", "torch", "transformers", "tokenizers", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
