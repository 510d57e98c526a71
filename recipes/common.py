"""What the recipes share: their options, and the plan that --dry-run prints."""

from __future__ import annotations

import argparse
import json
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
from selfreflect.train.data import Method, read_rows
from selfreflect.train.presets import PRESETS, TrainingPreset
from selfreflect.train.trainers import AdapterTraining

Rows = list[dict[str, Any]]


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
    """The preset with the settings that --model and --set change. Raises ConfigError."""
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


def run(
    method: Method,
    arguments: argparse.Namespace,
    settings: Callable[[TrainingPreset, Rows], dict[str, Any]],
    train: Callable[[AdapterTraining, Rows], object],
) -> int:
    """Read the data, then print the plan or train; an error becomes a sentence and exit status 2.

    Args:
        settings: makes the arguments of TRL's trainer, for the plan.
    """
    try:
        preset = chosen_preset(arguments)
        rows = read_rows(arguments.data, method)
        plan = settings(preset, rows)
        if arguments.dry_run:
            lora = {"rank": preset.lora_rank, "alpha": preset.lora_alpha, "modules": "all linear layers"}
            facts = {"model": preset.model, "rows": len(rows), "LoRA": lora, "trainer": plan}
            print(json.dumps({"method": method, **facts}, indent=1))
            return 0
        options = {"adapter": arguments.adapter, "resume": arguments.resume}
        train(AdapterTraining(preset.model, arguments.out, preset, arguments.seed, **options), rows)
    except SelfReflectError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"Use it: --model {arguments.out}", file=sys.stderr)
    return 0
