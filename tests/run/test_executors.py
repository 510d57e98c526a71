"""Which executor a stage gets, and the options for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import run

from selfreflect.errors import BackendError, ConfigError
from selfreflect.prompts import load_prompts
from selfreflect.records import Question
from selfreflect.run.experiment import Executors
from selfreflect.run.models import ConfiguredModels, Quiet
from selfreflect.run.stages import StageSpec, StageTask
from selfreflect.settings import ExecutionOptions, load_config
from selfreflect.strategies.builtin import greedy


def stage_spec(
    stage: Any = "answers", model: str = "smollm2", strategies: tuple[Any, ...] = (), **options: Any
) -> StageSpec:
    section = {"judge": model} if stage == "scores" else {"model": model}
    if model.startswith("vllm+http:"):
        section["base_url"] = "http://localhost:1/v1"
    return StageSpec(
        stage, load_config(None, {stage: section}), load_prompts(), ExecutionOptions(**options), strategies
    )


class Listening(Quiet):
    """Remembers the notes."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)


class NoModels:
    """A provider that has no model."""

    def generator(self, stage: str) -> Any:
        raise BackendError("no model here")

    def judge(self) -> Any:
        raise BackendError("no judge here")


@pytest.mark.parametrize(
    ("options", "spec", "tasks", "said"),
    [
        ({}, stage_spec(), 2, True),
        ({"device": "cuda"}, stage_spec("scores"), 9, True),
        ({"device": "cuda:1"}, stage_spec(), 2, False),
        ({}, stage_spec(), 1, False),
        ({"device": "cpu"}, stage_spec(), 9, False),
        ({"device_map": "auto"}, stage_spec(), 9, False),
        ({}, stage_spec(model="openai:gpt"), 9, False),
        ({}, stage_spec(model="vllm:smollm2"), 9, False),
    ],
)
def test_gpus_that_would_stay_idle_are_told_with_the_executor_that_uses_them(
    options: dict[str, Any], spec: StageSpec, tasks: int, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    spec = replace(spec, options=ExecutionOptions(**options))
    progress = Listening()
    executors = Executors(spec.options, NoModels(), progress)
    with pytest.raises(BackendError, match="here"):  # this process loads the model
        executors.outcomes(spec, [StageTask(question=Question(id="q", text="?"))] * tasks)
    assert ["executor ray" in line for line in progress.lines] == [True] * said


def test_a_function_as_strategy_is_refused_where_it_cannot_go() -> None:
    spec = stage_spec("summaries", strategies=(("mine", greedy),), executor="ray")
    with pytest.raises(ConfigError, match="mine") as refused:
        executors_for(spec).outcomes(spec, [])
    assert refused.value.code == "cannot_travel"


def executors_for(spec: StageSpec) -> Executors:
    models = ConfiguredModels(spec.config, spec.options, Quiet())
    return Executors(spec.options, models, Quiet())


def test_a_file_of_items_is_scored_here(tmp_path: Path) -> None:
    refused = run("score", "--items", tmp_path / "none.json", "--executor", "ray")
    assert refused.code == 2
    assert "belong to --out" in refused.said
