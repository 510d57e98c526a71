"""Summary strategies: ways to ask a model for its own belief.

A strategy is a generator function: it gets a :class:`Task`, yields a request or a list of them, receives the
list of replies, and returns the summary. :func:`load_strategy` finds one by its name in ``STRATEGIES`` or as
``package.module:function``; :func:`selfreflect.strategies.driver.summarize` runs them on many questions.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from selfreflect.errors import ConfigError, excerpt, nearest
from selfreflect.strategies.builtin import STRATEGIES
from selfreflect.strategies.task import Strategy, StrategyFunction, Task, draw_samples

__all__ = ["STRATEGIES", "Strategy", "StrategyFunction", "Task", "draw_samples", "load_strategy"]


def load_strategy(name: str) -> StrategyFunction:
    """Load a strategy by its name, or the function at ``package.module:function``.

    Raises:
        ConfigError: the name is unknown, the module cannot be imported, or it has no such function.
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigError(
            f"unknown strategy {excerpt(name)}. Known: {', '.join(STRATEGIES)}, or your own as "
            f"package.module:function.{nearest(name, list(STRATEGIES))}"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        # a console script, unlike `python -m`, does not import from the current directory
        sys.path.append(here)
    try:
        imported = import_module(module)
    except Exception as error:  # arbitrary code
        reason = f"{type(error).__name__}: {excerpt(str(error), 200)}"
        raise ConfigError(f"strategy {excerpt(name)}: cannot import {excerpt(module)}: {reason}") from error
    function: StrategyFunction | None = getattr(imported, attribute, None)
    if function is None:
        raise ConfigError(f"strategy {excerpt(name)}: {excerpt(module)} has no function {excerpt(attribute)}")
    if not callable(function):
        raise ConfigError(
            f"strategy {excerpt(name)}: {excerpt(attribute)} is not a function but {excerpt(function)}"
        )
    return function
