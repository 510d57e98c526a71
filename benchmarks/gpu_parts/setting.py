"""What all parts share: device and sizes, judges with random weights, and how a result is written."""

from __future__ import annotations

import json
import math
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from question_cost import made_up_items

from gpu_parts.random_judge import random_judge
from selfreflect.bench import synchronise
from selfreflect.models.judge import Judge
from selfreflect.sources.items import Item

Relation = Literal["<=", ">="]


@dataclass(frozen=True)
class Sizes:
    """How large the question is, and how often it is timed."""

    answers: int
    """In each half."""
    words: int
    """Of an answer."""
    summaries: int
    summary_words: int
    repetitions: int
    samples: int
    scaling_answers: tuple[int, ...]
    scaling_summaries: tuple[int, ...]


FULL = Sizes(50, 12, 4, 40, 4, 100, (10, 25, 50, 100), (1, 2, 4, 8, 16))
SMOKE = Sizes(2, 4, 2, 6, 1, 5, (2, 3), (1, 2))


@dataclass(frozen=True)
class Setting:
    """``smoke`` runs on the CPU with tiny shapes. ``tokenizer`` is a directory, or the embedded model's."""

    smoke: bool
    tokenizer: Path | None = None

    @property
    def device(self) -> torch.device:
        return torch.device("cpu" if self.smoke else "cuda")

    @property
    def sizes(self) -> Sizes:
        return SMOKE if self.smoke else FULL

    def judge(self, shape: str) -> Judge:
        """A judge with random weights: bfloat16 on the GPU, and for a smoke test a tiny one in float32."""
        name = "tiny" if self.smoke else shape
        return random_judge(name, device=self.device.type, tokenizer=self.tokenizer)

    def item(self, *, answers: int | None = None, summaries: int | None = None) -> Item:
        """A question with made-up texts. Random words share no beginnings, so a real one is cheaper."""
        sizes = self.sizes
        arguments = Namespace(
            limit=1,
            answers=answers or sizes.answers,
            conditioning=answers or sizes.answers,
            words=sizes.words,
            summaries=summaries or sizes.summaries,
            summary_words=sizes.summary_words,
        )
        return made_up_items(arguments)[0]

    def seconds(self, work: Callable[[], Any]) -> float:
        """How long ``work`` takes until the device has finished."""
        synchronise(self.device)
        started = time.perf_counter()
        work()
        synchronise(self.device)
        return time.perf_counter() - started

    def write(
        self,
        name: str,
        value: float | int | str,
        unit: str = "",
        *,
        target: float | None = None,
        relation: Relation = "<=",
        exact: bool = False,
        **details: Any,
    ) -> None:
        """Write one result as a line of JSON.

        Args:
            target: what ``value`` should be at most, or with ``relation`` at least. Speeds have none in a
                smoke test.
            exact: missing the target is an error, not a disappointment.
            details: further figures, for the file only.
        """
        if self.smoke and not exact:
            target = None
        ok = None
        if isinstance(value, float) and not math.isfinite(value):
            value, ok = str(value), False
        elif target is not None and not isinstance(value, str):
            ok = value <= target if relation == "<=" else value >= target
        facts = {"name": name, "value": value, "unit": unit, "target": target, "relation": relation}
        print(json.dumps({**facts, "ok": ok, "exact": exact, **details}), flush=True)
