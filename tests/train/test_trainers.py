"""Adapters trained with TRL: both stages, a resume after a kill, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import run
from msgspec.structs import replace
from tiny_chat import chatml, save_lm

from selfreflect.errors import ConfigError, DataError, MissingExtraError
from selfreflect.models.base import ModelSpec
from selfreflect.models.local.loading import load_causal_lm
from selfreflect.store.run import Run
from selfreflect.train.rewards import ConsistencyReward
from selfreflect.train.rewards.base import BatchColumns, Outcome
from selfreflect.train.trainers import (
    INPUT,
    PRESETS,
    RECORD,
    Preset,
    Training,
    import_trl,
    load_preset,
    read_record,
)

RECIPES = Path(__file__).parents[2] / "recipes"


def row(number: int, marker: str = "") -> dict[str, Any]:
    return {
        "question_id": str(number),
        "prompt": [{"role": "user", "content": f"Question {number}{marker}?"}],
        "completion": [{"role": "assistant", "content": f"Answer: yes. Confidence: {number}"}],
        "answers": ["yes", "no"],
    }


ROWS = [row(1), row(2), row(3, "<|im_end|>")]
BEGUN: dict[str, Any] = {
    "prompt": [*row(1)["prompt"], {"role": "assistant", "content": "Answer: yes. Confidence:"}],
    "answers": ["yes", "no"],
}


class Longest(ConsistencyReward):
    """A random model states no confidence. So that its completions differ, longer ones are better."""

    seen: list[Any]

    def outcomes(self, texts: Any, columns: BatchColumns) -> list[Outcome]:
        super().outcomes(texts, columns)
        return [float(len(str(text))) for text in texts]

    def __call__(self, prompts: Any, *rest: Any, **columns: Any) -> Any:
        self.seen += prompts
        return super().__call__(prompts, *rest, **columns)


@pytest.fixture
def reward() -> Longest:
    made = Longest()
    made.seen = []
    return made


@pytest.fixture(scope="module")
def preset(tmp_path_factory: pytest.TempPathFactory) -> Preset:
    model = save_lm(tmp_path_factory.mktemp("tiny") / "model", chatml())
    small = load_preset("small", model)
    steps = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 1, "save_steps": 1}
    return replace(
        small,
        lora={**small.lora, "r": 4},
        sft={**small.sft, **steps, "num_train_epochs": 2, "max_length": 96},
        grpo={**small.grpo, **steps, "num_generations": 2, "max_steps": 4, "max_completion_length": 8},
    )


def test_both_stages_make_adapters_that_load(
    preset: Preset, reward: Longest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The published second stage clips all gradients to 0, so no weight ever moves."""
    from huggingface_hub import constants

    first = Training(preset, ROWS, tmp_path / "sft")
    assert "weights moved by" in first.run()
    assert first.run() == f"{tmp_path / 'sft'}: done"
    shown = capsys.readouterr()
    assert shown.out == ""  # JSON lines of a command stay readable
    assert "Warning" not in shown.err
    second = Training(preset, [BEGUN], tmp_path / "rl", start=tmp_path / "sft", reward=reward)
    second.run()
    assert constants.HF_HUB_DISABLE_TELEMETRY
    records = read_record(tmp_path / "sft"), read_record(tmp_path / "rl")
    assert [(record["method"], record["rows"]) for record in records if record] == [("sft", 2), ("grpo", 1)]
    assert all(record["metrics"]["change"] > 0 for record in records if record)
    steps = [entry for entry in records[1]["log"] if "kl" in entry]  # type: ignore[index]
    assert float(steps[0]["kl"]) == 0  # the fine-tuned model is what it is compared with
    assert float(steps[-1]["learning_rate"]) < float(
        steps[0]["learning_rate"]
    )  # the published one never falls
    assert len(reward.seen) == 8
    assert all(text.endswith("Answer: yes. Confidence:") for text in reward.seen)
    assert not (tmp_path / "rl/ref").exists()
    lm = load_causal_lm(ModelSpec(str(tmp_path / "rl"), device="cpu"))
    assert lm.revision.startswith("adapter ")
    assert lm.revision.endswith(f" of {preset.model}")
    (tmp_path / "questions.txt").write_text("What grows in a pot?\n")
    drawn = run(
        *("answers", "--questions", tmp_path / "questions.txt", "--out", tmp_path / "run"),
        *("--model", tmp_path / "rl", "--num-answers", 1, "--max-new-tokens", 4),
    )
    assert drawn.code == 0, drawn.said
    [answers] = Run.load(tmp_path / "run").answers.values()
    assert answers.revision == lm.revision


@pytest.mark.parametrize("stage", ["sft", pytest.param("grpo", marks=pytest.mark.slow)])
def test_a_resumed_training_ends_as_if_it_had_not_been_interrupted(
    stage: str, preset: Preset, reward: Longest, tmp_path: Path
) -> None:
    """Also in its questions, which come in a new order each time round."""
    rewards = {"reward": reward} if stage == "grpo" else {}
    Training(preset, ROWS, tmp_path / "out", **rewards).run()  # type: ignore[arg-type]
    weights = (tmp_path / "out/adapter_model.safetensors").read_bytes()
    before = max((tmp_path / "out").glob("checkpoint-*"), key=lambda path: -int(path.name.rpartition("-")[2]))
    shutil.copytree(before, tmp_path / "killed" / before.name)
    (tmp_path / "killed/checkpoint-9").mkdir()  # which a kill left before its last file was written
    Training(preset, ROWS, tmp_path / "killed", **rewards).run()  # type: ignore[arg-type]
    assert (tmp_path / "killed/adapter_model.safetensors").read_bytes() == weights
    assert (before / "adapter_model.safetensors").read_bytes() != weights


