"""Named sets of hyper-parameters for both stages of training."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Everything about training that is not data. Stage 1 is fine-tuning, stage 2 reinforcement."""

    model: str
    about: str
    lora_r: int = 64
    lora_alpha: int = 16
    lora_dropout: float = 0.1
    learning_rate: float = 7e-5
    epochs: float = 3
    batch_size: int = 128
    """Examples between two updates."""
    micro_batch: int = 8
    """Examples that a device holds at a time."""
    max_length: int = 400
    """Tokens of an example; longer ones are cut."""
    warmup: float = 0.03
    """Share of the updates in which the learning rate rises."""
    rl_learning_rate: float = 1e-5
    rl_steps: int = 750
    rl_questions: int = 8
    """Questions between two updates."""
    group_size: int = 8
    """Confidences drawn for each question."""
    rl_temperature: float = 1.0
    beta: float = 0.05
    """Weight of the divergence from the model before. With 0, TRL's default, nothing holds it back."""
    on_gpu: bool = True
    num_answers: int = 50
    """Of each half: 100 answers are sampled in all."""
    max_new_tokens: int = 512
    temperature: float = 1.0
    top_p: float = 1.0
    reasoned: bool = True
    """Whether answers are sampled with their reasoning."""


PRESETS = {
    "small": Preset(
        model="smollm2",
        about="for two CPU cores: the embedded model, short answers, some minutes",
        lora_r=16,
        lora_alpha=32,
        lora_dropout=0.0,
        learning_rate=5e-4,
        epochs=4,
        batch_size=16,
        micro_batch=8,
        max_length=256,
        rl_learning_rate=2e-4,
        rl_steps=15,
        rl_questions=4,
        on_gpu=False,
        num_answers=10,
        max_new_tokens=32,
        temperature=0.7,
        top_p=0.9,
        reasoned=False,
    ),
    "published": Preset(
        model="mistralai/Mistral-7B-Instruct-v0.2",
        about="the published ones: LoRA 64, 7e-5, 3 epochs, 128 examples an update, 400 tokens",
    ),
    "qwen": Preset(
        model="Qwen/Qwen2.5-7B-Instruct",
        about="for one GPU with 80 GB: as published, with shorter groups of a current model",
        micro_batch=16,
        max_length=512,
    ),
}

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The layers that LoRA changes: all linear ones of a decoder block."""
