"""Which metrics of a family are asked for, and how a judge is named beside their values. Nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from selfreflect.errors import ConfigError, excerpt, nearest
from selfreflect.validate.base import MetricInfo

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge


def chosen(metrics: Sequence[MetricInfo], names: Sequence[str] | None) -> tuple[MetricInfo, ...]:
    """Those of ``metrics`` that are named, in their own order; all without names.

    Raises:
        ConfigError: a name is none of theirs, or there is none.
    """
    known = [info.name for info in metrics]
    for name in known if names is None else names:
        if name not in known:
            raise ConfigError(f"there is no metric {excerpt(name)} here; known are {', '.join(known)}.{nearest(name, known)}")
    found = tuple(info for info in metrics if names is None or info.name in names)
    if not found:
        raise ConfigError(f"name at least one metric; known are {', '.join(known)}.")
    return found


def judged_by(judge: Judge) -> str:
    """Everything about a judge that moves its predictions."""
    revision = f"@{judge.lm.revision}" if judge.lm.revision else ""
    return f"{judge.name}{revision}, {judge.lm.dtype}" + (f", compat {judge.compat}" if judge.compat else "")