def test_another_input_is_refused(preset: Preset, reward: Longest, tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    folder.mkdir()
    done = Training(preset, ROWS, folder)
    (folder / INPUT).write_text(json.dumps({**done.input, "model": "another"}))
    assert not done.is_done()  # neither a record nor a checkpoint: it begins anew
    (folder / INPUT).write_text(json.dumps(done.input))
    (folder / RECORD).write_text(json.dumps({"base": "m", "metrics": {"change": 1.0}}))
    assert done.is_done()
    slower = replace(preset, sft={**preset.sft, "save_steps": 7})
    assert Training(slower, ROWS, folder).is_done()
    for other, key in (
        (Training(preset, ROWS[:1], folder), "rows ("),
        (Training(replace(preset, model="m"), ROWS, folder), "model ("),
        (Training(replace(preset, lora={"r": 9}), ROWS, folder), "r (was 4, is now 9)"),
    ):
        with pytest.raises(ConfigError) as refused:
            other.is_done()
        assert refused.value.code == "other_input"
        assert key in refused.value.message
    earlier = {"rows": done.input["rows"], "lora_rank": 64}  # settings under the names of earlier versions
    (folder / INPUT).write_text(json.dumps(earlier))
    assert done.is_done()
    rewarded = Training(preset, ROWS, folder, start=folder, reward=reward)
    assert rewarded.input["reward"] == reward.criterion
    assert rewarded.input["start"]
    (folder / RECORD).write_text(json.dumps({"base": "m", "metrics": {"change": 0.0}}))
    with pytest.raises(DataError) as unchanged:
        done.is_done()
    assert unchanged.value.code == "unchanged"
    (folder / RECORD).write_text("{")
    with pytest.raises(DataError) as damaged:
        done.is_done()
    assert damaged.value.code == "damaged"


def test_what_cannot_be_trained_is_refused(
    preset: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError) as marked:
        Training(preset, ROWS[2:], tmp_path / "a").run()
    assert marked.value.code == "no_rows"
    with pytest.raises(ConfigError) as remote:
        Training(replace(preset, model="openai:gpt"), ROWS, tmp_path / "a").run()
    assert remote.value.code == "not_local"
    with pytest.raises(DataError, match="'answers'"):
        Training(preset, [{"prompt": ROWS[0]["prompt"]}], tmp_path / "a", reward=ConsistencyReward()).run()
    monkeypatch.setitem(sys.modules, "trl", None)
    with pytest.raises(MissingExtraError, match=r"\[train\]"):
        Training(preset, ROWS, tmp_path / "a").run()


@pytest.mark.parametrize("name", PRESETS)
def test_trl_takes_the_presets(name: str, tmp_path: Path) -> None:
    preset = replace(load_preset(name), device="cpu")
    placed = Training(preset, [], tmp_path)._placed()
    assert import_trl().SFTConfig(**preset.sft, **placed).learning_rate == preset.sft["learning_rate"]
    grpo = import_trl().GRPOConfig(**preset.grpo, **placed)
    assert grpo.generation_batch_size == preset.step_questions * grpo.num_generations
    assert grpo.scale_rewards == "none"


@pytest.mark.parametrize("method", ["sft", "dpo", "grpo"])
def test_trl_knows_every_setting_of_a_recipe(method: str, tmp_path: Path) -> None:
    import trl
    from trl.scripts.grpo import GRPOScriptArguments

    config = yaml.safe_load((RECIPES / f"{method}.yaml").read_text())
    arguments = getattr(trl, f"{method.upper()}Config")
    known = {*arguments.__dataclass_fields__, *trl.ModelConfig.__dataclass_fields__}
    assert config.keys() <= known | set(GRPOScriptArguments.__dataclass_fields__)
    made = {key: value for key, value in config.items() if key in arguments.__dataclass_fields__}
    arguments(**made, output_dir=str(tmp_path))


@pytest.mark.slow  # test_dataset.py proves by default that the rows load, and which columns they have
@pytest.mark.parametrize("method", ["sft", "dpo", "grpo"])
def test_trl_trains_with_a_recipe(method: str, preset: Preset, tmp_path: Path) -> None:
    rows = {"chosen": row(1)["completion"], "rejected": row(2)["completion"], "gold": ["yes"]}
    columns = {"sft": ["prompt", "completion"], "dpo": ["prompt", "chosen", "rejected"]}
    (tmp_path / "data").mkdir()
    lines = []
    for example in ({**row(number), **rows} for number in range(4)):
        lines.append({key: example[key] for key in columns.get(method, ["prompt", "gold"])})
    (tmp_path / "data/train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "mine.py").write_text(
        "from selfreflect.train.rewards import RLCRReward\nreward = RLCRReward()\n"
    )
    short = {"sft": "--max_steps=1", "dpo": "--max_steps=1", "grpo": "--reward_funcs=mine.reward"}[method]
    command = [Path(sys.executable).with_name("trl"), method, "--config", RECIPES / f"{method}.yaml", short]
    command += ["--dataset_name", "data", "--model_name_or_path", preset.model, "--output_dir", "out"]
    command += ["--max_steps=1", "--max_completion_length=4"] if method == "grpo" else []
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300, env=environment)
    assert load_causal_lm(ModelSpec(str(tmp_path / "out"), device="cpu")).revision.startswith("adapter ")
