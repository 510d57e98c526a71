"""What is trained, and how: settings for a machine with processor cores alone, and for one GPU."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from selfreflect.errors import ConfigError

Scaling = Literal["group", "batch", "none"]
"""How GRPO divides the differences of rewards: by the standard deviation of a question's group, of the whole
batch, or not at all."""


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
        least = dict.fromkeys(("lora_dropout", "warmup", "preference_beta", "kl", "max_clipped", "top_k"), 0)
        least["completions"] = 2
        for name, value in asdict(self).items():
            if isinstance(value, int | float) and not least.get(name, 1e-9) <= value < math.inf:
                bound = f"{least[name]} or more" if name in least else "above 0"
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
    """What all of TRL's trainers get."""
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
    """Arguments of ``SFTConfig``."""
    own = {"learning_rate": preset.supervised_rate, "warmup_steps": preset.warmup}
    return _row_arguments(preset, output, seed) | own


def preference_arguments(preset: TrainingPreset, output: Path, seed: int) -> dict[str, Any]:
    """Arguments of ``DPOConfig``."""
    own = {"learning_rate": preset.preference_rate, "beta": preset.preference_beta}
    return _row_arguments(preset, output, seed) | own


def reinforcement_arguments(
    preset: TrainingPreset, output: Path, seed: int, scaling: Scaling, processes: int = 1
) -> dict[str, Any]:
    """Arguments of ``GRPOConfig``.

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


def divided(total: int, most: int, processes: int = 1) -> tuple[int, int]:
    """Divide sequences into equal parts of at most ``most`` for each process: (size, parts).

    Raises:
        ConfigError: they cannot be divided among the processes.
    """
    if total % processes:
        raise ConfigError(
            f"{total} sequences in a step cannot be divided among {processes} processes. Change the number "
            "of questions or completions."
        )
    own = total // processes
    micro = max(size for size in range(1, min(most, own) + 1) if own % size == 0)
    return micro, own // micro


def _row_arguments(preset: TrainingPreset, output: Path, seed: int) -> dict[str, Any]:
    """What trainers on rows of text get."""
    micro, accumulation = divided(preset.batch, preset.micro_batch)
    return {
        **common_arguments(preset, output, seed),
        "num_train_epochs": preset.epochs,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "max_length": preset.max_length,
    }
