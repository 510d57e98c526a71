"""Adapters (PEFT): small weights that were trained on top of a base model, loaded wherever a model is.

They are merged into the base's own weights, so everything that runs the base runs them as fast.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfreflect.errors import BackendError, MissingExtraError, excerpt

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
KINDS = ("LORA", "ADALORA", "LOHA", "LOKR", "IA3", "OFT", "BOFT", "VERA", "HRA")
"""Kinds of adapters that become a part of the weights and consist of nothing but their two files. Of others
some name further models, which peft would download, or cannot be merged, such as soft prompts."""


LARGEST_CONFIG, LARGEST_WEIGHTS = 16 * 2**20, 32 * 2**30
"""Bytes of the two files. Those of adapters in use have less than a tenth."""


@dataclass(frozen=True)
class PeftAdapter:
    """An adapter directory, and the model that it was trained on."""

    path: str
    base: str
    """Alias, absolute directory or hub name."""
    base_revision: str | None
    kind: str
    """As peft calls it: ``LORA``."""
    digest: str
    """Of the adapter's two files."""
    rank: int = 0
    """The largest that its configuration names, where its kind has tensors of such a side."""

    def merge(self, model: Any) -> Any:
        """Add the adapter to the weights of its base.

        Raises:
            MissingExtraError: peft is not installed.
            ValueError, RuntimeError: it is of another kind than :data:`KINDS`, or its weights do not fit the
                base.
        """
        if self.kind not in KINDS:
            raise ValueError(
                f"adapters of the kind {excerpt(self.kind)} are not loaded, only {', '.join(KINDS)}"
            )
        try:
            import peft
        except ImportError:
            raise MissingExtraError(f"the adapter in {excerpt(self.path, 200)}", "train") from None
        from safetensors import safe_open

        with safe_open(Path(self.path) / WEIGHTS, framework="pt") as tensors:
            names = set(tensors.keys())
            longest = max((side for name in names for side in tensors.get_slice(name).get_shape()), default=0)
        if self.rank > longest:  # for which peft would take the memory before it reads the weights
            raise ValueError(f"its configuration has rank {self.rank}, and its weights at most {longest}")
        adapted = peft.PeftModel.from_pretrained(model, self.path)
        # Left to itself, peft asks the hub whether the base's embeddings were changed.
        embeddings = any(name.endswith(("embed_tokens.weight", "lm_head.weight")) for name in names)
        weights = peft.get_peft_model_state_dict(adapted, save_embedding_layers=embeddings)
        # peft would go on with random or zero numbers in their place, or without them
        if different := sorted(names ^ weights.keys()):
            raise ValueError(
                f"its weights and those that {excerpt(self.base)} takes differ, for example {different[0]}"
            )
        return adapted.merge_and_unload(safe_merge=True)


def find_adapter(folder: Path) -> PeftAdapter | None:
    """Read what a directory says of its adapter; None if it holds none, or a whole model.

    Raises:
        BackendError: its configuration cannot be read or names no base, or it has no safetensors weights.
    """
    where = excerpt(str(folder), 200)
    if not (folder / CONFIG).is_file() or (folder / "config.json").is_file():
        return None
    for name, limit in ((CONFIG, LARGEST_CONFIG), (WEIGHTS, LARGEST_WEIGHTS)):
        size = (folder / name).stat().st_size if (folder / name).is_file() else 0
        if size > limit:
            raise BackendError(f"{name} in {where} has {size:,} bytes; at most {limit:,} are read")
    try:
        text = (folder / CONFIG).read_bytes()
        config = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise BackendError(f"{CONFIG} in {where} cannot be read: {excerpt(str(error), 200)}") from None
    base = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    if not isinstance(base, str) or not base.strip():
        raise BackendError(f"{CONFIG} in {where} names no base model (base_model_name_or_path)")
    if not (folder / WEIGHTS).is_file():
        raise BackendError(
            f"{where} holds an adapter without {WEIGHTS}. Pickled weights (adapter_model.bin) are not loaded "
            "because they can run code; save it again with safetensors."
        )
    revision = config.get("revision")
    digest = hashlib.sha256(text)
    with (folder / WEIGHTS).open("rb") as file:
        digest.update(hashlib.file_digest(file, "sha256").digest())
    return PeftAdapter(
        path=str(folder),
        base=base,
        base_revision=revision if isinstance(revision, str) and revision else None,
        kind=str(config.get("peft_type")),
        digest=digest.hexdigest()[:12],
        rank=_rank(config),
    )


def _rank(config: dict[str, Any]) -> int:
    patterns = config.get("rank_pattern")
    ranks = [
        config.get("r"),
        config.get("init_r"),
        *(patterns.values() if isinstance(patterns, dict) else ()),
    ]
    is_ranked = config.get("peft_type") in ("LORA", "ADALORA", "LOHA", "VERA", "HRA")
    return max((rank for rank in ranks if isinstance(rank, int)), default=0) if is_ranked else 0
