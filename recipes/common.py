"""What the recipes share: their options, and the plan that --dry-run prints."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

# TRL tells Hugging Face's servers of every trainer that is made: its class, the architecture, the machine.
# The switch is read when huggingface_hub is imported, so it stands before all other imports.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from selfreflect.errors import ConfigError, SelfReflectError, nearest
from selfreflect.train.folder import Method, data_facts, read_rows
from selfreflect.train.trainers import PRESETS, AdapterTraining, TrainingPreset

Rows = list[dict[str, Any]]

MOST_PASSES = 20
"""Times that reinforcement sees a row, above which the plan warns."""


def parser(text: str | None) -> argparse.ArgumentParser:
    """Make the options of every recipe."""
    options = argparse.ArgumentParser(description=text)
    add = options.add_argument
    add(
        "--data",
        type=Path,
        required=True,
        help="folder of `selfreflect dataset`, or a file of rows, such as .jsonl",
    )
    add("--out", type=Path, required=True, help="new directory for the adapter")
    add("--config", choices=PRESETS, default="cpu", help="a preset (default: cpu)")
    add("--model", help="base model (default: the preset's)")
    add("--adapter", type=Path, help="train this adapter further instead of a new one")
    add("--seed", type=int, default=0)
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="change a setting of the preset")
    add("--resume", action="store_true", help="go on from the last checkpoint in --out")
    add("--dry-run", action="store_true", help="print what would run, and load no model")
    return options


def chosen_preset(arguments: argparse.Namespace) -> TrainingPreset:
    """Take the preset with the settings that --model and --set change. Raises ConfigError."""
    preset = PRESETS[arguments.config]
    changes: dict[str, Any] = {"model": arguments.model} if arguments.model else {}
    hints = get_type_hints(TrainingPreset)
    kinds = {name: kind if kind in (int, float) else str for name, kind in hints.items()}
    for change in arguments.set:
        name, _, value = change.partition("=")
        if name not in kinds:
            known = ", ".join(kinds)
            raise ConfigError(f"no setting {name!r}.{nearest(name, [*kinds])} There are: {known}")
        try:
            changes[name] = kinds[name](value)
        except ValueError:
            raise ConfigError(f"{name} must be {kinds[name].__name__}, not {value!r}") from None
    return replace(preset, **changes)


def learned(data: Path) -> dict[str, Any]:
    """Say by which measure and judge the rows were chosen; None where nothing says it."""
    facts = data_facts(data) if data.is_dir() else {}
    return {"reward": facts.get("measure"), "judge": facts.get("judge")}


def amounts(method: Method, preset: TrainingPreset, rows: int) -> dict[str, Any]:
    """Set the steps against the rows: how often each row is seen, and a warning where that is too often."""
    if method != "grpo":
        return {
            "rows": rows,
            "steps": math.ceil(rows / preset.batch * preset.epochs),
            "passes": preset.epochs,
        }
    passes = preset.steps * preset.questions / rows
    counts = {"rows": rows, "steps": preset.steps, "passes": round(passes, 1)}
    if rows < preset.questions:
        return counts | {"warning": f"{rows} rows do not make a step of {preset.questions} questions"}
    if passes > MOST_PASSES:
        warning = f"each row would be seen {passes:.0f} times: take more rows, or fewer with --set steps=N"
        return counts | {"warning": warning}
    return counts


def run(
    method: Method,
    arguments: argparse.Namespace,
    settings: Callable[[TrainingPreset, Rows], dict[str, Any]],
    train: Callable[[AdapterTraining, Rows], object],
    teacher: Callable[[TrainingPreset, Rows], dict[str, Any]] | None = None,
) -> int:
    """Read the data, then print the plan or train; an error becomes a sentence and exit status 2.

    Args:
        settings: makes the arguments of TRL's trainer, for the plan.
        teacher: says what is learned, ``reward`` and ``judge``, for the plan; by default what the rows say.
    """
    try:
        preset = chosen_preset(arguments)
        rows = read_rows(arguments.data, method)
        plan = settings(preset, rows)
        if arguments.dry_run:
            lora = {"rank": preset.lora_rank, "alpha": preset.lora_alpha, "modules": "all linear layers"}
            taught = learned(arguments.data) if teacher is None else teacher(preset, rows)
            facts = {"method": method, "model": preset.model, **taught, **amounts(method, preset, len(rows))}
            print(json.dumps({**facts, "LoRA": lora, "trainer": plan}, indent=1))
            return 0
        options = {"adapter": arguments.adapter, "resume": arguments.resume}
        train(AdapterTraining(preset.model, arguments.out, preset, arguments.seed, **options), rows)
    except SelfReflectError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"Use it: --model {arguments.out}", file=sys.stderr)
    return 0
