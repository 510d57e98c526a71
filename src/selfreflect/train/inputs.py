"""What an adapter is trained on, kept beside it, so that a change is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from selfreflect.atomic import write_bytes
from selfreflect.errors import DataError
from selfreflect.records import Record
from selfreflect.store.journal import store_errors
from selfreflect.train.presets import TrainingPreset

RECORD = "training.json"
INPUT = "training_input.json"
_NO_EFFECT = frozenset({"name", "judge", "device", "micro_batch", "save_steps", "logging_steps"})
"""Settings that change no adapter, or whose effect others show."""


class TrainingInput(Record, frozen=True, kw_only=True):
    """Rows, settings and an earlier adapter."""

    rows: int
    digest: str
    """Of the rows."""
    start: str
    """Digest of the record of the adapter that is trained further; empty without one."""
    preset: dict[str, Any]

    @classmethod
    def of(
        cls, rows: Sequence[dict[str, Any]], preset: TrainingPreset, adapter: Path | None = None
    ) -> TrainingInput:
        """Describe a training. ``adapter`` is the one to train further."""
        start = ""
        if adapter is not None and (adapter / RECORD).exists():
            start = hashlib.sha256((adapter / RECORD).read_bytes()).hexdigest()
        text = json.dumps(list(rows), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return cls(rows=len(rows), digest=digest, start=start, preset=asdict(preset))

    @classmethod
    def read(cls, folder: Path) -> TrainingInput | None:
        """Read what an adapter was trained on; None if its folder does not say.

        Raises:
            DataError: the file is damaged.
        """
        path = folder / INPUT
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{path} cannot be read: {error}. Delete {folder} to train anew.") from None

    def write(self, folder: Path) -> None:
        """Keep this beside the adapter. Raises StoreError if the disk refuses."""
        with store_errors(folder / INPUT):
            folder.mkdir(parents=True, exist_ok=True)
            write_bytes(folder / INPUT, msgspec.json.encode(self))

    def changes(self, now: TrainingInput) -> list[str]:
        """Say what another training has that this one had not."""
        changes = []
        if self.digest != now.digest:
            changes.append(f"other rows ({self.rows} then, {now.rows} now)")
        if self.start != now.start:
            changes.append("another adapter to start from")
        for name, value in self.preset.items():
            if name not in _NO_EFFECT and value != now.preset.get(name, value):
                changes.append(f"{name} ({value} then, {now.preset[name]} now)")
        return changes
