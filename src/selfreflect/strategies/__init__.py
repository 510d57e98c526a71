"""Summary strategies: ways to ask a model for a summary of its answers.

A strategy is a generator function: it gets a :class:`Task`, yields a request or a list of them, receives the
list of replies, and returns the summary. :func:`load_strategy` finds one by its name in ``STRATEGIES`` or as
``package.module:function``; :func:`selfreflect.strategies.driver.summarize` runs them on many questions.
"""

from __future__ import annotations

import re

from selfreflect.errors import ConfigError, excerpt, nearest
from selfreflect.plugins import load_function
from selfreflect.strategies.builtin import STRATEGIES, one_draw
from selfreflect.strategies.task import Strategy, StrategyFunction, Task, draw_samples

__all__ = [
    "STRATEGIES",
    "Strategy",
    "StrategyFunction",
    "Task",
    "draw_samples",
    "load_strategy",
]

TRAINED = {"sayself": "selfreflect.train.sayself.statement:sayself"}
"""Strategies of models that were trained for them, loaded on use."""

_DRAW = re.compile(r"(.+)#[1-9]\d*")


def load_strategy(name: str) -> StrategyFunction:
    """Load a strategy by name, or the function at ``package.module:function``.

    With ``#`` and a number after it, as in ``basic#1``, its texts are sampled as the answers are. Each number
    is a draw of its own.

    Raises:
        ConfigError: the name is unknown, the module cannot be imported, or it has no such function.
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    if name in TRAINED:
        return load_function(TRAINED[name], "strategy")
    if draw := _DRAW.fullmatch(name):
        return one_draw(load_strategy(draw[1]))
    if ":" not in name:
        raise ConfigError(
            f"unknown strategy {excerpt(name)}. Known: {', '.join([*STRATEGIES, *TRAINED])}, or your own as "
            f"package.module:function.{nearest(name, [*STRATEGIES, *TRAINED])}"
        )
    return load_function(name, "strategy")
