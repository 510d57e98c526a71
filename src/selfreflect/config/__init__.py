"""Settings: what changes results, and where the work is done.

``sections`` declares them, ``flags`` says how a field states its flag and range, and ``loading`` merges
defaults, run directory, file and flags; ``places`` finds what is wrong in a file.
"""

from __future__ import annotations

from selfreflect.config.flags import POSITIVE, Flag, Range, check_values, flags_of, notes_of
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
    sampling_of,
)
from selfreflect.config.serving import ServeConfig

__all__ = [
    "POSITIVE",
    "SAMPLED_ALIKE",
    "SEED",
    "AnswersConfig",
    "Config",
    "ExecutionConfig",
    "ExecutionOptions",
    "Flag",
    "Placement",
    "Price",
    "Range",
    "ScoresConfig",
    "ServeConfig",
    "check_values",
    "flags_of",
    "load_config",
    "notes_of",
    "read_config",
    "read_execution",
    "sampling_of",
]
