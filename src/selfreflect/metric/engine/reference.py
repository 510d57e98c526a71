"""Keep on disk what a judge predicts after the conditioning answers, for summaries of later runs.

One file holds the states of one reference tree. It begins with a checksum, since safetensors has none.
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
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from selfreflect.errors import excerpt
from selfreflect.metric.engine.logits import Head
from selfreflect.metric.engine.tree import PrefixTree

if TYPE_CHECKING:
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
