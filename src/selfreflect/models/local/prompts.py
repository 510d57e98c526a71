"""Compute the keys and values of prompts, once for all that begin alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from selfreflect.models.local.layers import run_layers
from selfreflect.text import common_prefix

SHORTEST = 32
"""Tokens that prompts must have in common. Fewer do not pay for a pass of their own."""

ROOM = 128 * 2**20
"""Bytes of keys and values that are kept from one batch to the next."""

Prompt = tuple[int, ...]


class States(NamedTuple):
    """Keys and values of some tokens: for each layer (KV, tokens, D), or (prompts, KV, tokens, D)."""

    keys: list[torch.Tensor]
    values: list[torch.Tensor]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(states.nbytes for states in [*self.keys, *self.values])


class PromptStates:
    """Computes prompts, and keeps the latest of them: strategies and further batches continue the same ones.

    Args:
        model: one that :func:`selfreflect.models.local.step.serves`, because gaps in its cache do not matter.
        room: bytes that are kept between calls.
    """

    def __init__(self, model: Any, room: int = ROOM) -> None:
        self.model = model
        self.room = room
        self._kept: dict[Prompt, States] = {}
        """The latest last."""

    @torch.inference_mode()
    def compute(self, prompts: Sequence[Prompt]) -> tuple[torch.Tensor, States]:
        """Compute prompts that all differ.

        Returns:
            the logits after each, (prompts, vocabulary), and the keys and values of all, padded on the left.
        """
        available = dict(self._kept)
        for level in shared_beginnings(prompts, available):
            _, states = self._pass(level, available)
            available.update((prompt, _row(states, row, len(prompt))) for row, prompt in enumerate(level))
        logits, states = self._pass(prompts, available)
        self._keep(prompts, states)
        return logits, states

    def _pass(
        self, prompts: Sequence[Prompt], available: Mapping[Prompt, States]
    ) -> tuple[torch.Tensor, States]:
        """Compute what follows, in each prompt, on the longest beginning that is available."""
        origins = [_longest_beginning(prompt[:-1], available) for prompt in prompts]
        reused = [length for _, length in origins]
        ids, mask = left_padded([prompt[n:] for prompt, n in zip(prompts, reused, strict=True)], pad_id=0)
        before = None
        if any(reused):
            _, earlier = left_padded([(1,) * n for n in reused], pad_id=0)
            mask = torch.cat([earlier, mask], dim=1)
            before = _beginnings(origins, available)
        passed = run_layers(
            self.model.model, ids, positions(mask)[:, -ids.shape[1] :], _visible(mask, ids.shape[1]), before
        )
        # Beginnings and what follows are padded on the left, each. All padding moves to the left of both.
        order = mask.argsort(dim=1, stable=True)[:, None, :, None]
        keys = [torch.take_along_dim(layer, order, dim=2) for layer in passed.keys]
        values = [torch.take_along_dim(layer, order, dim=2) for layer in passed.values]
        return self.model.lm_head(passed.hidden[:, -1]), States(keys, values)

    def _keep(self, prompts: Sequence[Prompt], states: States) -> None:
        """Keep the latest prompts that fit, and of those before as many as there is room for."""
        room = self.room
        latest: dict[Prompt, States] = {}
        token = states.size // (len(prompts) * states.keys[0].shape[2])
        for row, prompt in reversed(list(enumerate(prompts))):
            room -= token * len(prompt)
            if room < 0:
                break
            latest[prompt] = _row(states, row, len(prompt))
        for prompt, earlier in reversed(self._kept.items()):
            if prompt not in latest:
                room -= earlier.size
                if room < 0:
                    break
                latest[prompt] = earlier
        self._kept = dict(reversed(latest.items()))


def shared_beginnings(prompts: Sequence[Prompt], available: Iterable[Prompt]) -> list[list[Prompt]]:
    """List what two or more prompts begin with, where that adds enough to what is available.

    Beginnings in one list can be computed together; they continue those of the lists before.
    """
    beginnings = set()
    for one, other in pairwise(sorted(prompts)):  # neighbours have the most in common
        beginnings.add(one[: common_prefix(one, other)])
    levels: list[list[Prompt]] = []
    depth = dict.fromkeys(available, 0)
    for beginning in sorted(beginnings, key=len):
        longest, length = _longest_beginning(beginning, depth)
        if len(beginning) - length < SHORTEST:
            continue
        level = depth[longest] if length else 0
        if level == len(levels):
            levels.append([])
        levels[level].append(beginning)
        depth[beginning] = level + 1
    return levels


def _longest_beginning(prompt: Prompt, available: Iterable[Prompt]) -> tuple[Prompt, int]:
    """Which of the available has most in common with a prompt, and how many tokens; 0 for too few."""
    best: Prompt = ()
    most = 0
    for origin in available:
        length = common_prefix(prompt, origin)
        if length > most or not best:
            best, most = origin, length
    return best, most if most >= SHORTEST else 0


def _row(states: States, row: int, tokens: int) -> States:
    """A copy of one prompt's, so that those of its batch can be freed."""
    keys = [layer[row, :, -tokens:].clone() for layer in states.keys]
    values = [layer[row, :, -tokens:].clone() for layer in states.values]
    return States(keys, values)


def _beginnings(origins: Sequence[tuple[Prompt, int]], available: Mapping[Prompt, States]) -> States:
    """The first tokens of what is available, so many of each, padded on the left."""
    [layers] = {len(states.keys) for states in available.values()}
    keys = []
    values = []
    for layer in range(layers):
        keys.append(_stacked([available[origin].keys[layer][:, :n] for origin, n in origins]))
        values.append(_stacked([available[origin].values[layer][:, :n] for origin, n in origins]))
    return States(keys, values)


def _visible(mask: torch.Tensor, tokens: int) -> torch.Tensor | None:
    """Which keys each of the last ``tokens`` sees, (prompts, 1, tokens, longest): those up to its own that
    are no padding, and its own, so that padding sees something too. None where that is all before it."""
    longest = mask.shape[1]
    if tokens in (1, longest) and bool(mask.all()):
        return None
    own = torch.eye(longest, dtype=torch.bool)[-tokens:]
    causal = torch.ones(tokens, longest, dtype=torch.bool).tril(longest - tokens)
    return (causal & mask[:, None].bool() | own)[:, None]


def _stacked(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows (KV, tokens, D) as one tensor (rows, KV, longest, D), padded with zeros on the left."""
    longest = max(row.shape[1] for row in rows)
    return torch.stack([F.pad(row, (0, 0, longest - row.shape[1], 0)) for row in rows])


def left_padded(prompts: Sequence[Prompt], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask, each (prompts, longest)."""
    longest = max(map(len, prompts))
    ids = np.full((len(prompts), longest), pad_id, dtype=np.int64)
    mask = np.zeros((len(prompts), longest), dtype=np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = prompt
        mask[row, longest - len(prompt) :] = 1
    return torch.from_numpy(ids), torch.from_numpy(mask)


def positions(mask: torch.Tensor) -> torch.Tensor:
    """Positions without the padding, so that a prompt gives the same logits however far it is padded."""
    return (mask.cumsum(dim=1) - 1).clamp_(min=0)
