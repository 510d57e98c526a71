"""Predictions from kept states: distances between contexts, likely tokens, log-probabilities.

Vocabularies are large, so logits exist only for a block of rows at a time, on the device.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from selfreflect.errors import excerpt
from selfreflect.metric.distance import Formula, total_variation
from selfreflect.metric.engine.tree import Ints, PrefixTree
from selfreflect.models.local.layers import on_device
from selfreflect.stats import Floats

if TYPE_CHECKING:
    from selfreflect.metric.engine.engines import Engine
    from selfreflect.models.judge import Judge


FORMAT = 2

MAX_BYTES = 4_000_000_000
"""Some 3000 questions with 50 masked-out answers, for a judge of 135M parameters in float32."""

_OWN_NAMES = re.compile(r"[0-9a-f]{64}\.(states|safetensors|[a-z0-9_.]+\.partial)")
"""``safetensors`` were the names of format 1."""
_ABANDONED = 3600.0
"""Seconds after which a partial file is what a killed process left behind."""
_CHECKSUM = 32


class ReferenceCache:
    """A directory of reference states of one judge. It never fails: it warns once of files that cannot be
    read, whose states are computed again, and once of a directory that cannot be written.

    ``root`` is created when first needed, for its owner only, because the states derive from the answers.
    Above ``max_bytes`` the least recently used files are removed. ``warn`` gets a sentence for people.
    """

    def __init__(
        self,
        root: Path,
        judge_key: str,
        *,
        max_bytes: int = MAX_BYTES,
        warn: Callable[[str], object] = warnings.warn,
    ) -> None:
        self.root = root
        self.judge_key = judge_key
        self.max_bytes = max_bytes
        self._warn = warn
        self._warned_of_damage = False
        self._writable = True

    def get(self, tree: PrefixTree) -> torch.Tensor | None:
        """The states of ``tree``, shape (W, width) on the CPU, if they are stored."""
        from safetensors.torch import load

        path = self._path(tree)
        try:
            data = path.read_bytes()
        except OSError:
            return None  # not there yet, or not readable: writing will tell
        content = data[_CHECKSUM:]
        if data[:_CHECKSUM] != _checksum(path, content):
            if not self._warned_of_damage:
                self._warned_of_damage = True
                root = excerpt(str(self.root), 200)
                self._warn(f"a file in {root} is damaged, so its reference states are computed again")
            return None
        with suppress(OSError):  # a cache that may only be read
            os.utime(path)  # its last use
        return load(content)["states"]

    def put(self, tree: PrefixTree, states: torch.Tensor) -> None:
        from safetensors.torch import save

        from selfreflect.atomic import write_bytes

        if not self._writable or states.nbytes > self.max_bytes:
            return
        path = self._path(tree)
        content = save({"states": states.detach().cpu().contiguous()})
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            # not durable: a crash of the machine may damage it, which its checksum shows
            write_bytes(path, _checksum(path, content) + content, private=True, durable=False)
            _evict(self.root, self.max_bytes, path)
        except OSError as error:
            self._writable = False
            reason = error.strerror or error
            self._warn(f"reference states are not kept in {excerpt(str(self.root), 200)}: {reason}")

    def _path(self, tree: PrefixTree) -> Path:
        facts = [
            self.judge_key,
            tree.prefix,
            tree.tokens.tolist(),
            tree.parent.tolist(),
            tree.outputs.tolist(),
        ]
        digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        return self.root / f"{digest}.states"


def judge_key(judge: Judge, head: Head) -> str:
    """A digest of everything but token ids that states depend on. Reads all weights: a second per GB or less.

    A name and a revision would not do: a local directory has none, and a loaded model may have been changed.
    ``head`` is the engine's: it tells whether states are hidden states or whole logits.
    """
    lm = judge.lm
    model = lm.model
    config = {key: value for key, value in model.config.to_dict().items() if key != "_name_or_path"}
    tensors = dict(chain(model.named_parameters(), model.named_buffers()))
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # hashing lets other threads run
        digests = list(pool.map(_digest, tensors.values()))
    facts = {
        "format": FORMAT,
        "versions": {name: _version(name) for name in ("selfreflect", "torch", "transformers")},
        "judge": [lm.name, lm.revision, lm.dtype, torch.device(lm.device).type, judge.compat],
        "code": f"{type(model).__module__}.{type(model).__qualname__}",
        "states": "hidden" if head == judge.head else "logits",
        "config": config,
        "weights": [[name, *digest] for name, digest in zip(tensors, digests, strict=True)],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a folder
        return "unknown"


def _digest(tensor: torch.Tensor) -> tuple[str, list[int], str]:
    data = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
    return str(tensor.dtype), list(tensor.shape), hashlib.sha256(data.data).hexdigest()


def _checksum(path: Path, content: bytes) -> bytes:
    """What truncated, mixed, renamed and silently corrupted files fail."""
    digest = hashlib.sha256(path.name.encode())
    digest.update(content)
    return digest.digest()


def _evict(root: Path, max_bytes: int, newest: Path) -> None:
    """Remove abandoned partial files, and the least recently used files above ``max_bytes``; never a file
    that this module did not write."""
    files = []
    for path in root.iterdir():
        if _OWN_NAMES.fullmatch(path.name):
            with suppress(FileNotFoundError):  # another process has removed it in the meantime
                status = path.lstat()
                files.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in files)
    for last_use, size, path in sorted(files):
        partial = path.suffix == ".partial"
        abandoned = partial and time.time() - last_use > _ABANDONED
        surplus = not partial and total > max_bytes and path != newest
        if abandoned or surplus:
            path.unlink(missing_ok=True)
            total -= size


Head = Callable[[torch.Tensor], torch.Tensor]
"""States (rows, width) -> logits (rows, vocabulary) in float32."""

PairedStates = tuple[torch.Tensor, Ints]
"""States of one context, (W, width), and its token tasks, (tasks, 2): a row of these states and a row of the
reference's."""

