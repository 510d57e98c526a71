"""Which engine serves a judge: the fastest one that reproduces the model's own logits on a small tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from selfreflect.metric.engine.decoder import Decoder, FusedDecoder, HFDecoder, windowed
from selfreflect.metric.engine.logits import Head
from selfreflect.metric.engine.sequences import RemoteEngine, RotaryLimitEngine, SequenceEngine
from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree
from selfreflect.metric.engine.tree_engine import TreeEngine
from selfreflect.models.local.device_map import input_device, output_device

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge


class Engine(Protocol):
    """Computes what a judge predicts at the output nodes of prefix trees."""

    @property
    def head(self) -> Head: ...

    def states(self, trees: Sequence[PrefixTree]) -> list[torch.Tensor]:
        """For each tree one row per output node, shape (W, width), to be given to ``head``."""


def engine_for(judge: Judge) -> Engine:
    """The engine of a judge, wherever its decoder runs."""
    if judge.last_states is not None:
        return RemoteEngine(judge.last_states, judge.head)
    return choose_engine(judge.lm.model, judge.decoder, judge.head)


@torch.inference_mode()
def choose_engine(model: Any, decoder: Any, head: Head) -> Engine:
    """Tree attention if it reproduces the model's logits, else ordinary sequences.

    The check catches every architecture whose attention cannot be replaced, or whose logits are rescaled in
    a way that ``head`` does not know. What only shows in longer texts is read from the configuration.
    """
    device = output_device(model)
    probe = _Probe(model)
    config = decoder.config.get_text_config()
    tree = next(filter(probe.passes, _tree_engines(decoder, head, device)), None)
    if tree is not None and _hides_window(config, tree):
        tree = None
    limit = _rotary_limit(config)
    if tree is not None and limit is None:
        return tree

    def states(ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = decoder(input_ids=ids, use_cache=False).last_hidden_state
        return hidden.to(device)

    def logits(ids: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = model(input_ids=ids, use_cache=False).logits
        return rows.to(device)

    sequences = SequenceEngine(states, head, input_device(decoder))
    if tree is not None and limit is not None:
        return RotaryLimitEngine(tree, sequences, limit)
    if probe.passes(sequences):
        return sequences
    return SequenceEngine(logits, torch.Tensor.float, input_device(model))


def _tree_engines(decoder: Any, head: Head, device: torch.device) -> list[TreeEngine]:
    """From the fastest to the most general."""
    decoders: list[Decoder] = [HFDecoder(decoder)]
    if FusedDecoder.serves(decoder):
        decoders.insert(0, FusedDecoder(decoder))
    engines = [TreeEngine(one, head, device) for one in decoders]
    return engines + [TreeEngine(one, head, device, fused=False) for one in decoders]


class _Probe:
    """A small tree that branches twice, and the model's own logits for its token tasks."""

    def __init__(self, model: Any) -> None:
        stem = (3, 5, 7, 9, 11)  # token ids below 16 exist in every vocabulary
        branches = ((8, 10, 12), (8, 10, 13), (8, 14, 12, 9), (2, 5))
        prompts = [Prompt((*stem, *branch, 6, 4), 5 + len(branch)) for branch in branches]
        self.tree = build_tree(prompts)
        # padded on the right, which a causal model does not look at
        ids = torch.zeros(len(prompts), max(len(prompt.ids) for prompt in prompts), dtype=torch.long)
        for row, prompt in zip(ids, prompts, strict=True):
            row[: len(prompt.ids)] = torch.tensor(prompt.ids)
        logits = model(input_ids=ids.to(input_device(model)), use_cache=False).logits
        targets = [
            row[prompt.first - 1 : len(prompt.ids) - 1] for row, prompt in zip(logits, prompts, strict=True)
        ]
        self.expected = torch.cat(targets).float().to(output_device(model))
        self.tolerance = 2e-3 if next(model.parameters()).dtype == torch.float32 else 5e-2

    def passes(self, engine: Engine) -> bool:
        """Whether its logits are equal up to rounding, measured against the spread of the expected ones over
        the vocabulary."""
        try:
            logits = engine.head(*engine.states([self.tree]))
            order = np.concatenate([np.asarray(rows) for rows in self.tree.rows])
            targets = logits[torch.from_numpy(order).to(logits.device)]
            difference = torch.linalg.vector_norm(targets - self.expected)
        except (TypeError, KeyError, AttributeError, RuntimeError, ValueError):
            return False  # an architecture that this engine cannot run
        spread = torch.linalg.vector_norm(self.expected - self.expected.mean(dim=-1, keepdim=True))
        return bool(difference <= self.tolerance * spread)


def _hides_window(config: Any, tree: TreeEngine) -> bool:
    """Whether a window longer than the probe is applied through the mask alone, which tree attention does not
    look at."""
    if "chunked_attention" in (getattr(config, "layer_types", None) or ()):
        return True
    return windowed(config) and not tree.windows


def _rotary_limit(config: Any) -> int | None:
    """The length beyond which longrope uses its second set of frequencies."""
    ropes = getattr(config, "rope_parameters", None) or {}
    by_layer_type = [rope for rope in ropes.values() if isinstance(rope, dict)] or [ropes]
    longropes = [rope for rope in by_layer_type if rope.get("rope_type") == "longrope"]
    return min((rope["original_max_position_embeddings"] for rope in longropes), default=None)
