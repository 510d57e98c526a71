"""LoRA adapters trained with TRL: on completions, on pairs, or with a reward.

The output directory holds the adapter, which every command takes as ``--model``, checkpoints to resume from,
and ``training.json``: settings and results of the training.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from selfreflect.atomic import write_bytes
from selfreflect.errors import ConfigError, DataError, MissingExtraError, StoreError, excerpt
from selfreflect.models.backend import backend_of
from selfreflect.models.base import ModelSpec
from selfreflect.models.local.pretrained import CONFIG, find_adapter
from selfreflect.train.folder import COLUMNS, Method
from selfreflect.train.rewards.base import Reward, Scaling

if TYPE_CHECKING:
    from selfreflect.models.local.loading import ModelSource


@dataclass(frozen=True, kw_only=True)
class TrainingPreset:
    """Settings of LoRA and of TRL's trainers; what is not here has TRL's default."""

    name: str
    model: str
    """The base model, unless another is named."""
    judge: str
    device: Literal["cpu", "cuda"]
    lora_rank: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.0
    epochs: float = 3
    batch: int = 8
    """Rows of a step of supervised and preference training."""
    micro_batch: int = 8
    """Sequences that go through the model together."""
    max_length: int = 1024
    """Tokens of prompt and completion in supervised and preference training."""
    supervised_rate: float = 2e-4
    """Learning rates, ten times TRL's, which are for all weights and not for LoRA."""
    warmup: float = 0.0
    """Share of the supervised steps in which the learning rate rises."""
    preference_rate: float = 1e-5
    preference_beta: float = 0.1
    reinforcement_rate: float = 1e-5
    steps: int = 40
    """Of reinforcement."""
    questions: int = 4
    """In each step of reinforcement."""
    completions: int = 8
    """Of each question: a group, whose mean the reward of each is compared with."""
    max_new_tokens: int = 128
    temperature: float = 1.0
    """At which completions are drawn."""
    top_k: int = 0
    """Only so many likely tokens are drawn; 0: all."""
    kl: float = 0.04
    """Weight of the divergence from the base model. TRL's default is 0: nothing holds the model back."""
    max_clipped: float = 0.2
    """Stop if a larger share of completions is cut off: their rewards are of unfinished texts."""
    save_steps: int = 20
    logging_steps: int = 1

    def __post_init__(self) -> None:
        """Raise ConfigError for a number that no trainer could take."""
        minimum = dict.fromkeys(
            ("lora_dropout", "warmup", "preference_beta", "kl", "max_clipped", "top_k"), 0
        )
        minimum["completions"] = 2
        for name, value in asdict(self).items():
            if isinstance(value, int | float) and not minimum.get(name, 1e-9) <= value < math.inf:
                bound = f"{minimum[name]} or more" if name in minimum else "above 0"
                raise ConfigError(f"{name} must be {bound}, not {value}")


PRESETS: dict[str, TrainingPreset] = {
    "cpu": TrainingPreset(
        name="cpu",
        model="smollm2",
        judge="smollm2",
        device="cpu",
        max_clipped=0.8,  # it repeats itself up to any limit in 38 to 63 % of draws
    ),
    "gpu": TrainingPreset(
        name="gpu",
        model="Qwen/Qwen2.5-7B-Instruct",
        judge="Qwen/Qwen2.5-7B-Instruct",
        device="cuda",
        lora_rank=32,
        lora_alpha=64,
        batch=32,
        micro_batch=4,
        reinforcement_rate=5e-6,
        steps=500,
        questions=8,
        completions=16,
        max_new_tokens=256,
        save_steps=50,
        logging_steps=5,
    ),
}


def common_arguments(preset: TrainingPreset, output: Path, seed: int) -> dict[str, Any]:
    """Make the arguments of all of TRL's trainers."""
    cpu = preset.device == "cpu"
    return {
        "output_dir": str(output),
        "seed": seed,
        "use_cpu": cpu,
        "bf16": not cpu,  # TRL's default; slower than float32 on processors without units for it
        "gradient_checkpointing": not cpu,  # TRL's default, which saves memory that a CPU run does not lack
        "report_to": [],
        "logging_steps": preset.logging_steps,
        "save_steps": preset.save_steps,
        "save_total_limit": 2,
    }