ROWS_OF_LOGITS = 64
"""Rows of logits that exist at once: for large vocabularies, 64 x 150k x 4 bytes x 4 arrays is 150 MB."""

ROWS_ON_GPU = 1024
"""Fewer would leave a GPU waiting for the vocabulary's weights."""

ROWS_IN_CACHE = 16
"""Rows whose probabilities are taken at a time on a CPU, so that they stay in its caches."""


@dataclass(frozen=True)
class Guesses:
    """Likely tokens under two contexts, for some token tasks."""

    tokens: Ints
    """Shape (tasks, K), the likeliest of either context first."""
    probabilities: Floats
    """Shape (tasks, K, 4), the last as the numbers of a :class:`~selfreflect.records.Guess`."""


@dataclass(frozen=True)
class SummaryStates:
    """Token tasks of some summaries, each paired with the reference's; equal ones are compared once."""

    head: Head
    reference: torch.Tensor
    """States of the reference context, shape (R, width)."""
    contexts: Sequence[PairedStates]
    tasks: Sequence[list[Ints]] = ()
    """For each summary and each of its words the indices of its token tasks among the distinct ones."""

    @torch.inference_mode()
    def distances(self, temperature: float, formula: Formula | None = None) -> list[Floats]:
        """Compute for each summary the distance of each distinct token task: by default total variation."""
        device = self.reference.device
        formula = formula or _total_variation_on(device)
        # one that is not compiled into one kernel writes several more arrays of full vocabularies
        size = ROWS_OF_LOGITS if formula is total_variation else ROWS_ON_GPU
        states_of_contexts, pairs_of_contexts = zip(*self.contexts, strict=True)
        states = torch.cat(states_of_contexts)
        pairs = np.concatenate(pairs_of_contexts)
        rows = list(map(len, states_of_contexts))
        counts = list(map(len, pairs_of_contexts))
        pairs[:, 0] += np.repeat(np.cumsum(rows) - rows, counts)
        blocks: list[tuple[Ints, torch.Tensor]] = []
        # The tasks of all contexts that need the same rows of the reference fill blocks together: blocks of
        # one size, one after another, fit into the same memory, and products of many rows are faster.
        for start in range(0, len(self.reference), size):
            reference = self.head(self.reference[start : start + size])
            needs_block = (start <= pairs[:, 1]) & (pairs[:, 1] < start + size)
            tasks = np.flatnonzero(needs_block)
            for first in range(0, len(tasks), size):
                block = tasks[first : first + size]
                context_rows, reference_rows = on_device(pairs[block].T, device)
                # computed in the call, so that these logits are freed before the next ones come
                distances = _compare(
                    self.head(states[context_rows]), reference, reference_rows - start, temperature, formula
                )
                blocks.append((block, distances))
        result = np.zeros(len(pairs))
        for block, distances in blocks:  # read only now, so that the GPU is never waited for in between
            result[block] = distances.cpu().numpy()
        return np.split(result, np.cumsum(counts)[:-1])

    @torch.inference_mode()
    def guesses(self, temperature: float, count: int) -> list[Guesses]:
        """For each summary the ``count`` likeliest tokens of both contexts for every distinct token task. A
        token that is among the likeliest of both is there twice. The projections are computed again: people
        look at few questions."""
        result = []
        for states, pairs in self.contexts:
            tokens, probabilities = [], []
            for rows in torch.split(torch.from_numpy(pairs).to(states.device), ROWS_OF_LOGITS):
                context_rows = self.head(states[rows[:, 0]])
                reference_rows = self.head(self.reference[rows[:, 1].to(self.reference.device)])
                top = min(count, context_rows.shape[1])
                likeliest = [logits.topk(top, dim=1).indices for logits in (context_rows, reference_rows)]
                likely = torch.cat(likeliest, dim=1)
                columns = []
                for logits in (context_rows, reference_rows):
                    for t in (1.0, temperature):
                        columns.append(torch.softmax(logits / t, dim=1).gather(1, likely))
                larger = torch.maximum(columns[0], columns[2])
                order = larger.argsort(dim=1, descending=True, stable=True)
                tokens.append(likely.gather(1, order).cpu().numpy())
                table = torch.stack(columns, dim=2).gather(1, order[:, :, None].expand(-1, -1, 4))
                probabilities.append(table.double().cpu().numpy())
            result.append(Guesses(np.concatenate(tokens), np.concatenate(probabilities)))
        return result


