"""Reference states on disk: scoring one more summary of a question later costs only that summary.

One file holds one reference context. A row in it is found by the SHA-256 of all token ids up to its node, so
a part of the words that were computed once is found whatever the rest of its plan looks like, and a file can
only answer what it was computed for. Files of several processes replace each other whole; what one of them
loses is computed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from selfreflect.errors import excerpt

if TYPE_CHECKING:
    from selfreflect.metric.engine.sequences import Head
    from selfreflect.metric.engine.tree import PrefixTree
    from selfreflect.models.judge import Judge

FORMAT = 1

MAX_BYTES = 4_000_000_000
"""Default size of a cache: some 3000 questions with 50 masked-out answers for a judge of 135M parameters in
float32."""

_OURS = re.compile(r"[0-9a-f]{64}\.(safetensors|[a-z0-9_]+\.partial)")
_ABANDONED = 3600.0
"""Seconds after which a partial file is what a killed process left behind."""


class ReferenceCache:
    """A directory of reference states of one judge.

    It never fails and changes a score by no more than rounding: what cannot be read is computed again, and
    what cannot be written is not kept; each is said once.

    Args:
        root: created when first needed, for its owner only, because the states derive from the answers.
        judge_key: see :func:`judge_key`.
        max_bytes: the least recently used files are removed above it.
        warn: gets a sentence for people.
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
        self._damage_said = False
        self._writes = True

    def get(self, context: str, plan: PrefixTree) -> torch.Tensor | None:
        """The states of ``plan``, shape (W, width) on the CPU, as they were computed; None unless all of its
        rows are there.

        Args:
            context: tells contexts apart, whatever words are masked in them. Only its digest is used.
        """
        path = self._path(context)
        if (held := self._read(path)) is None:
            return None
        keys, states = held
        row_of = {key: row for row, key in enumerate(keys)}
        rows = [row_of.get(key) for key in row_keys(plan)]
        if None in rows:
            return None
        with suppress(OSError):  # a cache that may only be read
            os.utime(path)  # when it was used last
        return states[torch.tensor(rows)]

    def put(self, context: str, plan: PrefixTree, states: torch.Tensor) -> None:
        """Keep the states of ``plan``, beside the rows of its context that are there already."""
        if not self._writes or states.nbytes > self.max_bytes:
            return
        path, keys, rows = self._path(context), row_keys(plan), states.detach().cpu()
        if (
            (held := self._read(path)) is not None
            and held[1].shape[1:] == rows.shape[1:]
            and held[1].dtype == rows.dtype
        ):
            fresh = set(keys)
            kept = [row for row, key in enumerate(held[0]) if key not in fresh]
            keys = keys + [held[0][row] for row in kept]
            rows = torch.cat([rows, held[1][torch.tensor(kept, dtype=torch.long)]])
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(path, _pack(keys, rows))
            _evict(self.root, self.max_bytes, path)
        except OSError as error:
            self._writes = False
            self._warn(
                f"reference states are not kept in {excerpt(str(self.root), 200)}: {error.strerror or error}"
            )

    def _path(self, context: str) -> Path:
        named = hashlib.sha256(f"{self.judge_key}\n{context}".encode("utf-8", "surrogatepass"))
        return self.root / f"{named.hexdigest()}.safetensors"

    def _read(self, path: Path) -> tuple[list[bytes], torch.Tensor] | None:
        try:
            return _unpack(path.read_bytes())
        except OSError:
            return None  # not there yet, or not readable: whether it can be written shows next
        except ValueError as error:
            if not self._damage_said:
                self._damage_said = True
                self._warn(
                    f"reference states in {excerpt(str(self.root), 200)} cannot be read and are computed again: {error}"
                )
            return None


