"""A GPU works while the host prepares what comes next, unless the host asks for a number too early."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from engine_items import PARENTS, tree_of

from selfreflect.metric.engine import kernels
from selfreflect.metric.engine.engines import FusedDecoder, HFDecoder, TreeEngine
from selfreflect.metric.engine.logits import ROWS_OF_LOGITS, SummaryStates, log_probabilities


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("architecture", "decoder"),
    [("qwen3", FusedDecoder), ("llama", FusedDecoder), ("llama", HFDecoder), ("gemma2", HFDecoder)],
)
def test_no_pass_waits_for_the_device_and_the_kernel_of_a_gpu_takes_its_shapes(
    architecture, decoder, fused, tiny_judge, monkeypatch
) -> None:
    """Tensors on torch's device ``meta`` have shapes and no numbers: reading one raises, and the kernel of
    GPUs checks what it is given."""
    model = tiny_judge(architecture).lm.model
    with torch.device("meta"):
        empty = type(model)(model.config).bfloat16().eval()
    calls = []
    monkeypatch.setitem(
        kernels.FUSED_KERNELS, "meta", lambda *inputs: (calls.append(1), kernels.cuda_kernel(*inputs))[1]
    )
    engine = TreeEngine(
        decoder(empty.get_decoder()), lambda states: states, torch.device("meta"), fused=fused
    )
    engine.max_rows = 10
    states = engine.states([tree_of(prefix, PARENTS, [1, 2, 7]) for prefix in (6, 0, 2)])
    assert [tuple(own.shape) for own in states] == [(3, empty.config.hidden_size)] * 3
    assert {own.dtype for own in states} == {torch.bfloat16}
    assert bool(calls) == (fused and architecture != "gemma2")


def test_numbers_are_read_only_after_all_work_has_been_started(monkeypatch) -> None:
    events = []
    read = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: (events.append("read"), read(self))[1])
    states = torch.randn(5 * ROWS_OF_LOGITS, 4)
    rows = np.arange(len(states))

    def head(hidden: torch.Tensor) -> torch.Tensor:
        events.append("work")
        return hidden

    compared = SummaryStates(head, states, [(states.flip(0), np.column_stack([rows, rows]))])
    for measure in (
        lambda: compared.distances(5.0),
        lambda: log_probabilities(head, states, np.column_stack([rows, rows % 4])),
    ):
        events.clear()
        measure()
        assert {"work", "read"} == set(events)
        assert events == sorted(events, reverse=True)
