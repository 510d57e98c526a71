"""Batched decoding: each prompt computed once, with a stop and a random stream per sequence.

Prompts that begin alike share the keys and values of their beginning. Steps are C code for the Llama family
in float32 on a CPU (:mod:`selfreflect.models.local.step`), and transformers' layers and cache for all others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from selfreflect.models.base import Sampling
from selfreflect.models.local.layers import input_device, run_layers
from selfreflect.models.local.step import FusedSequences, serves
from selfreflect.text import common_prefix

# Tokens among which a nucleus is looked for first.
_NUCLEUS = 512

# The smallest number that torch's ``exponential_`` draws.
_LEAST = 2.0**-54

# More than the relative error of a product or two in float32.
_ROUNDING = 1e-6


class TokenLikelihood(NamedTuple):
    """Likelihood of a drawn token at temperature 1, without filters."""

    logprob: float
    """Log-probability in nats."""
    divergence: float | None
    """KL(uniform, prediction) in nats; None without the whole vocabulary."""
    likeliest: tuple[tuple[int, float], ...] = ()
    """Likely tokens with their log-probabilities, if requested."""
    entropy: float | None = None
    """Entropy of the prediction in nats, with ``likeliest``; None without the whole vocabulary."""


@dataclass
class Draw:
    """One completion to draw, with its tokens so far."""

    prompt: tuple[int, ...]
    sampling: Sampling
    seed: int
    limit: int
    """Maximum number of new tokens, as requested or up to the model's window."""
    tokens: list[int] = field(default_factory=list)
    likelihoods: list[TokenLikelihood] | None = None
    """Likelihoods of ``tokens``; None unless requested."""
    likeliest: int = 0
    """Number of likeliest tokens per position, with ``likelihoods``."""
    stopped: bool = False
    """Whether a stop token ended the draw; it is not in ``tokens``."""
    failure: str = ""
    """Reason for a failed draw."""

    def extend(self, token: int, likelihood: TokenLikelihood | None, stop_ids: frozenset[int]) -> bool:
        """Append a token, and return whether the draw continues."""
        if token in stop_ids:
            self.stopped = True
            return False
        self.tokens.append(token)
        if self.likelihoods is not None and likelihood is not None:
            self.likelihoods.append(likelihood)
        return len(self.tokens) < self.limit


class DecodeStep(NamedTuple):
    """One token for every active sequence of a batch."""

    tokens: int
    ended: list[int]
    """Draws of the batch that this token ended."""


@torch.inference_mode()
def decode(
    model: Any,
    draws: Sequence[Draw],
    stop_ids: frozenset[int],
    pad_id: int,
    prompt_states: PromptStates | None = None,
) -> Iterator[DecodeStep]:
    """Extend draws with the same sampling settings as one batch.

    Equal prompts are computed once; see :func:`begin` for ``prompt_states``.
    """
    logits, sequences = begin(model, [draw.prompt for draw in draws], pad_id, prompt_states)
    active = list(range(len(draws)))
    sources = [torch.Generator(device=logits.device).manual_seed(draw.seed) for draw in draws]
    is_measured = any(draw.likelihoods is not None for draw in draws)
    likeliest = max(draw.likeliest for draw in draws)
    while True:
        tokens = choose(logits, draws[0].sampling, sources)
        likelihoods = token_likelihoods(logits, tokens, likeliest) if is_measured else [None] * len(active)
        unfinished = []
        ended = []
        for i, token in enumerate(tokens.tolist()):
            if draws[active[i]].extend(token, likelihoods[i], stop_ids):
                unfinished.append(i)
            else:
                ended.append(active[i])
        yield DecodeStep(len(active), ended)
        if not unfinished:
            return
        # Sequences that ended leave the batch, or each further step would compute them, too.
        if len(unfinished) < len(active):
            sequences.keep(unfinished)
            tokens = tokens[torch.tensor(unfinished, device=tokens.device)]
            active = [active[i] for i in unfinished]
            sources = [sources[i] for i in unfinished]
        logits = sequences.extend(tokens)


