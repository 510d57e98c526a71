"""``benchmarks/parts.py``: the parts that it switches off are there, and on again afterwards."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from script import load_benchmark


@pytest.fixture
def benchmark():
    return load_benchmark("parts")


def test_times_with_and_without_a_part_are_compared_in_turn(benchmark) -> None:
    part = benchmark.Part(lambda: None, lambda: patch.object(benchmark, "QUESTION", "without"))
    uses = []

    def seconds(run) -> float:
        uses.append(benchmark.QUESTION != "without")
        return 2.0 if uses[-1] else 3.0

    with patch.object(benchmark, "seconds", seconds):
        assert benchmark.compare(part, 2) == (2.0, [1.5, 1.5])
    assert uses == [True, False, True, False]


def test_every_part_of_drawing_and_scoring_can_be_switched_off(benchmark, tmp_path) -> None:
    modules = (benchmark.attention, benchmark.decode, benchmark.engines, benchmark.logits, benchmark.step)
    objects = (*modules, benchmark.decode.PromptStates, benchmark.ChatTokenizer)
    objects += (benchmark.engines.TreeEngine,)
    before = [dict(vars(one)) for one in objects]
    for name, part in benchmark.make_parts().items():
        if name == "own layers":  # it changes a judge, which takes seconds to load
            continue
        with part.without():
            assert [dict(vars(one)) for one in objects] != before, name
        assert [dict(vars(one)) for one in objects] == before
