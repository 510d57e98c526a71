"""Faithful summaries of a language model's answer distribution, and the SelfReflect metric that scores them.

The names below are loaded on first use: importing the package loads no torch, prints nothing and creates
nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selfreflect.errors import SelfReflectError as SelfReflectError
    from selfreflect.metric.scorer import SelfReflect as SelfReflect
    from selfreflect.models.judge import Judge as Judge
    from selfreflect.models.local.generator import HFGenerator as HFGenerator
    from selfreflect.records import AnswerSet as AnswerSet
    from selfreflect.records import Failure as Failure
    from selfreflect.records import Question as Question
    from selfreflect.records import Score as Score
    from selfreflect.records import Summary as Summary
    from selfreflect.store.run import Run as Run

__version__ = "0.1.0"

_HOMES = {
    "AnswerSet": "records",
    "Failure": "records",
    "HFGenerator": "models.local.generator",
    "Judge": "models.judge",
    "Question": "records",
    "Run": "store.run",
    "Score": "records",
    "SelfReflect": "metric.scorer",
    "SelfReflectError": "errors",
    "Summary": "records",
}

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'selfreflect' has no attribute {name!r}")
    return getattr(import_module(f"selfreflect.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
