"""Where the stages get their models from, and the metric its judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from selfreflect.config import ExecutionOptions
from selfreflect.models.base import Generator, ModelSpec, load_generator, load_judge
from selfreflect.pipeline.progress import Progress

if TYPE_CHECKING:
    from selfreflect.config import Config
    from selfreflect.metric.measures import Measures
    from selfreflect.models.judge import Judge


class StageGenerator(Generator, Protocol):
    """A generator that says what a manifest should record about it."""

    @property
    def facts(self) -> dict[str, Any]: ...


class ModelProvider(Protocol):
    """Gives each stage its model, once per stage and only if there is work to do."""

    def generator(self, stage: Literal["answers", "summaries"]) -> StageGenerator: ...

    def judge(self) -> Judge: ...


def stage_model(
    config: Config, options: ExecutionOptions, stage: Literal["answers", "summaries", "scores"]
) -> ModelSpec:
    """The model of a stage, and how to load it."""
    resources: dict[str, Any] = {
        "device": options.device,
        "device_map": options.device_map,
        "trust_remote_code": options.trust_remote_code,
        "batch_size": options.batch_size,
        "max_connections": options.max_connections,
        "timeout": options.timeout,
    }
    section = getattr(config, stage)
    if stage == "scores":
        resources |= {"dtype": section.dtype}
    name = section.judge if stage == "scores" else section.model
    return ModelSpec(name, revision=section.revision, base_url=section.base_url, **resources)


class ConfiguredModels:
    """Loads the models that the settings name."""

    def __init__(self, config: Config, options: ExecutionOptions, progress: Progress) -> None:
        self._config = config
        self._options = options
        self._progress = progress

    def generator(self, stage: Literal["answers", "summaries"]) -> StageGenerator:
        """Load the stage's generator. Raises as :func:`~selfreflect.models.base.load_generator`."""
        return load_generator(stage_model(self._config, self._options, stage), self._progress.note)

    def judge(self) -> Judge:
        """Load the judge. Raises as :func:`~selfreflect.models.base.load_judge`."""
        scores = self._config.scores
        spec = stage_model(self._config, self._options, "scores")
        compat: Any = scores.compat  # load_config has checked it
        judge = load_judge(spec, compat=compat, progress=self._progress.note)
        if judge.last_states is not None:
            self._progress.note(
                f"the hidden states of {scores.judge} are not checked: vLLM must return the last token's"
            )
        return judge


def load_stage_model(
    stage: Literal["answers", "summaries", "scores"], models: ModelProvider
) -> StageGenerator | Judge:
    """The model that a stage works with."""
    return models.judge() if stage == "scores" else models.generator(stage)


def load_measures(judge: Judge, config: Config, options: ExecutionOptions, progress: Progress) -> Measures:
    """The measures, with the limits that the settings name."""
    from selfreflect.metric.engine.attention import library
    from selfreflect.metric.measures import Measures
    from selfreflect.metric.scorer import SelfReflect

    if judge.last_states is None and (judge.lm.device, judge.lm.dtype) == ("cpu", "float32"):
        compiled = library()
        if isinstance(compiled, str):
            progress.note(f"scoring is slower without its C code: {compiled}")
    scores = config.scores
    if scores.controls and scores.limits is not None:
        progress.note("no controls are measured under --budget, --se or --race")
    metric = SelfReflect(
        judge, limits=scores.limits, guesses=options.guesses, cache=options.cache, warn=progress.note
    )
    reader: Any = scores.reader  # load_config has checked it
    return Measures(
        metric,
        scores="selfreflect" in scores.measure_names,
        information="information" in scores.measure_names,
        controls=scores.controls,
        reader=reader,
    )
