"""Both stages of training, on a tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_chat import chatml, save_lm

from selfreflect.cli import sayself as steps
from selfreflect.errors import ConfigError, DataError
from selfreflect.train.rewards.base import BatchColumns, Outcome
from selfreflect.train.sayself import evaluation, training
from selfreflect.train.sayself.clusters import Cluster, ClusteredQuestion
from selfreflect.train.sayself.examples import SplitQuestion, Workspace
from selfreflect.train.sayself.training import (
    PRESETS,
    StatedConfidenceReward,
    StatementReward,
    TrainingPlan,
)
from selfreflect.train.trainers import RECORD, AdapterTraining

TINY = replace(
    PRESETS["small"].training,
    lora_rank=4,
    epochs=1,
    batch=2,
    micro_batch=2,
    max_length=96,
    steps=2,
    questions=1,
    completions=4,
)


class LongestText(StatedConfidenceReward):
    """A random model states no confidence. So that its completions differ, longer ones are better."""

    def outcomes(self, texts: Any, columns: BatchColumns) -> list[Outcome]:
        super().outcomes(texts, columns)
        return [float(len(str(text))) for text in texts]


def row(number: int, marker: str = "") -> dict[str, Any]:
    return {
        "question_id": str(number),
        "prompt": [{"role": "user", "content": f"Question {number}{marker}?"}],
        "completion": [{"role": "assistant", "content": f"Answer: yes. Confidence: {number}"}],
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_lm(tmp_path_factory.mktemp("tiny") / "model", chatml())


def record(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / RECORD).read_text())
    return loaded


def test_both_stages_change_weights(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The published second stage clips all gradients to 0, so no weight ever moves."""
    rows = [row(1), row(2), row(3, "<|im_end|>")]
    first = AdapterTraining(model, tmp_path / "sft", TINY).fine_tune(rows)
    assert record(first)["rows"] == 2  # not the one with a marker of the template
    assert record(first)["metrics"]["change"] > 0
    begun = {
        "question_id": "1",
        "prompt": [*row(1)["prompt"], {"role": "assistant", "content": "Answer: yes. Confidence:"}],
        "correct": True,
    }
    seen: list[str] = []
    called = LongestText.__call__

    def spy(self: Any, prompts: Any, completions: Any, *rest: Any, **columns: Any) -> Any:
        seen.extend(prompts)
        return called(self, prompts, completions, *rest, **columns)

    monkeypatch.setattr(LongestText, "__call__", spy)
    further = AdapterTraining(model, tmp_path / "rl", TINY, adapter=first)
    second = further.reinforce([begun], LongestText())
    assert record(second)["metrics"]["change"] > 0
    steps = [entry for entry in record(second)["log"] if "kl" in entry]
    assert float(steps[0]["kl"]) == 0  # the fine-tuned model is what it is compared with
    rates = [float(entry["learning_rate"]) for entry in steps]
    assert rates == [TINY.reinforcement_rate, TINY.reinforcement_rate / 2]  # the published one never falls
    assert len(seen) == 8
    assert all(text.endswith("Answer: yes. Confidence:") for text in seen)


def test_a_text_that_closes_its_own_turn_is_not_trained_on(model: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to train on"):
        AdapterTraining(model, tmp_path / "sft", TINY).fine_tune([row(1, "<|im_end|>")])


class LongestStatement(StatementReward):
    """As LongestText, for whole statements."""

    def outcomes(self, texts: Any, columns: BatchColumns) -> list[Outcome]:
        assert columns.lists("gold", single=True) == [("yes",)] * len(texts)
        super().outcomes(texts, columns)
        return [float(len(str(text))) for text in texts]


def test_train_all_draws_whole_statements(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--train all`` begins at the question, so the answer is trained, too."""
    workspace = Workspace(tmp_path)
    question = ClusteredQuestion(
        id="1", question="Question 1?", gold=("yes",), clusters=(Cluster(answer="yes", size=1),)
    )
    workspace.write("clusters.jsonl", [question])
    workspace.write("splits.jsonl", [SplitQuestion(question_id="1", part="rl")])
    texts = {"question": "Question 2?", "response": "Answer: yes. Confidence: 2"}
    workspace.write("data/full/train.jsonl", [row(2) | texts])
    preset = replace(PRESETS["small"], training=replace(TINY, model=model))
    first = AdapterTraining(model, workspace.adapter("full", 0).folder, preset.training)
    first.fine_tune(workspace.examples("full"))
    drawn: list[str] = []
    called = LongestStatement.__call__

    def spy(self: Any, prompts: Any, completions: Any, *rest: Any, **columns: Any) -> Any:
        drawn.extend(prompt[-1]["role"] for prompt in prompts)
        return called(self, prompts, completions, *rest, **columns)

    monkeypatch.setattr(LongestStatement, "__call__", spy)
    monkeypatch.setattr(training, "StatementReward", LongestStatement)
    monkeypatch.setattr(evaluation, "MAX_TOKENS", 12)
    steps.train(TrainingPlan(tmp_path, preset, "rlcr", "exact", whole=True), ["full"], [0])
    adapter = workspace.adapter("full", 0, "rlcr-all").folder
    assert record(adapter)["metrics"]["change"] > 0
    assert max(entry.get("completions/max_length", 0) for entry in record(adapter)["log"]) == 12
    assert drawn == ["user"] * 8
    steps.train(TrainingPlan(tmp_path, preset, "rlcr", "exact", whole=True), ["full"], [0])
    assert len(drawn) == 8
    with pytest.raises(ConfigError, match=r"reward \(statement_rlcr by exact then, .* by substring now"):
        steps.train(TrainingPlan(tmp_path, preset, "rlcr", "substring", whole=True), ["full"], [0])
    useless = record(adapter) | {"metrics": {"change": 0.0}}
    (adapter / RECORD).write_text(json.dumps(useless))
    with pytest.raises(DataError, match="training changed no weight"):  # again, and not "done"
        steps.train(TrainingPlan(tmp_path, preset, "rlcr", "exact", whole=True), ["full"], [0])


RANKS = """
import os, sys
from dataclasses import replace
from pathlib import Path
from selfreflect.train.sayself.training import PRESETS
from selfreflect.train.sayself.training import StatedConfidenceReward
from selfreflect.train.trainers import AdapterTraining

class Rank(StatedConfidenceReward):
    def outcomes(self, texts, columns):
        return [float(os.environ["RANK"])] * len(texts)

small = replace(PRESETS["small"].training, lora_rank=4, steps=1, questions=2, completions=2, micro_batch=2)
prompt = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Answer: I. Confidence:"}]
rows = [{"prompt": prompt, "correct": True}] * 2
AdapterTraining(sys.argv[1], Path(sys.argv[2]), small).reinforce(rows, Rank())
"""


@pytest.mark.slow
def test_figures_are_of_all_processes(model: str, tmp_path: Path) -> None:
    """The published code logs the figures of whichever process writes last."""
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    subprocess.run([*command, script, model, tmp_path / "rl"], check=True, timeout=300)
    assert float(record(tmp_path / "rl")["log"][0]["reward"]) == 0.5
