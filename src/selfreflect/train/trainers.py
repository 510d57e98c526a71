"""Training of LoRA adapters with TRL, with presets in TRL's own terms.

The folder of an adapter is a model that every command takes as ``--model``. It also holds checkpoints to
resume from, ``training.json`` (how it was trained) and ``training_input.json`` (on what).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from selfreflect.atomic import write_bytes
from selfreflect.errors import ConfigError, DataError, excerpt, optional
from selfreflect.models.backend import backend_of
from selfreflect.models.base import ModelSpec
from selfreflect.prompts import bundled_texts
from selfreflect.text import counted
from selfreflect.train.rewards.base import Reward

Rows = Sequence[dict[str, Any]]

RECORD = "training.json"
INPUT = "training_input.json"
_PACKAGES = ("selfreflect", "torch", "transformers", "trl", "peft")


class Preset(Struct, frozen=True, kw_only=True):
    """Settings of all steps, from sampling answers to training."""

    model: str
    device: Literal["cpu", "cuda"]
    reasoned: bool
    """Whether answers are sampled with their reasoning."""
    answers: dict[str, Any]
    """Settings of ``[answers]``."""
    limits: dict[str, int]
    lora: dict[str, Any]
    sft: dict[str, Any]
    grpo: dict[str, Any]

    @property
    def step_questions(self) -> int:
        """Number of questions per reinforcement step."""
        sequences = self.grpo["per_device_train_batch_size"] * self.grpo["gradient_accumulation_steps"]
        return max(1, int(sequences // self.grpo["num_generations"]))


PRESETS = ("small", "published", "qwen")


def load_preset(name: str, model: str | None = None) -> Preset:
    """Load a preset of ``data/sayself_presets.toml``, with its own model or another."""
    tables: Mapping[str, Mapping[str, Any]] = bundled_texts("sayself_presets.toml")
    settings = dict(tables["published"])
    for key, value in tables[name].items():
        settings[key] = {**settings[key], **value} if isinstance(value, dict) else value
    preset = msgspec.convert(settings, Preset)
    return preset if model is None else msgspec.structs.replace(preset, model=model)


def import_trl() -> Any:
    """Import TRL with telemetry disabled.

    Raises:
        MissingExtraError: TRL or peft is not installed.
    """
    if os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1") == "1":
        from huggingface_hub import constants

        constants.HF_HUB_DISABLE_TELEMETRY = True  # if it was imported before
    with optional("training", "train"):
        import peft  # noqa: F401
        import trl
    return trl


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Keep other output off stdout, and hide libraries' internal warnings."""
    with redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(transformers|trl|peft|accelerate|datasets|torch)\b")
        yield


