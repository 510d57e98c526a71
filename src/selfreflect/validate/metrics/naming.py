"""Which metrics of a family are asked for, and how a model is named beside their values. Nothing heavy is
imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
            raise ConfigError(
                f"there is no metric {excerpt(name)} here; known are {', '.join(known)}.{nearest(name, known)}"
            )
    found = tuple(info for info in metrics if names is None or info.name in names)
    if not found:
        raise ConfigError(f"name at least one metric; known are {', '.join(known)}.")
    return found


def judged_by(judge: Judge) -> str:
    """Everything about a judge that moves its predictions."""
    model = named(judge.name, judge.lm.revision, judge.facts)
    return f"{model}, {judge.lm.dtype}" + (f", compat {judge.compat}" if judge.compat else "")


def named(name: str, revision: str, facts: Mapping[str, Any]) -> str:
    """A model, and the server it runs on, if any: two may call different models the same. No credentials are
    in ``facts``."""
    url = facts.get("base_url")
    return name + (f"@{revision}" if revision else "") + (f" at {url}" if url else "")