def judge_key(judge: Judge, head: Head) -> str:
    """A digest of everything but token ids that states depend on. Reads all weights, a second per GB or less.

    A name and a revision would not do: a local directory has none, and a loaded model may have been changed.
    ``head`` is the engine's: it tells whether states are hidden states or whole logits.
    """
    model = judge.lm.model
    config = {key: value for key, value in model.config.to_dict().items() if key != "_name_or_path"}
    tensors = list(chain(model.named_parameters(), model.named_buffers()))
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # hashing lets other threads run
        digests = list(pool.map(_digest, (tensor for _, tensor in tensors)))
    facts = {
        "format": FORMAT,
        "versions": {name: version(name) for name in ("selfreflect", "torch", "transformers")},
        "judge": [
            judge.lm.name,
            judge.lm.revision,
            judge.lm.dtype,
            torch.device(judge.lm.device).type,
            judge.compat,
        ],
        "code": f"{type(model).__module__}.{type(model).__qualname__}",
        "states": "hidden" if head == judge.head else "logits",
        "config": config,
        "weights": [[name, *digest] for (name, _), digest in zip(tensors, digests, strict=True)],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def row_keys(plan: PrefixTree) -> list[bytes]:
    """For each wanted node the SHA-256 of all token ids up to it, however they are divided into prefix and
    tree."""
    start = hashlib.sha256(np.array(plan.prefix, dtype="<i8").tobytes())
    paths: list[Any] = []
    for parent, token in zip(plan.parent.tolist(), plan.tokens.astype("<i8"), strict=True):
        path = (paths[parent] if parent >= 0 else start).copy()
        path.update(token.tobytes())
        paths.append(path)
    return [paths[node].digest() for node in plan.wanted.tolist()]


def _digest(tensor: torch.Tensor) -> tuple[str, list[int], str]:
    data = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
    return str(tensor.dtype), list(tensor.shape), hashlib.sha256(data.data).hexdigest()


def _pack(keys: list[bytes], states: torch.Tensor) -> bytes:
    from safetensors.torch import save

    states = states.contiguous()
    table = torch.frombuffer(bytearray(b"".join(keys)), dtype=torch.uint8).reshape(len(keys), 32)
    return save({"keys": table, "states": states, "seal": _seal(table, states)})


def _unpack(data: bytes) -> tuple[list[bytes], torch.Tensor]:
    """The keys and states of a file.

    Raises:
        ValueError: it is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        held = load(data)
        keys, states, seal = held["keys"], held["states"], held["seal"]
        whole = torch.equal(seal, _seal(keys, states))
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"a file is damaged ({type(error).__name__})") from error
    if not whole:
        raise ValueError("a file is damaged (its checksum differs)")
    return [row.tobytes() for row in keys.numpy()], states


def _seal(keys: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """A checksum that truncated, mixed and silently corrupted files fail. Safetensors has none."""
    digest = hashlib.sha256(repr((_digest(keys), _digest(states))).encode()).digest()
    return torch.frombuffer(bytearray(digest), dtype=torch.uint8)


def _replace(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read, whole or not at all. A crash of the machine may leave it
    damaged, which its seal shows."""
    descriptor, name = tempfile.mkstemp(prefix=f"{path.stem}.", suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _evict(root: Path, max_bytes: int, newest: Path) -> None:
    """Remove the least recently used files above ``max_bytes``, but never one that this module did not
    write."""
    files = sorted(_files(root))
    total = sum(size for _, size, _ in files)
    for used, size, path in files:
        partial = path.suffix == ".partial"
        if (partial and time.time() - used > _ABANDONED) or (
            not partial and total > max_bytes and path != newest
        ):
            path.unlink(missing_ok=True)
            total -= size


def _files(root: Path) -> Iterator[tuple[float, int, Path]]:
    """Last use, bytes and path of each file of ours. Another process may remove one in the meantime."""
    with os.scandir(root) as entries:
        for entry in entries:
            if _OURS.fullmatch(entry.name):
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield found.st_mtime, found.st_size, Path(entry.path)
