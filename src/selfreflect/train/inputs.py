"""What an adapter is trained on, kept beside it, so that a change is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from selfreflect.errors import DataError
from selfreflect.train.presets import TrainingPreset
from selfreflect.train.rewards.base import Reward

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
