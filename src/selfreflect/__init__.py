"""Faithful summaries of a language model's answer distribution, and measures that score them.

Ask a model, let it summarise its own answers, and see what the summary tells::

    from selfreflect import reflect

    result = reflect("What is the capital of Turkey?", model="smollm2")
    result.classes        # groups of equal answers, with counts
    result.summaries      # texts by name
    result.measures       # score, bits, recovered share and its interval, by name

Measure summaries of answers that you have::

    reflect("What should I plant?", samples=texts, summaries={"mine": "Radishes, or lettuce."})

Sample from your own function, for a list of questions or a data frame::

    reflect(frame, generate=lambda messages, temperature: my_model(messages, temperature))

With one judge for many questions::

    from selfreflect import SelfReflect

    metric = SelfReflect("smollm2")
    scores = metric.score("What should I plant?", answers=texts, summaries="Radishes, or lettuce.")
    scores["summary"].value, scores["summary"].recovered

``Run.load(directory).to_pandas()`` reads what ``selfreflect run`` has written. ``help(selfreflect.reflect)``
explains one name.

The names are loaded on first use: importing the package loads no torch, prints nothing and creates nothing.
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
    from selfreflect.records import Information as Information
    from selfreflect.records import Question as Question
    from selfreflect.records import Score as Score
    from selfreflect.records import Summary as Summary
    from selfreflect.report.reflection import Reflection as Reflection
    from selfreflect.run.reflect import reflect as reflect
    from selfreflect.run.reflect import reflect_each as reflect_each
    from selfreflect.store.run import Run as Run

__version__ = "0.1.0"

_HOMES = {
    "AnswerSet": "records",
    "Failure": "records",
    "HFGenerator": "models.local.generator",
    "Information": "records",
    "Judge": "models.judge",
    "Question": "records",
    "Reflection": "report.reflection",
    "Run": "store.run",
    "Score": "records",
    "SelfReflect": "metric.scorer",
    "SelfReflectError": "errors",
    "Summary": "records",
    "reflect": "run.reflect",
    "reflect_each": "run.reflect",
}

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'selfreflect' has no attribute {name!r}")
    return getattr(import_module(f"selfreflect.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
