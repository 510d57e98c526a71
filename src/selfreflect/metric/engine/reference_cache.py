"""Reference states on disk: scoring one more summary of a question later costs only that summary.

One file holds one reference context. A row is found by the SHA-256 of all token ids up to its node, whatever
the rest of its tree looks like. Processes replace each other's files whole; lost rows are computed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from selfreflect import atomic
from selfreflect.errors import excerpt

if TYPE_CHECKING:
    from selfreflect.metric.engine.logits import Head
    from selfreflect.metric.engine.tree import PrefixTree
    from selfreflect.models.judge import Judge

FORMAT = 1

MAX_BYTES = 4_000_000_000
"""Some 3000 questions with 50 masked-out answers, for a judge of 135M parameters in float32."""

_OWN_NAMES = re.compile(r"[0-9a-f]{64}\.(safetensors|[a-z0-9_.]+\.partial)")
_ABANDONED = 3600.0
"""Seconds after which a partial file is what a killed process left behind."""


class ReferenceCache:
    """A directory of reference states of one judge. It never fails: it warns once of files that cannot be
    read, whose states are computed again, and once of a directory that cannot be written.

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
        self._warned_of_damage = False
        self._writable = True

    def get(self, context: str, tree: PrefixTree) -> torch.Tensor | None:
        """The states of ``tree``, shape (W, width) on the CPU; None unless all of its rows are stored.

        Args:
            context: tells contexts apart, whatever words are masked in them. Only its digest is used.
        """
        path = self._path(context)
        entry = self._read(path)
        if entry is None:
            return None
        keys, states = entry
        row_of = {key: row for row, key in enumerate(keys)}
        rows = [row_of.get(key) for key in row_keys(tree)]
        if None in rows:
            return None
        with suppress(OSError):  # a cache that may only be read
            os.utime(path)  # its last use
        return states[torch.tensor(rows)]

    def put(self, context: str, tree: PrefixTree, states: torch.Tensor) -> None:
        """Store the states of ``tree``, and keep the other rows of its context that are stored already."""
        if not self._writable or states.nbytes > self.max_bytes:
            return
        path = self._path(context)
        keys = row_keys(tree)
        rows = states.detach().cpu()
        entry = self._read(path)
        if entry is not None and (entry[1].shape[1:], entry[1].dtype) == (rows.shape[1:], rows.dtype):
            new = set(keys)
            others = [row for row, key in enumerate(entry[0]) if key not in new]
            keys += [entry[0][row] for row in others]
            rows = torch.cat([rows, entry[1][torch.tensor(others, dtype=torch.long)]])
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            # not durable: a crash of the machine may damage it, which its seal shows
            atomic.write_bytes(path, _pack(keys, rows), private=True, durable=False)
            _evict(self.root, self.max_bytes, path)
        except OSError as error:
            self._writable = False
            reason = error.strerror or error
            self._warn(f"reference states are not kept in {excerpt(str(self.root), 200)}: {reason}")

    def _path(self, context: str) -> Path:
        name = hashlib.sha256(f"{self.judge_key}\n{context}".encode("utf-8", "surrogatepass"))
        return self.root / f"{name.hexdigest()}.safetensors"

    def _read(self, path: Path) -> tuple[list[bytes], torch.Tensor] | None:
        try:
            return _unpack(path.read_bytes())
        except OSError:
            return None  # not there yet, or not readable: writing will tell
        except ValueError as error:
            if not self._warned_of_damage:
                self._warned_of_damage = True
                root = excerpt(str(self.root), 200)
                self._warn(f"cannot read reference states in {root}, so they are computed again: {error}")
            return None


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
        "versions": {name: version(name) for name in ("selfreflect", "torch", "transformers")},
        "judge": [lm.name, lm.revision, lm.dtype, torch.device(lm.device).type, judge.compat],
        "code": f"{type(model).__module__}.{type(model).__qualname__}",
        "states": "hidden" if head == judge.head else "logits",
        "config": config,
        "weights": [[name, *digest] for name, digest in zip(tensors, digests, strict=True)],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def row_keys(tree: PrefixTree) -> list[bytes]:
    """For each output node the SHA-256 of all token ids up to it, however they are split into prefix and
    tree."""
    prefix = hashlib.sha256(np.array(tree.prefix, dtype="<i8").tobytes())
    digests: list[Any] = []
    for parent, token in zip(tree.parent.tolist(), tree.tokens.astype("<i8"), strict=True):
        digest = (digests[parent] if parent >= 0 else prefix).copy()
        digest.update(token.tobytes())
        digests.append(digest)
    return [digests[node].digest() for node in tree.outputs.tolist()]


def _digest(tensor: torch.Tensor) -> tuple[str, list[int], str]:
    data = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
    return str(tensor.dtype), list(tensor.shape), hashlib.sha256(data.data).hexdigest()


def _pack(keys: list[bytes], states: torch.Tensor) -> bytes:
    from safetensors.torch import save

    states = states.contiguous()
    table = torch.frombuffer(bytearray(b"".join(keys)), dtype=torch.uint8).reshape(len(keys), 32)
    return save({"keys": table, "states": states, "seal": _seal(table, states)})


def _unpack(data: bytes) -> tuple[list[bytes], torch.Tensor]:
    """The keys and states of a file; a ValueError if it is damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(data)
        keys, states = tensors["keys"], tensors["states"]
        intact = torch.equal(tensors["seal"], _seal(keys, states))
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"a file is damaged ({type(error).__name__})") from error
    if not intact:
        raise ValueError("a file is damaged (its checksum differs)")
    return [row.tobytes() for row in keys.numpy()], states


def _seal(keys: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """A checksum that truncated, mixed and silently corrupted files fail. Safetensors has none."""
    digest = hashlib.sha256(repr((_digest(keys), _digest(states))).encode()).digest()
    return torch.frombuffer(bytearray(digest), dtype=torch.uint8)


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