def supervised_arguments(preset: TrainingPreset, output: Path, seed: int) -> dict[str, Any]:
    """Make the arguments of ``SFTConfig``."""
    rates = {"learning_rate": preset.supervised_rate, "warmup_steps": preset.warmup}
    return _row_arguments(preset, output, seed) | rates


def preference_arguments(preset: TrainingPreset, output: Path, seed: int) -> dict[str, Any]:
    """Make the arguments of ``DPOConfig``."""
    rates = {"learning_rate": preset.preference_rate, "beta": preset.preference_beta}
    return _row_arguments(preset, output, seed) | rates


def reinforcement_arguments(
    preset: TrainingPreset, output: Path, seed: int, scaling: Scaling, processes: int = 1
) -> dict[str, Any]:
    """Make the arguments of ``GRPOConfig``.

    All completions of ``questions`` are drawn together and make one step, so they belong to the model that is
    updated.

    Raises:
        ConfigError: the completions cannot be divided among processes.
    """
    total = preset.questions * preset.completions
    micro, accumulation = divided(total, preset.micro_batch, processes)
    return {
        **common_arguments(preset, output, seed),
        "learning_rate": preset.reinforcement_rate,
        "max_steps": preset.steps,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "generation_batch_size": total,
        "shuffle_dataset": False,  # rows come in the order of the steps
        "num_generations": preset.completions,
        "max_completion_length": preset.max_new_tokens,
        "beta": preset.kl,
        "scale_rewards": scaling,
        "temperature": preset.temperature,
        "top_k": preset.top_k,
    }


def divided(total: int, limit: int, processes: int = 1) -> tuple[int, int]:
    """Divide sequences into equal parts of at most ``limit`` for each process: (size, parts).

    Raises:
        ConfigError: they cannot be divided among the processes.
    """
    if total % processes:
        raise ConfigError(
            f"{total} sequences in a step cannot be divided among {processes} processes. Change the number "
            "of questions or completions."
        )
    share = total // processes
    micro = max(size for size in range(1, min(limit, share) + 1) if share % size == 0)
    return micro, share // micro


def _row_arguments(preset: TrainingPreset, output: Path, seed: int) -> dict[str, Any]:
    """Make the arguments of trainers on rows of text."""
    micro, accumulation = divided(preset.batch, preset.micro_batch)
    return {
        **common_arguments(preset, output, seed),
        "num_train_epochs": preset.epochs,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "max_length": preset.max_length,
    }


RECORD = "training.json"
INPUT = "training_input.json"
_NO_EFFECT = frozenset({"name", "judge", "device", "micro_batch", "save_steps", "logging_steps"})
"""Settings that change no adapter, or whose effect others show."""

TrainingInput = Mapping[str, Any]
"""``rows`` (how many, and their digest), ``start`` (digest of the adapter that is trained further),
``reward`` and settings."""


def training_input(
    rows: Sequence[dict[str, Any]],
    preset: TrainingPreset,
    adapter: Path | None = None,
    reward: Reward | None = None,
) -> TrainingInput:
    """Describe a training. ``adapter`` is the one to train further, ``reward`` that of its completions."""
    facts = {"rows": f"{len(rows)}, {_digest(json.dumps(list(rows), sort_keys=True, default=str).encode())}"}
    if adapter is not None and (adapter / RECORD).exists():
        facts["start"] = _digest((adapter / RECORD).read_bytes())
    if reward is not None:
        facts["reward"] = reward.criterion
    return facts | {name: value for name, value in asdict(preset).items() if name not in _NO_EFFECT}


def read_input(folder: Path) -> TrainingInput:
    """Read what an adapter was trained on; empty if its folder does not say. Raises DataError for a damaged
    file."""
    path = folder / INPUT
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}. Delete {folder} to train anew.") from None


def changes(before: TrainingInput, now: TrainingInput) -> list[str]:
    """Say what differs between two trainings, as far as both are known."""
    common = [name for name in before if name in now]
    return [f"{name} ({before[name]} then, {now[name]} now)" for name in common if before[name] != now[name]]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


Rows = Sequence[dict[str, Any]]


def whole_checkpoints(folder: Path) -> list[Path]:
    """List the checkpoints of a training, by rising step, without one that a kill cut off: transformers
    writes ``trainer_state.json`` last."""
    by_step: dict[int, Path] = {}
    for checkpoint in folder.glob("checkpoint-*"):
        with suppress(OSError, ValueError):  # no such file, or a part of it
            json.loads((checkpoint / "trainer_state.json").read_bytes())
            by_step[int(checkpoint.name.removeprefix("checkpoint-"))] = checkpoint
    return [by_step[step] for step in sorted(by_step)]


