"""A run that is only counted: the same stages with the same requests, sent to nobody and stored nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from msgspec.structs import replace

from selfreflect.models.openai.endpoint import endpoint
from selfreflect.models.spec import kind_of
from selfreflect.pipeline.calibration import tried
from selfreflect.pipeline.cost import (
    NOTHING,
    UNKNOWN,
    Amount,
    Generation,
    StageCost,
    Trial,
    generation,
    limited_nodes,
    money_of,
    time_of,
)
from selfreflect.pipeline.counting_generator import Counted, CountingGenerator, Kind
from selfreflect.pipeline.experiment import (
    ExecutionOptions,
    Experiment,
    Progress,
    Quiet,
    load_generator,
    peek,
)
from selfreflect.pipeline.judge_cost import Trees
from selfreflect.prompts import load_prompts
from selfreflect.records import AnswerSet, Failure, Question, Stage, Summary
from selfreflect.strategies import load_strategy
from selfreflect.strategies.driver import Named
from selfreflect.strategies.task import Strategy, StrategyFunction, Task

if TYPE_CHECKING:
    from selfreflect.config import Config
    from selfreflect.models.base import Generator, Request
    from selfreflect.models.local.generator import HFGenerator
    from selfreflect.pipeline.stages import Result
    from selfreflect.store.run import Run, StoredRecord

MOST_STEPS = 20
"""SequentialScoring of requests after which a strategy is followed no further: with made-up replies it may
never end."""


class Draft:
    """A run directory as it is on disk, with what would be added kept in memory. Takes the place of a
    :class:`Run`."""

    def __init__(self, path: Path, run: Run | None) -> None:
        self.path = path
        self.manifest = _Manifest(run)
        self.questions: dict[str, Question] = dict(run.questions) if run else {}
        self.answers: dict[str, AnswerSet] = dict(run.answers) if run else {}
        self.summaries: dict[tuple[str, str], Summary] = dict(run.summaries) if run else {}
        self.scores = dict(run.scores) if run else {}
        self.failures: list[Failure] = list(run.failures) if run else []

    def append(self, record: StoredRecord) -> None:
        match record:
            case Question():
                self.questions[record.id] = record
            case AnswerSet():
                self.answers[record.question_id] = record
            case Summary():
                self.summaries[record.question_id, record.name] = record
            case Failure():
                self.failures.append(record)

    def append_all(self, records: Iterable[StoredRecord]) -> None:
        for record in records:
            self.append(record)


class _Manifest:
    def __init__(self, run: Run | None) -> None:
        self.config: dict[str, Any] = dict(run.manifest.config) if run else {}
        self.models: dict[str, Any] = dict(run.manifest.models) if run else {}
        self.sources: dict[str, Any] = dict(run.manifest.sources) if run else {}
        self.wall_time: dict[str, float] = dict(run.manifest.wall_time) if run else {}


class DryRun(Experiment):
    """An experiment that leaves in ``costs`` what each stage would take, and in ``notes`` what a reader of
    the numbers needs.

    Local models are loaded, and tried for some seconds. Servers are sent nothing.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.costs: list[StageCost] = []
        self.notes: list[str] = []
        self._kinds: list[Kind] = []
        self._lengths: dict[int, float | None] = {}
        self._trials: dict[int, Trial] = {}
        self._local: HFGenerator | None = None
        self._stand_in = CountingGenerator("", self._kinds)
        self._drawn = list(self.run.answers.values())
        self._made = list(self.run.summaries.values())
        self._to_do = 0

    @classmethod
    @contextmanager
    def open(
        cls,
        path: Path,
        config: Config,
        stages: Sequence[Stage],
        *,
        fresh: bool = False,
        options: ExecutionOptions | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Self]:
        """Look at the run directory at ``path`` and change nothing there.

        Raises:
            StoreError: it was made with other settings of these stages.
        """
        # Only counted: no other process has anything to do.
        options = replace(options or ExecutionOptions(), executor="local", ray_address=None, devices=())
        prompts = load_prompts(options.prompts)
        run = None if fresh else peek(path, config, stages, prompts)
        yield cls(cast("Run", Draft(path, run)), config, stages, prompts, options, progress or Quiet())

    def answers(self) -> None:
        """Count what the missing answers take."""
        wanted = self.config.answers
        self._staged("answers", wanted.model, wanted.base_url, super().answers)

    def summaries(self, strategies: Sequence[Named]) -> None:
        """Count what the missing summaries take; strategies are followed with made-up replies."""
        named = [(s, load_strategy(s)) if isinstance(s, str) else s for s in strategies]
        followed = [(name, _followed(function)) for name, function in named]
        wanted = self.config.summaries
        self._staged(
            "summaries", wanted.model, wanted.base_url, lambda: super(DryRun, self).summaries(followed)
        )

    def scores(self) -> None:
        """Count the judge's work: exactly where answers and summaries are there, else from their expected
        lengths."""
        todo = self._unscored()
        if not todo:
            self.costs.append(
                StageCost(stage="scores", model=self.config.scores.judge, to_do=0, seconds=NOTHING)
            )
            return
        wanted, to_do = self.config.scores, sum(map(len, todo.values()))
        if kind_of(wanted.judge) == "vllm+http":
            self.costs.append(
                StageCost(stage="scores", model=wanted.judge, to_do=to_do, judge_tokens=UNKNOWN)
            )
            self._note(
                "judge tokens are not known for a judge behind a server, which is not asked; count them with a local one"
            )
            return
        judge = self._judge()
        limit = wanted.limits
        trees = Trees(judge, self._lengths, [kind.sampling.max_new_tokens for kind in self._kinds])
        nodes, seconds = NOTHING, NOTHING
        each = trees.seconds(self.run.questions[next(iter(todo))])
        for question, summaries in todo.items():
            found = trees.nodes(self.run.questions[question], self.run.answers[question], summaries)
            if limit is not None:
                found = limited_nodes(found, limit.tokens, limit.adaptive)
            nodes += found
            spent = found.scaled(each)
            if limit is not None and limit.seconds is not None:
                spent = Amount(expected=min(limit.seconds, spent.expected or limit.seconds), most=None)
            seconds += spent
        self.costs.append(
            StageCost(stage="scores", model=judge.name, to_do=to_do, judge_tokens=nodes, seconds=seconds)
        )
        self.notes += _judge_notes(
            trees.estimated, limit is not None and limit.adaptive, self.options.cache is not None
        )

    def _staged(self, stage: Stage, model: str, base_url: str | None, work: Callable[[], None]) -> None:
        self._stand_in, self._local, self._to_do = CountingGenerator(model, self._kinds), None, 0
        work()
        calls = self._stand_in.calls
        if self._local is None:
            self._read_lengths()
        else:
            self._try(self._local)
        limits = [kind.sampling.max_new_tokens for kind in self._kinds]
        found, seconds = Generation(), NOTHING
        for kind in sorted({call.kind for call in calls}):
            part = generation(
                [call for call in calls if call.kind == kind],
                limits,
                self._lengths,
                reread=self._local is None,
            )
            found += part
            seconds += self._time(stage, kind, part)
        price, completions = self.config.prices.get(model), sum(call.n for call in calls)
        self.costs.append(
            StageCost(
                stage=stage,
                model=f"{model} at {endpoint(base_url).url}" if kind_of(model) == "openai" else model,
                to_do=self._to_do,
                calls=Amount(expected=len(calls), most=len(calls) if self._local else completions),
                completions=Amount(expected=completions, most=completions),
                prompt_tokens=found.prompt,
                completion_tokens=found.completion,
                seconds=seconds,
                money=None
                if price is None
                else money_of(found, price.input_per_million, price.output_per_million),
            )
        )
        if calls and self._local is None:
            self._note(
                "prompts for a server are counted as 4 bytes to a token, at most one byte; a server that gives one completion at a time "
                "reads the prompt again for each, which the bound allows for; calls that are repeated after a fault are not counted"
            )
        if any(call.shown for call in calls):
            self._note(
                "a reply that a later step shows again counts there with its token limit at most; quoting it may add to that"
            )

    def _time(self, stage: Stage, kind: int, part: Generation) -> Amount:
        if trial := self._trials.get(kind):
            return time_of(part, trial.prompt_seconds, trial.token_seconds)
        each = self._earlier_pace(stage)
        if each is None:
            return UNKNOWN
        self._note("the time of a server is taken from what this directory's earlier calls to it took")
        return part.completion.scaled(each)

    def _earlier_pace(self, stage: Stage) -> float | None:
        """Seconds per completion token of what the directory holds from the same model at the same place."""
        same = (self.config.answers.model, self.config.answers.base_url) == (
            self.config.summaries.model,
            self.config.summaries.base_url,
        )
        tokens = {
            "answers": sum(drawn.tokens for drawn in self._drawn),
            "summaries": sum(made.tokens for made in self._made),
        }
        for part in (stage, "answers", "summaries"):
            spent = self.run.manifest.wall_time.get(part, 0.0)
            if spent and tokens[part] and (part == stage or same):
                return spent / tokens[part]
        return None

    def _read_lengths(self) -> None:
        """Expected lengths from the records that the directory holds already."""
        drawn = [one for one in self._drawn if one.tokens]
        alone = [
            made for made in self._made if made.tokens and 0 < made.calls < self.config.summaries.num_samples
        ]
        answers, summaries = self.config.answers, self.config.summaries
        for index, kind in enumerate(self._kinds):
            sampling = kind.sampling
            if (
                drawn
                and kind.model == answers.model
                and (sampling.temperature, sampling.max_new_tokens)
                == (
                    answers.temperature,
                    answers.max_new_tokens,
                )
            ):
                self._lengths[index] = sum(one.tokens for one in drawn) / sum(
                    len(one.answers) for one in drawn
                )
            elif (
                alone
                and kind.model == summaries.model
                and sampling.max_new_tokens == summaries.max_new_tokens
            ):
                self._lengths[index] = sum(made.tokens for made in alone) / sum(made.calls for made in alone)

    def _try(self, generator: HFGenerator) -> None:
        """Calibrate each new kind of completion, then let what the directory holds overrule the expected
        lengths."""
        for kind in sorted({call.kind for call in self._stand_in.calls} - self._trials.keys()):
            pairs = zip(self._stand_in.requests, self._stand_in.calls, strict=True)
            found = [
                (len(call.shown), place, request)
                for place, (request, call) in enumerate(pairs)
                if call.kind == kind
            ]
            trial = tried(generator, [request for *_, request in sorted(found, key=lambda one: one[:2])])
            self._trials[kind] = trial
            limit = self._kinds[kind].sampling.max_new_tokens
            length = trial.expected_length(limit)
            self._lengths[kind] = limit if length is None else length
            if length is None:
                self._note(f"no completion ended within a short trial, so up to {limit} tokens are expected")
        self._read_lengths()
        self._note(
            "expected lengths and times come from a trial of some seconds, or from what the directory holds; they are rough"
        )

    def _note(self, line: str) -> None:
        if line not in self.notes:
            self.notes.append(line)

    # --- where an experiment would load, store and settle

    def _generator(self, part: Stage, model: str, revision: str | None) -> Generator:
        if kind_of(model) != "openai":
            generator = cast("HFGenerator", load_generator(model, revision, self.options, self.progress))
            self._check_model(part, generator.facts)
            self._local = generator
            window, own = generator.lm.window, generator.revision
            self._stand_in = CountingGenerator(
                model,
                self._kinds,
                revision=own,
                counted=lambda bare: _counted(generator, bare),
                window=window,
            )
        return self._stand_in

    def _store(self, stage: Stage, results: Iterable[list[Result]], total: int) -> None:
        self._to_do = total
        for result in chain.from_iterable(results):
            self.run.append(result)
            if isinstance(result, Failure) and result.kind == "strategy":
                self._note(
                    f"strategy {result.name} could not be followed to its end with made-up replies: {result.message}"
                )
            elif isinstance(result, Failure):
                self._note(f"some {stage} would fail: {result.message}")

    def _bind(self, stage: Stage, **_: Any) -> None:
        pass

    @contextmanager
    def _timed(self, stage: Stage) -> Iterator[None]:
        yield


