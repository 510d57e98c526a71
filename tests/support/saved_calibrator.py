"""A calibrator's file and a guarantee, whose fields a test replaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from selfreflect.uncertainty.calibrator_file import CalibratorFile, write_calibrator
from selfreflect.uncertainty.guarantee import Guarantee, upper_bound

SAVED = CalibratorFile(
    estimator="modal_share",
    classes="exact",
    class_order="first",
    similarity="jaccard",
    correctness="exact",
    method="isotonic",
    x=(0.0, 1.0),
    y=(0.0, 1.0),
    n=100,
    samples=(4,),
    questions=(),
)
GUARANTEE = Guarantee(
    risk=0.1,
    confidence=0.95,
    threshold=0.5,
    answered=65,
    wrong=1,
    bound=upper_bound(1, 65, 0.95),
    coverage=0.5,
    grid=(0.5,),
    n=130,
    samples=1,
    pilot=(),
    scores=tuple(number / 130 for number in range(130)),
)


def write_saved(folder: Path, **changes: Any) -> Path:
    """Write the file with some fields changed."""
    path = folder / "calibrator.json"
    path.write_text(write_calibrator(msgspec.structs.replace(SAVED, **changes)))
    return path
