"""How actors are laid out on a cluster, and the settings for it. No cluster runs here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from command import run, written

from selfreflect.errors import ConfigError
from selfreflect.prompts import load_prompts
from selfreflect.run.experiment import Executors
from selfreflect.run.models import ConfiguredModels, Quiet
from selfreflect.run.ray_executor import place_actors
from selfreflect.run.stages import StageSpec
from selfreflect.settings import ExecutionOptions, load_config

LAPTOP = [{"CPU": 8.0}]
CPUS = [{"CPU": 8.0}, {"CPU": 16.0}, {"memory": 1.0}]
GPUS = [{"CPU": 16.0}, {"CPU": 32.0, "GPU": 4.0}, {"CPU": 8.0, "GPU": 1.0}]


def layout(
    machines: Any,
    model: str = "smollm2",
    stage: Any = "answers",
    device: str = "auto",
    device_map: str | None = None,
    **wanted: Any,
) -> tuple[Any, ...]:
    settings: dict[str, Any] = {"ray": {stage: wanted}}
    settings[stage] = {"judge": model} if stage == "scores" else {"model": model}
    if model.startswith("vllm+http:"):
        settings[stage]["base_url"] = "http://localhost:8000/v1"
    job = StageSpec(
        stage,
        load_config(None, settings),
        load_prompts(),
        ExecutionOptions(executor="ray", device=device, device_map=device_map),
    )
    placement = place_actors(job, machines)
    return placement.actors, placement.gpus, placement.cpus, placement.batch_questions


@pytest.mark.parametrize(
    ("machines", "given", "found"),
    [
        (LAPTOP, {}, (1, 0, 8, 8)),
        (LAPTOP, {"cpus": 2}, (4, 0, 2, 8)),
        (LAPTOP, {"actors": 2, "batch_questions": 3}, (2, 0, 8, 3)),
        (LAPTOP, {"stage": "scores"}, (1, 0, 8, 1)),
        (CPUS, {}, (3, 0, 8, 8)),
        (GPUS, {}, (5, 1, 1, 8)),
        (GPUS, {"stage": "scores", "gpus": 0.5}, (10, 0.5, 1, 1)),
        (GPUS, {"stage": "scores", "gpus": 0.3}, (15, 0.3, 1, 1)),
        (GPUS, {"gpus": 2, "device_map": "auto"}, (2, 2, 1, 8)),
        (GPUS, {"gpus": 1, "model": "vllm:big"}, (5, 1, 1, 8)),
        (GPUS, {"model": "openai:gpt", "device_map": "auto"}, (1, 0, 1, 32)),
        (GPUS, {"gpus": 0}, (7, 0, 8, 8)),
        (GPUS, {"device": "cpu"}, (7, 0, 8, 8)),
        (GPUS, {"model": "openai:gpt"}, (1, 0, 1, 32)),
        (GPUS, {"model": "openai:gpt", "actors": 3, "cpus": 0.25}, (3, 0, 0.25, 32)),
        (GPUS, {"model": "vllm+http:m", "stage": "scores"}, (1, 0, 1, 1)),
    ],
)
def test_actors_fill_the_cluster_where_nothing_else_is_said(
    machines: Any, given: dict[str, Any], found: tuple[Any, ...]
) -> None:
    assert layout(machines, **given) == found


@pytest.mark.parametrize(
    ("machines", "given", "parts"),
    [
        (GPUS, {"gpus": 8}, ["[ray.answers]", "1 cpus and 8 gpus", "32 CPUs and 4 GPUs"]),
        (LAPTOP, {"stage": "scores", "cpus": 9}, ["[ray.scores]", "9 cpus and 0 gpus", "8 CPUs and 0 GPUs"]),
        (GPUS, {"gpus": 0, "device": "cuda"}, ["cuda", "gpus is 0"]),
        ([], {}, ["[ray.answers]"]),
        (GPUS, {"device_map": "auto"}, ["[ray.answers]", "gpus = 2", "has 1"]),
        (LAPTOP, {"stage": "scores", "device_map": "auto"}, ["[ray.scores]", "gpus = 2", "has 0"]),
        (GPUS, {"gpus": 4, "model": "vllm:big"}, ["[ray.answers]", "'vllm:big'", "gpus is 4"]),
        (GPUS, {"gpus": 2}, ["'smollm2'", "gpus is 2"]),
    ],
)
def test_an_actor_that_cannot_work_is_refused_at_once(
    machines: Any, given: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        layout(machines, **given)
    assert caught.value.code == "placement"
    assert [part for part in parts if part not in str(caught.value)] == []


# --- before any cluster is looked for


def answers(tmp_path: Path, *more: object) -> Any:
    questions = written(tmp_path / "q.txt", "What first?\nWho?\n")
    return run("answers", "--questions", questions, "--num-answers", 1, "--out", tmp_path / "r", *more)


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "ray.py", "raise ModuleNotFoundError('ray')")
    monkeypatch.syspath_prepend(tmp_path)  # which the driver's process inherits
    refused = answers(tmp_path, "--executor", "ray")
    assert refused.code == 2
    assert "pip install '.[ray]'" in refused.said


def test_an_error_of_ray_itself_is_one_line_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "class exceptions:\n"
        "    class RayError(Exception): ...\n"
        "    class RayTaskError(RayError): ...\n"
        "def init(**options): ...\n"
        "def shutdown(): ...\n"
        "def nodes():\n"
        "    raise exceptions.RayError('some ids\\nthe object store is full')\n"
    )
    written(tmp_path / "ray.py", code)
    monkeypatch.syspath_prepend(tmp_path)  # which the driver's process inherits
    failed = answers(tmp_path, "--executor", "ray")
    assert failed.code == 2
    assert "the object store is full" in failed.said
    assert "Traceback" not in failed.said


def test_rays_client_is_refused_with_the_way_out(tmp_path: Path) -> None:
    refused = answers(tmp_path, "--executor", "ray", "--ray-address", "ray://10.0.0.1:10001")
    assert refused.code == 2
    assert "'ray://10.0.0.1:10001'" in refused.said
    assert "--ray-address" in refused.said


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--executor", "rai"], "Invalid value for '--executor': 'rai' is not one of 'local', 'ray'."),
        (["--ray-address", "auto"], "--executor ray"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, options: list[str], part: str) -> None:
    refused = answers(tmp_path, *options)
    assert refused.code == 2
    assert part in refused.said
    assert not (tmp_path / "r").exists()


def test_credentials_of_another_stage_do_not_travel_either() -> None:
    config = load_config(
        None, {"answers": {"model": "openai:m", "base_url": "http://me:topsecret@127.0.0.1:1/v1"}}
    )
    job = StageSpec("scores", config, load_prompts(), ExecutionOptions(executor="ray"))
    with pytest.raises(ConfigError, match="credentials") as caught:
        Executors(job.options, ConfiguredModels(job.config, job.options, Quiet()), Quiet()).outcomes(job, [])
    assert "topsecret" not in str(caught.value)


def test_a_rehearsal_needs_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    counted = answers(
        tmp_path,
        "--executor",
        "ray",
        "--model",
        "openai:m",
        "--base-url",
        "http://127.0.0.1:1/v1",
        "--dry-run",
        "--json",
    )
    assert counted.code == 0, counted.stderr
    assert counted.json