def dry_run_items(
    records: Iterable[StoredRecord], config: Config, options: ExecutionOptions, progress: Progress
) -> DryRun:
    """What scoring some records takes, without a run directory."""
    draft = Draft(Path(), None)
    draft.append_all(records)
    rehearsal = DryRun(cast("Run", draft), config, ["scores"], load_prompts(), options, progress)
    rehearsal.scores()
    return rehearsal


def _followed(function: StrategyFunction) -> StrategyFunction:
    """The strategy, stopped after so many steps."""

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


def _counted(generator: HFGenerator, requests: Sequence[Request]) -> list[Counted]:
    rendered = [generator.chat.render(request.messages, thinking=request.thinking) for request in requests]
    return [(len(ids), len(ids)) for ids in generator.chat.encode(rendered)]


def _judge_notes(estimated: bool, adaptive: bool, cached: bool) -> Iterator[str]:
    if estimated:
        yield (
            "judge tokens are estimated where answers or summaries are not there yet: expected from the expected lengths and ordinary "
            "English, at most as if every text ran to its token limit and each of its tokens were a word to mask"
        )
    if adaptive:
        yield "limits by time, --se and --race stop scoring earlier than expected here, or read what words share once more in every round"
    if cached:
        yield "what --cache holds already is not taken off"
