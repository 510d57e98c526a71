"""Settings: what changes results, and where the work is done.

``sections`` declares them in the words of :mod:`selfreflect.flags`, and ``loading`` merges defaults, run
directory, file and flags; ``places`` finds what is wrong in a file.
"""

from __future__ import annotations

from selfreflect.config.loading import load_config, read_config, read_execution
from selfreflect.config.sections import (
    SAMPLED_ALIKE,
    SEED,
    AnswersConfig,
    Config,
    ExecutionConfig,
    ExecutionOptions,
    Placement,
    Price,
    ScoresConfig,
    ServeConfig,
    sampling_of,
)

__all__ = [
    "SAMPLED_ALIKE",
    "SEED",
    "AnswersConfig",
    "Config",
    "ExecutionConfig",
    "ExecutionOptions",
    "Placement",
    "Price",
    "ScoresConfig",
    "ServeConfig",
    "load_config",
    "read_config",
    "read_execution",
    "sampling_of",
]
