"""Summary strategies: the ways to ask a model for its own belief.

A strategy is a generator function. It gets a :class:`Task`, yields one request or a list of them, is sent the
list of replies, and returns the summary. ``STRATEGIES`` names the bundled ones; ``package.module:function``
names anyone's own.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from selfreflect.errors import ConfigError, excerpt, nearest
from selfreflect.strategies.run import guarded
from selfreflect.strategies.task import Strategy, StrategyFunction, Task, draw_samples

__all__ = ["STRATEGIES", "Strategy", "StrategyFunction", "Task", "draw_samples", "load_strategy"]

STRATEGIES: dict[str, str] = {
    "greedy": "selfreflect.strategies.greedy:greedy",
    "basic": "selfreflect.strategies.basic:basic",
    "cot": "selfreflect.strategies.cot:cot",
    "twostep_cot": "selfreflect.strategies.twostep_cot:twostep_cot",
    "sample_and_summarize": "selfreflect.strategies.sample_and_summarize:sample_and_summarize",
    "concatenated_answers": "selfreflect.strategies.concatenated_answers:concatenated_answers",
}


def load_strategy(name: str) -> StrategyFunction:
    """The strategy of that name, or the function that ``package.module:function`` points to.

    Raises:
        ConfigError: unknown name, a module that cannot be imported, or no such function in it.
    """
    target = STRATEGIES.get(name, name)
    module, colon, attribute = target.partition(":")
    if not colon:
        known = ", ".join(STRATEGIES)
        hint = nearest(name, list(STRATEGIES))
        raise ConfigError(
            f"unknown strategy {excerpt(name)}. Known: {known}, or your own as package.module:function.{hint}"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        # a console script, unlike `python -m`, cannot import from the directory it is started in
        sys.path.append(here)
    imported = guarded(lambda: import_module(module))
    if isinstance(imported, Exception):
        reason = f"{type(imported).__name__}: {excerpt(str(imported), 200)}"
        raise ConfigError(
            f"strategy {excerpt(name)}: cannot import {excerpt(module)}: {reason}"
        ) from imported
    function: StrategyFunction | None = getattr(imported, attribute, None)
    if function is None:
        raise ConfigError(f"strategy {excerpt(name)}: {excerpt(module)} has no function {excerpt(attribute)}")
    if not callable(function):
        raise ConfigError(
            f"strategy {excerpt(name)}: {excerpt(attribute)} is not a function but {excerpt(function)}"
        )
    return function
