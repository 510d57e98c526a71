"""Where a stage runs: in this process, or on Ray.

Only the work runs elsewhere. The experiment stays the one writer of the run directory, and an executor gives
it the outcome of each batch once.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from selfreflect.errors import ConfigError, excerpt
from selfreflect.models.backend import backend_of
from selfreflect.run.models import ModelProvider, Progress, load_stage_model
from selfreflect.run.stages import Outcome, StageSpec, StageTask, stage_fn
from selfreflect.settings import ExecutionOptions
from selfreflect.text import without_credentials

if TYPE_CHECKING:
    from selfreflect.run.ray_executor import RayExecutor


class Executors:
    """Runs stages in this process, or on Ray, which is started when it is first needed."""

    def __init__(self, options: ExecutionOptions, models: ModelProvider, progress: Progress) -> None:
        self.models = models
        self._options = options
        self._progress = progress
        self._cluster: RayExecutor | None = None

    def outcomes(self, spec: StageSpec, tasks: Sequence[StageTask]) -> Generator[Outcome, None, None]:
        """Load the stage's model, and return the results of the tasks, batch by batch in any order.

        An outcome with an error is the last.

        Raises:
            ConfigError: the stage cannot run where the options say.
            MissingExtraError: Ray is not installed.
            SelfReflectError: at once, if the model cannot be loaded here.
            BackendError: while iterating, if workers are lost.
        """
        if self._options.executor == "ray":
            _check_can_travel(spec)
            if self._cluster is None:
                from selfreflect.run.ray_executor import RayExecutor

                self._cluster = RayExecutor(self._options.ray_address)
            return self._cluster.outcomes(spec, tasks)
        if len(tasks) > 1 and _takes_one_gpu(spec):
            from selfreflect.models.local.machine import count_gpus

            if (gpus := count_gpus()) > 1:
                self._progress.note(f"{gpus} GPUs are visible and one is used; the executor ray uses all")
        model = load_stage_model(spec.stage, self.models, spec.config)
        return stage_fn(spec, model, self._progress)(tasks)

    def close(self) -> None:
        """Stop the workers."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def _check_can_travel(spec: StageSpec) -> None:
    """Raise ConfigError for what Ray cannot or must not carry to its workers."""
    for strategy in spec.strategies:
        if not isinstance(strategy, str):
            name = excerpt(strategy[0])
            raise ConfigError(
                f"strategy {name} is a function, which Ray cannot carry to its workers",
                code="cannot_travel",
                remedy="Name it as package.module:function.",
            )
    # a spec carries the settings of all stages
    for stage in ("answers", "summaries", "scores"):
        url = getattr(spec.config, stage).base_url
        if url is not None and without_credentials(url) != url:
            raise ConfigError(
                "the base URL holds credentials, which would travel through Ray",
                code="cannot_travel",
                remedy=f"Leave them out of {{{stage}.base_url}}, and set SELFREFLECT_API_KEY in the "
                "environment of the workers.",
            )


def _takes_one_gpu(spec: StageSpec) -> bool:
    """Tell whether the stage's model goes to the first GPU, if there is one."""
    options = spec.options
    is_torch = backend_of(spec.model.name).is_torch
    return is_torch and options.device_map is None and options.device in ("auto", "cuda")
