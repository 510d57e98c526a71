"""Tensors only: hidden states at the wanted nodes of plans, and distances between two contexts' predictions.

Prefixes and trees of all contexts run in passes of many rows, every node once. What is kept of a context are
the final hidden states at its token tasks (a few KB each); vocabularies exist only for a few rows at a time,
on the device, while their distances are summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from selfreflect.metric.distance import Formula, total_variation
from selfreflect.metric.engine.arena import room
from selfreflect.metric.engine.attention import TreeAttention
from selfreflect.metric.engine.decoder import Decoder, FusedDecoder, HFDecoder, windowed
from selfreflect.metric.engine.packing import pack
from selfreflect.metric.engine.remote import RemoteEngine
from selfreflect.metric.engine.sequences import Head, SequenceEngine
from selfreflect.metric.engine.tree import Ints, PrefixTree, Prompt, build_tree
from selfreflect.models.local.device_map import input_device, output_device

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge

ROWS_OF_LOGITS = 64
"""Token tasks whose full-vocabulary rows exist at once: 64 x 150k x 4 bytes x 4 arrays is 150 MB for the
largest vocabularies. On a GPU sixteen times as many, since fewer would leave it waiting for the vocabulary's
weights."""

ROWS_IN_CACHE = 16
"""Token tasks whose probabilities are taken at a time on a CPU."""


class Engine(Protocol):
    """Computes what the judge predicts at the wanted nodes of a plan."""

    @property
    def head(self) -> Head: ...

    def states(self, plans: Sequence[PrefixTree]) -> list[torch.Tensor]:
        """For each plan one row per wanted node, shape (W, width), to be given to ``head``."""


class TreeEngine:
    """Runs plans in passes of many tree nodes, every node once.

    Args:
        body: the decoder, see :mod:`selfreflect.metric.engine.decoder`.
        head: see :data:`~selfreflect.metric.engine.sequences.Head`.
        device: where ``head`` wants its states.
        budget: rows per forward pass.
        block: tree nodes that share one look at their ancestors.
        fused: use the device's fused attention kernels, where there are any.

    Attributes:
        windows: the sliding windows that the layers have asked for so far.
    """

    def __init__(
        self,
        body: Decoder,
        head: Head,
        device: torch.device,
        *,
        budget: int | None = None,
        block: int = 64,
        fused: bool = True,
    ) -> None:
        self.body = body
        self.head = head
        self.device = device
        self.windows: set[int] = set()
        self.budget = budget or (1024 if device.type == "cpu" else 8192)
        self.block = block
        self.fused = fused

    @torch.inference_mode()
    def states(self, plans: Sequence[PrefixTree]) -> list[torch.Tensor]:
        """Final normed hidden states at the wanted nodes, shape (W, hidden) for each plan."""
        attention = TreeAttention(fused=self.fused)
        found: list[torch.Tensor | None] = [None] * len(plans)
        filled = [0] * len(plans)
        for packed in pack(plans, self.budget, self.block):
            attention.begin(packed)
            counts = packed.wanted_of(plans)
            rows = self.body.run(packed, attention)
            for (context, _), states in zip(
                counts, torch.split(rows, [count for _, count in counts]), strict=True
            ):
                if (kept := found[context]) is None:
                    kept = found[context] = room((len(plans[context].wanted), *states.shape[1:]), states)
                kept[filled[context] : filled[context] + len(states)] = states
                filled[context] += len(states)
        self.windows |= attention.windows
        return [states.to(self.device) for states in found if states is not None]


@torch.inference_mode()
def distances(
    head: Head,
    reference: torch.Tensor,
    others: Sequence[tuple[torch.Tensor, Ints]],
    temperature: float,
    formulas: Sequence[Formula] = (),
) -> list[npt.NDArray[np.float64]]:
    """Total variation between predictions of one context and those of several others, or what ``formulas``
    say instead.

    Args:
        reference: states of the reference context, shape (R, width).
        others: for each other context its states (W, width) and pairs of a row of those and a row of the
            reference, shape (tasks, 2).
        formulas: K distances that share the projections.

    Returns:
        One array for each other context, a distance for each of its pairs: shape (tasks,), with ``formulas``
            (tasks, K).
    """
    measured = formulas or (_variation(reference.device),)
    # A formula that is not compiled into one kernel writes several more arrays of full vocabularies.
    size = ROWS_OF_LOGITS if reference.device.type == "cpu" or formulas else 16 * ROWS_OF_LOGITS
    # The tasks of all contexts that need these rows of the reference fill blocks together: blocks of one
    # size, one after another, fit into the same memory, and products of many rows are faster.
    tasks = np.concatenate([pairs for _, pairs in others])
    context = np.repeat(np.arange(len(others)), [len(pairs) for _, pairs in others])
    found = np.zeros((len(tasks), len(measured)))
    for start in range(0, len(reference), size):
        expected = head(reference[start : start + size])
        (here,) = np.nonzero((start <= tasks[:, 1]) & (tasks[:, 1] < start + size))
        for block in (here[i : i + size] for i in range(0, len(here), size)):
            at = _index(tasks[block, 1] - start, reference)
            found[block] = _columns(
                head(_gathered(others, context[block], tasks[block, 0])), expected, at, temperature, measured
            )
    each = np.split(found, np.cumsum([len(pairs) for _, pairs in others[:-1]]))
    return each if formulas else [values[:, 0] for values in each]


def _gathered(others: Sequence[tuple[torch.Tensor, Ints]], context: Ints, rows: Ints) -> torch.Tensor:
    """Row ``rows[i]`` of the states of ``context[i]``, for each i; contexts ascend."""
    stretches = np.split(np.arange(len(context)), np.flatnonzero(np.diff(context)) + 1)
    return torch.cat([(states := others[context[of[0]]][0])[_index(rows[of], states)] for of in stretches])


def _index(rows: Ints, of: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(rows).to(of.device)


def _columns(
    logits: torch.Tensor,
    expected: torch.Tensor,
    at: torch.Tensor,
    temperature: float,
    formulas: Sequence[Formula],
) -> npt.NDArray[np.float64]:
    """Row i of ``logits`` against row ``at[i]`` of ``expected``, one column for each formula.

    A function of its own, so that these logits are gone before the next ones come. On a CPU a few rows at a
    time stay in its caches.
    """
    size = ROWS_IN_CACHE if logits.device.type == "cpu" else max(1, len(logits))
    parts = [
        torch.stack([formula(some, reference, temperature) for formula in formulas], dim=1)
        for some, reference in (
            (logits[i : i + size], expected[at[i : i + size]]) for i in range(0, len(logits), size)
        )
    ]
    return torch.cat(parts).double().cpu().numpy()


@torch.inference_mode()
def log_probabilities(head: Head, states: torch.Tensor, wanted: Ints) -> npt.NDArray[np.float64]:
    """Natural logarithms of the probabilities of some next tokens, at temperature 1.

    Args:
        states: shape (W, width).
        wanted: pairs of a row of ``states`` and a token id, shape (tokens, 2).

    Returns:
        Shape (tokens,).
    """
    found = np.zeros(len(wanted))
    for start in range(0, len(states), ROWS_OF_LOGITS):
        logits = head(states[start : start + ROWS_OF_LOGITS])
        (here,) = np.nonzero((start <= wanted[:, 0]) & (wanted[:, 0] < start + ROWS_OF_LOGITS))
        rows = torch.from_numpy(wanted[here]).to(states.device)
        at, token = rows[:, 0] - start, rows[:, 1]
        found[here] = (logits[at, token] - logits.logsumexp(dim=-1)[at]).double().cpu().numpy()
    return found


@dataclass(frozen=True)
class Guesses:
    """What two contexts hold likely for each of some token tasks.

    ``tokens`` has shape (tasks, K), the likeliest of either context first; ``probabilities`` has shape
    (tasks, K, 4): after the context and after the reference, each at temperature 1 and at the judge's, as in
    :class:`~selfreflect.records.Guess`.
    """

    tokens: Ints
    probabilities: npt.NDArray[np.float64]


@torch.inference_mode()
def guesses(
    head: Head,
    reference: torch.Tensor,
    others: Sequence[tuple[torch.Tensor, Ints]],
    temperature: float,
    count: int,
) -> list[Guesses]:
    """The ``count`` likeliest tokens of each context for every pair, with their probabilities in both;
    arguments as for :func:`distances`.

    A token that is among the likeliest of both contexts is there twice. The projections are computed again:
    people look at few questions.
    """
    found = []
    for states, pairs in others:
        tokens, probabilities = [], []
        for rows in torch.split(torch.from_numpy(pairs).to(states.device), ROWS_OF_LOGITS):
            logits = head(states[rows[:, 0]]), head(reference[rows[:, 1].to(reference.device)])
            likely = torch.cat([one.topk(min(count, one.shape[1]), dim=1).indices for one in logits], dim=1)
            held = [
                torch.softmax(one / t, dim=1).gather(1, likely) for one in logits for t in (1.0, temperature)
            ]
            order = torch.maximum(held[0], held[2]).argsort(dim=1, descending=True, stable=True)
            tokens.append(likely.gather(1, order).cpu().numpy())
            probabilities.append(
                torch.stack([one.gather(1, order) for one in held], dim=2).double().cpu().numpy()
            )
        found.append(Guesses(np.concatenate(tokens), np.concatenate(probabilities)))
    return found


@cache
def _variation(device: torch.device) -> Formula:
    """The formula; on a GPU compiled into one kernel, which reads each logit once and writes no
    probabilities."""
    if device.type != "cuda":
        return total_variation
    fused: Formula = torch.compile(total_variation, dynamic=True)
    try:
        # Two tensors, and sizes like real ones: the compiler makes other code for equal arguments and for
        # small vocabularies.
        probe, other = (torch.full((64, 2**16), value, device=device) for value in (0.0, 1.0))
        fused(probe, other, 5.0)
    except (
        Exception
    ):  # whatever a compiler that is missing or broken raises: the plain formula gives the same numbers
        return total_variation
    return fused


class RotaryLimitEngine:
    """For models whose rotary frequencies change for all positions once a sequence is longer than ``limit``
    (Phi-3's longrope): up to there a tree, beyond it one sequence at a time, since no two lengths may share
    keys.
    """

    def __init__(self, tree: TreeEngine, sequences: SequenceEngine, limit: int) -> None:
        self.tree = tree
        self.sequences = sequences
        self.head = tree.head
        self.limit = limit

    def states(self, plans: Sequence[PrefixTree]) -> list[torch.Tensor]:
        return [
            (self.tree if plan.longest <= self.limit else self.sequences).states([plan])[0] for plan in plans
        ]


def engine_of(judge: Judge) -> Engine:
    """The engine of a judge, wherever its decoder runs."""
    if judge.last_states is not None:
        return RemoteEngine(judge.last_states, judge.head)
    return choose_engine(judge.lm.model, judge.decoder, judge.head)


@torch.inference_mode()
def choose_engine(model: Any, decoder: Any, head: Head) -> Engine:
    """The first engine that reproduces the model's own logits on a small tree: tree attention, else whole
    sequences.

    The check costs a few tiny passes and catches every architecture whose attention cannot be replaced or
    whose logits are rescaled in a way that ``head`` does not know. What only shows in longer texts is read
    from the configuration. Of a model in parts on several devices all states come to that of the vocabulary
    projection.
    """
    out = output_device(model)
    tolerance = 2e-3 if next(model.parameters()).dtype == torch.float32 else 5e-2
    plan = build_tree(_probe_prompts())
    logits = SequenceEngine(
        lambda ids: model(input_ids=ids, use_cache=False).logits.to(out),
        torch.Tensor.float,
        input_device(model),
    )
    expected = logits.head(*logits.states([plan]))
    hidden = SequenceEngine(
        lambda ids: decoder(input_ids=ids, use_cache=False).last_hidden_state.to(out),
        head,
        input_device(decoder),
    )
    if not _reproduces(hidden, plan, expected, tolerance):
        return logits
    bodies: list[Decoder] = (
        [FusedDecoder(decoder), HFDecoder(decoder)] if FusedDecoder.serves(decoder) else [HFDecoder(decoder)]
    )
    trees = (TreeEngine(body, head, out, fused=fused) for fused in (True, False) for body in bodies)
    tree = next((tree for tree in trees if _reproduces(tree, plan, expected, tolerance)), None)
    config = decoder.config.get_text_config()
    if tree is None or _hides_window(config, tree):
        return hidden
    if (limit := _rotary_limit(config)) is None:
        return tree
    hidden.budget = 1
    return RotaryLimitEngine(tree, hidden, limit)


def _reproduces(engine: Engine, plan: PrefixTree, expected: torch.Tensor, tolerance: float) -> bool:
    try:
        return _agree(engine.head(*engine.states([plan])), expected, tolerance)
    except (TypeError, KeyError, AttributeError, RuntimeError, ValueError):
        return False


def _hides_window(config: Any, tree: TreeEngine) -> bool:
    """Whether a window longer than the check is applied through the mask alone, which tree attention does not
    look at."""
    return "chunked_attention" in (getattr(config, "layer_types", None) or ()) or (
        windowed(config) and not tree.windows
    )


def _rotary_limit(config: Any) -> int | None:
    """The length beyond which longrope uses its second set of frequencies."""
    ropes = getattr(config, "rope_parameters", None) or {}
    by_layer_type = [rope for rope in ropes.values() if isinstance(rope, dict)] or [ropes]
    limits = [
        rope["original_max_position_embeddings"]
        for rope in by_layer_type
        if rope.get("rope_type") == "longrope"
    ]
    return min(limits, default=None)


def _agree(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    """Whether logits are equal up to rounding, measured against the spread of the expected ones over the
    vocabulary."""
    if found.shape != expected.shape:
        return False
    centred = expected - expected.mean(dim=-1, keepdim=True)
    return bool(torch.linalg.vector_norm(found - expected) <= tolerance * torch.linalg.vector_norm(centred))


def _probe_prompts() -> list[Prompt]:
    """A tree with two branchings; token ids below 16 exist in every vocabulary."""
    stem = (3, 5, 7, 9, 11)
    return [
        Prompt(ids=(*stem, *branch, 6, 4), first=len(stem) + len(branch))
        for branch in ((8, 10, 12), (8, 10, 13), (8, 14, 12, 9), (2, 5))
    ]
