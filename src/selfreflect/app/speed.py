"""How long a question takes on this machine: judged by earlier questions, else by a short timing of its
models."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from selfreflect.app.library import Library
from selfreflect.config import Config
from selfreflect.errors import SelfReflectError
from selfreflect.models.spec import ModelSpec, kind_of, load_generator, load_judge
from selfreflect.pipeline.models import stage_model
from selfreflect.pipeline.options import ExecutionOptions
from selfreflect.pipeline.stages import ModelStage
from selfreflect.prompts import load_prompts
from selfreflect.store.run import Run

_RECENT = 30
"""Runs that are looked at."""

_LARGEST = 5_000_000
"""Bytes of a run that is looked at: those of a few questions are like those asked here."""

_MOST_QUESTIONS = 3
_CONTROLS = 5
"""Contexts that the judge reads besides the summaries: the reference, and the texts to compare with."""

_SHORT_ANSWER, _LONG_ANSWER = 10, 40
"""Tokens of a typical answer of a few words, and of any other, where no earlier one is known."""

_TASKS_PER_TOKEN = 0.6
"""Tokens of an answer that are masked, about: words of no meaning are not."""

_MEASURED, _GUESSED = (0.7, 1.5), (0.5, 2.0)
"""How far a question may be from the earlier ones, and from a timing."""


class Pace(NamedTuple):
    """What some work of one stage took."""

    stage: ModelStage
    model: str
    seconds: float
    work: float
    """Tokens that were generated; for scores, masked tokens times contexts."""


class Estimate(NamedTuple):
    seconds: tuple[float, float] | None
    basis: str


@dataclass(frozen=True)
class Workload:
    """What decides how long a question takes."""

    config: Config
    strategies: int
    most_tokens: Mapping[str, float]
    """At most, by stage."""
    brief: bool

    def model(self, stage: ModelStage) -> str:
        section = getattr(self.config, stage)
        return str(section.judge if stage == "scores" else section.model)

    def work(self, stage: ModelStage, answer_tokens: float | None) -> float:
        """The expected work, in the unit of :class:`Pace`. ``answer_tokens`` is the mean of earlier ones."""
        limit = self.config.answers.max_new_tokens
        tokens = answer_tokens or (_SHORT_ANSWER if self.brief else _LONG_ANSWER)
        tokens = min(tokens, limit)
        if stage == "scores":
            masked = self.config.answers.num_answers * tokens * _TASKS_PER_TOKEN
            return masked * (self.strategies + _CONTROLS)
        return self.most_tokens[stage] * tokens / limit


class Speed:
    """Estimates durations. Threads may share it.

    ``alone`` is held while models compute, so that a timing neither slows a job down nor is slowed down.
    """

    def __init__(
        self,
        library: Library,
        options: ExecutionOptions,
        timing: Callable[[Config, ExecutionOptions], list[Pace]] | None = None,
    ) -> None:
        self._library = library
        self._options = options
        self._timing = timing or time_models
        self._timed: dict[tuple[str, str], list[Pace]] = {}
        self._alone = threading.Lock()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._alone:
            yield

    def estimate(self, workload: Workload) -> Estimate:
        """From and to, in seconds, without the time for loading models."""
        earlier, answer_tokens = self._earlier(workload)
        stages: tuple[ModelStage, ...] = ("answers", "summaries", "scores")
        unknown = [stage for stage in stages if not earlier[stage]]
        timed: list[Pace] = self._time(workload) if unknown else []
        low = high = 0.0
        for stage in stages:
            paces = earlier[stage] or [one for one in timed if one.stage == stage]
            if not paces:
                return Estimate(None, self._why_unknown(workload, stage))
            rates = [pace.seconds / pace.work for pace in paces]
            shortest, longest = _MEASURED if earlier[stage] and answer_tokens else _GUESSED
            work = workload.work(stage, answer_tokens)
            low += work * min(rates) * shortest
            high += work * max(rates) * longest
        basis = "a short timing of the models" if unknown else "earlier questions to these models"
        return Estimate((low, high), basis)

    def _earlier(self, workload: Workload) -> tuple[dict[ModelStage, list[Pace]], float | None]:
        """The paces of the latest runs with these models, and the mean length of their answers."""
        paces: dict[ModelStage, list[Pace]] = {"answers": [], "summaries": [], "scores": []}
        lengths = []
        for directory in self._library.listing()[:_RECENT]:
            if sum(status.st_size for status in directory.files.values()) > _LARGEST:
                continue
            run_paces, length, is_brief = _paces(directory.path, directory.version)
            for pace in run_paces:
                if pace.model == workload.model(pace.stage) and len(paces[pace.stage]) < 5:
                    paces[pace.stage].append(pace)
                    if pace.stage == "answers" and is_brief == workload.brief:
                        lengths.append(length)
        return paces, sum(lengths) / len(lengths) if lengths else None

    def _time(self, workload: Workload) -> list[Pace]:
        """The pace of models that are on this machine, timed once; none while a job runs."""
        key = workload.model("answers"), workload.model("scores")
        if key not in self._timed and self._alone.acquire(blocking=False):
            try:
                self._timed[key] = self._timing(workload.config, self._options)
            except SelfReflectError:  # which the check of the models reports
                return []
            finally:
                self._alone.release()
        return self._timed.get(key, [])

    def _why_unknown(self, workload: Workload, stage: ModelStage) -> str:
        model = workload.model(stage)
        if self._alone.locked():
            return "while another question is worked on, nothing is timed"
        if kind_of(model) == "openai":
            return "how fast the server answers is known after the first question"
        return "how fast a model is on this machine is known after its first question"


@lru_cache(maxsize=4 * _RECENT)
def _paces(path: Path, version: object) -> tuple[list[Pace], float, bool]:
    """The paces of a run, the mean tokens of its answers, and whether short ones were asked for."""
    paces: list[Pace] = []
    try:
        run = Run.load(path, detail=False)
        if not 1 <= len(run.questions) <= _MOST_QUESTIONS:
            return [], 0.0, False
        scores = list(run.scores.values())
        names = {score.summary for score in scores}
        tasks = sum(score.token_tasks for score in scores) / max(1, len(names))
        work: dict[ModelStage, float] = {
            "answers": sum(one.tokens for one in run.answers.values()),
            "summaries": sum(one.tokens for one in run.summaries.values()),
            "scores": tasks * (len(names) + _CONTROLS),
        }
    except SelfReflectError:
        return [], 0.0, False
    manifest = run.manifest
    for stage, amount in work.items():
        seconds = manifest.wall_time.get(stage, 0.0)
        section = manifest.config.get(stage, {})
        model = section.get("judge" if stage == "scores" else "model")
        if seconds > 0 and amount > 0 and isinstance(model, str):
            paces.append(Pace(stage, model, seconds, amount))
    count = 2 * manifest.config.get("answers", {}).get("num_answers", 0) * len(run.answers)
    length = work["answers"] / count if count else 0.0
    return paces, length, manifest.prompts.get("answers") != load_prompts().hash


def time_models(config: Config, options: ExecutionOptions) -> list[Pace]:
    """Load the models of a question that are on this machine, and time each for a second or two.

    Raises:
        SelfReflectError: a model cannot be loaded.
    """
    paces: list[Pace] = []
    spec = stage_model(config, options, "answers")
    if _is_here(spec):
        pace = _time_generator(spec)
        paces += [pace, pace._replace(stage="summaries")]
    spec = stage_model(config, options, "scores")
    if _is_here(spec):
        paces.append(_time_judge(spec))
    return [pace for pace in paces if pace.work > 0]


def _is_here(spec: ModelSpec) -> bool:
    """Whether the model is the embedded one, downloaded, or in a directory."""
    from selfreflect.models.smollm2 import is_downloaded

    if spec.kind != "local":
        return False
    return is_downloaded() if spec.name == "smollm2" else Path(spec.name).is_dir()


def _time_generator(spec: ModelSpec) -> Pace:
    from selfreflect.models.base import Message, Reply, Request, Sampling

    generator = load_generator(spec)
    message = Message(
        role="user", content="Name many things that people do in a garden, one after the other."
    )
    request = Request(messages=(message,), sampling=Sampling(max_new_tokens=8), n=8, seed=0)
    # the first pass of a process takes longer than any other
    generator.generate([replace(request, n=1, sampling=Sampling(max_new_tokens=1))])
    start = time.monotonic()
    [reply] = generator.generate([request])
    tokens = reply.tokens if isinstance(reply, Reply) else 0
    return Pace("answers", spec.name, time.monotonic() - start, tokens)


def _time_judge(spec: ModelSpec) -> Pace:
    from selfreflect.metric.scorer import SelfReflect

    judge = load_judge(spec)
    verbs = ("plant", "water", "dig", "like", "tend", "see", "mow", "leave")
    answers = [f"People {verb} the small garden in spring" for verb in verbs]
    metric = SelfReflect(judge)
    metric.score("What?", answers=["Red roses", "Tulips"], summaries="Roses")
    start = time.monotonic()
    score = metric.score("What do people do?", answers=answers, summaries="They work in it.")["summary"]
    return Pace("scores", spec.name, time.monotonic() - start, 2 * score.token_tasks)