def begin(
    model: Any, prompts: Sequence[tuple[int, ...]], pad_id: int, prompt_states: PromptStates | None = None
) -> tuple[torch.Tensor, LibrarySequences | FusedSequences]:
    """Compute the prompts, and return their next logits and the sequences that they begin.

    ``prompt_states`` are those of calls before, for models that do their steps in C.
    """
    # All samples of a question have the same prompt.
    distinct = list(dict.fromkeys(prompts))
    row_of = {prompt: row for row, prompt in enumerate(distinct)}
    rows = [row_of[prompt] for prompt in prompts]
    if serves(model):
        logits, states = (prompt_states or PromptStates(model)).compute(distinct)
        lengths = np.array(list(map(len, distinct)), dtype=np.int64)
        row_numbers = np.array(rows, dtype=np.int64)
        return logits[rows], FusedSequences(model, states.keys, states.values, row_numbers, lengths)
    ids, mask = left_padded(distinct, pad_id)
    device = input_device(model)
    library = LibrarySequences(model, mask.to(device))
    logits = library.logits(ids.to(device), positions(library.mask))
    library.keep(rows)
    return logits[torch.tensor(rows, device=logits.device)], library


def token_likelihoods(
    logits: torch.Tensor, tokens: torch.Tensor, likeliest: int = 0
) -> list[TokenLikelihood]:
    """Look up the drawn and the ``likeliest`` tokens in the logits (sequences, vocabulary)."""
    logits = logits.float()
    normalizer = logits.logsumexp(dim=-1)
    logprobs = logits.gather(-1, tokens[:, None])[:, 0] - normalizer
    # KL(uniform, p) = logsumexp - mean(logits) - ln V
    divergences = normalizer - logits.mean(dim=-1) - math.log(logits.shape[-1])
    values, ids = logits.topk(min(likeliest, logits.shape[-1]), dim=-1)
    # rounding may give a log-probability just above 0
    values = (values - normalizer[:, None]).clamp(max=0)
    likely_tokens = [tuple(zip(*row, strict=True)) for row in zip(ids.tolist(), values.tolist(), strict=True)]
    entropies = [None] * len(logits)
    if likeliest:  # a pass over the vocabulary that only those who want lists pay for
        # of log-probabilities, not logits: those are large, and would multiply the rounding of the sum
        all_logprobs = logits - normalizer[:, None]
        terms = (all_logprobs.exp() * all_logprobs).nan_to_num(nan=0.0)
        entropies = (-terms.sum(dim=-1)).clamp(min=0).tolist()
    rows = zip(logprobs.clamp(max=0).tolist(), divergences.tolist(), likely_tokens, entropies, strict=True)
    return [TokenLikelihood(*row) for row in rows]


def choose(logits: torch.Tensor, sampling: Sampling, sources: Sequence[torch.Generator]) -> torch.Tensor:
    """Choose one token per row by an exponential race, argmax of p / E, which samples p.

    Batch sizes change logits in their last bits. The race then changes its winner with a probability of the
    order of that rounding; inverting the cumulative distribution would change it for most tokens of the tail,
    because every boundary moves.
    """
    # no random number is drawn, so a seed changes nothing
    if sampling.temperature == 0:
        return logits.argmax(dim=-1)
    logits = logits.float()
    if sampling.temperature != 1:
        logits = logits / sampling.temperature
    probs = torch.softmax(logits, dim=-1)
    if sampling.top_k or sampling.top_p < 1 or sampling.min_p > 0:
        probs = _filtered(probs, sampling)
    if probs.device.type == "cpu" and type(probs) is torch.Tensor:  # subclasses have no array
        return _winners(probs, sources)
    race = torch.empty_like(probs)
    for row, source in zip(race, sources, strict=True):
        row.exponential_(generator=source)
    return probs.div_(race).argmax(dim=-1)


def _winners(probs: torch.Tensor, sources: Sequence[torch.Generator]) -> torch.Tensor:
    """Choose the same tokens as :func:`choose` from the same random numbers, faster on a CPU. E = -log(1 - u)
    is at least u, so p / u bounds p / E from above. Only tokens whose bound reaches the p / E of the leading
    token need a logarithm."""
    uniform = torch.empty_like(probs, dtype=torch.float64)
    for row, source in zip(uniform, sources, strict=True):
        row.uniform_(generator=source)
    bounds = (probs / uniform.float().clamp_(min=_LEAST)).numpy()
    leaders = bounds.argmax(axis=-1)
    # less the rounding of p / E, so that no token that may win is left out
    lowest = _speeds(probs, uniform, np.arange(len(leaders)), leaders) * (1 - _ROUNDING)
    rows, tokens = np.nonzero(~(bounds < lowest[:, None]))  # what is not a number stays
    speeds = _speeds(probs, uniform, rows, tokens)
    order = np.lexsort((-speeds, rows))  # among equals the first token comes first
    _, first = np.unique(rows[order], return_index=True)
    return torch.from_numpy(tokens[order[first]])


