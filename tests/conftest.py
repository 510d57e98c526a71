from __future__ import annotations

import signal
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from selfreflect.metric.scorer import SelfReflect
    from selfreflect.models.judge import Judge

# A shell that starts the tests in the background ignores interrupts, and the commands that the tests interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny_judge(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Judge]:
    """``tiny_judge("llama", dtype="bfloat16", max_position_embeddings=100)``: a tiny random judge, made on the first call."""
    import torch

    import tiny
    from selfreflect.models.judge import Judge

    torch.set_num_threads(1)  # more threads only wait for each other at this size

    def make(architecture: str, dtype: Any = "float32", **changes: Any) -> Judge:
        return Judge.load(str(tiny.save(tmp_path_factory.mktemp("judge"), architecture, **changes)), device="cpu", dtype=dtype)

    return cache(make)


@pytest.fixture(scope="session")
def tiny_metric(tiny_judge: Callable[..., Judge]) -> Callable[..., SelfReflect]:
    """The metric with a judge that :func:`tiny_judge` makes."""
    from selfreflect.metric.scorer import SelfReflect

    return cache(lambda architecture, **options: SelfReflect(tiny_judge(architecture, **options)))
