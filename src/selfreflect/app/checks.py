"""What is looked at before a job starts: whether its models can do it, and what it costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from selfreflect.app.choices import ModelChoices
from selfreflect.app.guard import problem
from selfreflect.app.schemas import AskBody, RequestBody
from selfreflect.errors import SelfReflectError
from selfreflect.models.backend import check_loadable
from selfreflect.models.base import ModelSpec
from selfreflect.pipeline.costs import reasons_to_ask, sum_up
from selfreflect.pipeline.dry_run import DryRun
from selfreflect.pipeline.models import ConfiguredModels, ModelProvider, Quiet, stage_model
from selfreflect.pipeline.preflight import check_sampling, server_stages
from selfreflect.pipeline.tasks import ModelStage
from selfreflect.prompts import load_prompts
from selfreflect.records import Question, SamplingCheck, question_id
from selfreflect.report.findings import sampling_warning
from selfreflect.settings import Config, ExecutionOptions
from selfreflect.store.run import Run
from selfreflect.web.paths import without_paths

_REMEMBERED = 600.0
"""Seconds for which a server is not asked again whether it samples."""

_GENERATING: tuple[ModelStage, ...] = ("answers", "summaries")


@contextmanager
def prompts_of(body: RequestBody) -> Iterator[Path | None]:
    """The file of prompts of a request: None for the paper's, else those of the demo, for short answers."""
    short_answers = resources.files("selfreflect") / "data" / "demo_prompts.toml"
    with resources.as_file(short_answers) as path:
        yield path if isinstance(body, AskBody) and body.brief else None


def question_of(body: RequestBody) -> Question:
    context = body.context.strip()
    return Question(id=question_id(body.question, context), text=body.question, context=context)


class Preflight:
    """Checks and estimates requests. Threads may share it."""

    def __init__(self, choices: ModelChoices, options: ExecutionOptions) -> None:
        self._choices = choices
        self._options = options
        self.checked: dict[Any, tuple[float, dict[ModelStage, SamplingCheck]]] = {}
        """What the last server gave for samples, and when."""

    def check(self, body: AskBody) -> dict[str, Any]:
        """Look for what would fail later, or make results worthless: names, keys, files, a server's samples.

        Raises:
            ConfigError: a model may not be used.
        """
        config = self._choices.config(body)
        problems = []
        fields: tuple[tuple[ModelStage, str], ...] = (("answers", "model"), ("scores", "judge"))
        for stage, field in fields:
            try:
                _check_model(stage_model(config, self._options, stage))
            except SelfReflectError as error:
                problems.append({"field": field, **problem(error)})
        warnings: list[str] = []
        if not problems:
            try:
                models = ConfiguredModels(config, self._options, Quiet())
                checks = dict.fromkeys(self.sampling(config, models).values())
                warnings = [sampling_warning(check) for check in checks if check.is_suspect]
            except SelfReflectError as error:
                problems.append({"field": "model", **problem(error)})
        return {"problems": problems, "warnings": list(map(without_paths, warnings))}

    def sampling(self, config: Config, models: ModelProvider) -> dict[ModelStage, SamplingCheck]:
        """Ask each server for two samples, unless it was asked some minutes ago.

        Raises:
            BackendError: a server cannot be used.
        """
        servers = server_stages(_GENERATING, config, self._options)
        if not servers:
            return {}
        key = _servers_key(config)
        checked_at, checks = self.checked.get(key, (0.0, {}))
        if not checks or time.monotonic() - checked_at > _REMEMBERED:
            checks = check_sampling(servers, config, models)
            self.checked = {key: (time.monotonic(), checks)}
        return checks

    def estimate(self, body: AskBody) -> dict[str, Any]:
        """Count the calls, tokens and money of a question, without asking a server.

        Raises:
            ConfigError: a model may not be used.
        """
        config = self._choices.config(body)
        run = Run.in_memory(Path())
        run.add_in_memory([question_of(body)])
        with prompts_of(body) as prompts:
            options = replace(self._options, prompts=prompts)
            dry_run = DryRun(run, config, load_prompts(prompts), options, Quiet(), load_models=False)
        dry_run.answers()
        dry_run.summaries(body.strategies)
        stages, total = sum_up(dry_run)
        return {
            "stages": list(map(_stage_cost, stages)),
            "money": total.get("money"),
            "reasons": reasons_to_ask(dry_run, config),
        }


def _servers_key(config: Config) -> Any:
    """What decides how a server replies to the preflight."""
    answers, summaries = config.answers, config.summaries
    return (
        *(answers.model, answers.base_url, answers.temperature, answers.top_p),
        *(summaries.sample_temperature, summaries.sample_top_p),
    )


def _check_model(spec: ModelSpec) -> None:
    """Check one model, without its weights. The embedded one is there, or will be downloaded by the job.

    Its chat template is left to the job, whose process can be killed if the template never ends.
    """
    if spec.name != "smollm2":
        check_loadable(spec, template=False)


def _stage_cost(stage: dict[str, Any]) -> dict[str, Any]:
    names = ("calls", "completions", "prompt_tokens", "completion_tokens", "money")
    amounts = {name: stage[name] for name in names if name in stage}
    return {"stage": stage["stage"], "model": without_paths(stage["model"]), "amounts": amounts}