def import_trl() -> Any:
    """Import TRL with its telemetry off, which it would send whenever a trainer is made.

    Raises:
        MissingExtraError: TRL or peft is not installed.
    """
    if os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1") == "1":
        from huggingface_hub import constants

        constants.HF_HUB_DISABLE_TELEMETRY = True  # if it was imported before
    try:
        import peft  # noqa: F401
        import trl
    except ImportError:
        raise MissingExtraError("training", "train") from None
    return trl


class AdapterTraining:
    """Training of a LoRA adapter on a base model, by one of three methods.

    Args:
        base: a local model.
        output: a directory for the adapter, new or empty.
        adapter: train this one further, instead of a new one.
        resume: go on from the last checkpoint in ``output``, with the rows that it had.

    Raises:
        ConfigError: ``output`` is not empty, has nothing to resume from, or holds a checkpoint of another
            base model; ``adapter`` has another base; ``base`` is not local.
        MissingExtraError: TRL is not installed.
    """

    def __init__(
        self,
        base: str | ModelSpec,
        output: Path,
        preset: TrainingPreset,
        seed: int = 0,
        *,
        adapter: Path | None = None,
        resume: bool = False,
    ) -> None:
        self._trl = import_trl()
        from selfreflect.models.local.loading import locate

        spec = ModelSpec.of(base, device=preset.device)
        if not backend_of(spec.name).is_torch:
            raise ConfigError(f"{excerpt(spec.name)} cannot be trained here; give a local model")
        self.output = output
        self.preset = preset
        self.seed = seed
        self.adapter = adapter
        self.source: ModelSource = locate(spec, None)
        self.checkpoint = self._checkpoint(resume)
        if adapter is not None:
            self._check_base(adapter)

    def fine_tune(self, rows: Rows) -> Path:
        """Train on the completions of rows with ``prompt`` and ``completion`` (SFT).

        Returns:
            ``output``.

        Raises:
            DataError: a row lacks a column, or all hold markers of the chat template.
            BackendError: the base cannot be loaded.
        """
        arguments = self._trl.SFTConfig(**supervised_arguments(self.preset, self.output, self.seed))
        return self._run("sft", self._trl.SFTTrainer, arguments, rows)

    def prefer(self, rows: Rows) -> Path:
        """Train on pairs: rows with ``prompt``, ``chosen`` and ``rejected`` (DPO). As :meth:`fine_tune`."""
        arguments = self._trl.DPOConfig(**preference_arguments(self.preset, self.output, self.seed))
        return self._run("dpo", self._trl.DPOTrainer, arguments, rows)

    def reinforce(self, rows: Rows, reward: Reward) -> Path:
        """Train on the model's own completions of ``prompt``, each with a reward (GRPO).

        Returns:
            ``output``.

        Raises:
            ConfigError: there are too few rows for a step, or too many completions were cut off; then only
                checkpoints are left.
            DataError: the reward lacks a column of the rows.
            BackendError: the base cannot be loaded.
        """
        self._check_step(rows)
        reward.prepare()
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        settings = reinforcement_arguments(self.preset, self.output, self.seed, reward.scaling, processes)
        return self._run("grpo", self._trl.GRPOTrainer, self._trl.GRPOConfig(**settings), rows, reward)

    @property
    def base(self) -> str:
        """The base as an adapter's configuration names it, from wherever it is loaded."""
        path = Path(self.source.path)
        is_named = self.source.name == "smollm2" or not path.is_dir()
        return self.source.name if is_named else str(path.resolve())

    def _run(
        self, method: Method, trainer_class: Any, arguments: Any, rows: Rows, reward: Reward | None = None
    ) -> Path:
        """Train on the columns of a method, with a reward on all of them, and write the adapter and the
        record. Raises ConfigError if too many completions were cut off, or a checkpoint had other rows."""
        from datasets import Dataset

        now = training_input(rows, self.preset, self.adapter, reward)
        before = read_input(self.output) if self.checkpoint else {}
        if before.get("rows", now["rows"]) != now["rows"]:
            raise ConfigError(
                f"{self.checkpoint} was trained on other rows: {changes(before, now)[0]}",
                code="other_input",
                remedy="Train anew in another directory.",
            )
        if reward is None:
            rows = _columns(rows, *COLUMNS[method])
        model, tokenizer, config = self._model()
        rows = _rendered(_without_markers(rows, tokenizer), tokenizer)
        if not rows:
            raise DataError("there is nothing to train on: every row holds a marker of the chat template")
        guard = _clipping_guard(self.preset)
        extra = {} if reward is None else {"reward_funcs": [reward], "callbacks": [guard]}
        start = time.monotonic()
        trainer = trainer_class(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_list(list(rows) if reward is None else self._rounds(rows)),
            processing_class=tokenizer,
            peft_config=config,
            **extra,
        )
        # before the first step, so that a resume after a kill can be compared with it
        if trainer.is_world_process_zero():
            self.output.mkdir(parents=True, exist_ok=True)
            write_bytes(self.output / INPUT, json.dumps(now).encode())
        weights = _trained_weights(trainer.model)
        with redirect_stdout(sys.stderr):  # where progress goes; stdout is for results
            result = trainer.train(resume_from_checkpoint=self.checkpoint)
        if guard.stopped:
            raise ConfigError(guard.stopped)
        change = _distance(weights, _trained_weights(trainer.model))
        if trainer.is_world_process_zero():
            # without the copy of an earlier adapter that GRPO and DPO compare with
            trainer.model.save_pretrained(self.output, selected_adapters=["default"])
            self._name_base(self.output)
            logs = [entry for entry in trainer.state.log_history if "train_runtime" not in entry]
            metrics = result.metrics | {"change": change}
            self._record(method, len(rows), time.monotonic() - start, metrics, logs)
        return self.output

    def _check_step(self, rows: Rows) -> None:
        if len(rows) < self.preset.questions:
            raise ConfigError(f"{len(rows)} rows do not make a step of {self.preset.questions} questions")

    def _rounds(self, rows: Rows) -> list[dict[str, Any]]:
        """Lay out the rows of all steps of reinforcement, in a new order each time round."""
        # TRL's own order would begin anew after a resume
        self._check_step(rows)  # again: some may have held a marker of the chat template
        rng, size = random.Random(self.seed), self.preset.questions
        rounds: list[dict[str, Any]] = []
        while len(rounds) < self.preset.steps * size:
            rounds += rng.sample(rows, len(rows) // size * size)  # no step has a question twice
        return rounds[: self.preset.steps * size]

    def _model(self) -> tuple[Any, Any, Any]:
        """Load the base with its tokenizer, and make the configuration of a new adapter, if it is new."""
        import peft

        from selfreflect.models.local.pretrained import read_model

        model, tokenizer = read_model(self.source, {})
        if self.adapter is not None:
            adapted = peft.PeftModel.from_pretrained(model, self.adapter, is_trainable=True)
            # a directory, or peft asks the hub about "smollm2" whenever it saves
            adapted.peft_config["default"].base_model_name_or_path = self.source.path
            return adapted, tokenizer, None
        config = peft.LoraConfig(
            r=self.preset.lora_rank,
            lora_alpha=self.preset.lora_alpha,
            lora_dropout=self.preset.lora_dropout,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        )
        return model, tokenizer, config

    def _checkpoint(self, resume: bool) -> str | None:
        """Find the checkpoint to go on from; None for a new training, whose directory must be empty."""
        checkpoints = whole_checkpoints(self.output)
        if not resume:
            if self.output.exists() and any(file.name != INPUT for file in self.output.iterdir()):
                raise ConfigError(f"{self.output} is not empty. Give another directory, or resume.")
            return None
        if not checkpoints:
            raise ConfigError(
                f"{self.output} holds no whole checkpoint to resume from. Delete it, and train anew."
            )
        self._check_base(checkpoints[-1])
        return str(checkpoints[-1])

    def _check_base(self, folder: Path) -> None:
        """Refuse an adapter or checkpoint of another base model."""
        adapter = find_adapter(folder)
        if adapter is None:
            raise ConfigError(f"{folder} holds no adapter")
        if adapter.base not in (self.base, self.source.path):
            raise ConfigError(
                f"{folder} was trained on the base model {excerpt(adapter.base, 200)}, not on "
                f"{excerpt(self.base, 200)}. Name that one, or train anew in another directory."
            )

    def _name_base(self, folder: Path) -> None:
        """Name the base so that it is found from any working directory and, if embedded, in any cache."""
        file = folder / CONFIG
        try:
            config = json.loads(file.read_text(encoding="utf-8"))
            config |= {"base_model_name_or_path": self.base}
            if isinstance(config["target_modules"], list):  # of a set, so in another order each time
                config["target_modules"].sort()
            if self.source.name == self.base and self.base != "smollm2":
                config |= {"revision": self.source.revision or None}
            write_bytes(file, json.dumps(config, indent=2, sort_keys=True).encode())
        except OSError as error:
            raise StoreError(f"{file} cannot be written: {error}") from error

    def _record(
        self, method: Method, rows: int, seconds: float, metrics: Any, logs: list[dict[str, Any]]
    ) -> None:
        packages = {name: version(name) for name in ("selfreflect", "torch", "transformers", "trl", "peft")}
        record = {
            "method": method,
            "base": self.base,
            "base_revision": self.source.revision,
            "adapter": str(self.adapter) if self.adapter else None,
            "rows": rows,
            "seed": self.seed,
            "preset": asdict(self.preset),
            "seconds": round(seconds, 1),
            "metrics": metrics,
            "log": logs,
            "packages": packages,
        }
        write_bytes(self.output / RECORD, json.dumps(record, indent=1, default=str).encode())


def _without_markers(rows: Rows, tokenizer: Any) -> list[dict[str, Any]]:
    """Leave out rows whose texts hold a marker of the chat template, such as ``<|im_end|>``: a trainer would
    take it for the end of a turn."""
    markers = {*map(str, tokenizer.added_tokens_decoder.values()), *tokenizer.all_special_tokens}
    markers = set(filter(str.strip, markers))
    clean = []
    for row in rows:
        texts: list[str] = []
        for name in _TEXTS:
            for turn in row.get(name, []):
                texts.append(turn["content"] if isinstance(turn, dict) else turn)
        if not any(marker in text for marker in markers for text in texts):
            clean.append(row)
    return clean


_TEXTS = ("prompt", "completion", "chosen", "rejected")
"""Columns of chat messages."""


def _rendered(rows: Rows, tokenizer: Any) -> list[dict[str, Any]]:
    """Write prompts whose last turn the model has begun as one text, which trainers would close otherwise."""
    result_rows = []
    for row in rows:
        messages = row["prompt"]
        if isinstance(messages, str) or messages[-1]["role"] != "assistant" or "completion" in row:
            result_rows.append(row)
            continue
        text = tokenizer.apply_chat_template(messages, tokenize=False, continue_final_message=True)
        if tokenizer.bos_token and tokenizer("")["input_ids"][:1] == [tokenizer.bos_token_id]:
            text = text.removeprefix(tokenizer.bos_token)  # which the tokenizer adds again
        result_rows.append({**row, "prompt": text})
    return result_rows


def _trained_weights(model: Any) -> dict[str, Any]:
    weights = model.named_parameters()
    return {name: value.detach().clone() for name, value in weights if value.requires_grad}


def _distance(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Compute the norm of the change of all trained weights; 0 means that nothing was learned."""
    squares = [float((after[name] - value).float().pow(2).sum()) for name, value in before.items()]
    return math.sqrt(sum(squares))


def _columns(rows: Rows, *names: str) -> list[dict[str, Any]]:
    """Keep the columns that a trainer reads. Raises DataError if a row lacks one."""
    for number, row in enumerate(rows):
        for name in names:
            if name not in row:
                raise DataError(f"row {number} has no {name!r}, but: {excerpt(', '.join(row), 200)}")
    return [{name: row[name] for name in names} for row in rows]


def _clipping_guard(preset: TrainingPreset) -> Any:
    """Make a callback that stops when too many completions are cut off."""
    from transformers import TrainerCallback

    class ClippingGuard(TrainerCallback):  # type: ignore[misc]
        stopped = ""

        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any
        ) -> None:
            clipped = (logs or {}).get("completions/clipped_ratio", 0.0)
            if clipped > preset.max_clipped:
                control.should_training_stop = True
                self.stopped = (
                    f"stopped at step {state.global_step}: {clipped:.0%} of completions were cut off at "
                    f"{preset.max_new_tokens} tokens (at most {preset.max_clipped:.0%} may be), so rewards "
                    "are of unfinished texts. Allow more new tokens, or fine-tune on short completions first."
                )

    return ClippingGuard()