@dataclass(frozen=True)
class Training:
    """Training of a LoRA adapter on completions, or by a reward of the model's completions."""

    preset: Preset
    rows: Rows
    """Rows with ``prompt`` and ``completion``, or for a reward with the columns that it reads."""
    folder: Path
    """Folder of the adapter."""
    seed: int = 0
    start: Path | None = None
    """Adapter to train further instead of a new one."""
    reward: Reward | None = None

    @cached_property
    def input(self) -> dict[str, Any]:
        """Inputs that identify the adapter: settings, and digests of rows and the earlier adapter."""
        digest = _digest(json.dumps(list(self.rows), sort_keys=True, default=str).encode())
        facts: dict[str, Any] = {"rows": f"{len(self.rows)}, {digest}", "model": self.preset.model}
        if self.start is not None and (self.start / RECORD).exists():
            facts["start"] = _digest((self.start / RECORD).read_bytes())
        if self.reward is not None:
            facts["reward"] = self.reward.criterion
        settings = self.preset.sft if self.reward is None else self.preset.grpo
        values = {**self.preset.lora, **settings}
        # what is saved and logged meanwhile has no effect on the weights
        return facts | {key: values[key] for key in values if key not in ("save_steps", "logging_steps")}

    def is_done(self) -> bool:
        """Check whether this training has finished.

        Raises:
            ConfigError: a training with another input has, or was interrupted.
            DataError: a file is damaged, or the training changed nothing.
        """
        record = read_record(self.folder)
        if record is None and last_checkpoint(self.folder) is None:
            return False
        differences = []
        for key, value in _read(self.folder / INPUT).items():
            if key in self.input and self.input[key] != value:
                differences.append(f"{key} (was {value}, is now {self.input[key]})")
        if differences:
            raise ConfigError(
                f"{self.folder} was trained with different input: {', '.join(differences)}",
                code="other_input",
                remedy="Move or delete that folder to train again.",
                folder=str(self.folder),
            )
        if record is not None and record["metrics"]["change"] == 0:
            raise DataError(
                f"{self.folder}: training changed no weight, so nothing was learned", code="unchanged"
            )
        return record is not None

    def run(self) -> str:
        """Train unless done, resuming from the last checkpoint, and return the outcome as a sentence.

        Raises:
            ConfigError: the model is not local, or :meth:`is_done` raises it.
            DataError: there is nothing to train on, the reward lacks a column, or nothing was learned.
            BackendError: the model cannot be loaded.
            MissingExtraError: TRL is not installed.
        """
        if self.is_done():
            return f"{self.folder}: done"
        with _quiet_libraries():
            self._train()
        self.is_done()  # raises if nothing was learned
        record = read_record(self.folder)
        if record is None:  # another process of this training writes it
            return f"{self.folder}: trained"
        change = record["metrics"]["change"]
        return f"{self.folder}: {counted(record['rows'], 'row')}; the weights moved by {change:.3g}."

    def _train(self) -> None:
        trl = import_trl()
        from datasets import Dataset

        from selfreflect.models.local.loading import locate
        from selfreflect.models.local.pretrained import read_model

        spec = ModelSpec.of(self.preset.model, device=self.preset.device)
        if not backend_of(spec.name).is_torch:
            raise ConfigError(
                f"{excerpt(spec.name)} cannot be trained here; give a local model", code="not_local"
            )
        source = locate(spec, None)
        model, tokenizer = read_model(source, {})
        rows = begun_prompts(without_markers(self.rows, tokenizer), tokenizer)
        if not rows:
            raise DataError(
                "there is nothing to train on: every row contains a marker of the chat template",
                code="no_rows",
            )
        model, lora = self._adapted(model, source.path)
        # before the first step, so that a resume after a kill can be compared with it
        checkpoint = last_checkpoint(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_bytes(self.folder / INPUT, json.dumps(self.input).encode())
        common = {"model": model, "processing_class": tokenizer, "peft_config": lora}
        if self.reward is None:
            # TRL tells the kind of a data set by its columns
            columns = [{name: row[name] for name in ("prompt", "completion")} for row in rows]
            arguments = trl.SFTConfig(**self.preset.sft, **self._placed())
            trainer = trl.SFTTrainer(args=arguments, train_dataset=Dataset.from_list(columns), **common)
        else:
            self.reward.prepare()  # a judge that cannot be loaded ends it before the first generation
            # in one order, since TRL's own would begin anew after a resume
            train_rows = Dataset.from_list(random.Random(self.seed).sample(rows, len(rows)))
            arguments = trl.GRPOConfig(**self.preset.grpo, **self._placed(), shuffle_dataset=False)
            rewards = [self.reward]
            trainer = trl.GRPOTrainer(
                reward_funcs=rewards, args=arguments, train_dataset=train_rows, **common
            )
        # the published second stage clipped all gradients to 0, which only the weights show
        weights = _trained_weights(trainer.model)
        began = time.monotonic()
        result = trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
        change = _distance(weights, _trained_weights(trainer.model))
        if trainer.is_world_process_zero():
            config = trainer.model.peft_config["default"]
            # so that the base is found from any working directory and, if embedded, in any cache
            config.base_model_name_or_path = _base_name(source.name, source.path)
            if not Path(source.path).is_dir():
                config.revision = source.revision or None
            # without the copy of an earlier adapter that GRPO compares with
            trainer.model.save_pretrained(
                self.folder, selected_adapters=["default"], save_embedding_layers=False
            )
            record = {
                "method": "sft" if self.reward is None else "grpo",
                "adapter": str(self.start) if self.start else None,
                "seed": self.seed,
                "base": config.base_model_name_or_path,
                "base_revision": source.revision,
                "rows": len(rows),
                "seconds": round(time.monotonic() - began, 1),
                "preset": asdict(self.preset),
                "metrics": result.metrics | {"change": change},
                "log": [entry for entry in trainer.state.log_history if "train_runtime" not in entry],
                "packages": {name: version(name) for name in _PACKAGES},
            }
            write_bytes(self.folder / RECORD, json.dumps(record, indent=1, default=str).encode())

    def _placed(self) -> dict[str, Any]:
        """Build TRL's arguments that depend on machine and folder."""
        is_cpu = self.preset.device == "cpu"
        return {
            "output_dir": str(self.folder),
            "seed": self.seed,
            "use_cpu": is_cpu,
            "bf16": not is_cpu,  # TRL's default; slower than float32 on processors without units for it
            "gradient_checkpointing": not is_cpu,  # saves memory that a CPU run does not lack
            "report_to": [],
            "save_total_limit": 2,
        }

    def _adapted(self, model: Any, base: str) -> tuple[Any, Any]:
        """Load an earlier adapter onto a base model, or make a new adapter's configuration."""
        import peft

        if self.start is None:
            lora = peft.LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM", **self.preset.lora)
            return model, lora
        adapted = peft.PeftModel.from_pretrained(model, self.start, is_trainable=True)
        # a directory, or peft asks the hub about "smollm2" whenever it saves
        adapted.peft_config["default"].base_model_name_or_path = base
        return adapted, None


def read_record(folder: Path) -> dict[str, Any] | None:
    """Read the record of an adapter's training; None if unfinished.

    Raises:
        DataError: the file is damaged.
    """
    if not (folder / RECORD).exists():
        return None
    record = _read(folder / RECORD)
    try:
        return {**record, "metrics": {"change": 0.0, **record["metrics"]}, "base": str(record["base"])}
    except (KeyError, TypeError) as error:
        raise _damaged(folder / RECORD, error) from None


def _read(path: Path) -> dict[str, Any]:
    """Read a JSON object from an adapter's folder; empty without the file."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} cannot be read: {error}. Delete {path.parent} to train again.", code="damaged")


def last_checkpoint(folder: Path) -> Path | None:
    """Find the last intact checkpoint."""
    by_step: dict[int, Path] = {}
    for path in folder.glob("checkpoint-*/trainer_state.json"):  # which transformers writes last
        with suppress(OSError, ValueError):
            json.loads(path.read_bytes())
            by_step[int(path.parent.name.removeprefix("checkpoint-"))] = path.parent
    return by_step[max(by_step)] if by_step else None


def without_markers(rows: Rows, tokenizer: Any) -> list[dict[str, Any]]:
    """Leave out rows with chat template markers such as ``<|im_end|>``, which would end a turn."""
    names = {*map(str, tokenizer.added_tokens_decoder.values()), *tokenizer.all_special_tokens}
    markers = list(filter(str.strip, names))

    def is_clean(row: dict[str, Any]) -> bool:
        turns = [*row["prompt"], *row.get("completion", ())]
        return not any(marker in turn["content"] for marker in markers for turn in turns)

    return list(filter(is_clean, rows))


def begun_prompts(rows: Rows, tokenizer: Any) -> list[dict[str, Any]]:
    """Write prompts that end within the model's turn as text, since trainers would otherwise end that
    turn."""
    prompts = []
    for row in rows:
        if row["prompt"][-1]["role"] == "assistant" and "completion" not in row:
            text = tokenizer.apply_chat_template(row["prompt"], tokenize=False, continue_final_message=True)
            if tokenizer.bos_token and tokenizer("")["input_ids"][:1] == [tokenizer.bos_token_id]:
                text = text.removeprefix(tokenizer.bos_token)  # which the tokenizer adds again
            row = {**row, "prompt": text}
        prompts.append(row)
    return prompts


def _base_name(name: str, path: str) -> str:
    """Make a base model's path absolute."""
    return str(Path(path).resolve()) if name != "smollm2" and Path(path).is_dir() else name


def _trained_weights(model: Any) -> dict[str, Any]:
    weights = model.named_parameters()
    return {name: value.detach().clone() for name, value in weights if value.requires_grad}


def _distance(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Compute the norm of the change in all trained weights; 0 means no learning."""
    squares = [float((after[name] - value).float().pow(2).sum()) for name, value in before.items()]
    return math.sqrt(sum(squares))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
