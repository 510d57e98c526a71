"""Both stages of training, by TRL: fine-tune on statements, then reinforce the stated confidence."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfreflect.errors import ConfigError, DataError, MissingExtraError
from selfreflect.sayself.presets import TARGETS, Preset
from selfreflect.sayself.rewards import StatedConfidenceReward


@dataclass(frozen=True)
class Trained:
    """What a stage of training did."""

    adapter: Path
    steps: int
    loss: float | None
    change: float
    """Euclidean norm of the change of all trained weights; 0 would mean that nothing was learned."""
    log: tuple[dict[str, float], ...] = ()
    """What the trainer logged, step by step."""


def fine_tune(
    base: str,
    rows: Sequence[dict[str, Any]],
    output: Path,
    preset: Preset,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Trained:
    """Train a LoRA adapter on prompts and completions; the loss counts completions only.

    Args:
        base: a model directory or a name on the hub.
        rows: with ``prompt`` and ``completion`` as chat messages.
        output: folder of the adapter; checkpoints in it are resumed.
        progress: called with the steps done and in all.

    Raises:
        DataError: there are no rows.
        MissingExtraError: the ``train`` extra is missing.
    """
    libraries = _load_libraries()
    model, tokenizer = _load(libraries, base, preset)
    rows = _without_markers(rows, tokenizer)
    if not rows:
        raise DataError("there is nothing to train on: no question gave an example")
    model = libraries.peft.get_peft_model(model, _lora(libraries, preset))
    before = _weights(model)
    config = libraries.trl.SFTConfig(
        **_common(preset, output, seed),
        learning_rate=preset.learning_rate,
        num_train_epochs=preset.epochs,
        lr_scheduler_type="linear",
        weight_decay=0.0,
        max_length=preset.max_length,
        completion_only_loss=True,
        per_device_train_batch_size=preset.micro_batch,
        gradient_accumulation_steps=max(1, preset.batch_size // preset.micro_batch),
    )
    data = libraries.datasets.Dataset.from_list(
        [{"prompt": row["prompt"], "completion": row["completion"]} for row in rows]
    )
    trainer = libraries.trl.SFTTrainer(
        model=model,
        args=config,
        train_dataset=data,
        processing_class=tokenizer,
        callbacks=_callbacks(libraries, progress),
    )
    return _run(trainer, model, tokenizer, output, before)


def reinforce(
    base: str,
    adapter: Path,
    rows: Sequence[dict[str, Any]],
    reward: StatedConfidenceReward,
    output: Path,
    preset: Preset,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Trained:
    """Train an adapter further by GRPO.

    Advantages are not divided by the group's deviation, which would scale a proper score by how much its
    group differs. The divergence that ``beta`` weighs is from the model before this stage.

    Args:
        rows: with ``prompt`` (chat messages, of which a completion goes on with the last one if that is the
            assistant's) and the columns of ``reward``.

    Raises:
        DataError: there are no rows.
        ConfigError: the adapter was trained on another model.
        MissingExtraError: the ``train`` extra is missing.
    """
    libraries = _load_libraries()
    _check_base(libraries, adapter, base)
    model, tokenizer = _load(libraries, base, preset)
    rows = _without_markers(rows, tokenizer)
    if not rows:
        raise DataError("there is nothing to reinforce: no statement of the model has an answer to judge")
    model = libraries.peft.PeftModel.from_pretrained(model, str(adapter), is_trainable=True)
    before = _weights(model)
    rows = [{**row, "prompt": _rendered(tokenizer, row["prompt"])} for row in rows]
    whole = reward.label is not None
    per_update = preset.rl_questions * preset.group_size
    micro = min(per_update, max(preset.group_size, preset.micro_batch))
    config = libraries.trl.GRPOConfig(
        **_common(preset, output, seed),
        learning_rate=preset.rl_learning_rate,
        max_steps=preset.rl_steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=max(1, per_update // micro),
        num_generations=preset.group_size,
        max_completion_length=160 if whole else 6,
        temperature=preset.rl_temperature,
        scale_rewards="none",
        beta=preset.beta,
    )
    trainer = libraries.trl.GRPOTrainer(
        model=model,
        args=config,
        reward_funcs=reward,
        train_dataset=libraries.datasets.Dataset.from_list(list(rows)),
        processing_class=tokenizer,
        callbacks=_callbacks(libraries, progress),
    )
    return _run(trainer, model, tokenizer, output, before)


@dataclass(frozen=True)
class _Libraries:
    datasets: Any
    peft: Any
    transformers: Any
    trl: Any


def _load_libraries() -> _Libraries:
    """Import what trains. TRL would send a message to its authors when a trainer is made, so that is off."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        import datasets
        import peft
        import transformers
        import trl
    except ImportError as error:
        raise MissingExtraError("training", "train") from error
    return _Libraries(datasets, peft, transformers, trl)


def _load(libraries: _Libraries, base: str, preset: Preset) -> tuple[Any, Any]:
    tokenizer = libraries.transformers.AutoTokenizer.from_pretrained(base)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    dtype = "bfloat16" if preset.on_gpu else "float32"
    model = libraries.transformers.AutoModelForCausalLM.from_pretrained(base, dtype=dtype)
    return model, tokenizer


def _without_markers(rows: Sequence[dict[str, Any]], tokenizer: Any) -> list[dict[str, Any]]:
    """Leave out rows whose texts contain a marker of the chat template, such as ``<|im_end|>``: trainers
    would take it for the end of a turn."""
    markers = {str(token) for token in tokenizer.added_tokens_decoder.values()}
    markers |= set(tokenizer.all_special_tokens)
    kept = []
    for row in rows:
        text = "\n".join(turn["content"] for turn in [*row["prompt"], *row.get("completion", [])])
        if not any(marker in text for marker in markers if marker.strip()):
            kept.append(row)
    return kept


def _rendered(tokenizer: Any, messages: list[dict[str, str]]) -> str:
    """The conversation as a text that the model goes on with."""
    is_begun = messages[-1]["role"] == "assistant"
    text: str = tokenizer.apply_chat_template(
        messages,
        tokenize=False,
        add_generation_prompt=not is_begun,
        continue_final_message=is_begun,
    )
    if tokenizer.bos_token and text.startswith(tokenizer.bos_token):
        first = tokenizer("")["input_ids"][:1]
        if first == [tokenizer.bos_token_id]:  # the tokenizer adds it again
            text = text.removeprefix(tokenizer.bos_token)
    return text


def _lora(libraries: _Libraries, preset: Preset) -> Any:
    return libraries.peft.LoraConfig(
        r=preset.lora_r,
        lora_alpha=preset.lora_alpha,
        lora_dropout=preset.lora_dropout,
        target_modules=list(TARGETS),
        task_type="CAUSAL_LM",
    )


def _common(preset: Preset, output: Path, seed: int) -> dict[str, Any]:
    """Settings of both stages. bfloat16 and recomputed activations, on by default, are slower on a CPU."""
    return {
        "output_dir": str(output),
        "seed": seed,
        "use_cpu": not preset.on_gpu,
        "bf16": preset.on_gpu,
        "gradient_checkpointing": preset.on_gpu,
        "warmup_steps": preset.warmup,
        "report_to": [],
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": 50,
        "save_total_limit": 1,
        "disable_tqdm": True,
    }


def _callbacks(libraries: _Libraries, progress: Callable[[int, int], None] | None) -> list[Any]:
    if progress is None:
        return []

    report = progress

    class Steps(libraries.transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            report(state.global_step, state.max_steps)

    return [Steps()]


def _weights(model: Any) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in model.named_parameters() if value.requires_grad}


def _run(trainer: Any, model: Any, tokenizer: Any, output: Path, before: dict[str, Any]) -> Trained:
    checkpoints = sorted(output.glob("checkpoint-*"))
    result = trainer.train(resume_from_checkpoint=str(checkpoints[-1]) if checkpoints else None)
    model.save_pretrained(str(output))
    tokenizer.save_pretrained(str(output))
    squares = 0.0
    for name, value in _weights(model).items():
        squares += float((value - before[name]).float().pow(2).sum())
    log = []
    for entry in trainer.state.log_history:
        log.append({name: float(value) for name, value in entry.items() if isinstance(value, int | float)})
    loss = None
    with suppress(TypeError, ValueError):
        loss = float(result.training_loss)
    return Trained(output, int(result.global_step), loss, squares**0.5, tuple(log))


def _check_base(libraries: _Libraries, adapter: Path, base: str) -> None:
    """Raise ConfigError if the adapter belongs to another model."""
    own = libraries.peft.PeftConfig.from_pretrained(str(adapter)).base_model_name_or_path
    if own and Path(str(own)).name != Path(base).name:
        raise ConfigError(f"{adapter} was trained on {own}, not on {base}")
