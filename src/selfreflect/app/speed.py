"""Estimate how long a question takes, judged by earlier questions to the same models, else by a rough guess.

No model is loaded or timed for it: a person who asks a first question gets its answers sooner than a timing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from selfreflect.app.library import Library
from selfreflect.config import Config
from selfreflect.errors import SelfReflectError
from selfreflect.models.base import kind_of
from selfreflect.pipeline.rough_time import ROUGH, rough_range
from selfreflect.pipeline.tasks import ModelStage
from selfreflect.prompts import load_prompts
from selfreflect.store.run import Run

_RECENT = 30
"""Runs that are looked at."""

_LARGEST = 5_000_000
"""Bytes of a run that is looked at: those of a few questions are like those asked here."""

_MOST_QUESTIONS = 3
_MOST_SECONDS = 1e7
"""Seconds that a stage of a few questions may have taken; a damaged manifest states more."""

_CONTROLS = 5
"""Contexts that the judge reads besides the summaries: the reference, and the texts to compare with."""

_SHORT_ANSWER, _LONG_ANSWER = 10, 40
"""Tokens of a typical answer of a few words, and of any other, where no earlier one is known."""

BRIEF_SHARE = _SHORT_ANSWER / _LONG_ANSWER
"""Of the time that a question takes, where answers of a few words are asked for."""

_TASKS_PER_TOKEN = 0.6
"""Tokens of an answer that are masked, about: words of no meaning are not."""

_MEASURED, _GUESSED = (0.7, 1.5), (0.5, 2.0)
"""How far a question may be from earlier ones, if these had answers of its kind, and otherwise."""


class Pace(NamedTuple):
    """What some work of one stage took."""

    stage: ModelStage
    model: str
    seconds: float
    work: float
    """Tokens that were generated; for scores, masked tokens times contexts."""


class TimeRange(NamedTuple):
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
    """Estimates durations from the runs of a library. Threads may share it."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def estimate(self, workload: Workload) -> TimeRange:
        """From and to, in seconds, without the time for loading models."""
        earlier, answer_tokens = self._earlier(workload)
        low = high = 0.0
        for stage, paces in earlier.items():
            if not paces:
                return TimeRange(None, _why_unknown(workload.model(stage)))
            rates = [pace.seconds / pace.work for pace in paces]
            shortest, longest = _MEASURED if answer_tokens else _GUESSED
            work = workload.work(stage, answer_tokens)
            low += work * min(rates) * shortest
            high += work * max(rates) * longest
        return TimeRange((low, high), "earlier questions to these models")

    def _earlier(self, workload: Workload) -> tuple[dict[ModelStage, list[Pace]], float | None]:
        """The paces of the latest runs with these models, and the mean length of their answers."""
        paces: dict[ModelStage, list[Pace]] = {"answers": [], "summaries": [], "scores": []}
        lengths = []
        for directory in self._library.listing()[:_RECENT]:
            if directory.size > _LARGEST:
                continue
            run_paces, length, is_brief = _paces(directory.path, directory.version)
            for pace in run_paces:
                if pace.model == workload.model(pace.stage) and len(paces[pace.stage]) < 5:
                    paces[pace.stage].append(pace)
                    if pace.stage == "answers" and is_brief == workload.brief:
                        lengths.append(length)
        return paces, sum(lengths) / len(lengths) if lengths else None


def without_earlier(seconds: float) -> TimeRange:
    """From and to around a guess that no earlier question supports."""
    basis = f"the size of a local model or the check of a server: {ROUGH}"
    return TimeRange(rough_range(seconds), basis)


def _why_unknown(model: str) -> str:
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
        if 0 < seconds < _MOST_SECONDS and amount > 0 and isinstance(model, str):
            paces.append(Pace(stage, model, seconds, amount))
    per_half = manifest.config.get("answers", {}).get("num_answers")
    count = 2 * per_half * len(run.answers) if isinstance(per_half, int) else 0
    length = work["answers"] / count if count > 0 else 0.0
    return paces, length, manifest.prompts.get("answers") != load_prompts().hash
