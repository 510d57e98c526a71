"""Published confidences and answers that are not part of this repository: tests that read them are skipped
where they are missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def find(name: str) -> Path:
    """Look up a file in the folder ``SELFREFLECT_UQ_DATA``, or in ``shared/uq`` in or beside the checkout."""
    folders = [ROOT / "shared/uq", ROOT.parent / "shared/uq"]
    if "SELFREFLECT_UQ_DATA" in os.environ:
        folders.insert(0, Path(os.environ["SELFREFLECT_UQ_DATA"]))
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    pytest.skip(f"{name} is not here; name its folder in SELFREFLECT_UQ_DATA")
