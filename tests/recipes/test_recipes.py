"""The recipes as they are called; `tests/train/test_trainers.py` trains, and docs/train.md runs one."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tiny

from selfreflect.train.rewards import InformationReward

RECIPES = Path(__file__).parents[2] / "recipes"
ROW = {
    "question_id": "q1",
    "question": "What should I plant?",
    "prompt": [{"role": "user", "content": "What should I plant?"}],
    "completion": [{"role": "assistant", "content": "Peas"}],
    "chosen": [{"role": "assistant", "content": "Peas"}],
    "rejected": [{"role": "assistant", "content": "Oaks"}],
    "answers": ["peas", "Peas."],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "train.jsonl").write_text(json.dumps(ROW) + "\n")
    (tmp_path / "splits.json").write_text(json.dumps({"model": "smollm2"}))
    return tmp_path


def recipe(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> Any:
    monkeypatch.syspath_prepend(str(RECIPES))
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
    return runpy.run_path(str(RECIPES / f"{name}.py"))


@pytest.mark.parametrize(
    ("name", "rate"), [("sft", 2e-4), ("dpo", 1e-5), ("grpo", 5e-6)], ids=["sft", "dpo", "grpo"]
)
def test_a_dry_run_prints_what_would_run_and_needs_no_gpu(
    name: str, rate: float, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "--data",
        data,
        "--out",
        data / "out",
        "--config",
        "gpu",
        "--set",
        "lora_rank=4",
        "--set",
        "epochs=0.5",
        "--dry-run",
    ]
    assert recipe(name, monkeypatch, *arguments)["main"]() == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["method"], plan["model"], plan["rows"]) == (name, "Qwen/Qwen2.5-7B-Instruct", 1)
    assert plan["LoRA"]["rank"] == 4
    assert plan["trainer"].get("num_train_epochs", 0.5) == 0.5
    assert plan["trainer"]["learning_rate"] == rate
    assert not (data / "out").exists()


@pytest.mark.parametrize("name", ["sft", "dpo"])
def test_a_dry_run_names_the_measure_and_the_judge_of_the_rows(
    name: str, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "splits.json").write_text(json.dumps({"measure": "recovered", "judge": "judge-1"}))
    recipe(name, monkeypatch, "--data", data, "--out", "out", "--dry-run")["main"]()
    plan = json.loads(capsys.readouterr().out)
    assert (plan["reward"], plan["judge"]) == ("recovered", "judge-1")
    assert (plan["rows"], plan["steps"], plan["passes"]) == (1, 1, 3)


@pytest.mark.parametrize(
    ("options", "reward", "judge", "warned"),
    [
        ([], "information", "smollm2", False),
        (["--reward", "selfreflect"], "selfreflect", "smollm2", True),
        (
            ["--reward", "selfreflect", "--judge", "Qwen/Qwen2.5-7B-Instruct"],
            "selfreflect",
            "Qwen/Qwen2.5-7B-Instruct",
            False,
        ),
        (["--reward", "brier"], "brier", None, False),
    ],
)
def test_a_dry_run_names_reward_and_judge_and_sets_steps_against_rows(
    options: list[str],
    reward: str,
    judge: str | None,
    warned: bool,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (data / "train.jsonl").write_text(f"{json.dumps(ROW)}\n" * 4)
    recipe("grpo", monkeypatch, "--data", data, "--out", "out", "--dry-run", *options)["main"]()
    plan = json.loads(capsys.readouterr().out)
    assert (plan["reward"], plan["judge"]) == (reward, judge)
    assert (plan["rows"], plan["steps"], plan["passes"], "warning" in plan) == (4, 40, 40.0, True)
    assert ("reward_warning" in plan) == warned


def test_the_reader_follows_from_judge_and_contexts(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = recipe("grpo", monkeypatch)
    options = names["options"]()
    readers = {}
    for judge, context in (("smollm2", ""), ("smollm2", "It is dry."), ("other", "")):
        arguments = options.parse_args(["--data", str(data), "--out", "x", "--judge", judge])
        reward = names["chosen_reward"](arguments, None, [{**ROW, "context": context}])
        assert isinstance(reward, InformationReward)
        readers[judge, context] = reward.reader
    assert list(readers.values()) == ["blind", "informed", "informed"]


def test_another_judge_than_the_run_was_scored_by_is_refused_unless_meant(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "splits.json").write_text(json.dumps({"judge": "smollm2"}))
    arguments = ["--data", data, "--out", "x", "--dry-run", "--judge"]
    assert recipe("grpo", monkeypatch, *arguments, "another")["main"]() == 2
    assert "summaries were scored by 'smollm2', not by 'another'" in capsys.readouterr().err
    assert recipe("grpo", monkeypatch, *arguments, "another", "--other-judge")["main"]() == 0
    (data / "splits.json").write_text(json.dumps({"judge": "smollm2, budget 6000"}))  # as runs are labelled
    assert recipe("grpo", monkeypatch, *arguments, "smollm2")["main"]() == 0
    names = recipe("grpo", monkeypatch)
    options = names["options"]().parse_args(["--data", str(data), "--out", "x"])
    assert names["chosen_reward"](options, None, []).spec.name == "smollm2"
    served = [*arguments, "vllm+http:smollm2", "--judge-url", "http://127.0.0.1:9/v1"]
    assert recipe("grpo", monkeypatch, *served)["main"]() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "stepz=3"], "no setting 'stepz'. Did you mean 'steps'? There are: name, model"),
        (["--set", "steps=many"], "steps must be int, not 'many'"),
        (["--data", "nothing"], "'nothing': there is no such file"),
    ],
)
def test_errors_are_sentences(
    arguments: list[str],
    message: str,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert recipe("sft", monkeypatch, "--data", data, "--out", "x", *arguments)["main"]() == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow  # test_trainers.py proves by default that the last whole checkpoint is taken
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["sft", "dpo", "grpo"])
def test_a_killed_recipe_ends_as_if_it_had_not_been_killed(name: str, tmp_path: Path) -> None:
    base = tiny.save(tmp_path / "base", "llama", attention_bias=False, mlp_bias=False)
    rows = [{**ROW, "prompt": [{"role": "user", "content": f"What is thing {place}?"}]} for place in range(5)]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    steps = "batch=1 epochs=4 steps=20 questions=1 completions=2 max_new_tokens=4 max_clipped=1 save_steps=1"
    rates = "lora_rank=2 preference_rate=0.01 reinforcement_rate=0.01"
    command = [sys.executable, RECIPES / f"{name}.py", "--data", data, "--model", base]
    for setting in f"{steps} {rates}".split():
        command += ["--set", setting]
    if name == "grpo":
        command += ["--reward", "selfreflect", "--judge", base]

    def finish(out: Path, *more: str) -> tuple[bytes, bytes, list[int]]:
        done = subprocess.run([*command, "--out", out, *more], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        record = json.loads((out / "training.json").read_text())
        files = (out / "adapter_model.safetensors", out / "adapter_config.json")
        weights, config = (file.read_bytes() for file in files)
        return weights, config, [entry["step"] for entry in record["log"]]

    out = tmp_path / "out"
    with subprocess.Popen([*command, "--out", out], stderr=subprocess.DEVNULL) as training:
        while not any(out.glob("checkpoint-[2-9]/trainer_state.json")):
            assert training.poll() is None
            time.sleep(0.02)
        training.kill()
    assert not (out / "training.json").exists()
    result = finish(out, "--resume")
    assert result[2] == [*range(1, 21)]
    assert result == finish(tmp_path / "calm")