def _compare(
    logits: torch.Tensor,
    reference: torch.Tensor,
    rows: torch.Tensor,
    temperature: float,
    formula: Formula,
) -> torch.Tensor:
    """Compare row i of ``logits`` with row ``rows[i]`` of ``reference``: shape (rows,), in float64."""
    size = ROWS_IN_CACHE if logits.device.type == "cpu" else len(logits)
    parts = []
    for start in range(0, len(logits), size):
        context_rows = logits[start : start + size]
        reference_rows = reference[rows[start : start + size]]
        parts.append(formula(context_rows, reference_rows, temperature))
    return torch.cat(parts).double()


@cache
def _total_variation_on(device: torch.device) -> Formula:
    """On a GPU compiled into one kernel, which reads each logit once and writes no probabilities."""
    if device.type != "cuda":
        return total_variation
    fused: Formula = torch.compile(total_variation, dynamic=True)
    try:
        # Two tensors, and sizes like real ones: the compiler makes other code for equal arguments and for
        # small vocabularies.
        probe = torch.full((64, 2**16), 0.0, device=device)
        second = torch.full((64, 2**16), 1.0, device=device)
        fused(probe, second, 5.0)
    except Exception:
        # A missing or broken compiler raises nearly anything; the plain formula gives the same numbers.
        return total_variation
    return fused


class Reference:
    """The states after the conditioning answers: computed with the first summaries, kept for later ones.

    ``tree`` is of the prompts after the conditioning answers; ``cache`` keeps its states on disk.
    """

    def __init__(self, engine: Engine, tree: PrefixTree, cache: ReferenceCache | None = None) -> None:
        self._engine = engine
        self._tree = tree
        self._cache = cache
        self._states: torch.Tensor | None = None

    @property
    def to_compute(self) -> int:
        """Tokens that the judge has still to read for it, unless the cache keeps their states."""
        return 0 if self._states is not None else self._tree.computed_tokens

    def compare(self, trees: Sequence[PrefixTree]) -> SummaryStates:
        """Run the judge for summaries' trees, at least one, each with the words of the reference in order."""
        if self._states is None and self._cache is not None:
            self._states = self._cache.get(self._tree)
        if self._states is None:
            self._states, *states = self._engine.states([self._tree, *trees])  # they share batches
            if self._cache is not None:
                self._cache.put(self._tree, self._states)
        else:
            states = self._engine.states(trees)
            self._states = self._states.to(states[0].device)
        contexts: list[PairedStates] = []
        tasks = []
        for tree, rows in zip(trees, states, strict=True):
            pairs = np.column_stack([np.concatenate(tree.rows), np.concatenate(self._tree.rows)])
            distinct, task_of = np.unique(pairs, axis=0, return_inverse=True)
            contexts.append((rows, distinct))
            ends = np.cumsum(list(map(len, tree.rows)))
            tasks.append(np.split(task_of.reshape(-1), ends[:-1]))
        return SummaryStates(self._engine.head, self._states, contexts, tasks)


@torch.inference_mode()
def log_probabilities(head: Head, states: torch.Tensor, tokens: Ints) -> Floats:
    """Natural logarithms of the probabilities of some next tokens, at temperature 1: shape (tokens,).

    Args:
        states: shape (W, width).
        tokens: pairs of a row of ``states`` and a token id, shape (tokens, 2).
    """
    result = np.zeros(len(tokens))
    size = ROWS_ON_GPU if states.is_cuda else ROWS_OF_LOGITS
    blocks: list[tuple[Ints, torch.Tensor]] = []
    for start in range(0, len(states), size):
        logits = head(states[start : start + size])
        in_block = (start <= tokens[:, 0]) & (tokens[:, 0] < start + size)
        block = np.flatnonzero(in_block)
        pairs = on_device(tokens[block], states.device)
        rows = pairs[:, 0] - start
        ids = pairs[:, 1]
        logs = logits[rows, ids] - logits.logsumexp(dim=-1)[rows]
        blocks.append((block, logs.double()))
    for block, logs in blocks:
        result[block] = logs.cpu().numpy()
    return result