def _speeds(
    probs: torch.Tensor, uniform: torch.Tensor, rows: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Compute p / E of the tokens at ``rows`` and ``tokens``, with E as ``exponential_`` makes it from a
    uniform number."""
    times = uniform[rows, tokens].neg_().log1p_().neg_().clamp_(min=_LEAST)
    speeds: npt.NDArray[np.float32] = (probs[rows, tokens] / times.to(probs.dtype)).numpy()
    return speeds


def _filtered(probs: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Zero the probabilities outside top-k, then the nucleus (top-p), then min-p; keep proportions."""
    descending, index = _largest(probs, sampling)
    keep = torch.ones_like(descending, dtype=torch.bool)
    if sampling.top_p < 1:
        # the nucleus is a share of what top-k leaves
        total = (descending if sampling.top_k else probs).sum(dim=-1, keepdim=True)
        before = (descending.cumsum(dim=-1) - descending) / total
        keep &= before < sampling.top_p
    if sampling.min_p > 0:
        keep &= descending >= sampling.min_p * descending[:, :1]
    # the likeliest token stays, or nothing could be drawn
    keep[:, 0] = True
    return torch.zeros_like(probs).scatter_(-1, index, descending * keep)


def _largest(probs: torch.Tensor, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort the tokens within top-k in descending order, possibly without those outside the nucleus.

    On a CPU, sorting a whole vocabulary takes longer than the forward pass before it.
    """
    vocabulary = probs.shape[-1]
    few = probs.topk(min(sampling.top_k or _NUCLEUS, vocabulary), dim=-1)
    enough = sampling.top_p * probs.sum(dim=-1)
    # few tokens hold the nucleus of nearly every prediction
    if sampling.top_k or (sampling.top_p < 1 and bool((few.values.sum(dim=-1) >= enough).all())):
        return few.values, few.indices
    every = probs.sort(dim=-1, descending=True)
    return every.values, every.indices


class LibrarySequences:
    """Sequences in transformers' layers and cache, (sequences, longest), padded on the left."""

    def __init__(self, model: Any, mask: torch.Tensor) -> None:
        from transformers import DynamicCache

        self.model = model
        self.cache = DynamicCache(config=model.config)
        self.mask = mask

    def keep(self, unfinished: Sequence[int]) -> None:
        """Keep only the unfinished sequences."""
        rows = torch.tensor(unfinished, device=self.mask.device)
        self.cache.reorder_cache(rows)  # unlike batch_select_indices it goes where each layer's keys are
        self.mask = self.mask[rows]

    def extend(self, tokens: torch.Tensor) -> torch.Tensor:
        """Append one token to each sequence, and return the next logits, (sequences, vocabulary)."""
        # a new token is never padding
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(tokens), 1)], dim=1)
        return self.logits(tokens[:, None], positions(self.mask)[:, -1:])

    def logits(self, ids: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        """Compute the logits after further tokens, (sequences, vocabulary)."""
        output = self.model(
            input_ids=ids,
            attention_mask=self.mask,
            position_ids=position_ids,
            past_key_values=self.cache,
            logits_to_keep=1,
        )
        logits: torch.Tensor = output.logits[:, -1]
        return logits.to(ids.device)  # a model in parts may leave them elsewhere


SHORTEST = 32
"""Minimum length of a shared prefix, in tokens. A shorter prefix is not worth a separate pass."""

ROOM = 128 * 2**20
"""Maximum bytes of keys and values cached between batches."""

Prompt = tuple[int, ...]


class States(NamedTuple):
    """Keys and values of tokens: per layer (KV, tokens, D) or (prompts, KV, tokens, D)."""

    keys: list[torch.Tensor]
    values: list[torch.Tensor]

    @property
    def size(self) -> int:
        """Size in bytes."""
        return sum(states.nbytes for states in [*self.keys, *self.values])


class PromptStates:
    """Computation of prompts, with a cache of the latest.

    Args:
        model: one that :func:`selfreflect.models.local.step.serves`, because gaps in its cache do not matter.
        room: bytes that are kept between calls.
    """

    def __init__(self, model: Any, room: int = ROOM) -> None:
        self.model = model
        self.room = room
        self._kept: dict[Prompt, States] = {}
        """Cached prompts, latest last."""

    @torch.inference_mode()
    def compute(self, prompts: Sequence[Prompt]) -> tuple[torch.Tensor, States]:
        """Compute the states of distinct prompts.

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
        """Compute the rest of each prompt after its longest available prefix."""
        # without the last token, since the logits after it are wanted
        origins = [_longest_beginning(prompt[:-1], available) for prompt in prompts]
        reused = [length for _, length in origins]
        ids, mask = left_padded([prompt[n:] for prompt, n in zip(prompts, reused, strict=True)], pad_id=0)
        before = None
        if any(reused):
            _, padding = left_padded([(1,) * n for n in reused], pad_id=0)
            mask = torch.cat([padding, mask], dim=1)
            before = _beginnings(origins, available)
        output = run_layers(
            self.model.model, ids, positions(mask)[:, -ids.shape[1] :], _visible(mask, ids.shape[1]), before
        )
        # Beginnings and what follows are padded on the left, each. All padding moves to the left of both.
        order = mask.argsort(dim=1, stable=True)[:, None, :, None]
        keys = [torch.take_along_dim(layer, order, dim=2) for layer in output.keys]
        values = [torch.take_along_dim(layer, order, dim=2) for layer in output.values]
        return self.model.lm_head(output.hidden[:, -1]), States(keys, values)

    def _keep(self, prompts: Sequence[Prompt], states: States) -> None:
        """Cache the latest prompts that fit, and as many earlier ones as there is room for."""
        room = self.room
        latest: dict[Prompt, States] = {}
        # bytes of one token in all layers
        token = states.size // (len(prompts) * states.keys[0].shape[2])
        for row, prompt in reversed(list(enumerate(prompts))):
            room -= token * len(prompt)
            if room < 0:
                break
            latest[prompt] = _row(states, row, len(prompt))
        for prompt, old_states in reversed(self._kept.items()):
            if prompt not in latest:
                room -= old_states.size
                if room < 0:
                    break
                latest[prompt] = old_states
        self._kept = dict(reversed(latest.items()))


def shared_beginnings(prompts: Sequence[Prompt], available: Iterable[Prompt]) -> list[list[Prompt]]:
    """List shared prefixes of prompts that are worth computing beyond the available prefixes.

    Beginnings in one list can be computed together; they continue those of the lists before.
    """
    beginnings = set()
    for prompt, neighbour in pairwise(sorted(prompts)):  # neighbours have the most in common
        beginnings.add(prompt[: common_prefix(prompt, neighbour)])
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
    """Find the available prefix with the most tokens in common, and the number of these; 0 if they are too
    few."""
    best: Prompt = ()
    longest = 0
    for origin in available:
        length = common_prefix(prompt, origin)
        if length > longest or not best:
            best, longest = origin, length
    return best, longest if longest >= SHORTEST else 0


def _row(states: States, row: int, tokens: int) -> States:
    """Copy the states of one prompt, so that its batch can be freed."""
    keys = [layer[row, :, -tokens:].clone() for layer in states.keys]
    values = [layer[row, :, -tokens:].clone() for layer in states.values]
    return States(keys, values)


def _beginnings(origins: Sequence[tuple[Prompt, int]], available: Mapping[Prompt, States]) -> States:
    """Collect the available prefix states, padded on the left."""
    [layers] = {len(states.keys) for states in available.values()}
    keys = []
    values = []
    for layer in range(layers):
        keys.append(_stacked([available[origin].keys[layer][:, :n] for origin, n in origins]))
        values.append(_stacked([available[origin].values[layer][:, :n] for origin, n in origins]))
    return States(keys, values)


def _visible(mask: torch.Tensor, tokens: int) -> torch.Tensor | None:
    """Mask the keys visible to each of the last ``tokens``, (prompts, 1, tokens, longest).

    A token sees those up to itself that are no padding; padding sees itself, so that it sees something. None
    where nothing is masked but what comes later.
    """
    longest = mask.shape[1]
    if tokens in (1, longest) and bool(mask.all()):
        return None
    # a row that sees nothing would be NaN, which spreads
    itself = torch.eye(longest, dtype=torch.bool)[-tokens:]
    causal = torch.ones(tokens, longest, dtype=torch.bool).tril(longest - tokens)
    return (causal & mask[:, None].bool() | itself)[:, None]


def _stacked(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Stack rows (KV, tokens, D) as (rows, KV, longest, D), zero-padded on the left."""
    longest = max(row.shape[1] for row in rows)
    return torch.stack([F.pad(row, (0, 0, longest - row.shape[1], 0)) for row in rows])


def left_padded(prompts: Sequence[Prompt], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad prompts on the left: token ids and attention mask, each (prompts, longest)."""
    longest = max(map(len, prompts))
    ids = np.full((len(prompts), longest), pad_id, dtype=np.int64)
    mask = np.zeros((len(prompts), longest), dtype=np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = prompt
        mask[row, longest - len(prompt) :] = 1
    return torch.from_numpy(ids), torch.from_numpy(mask)


def positions(mask: torch.Tensor) -> torch.Tensor:
    """Number the positions without counting the padding."""
    return (mask.cumsum(dim=1) - 1).clamp_(min=0)
