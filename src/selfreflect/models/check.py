"""Check the files of a model without loading its weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from selfreflect.errors import BackendError, excerpt
from selfreflect.models.base import Message
from selfreflect.models.chat import ChatTokenizer
from selfreflect.models.local.loading import ModelSource

_EXAMPLES = 2


def check_source(source: ModelSource, *, weights: bool = True, template: bool = True) -> None:
    """Check the files of a model that was found.

    Args:
        weights: whether to read the headers of its weights.
        template: whether to render its chat template.

    Raises:
        BackendError: the model could not be loaded.
    """
    with source.explain_errors():
        tokenizer = source.tokenizer()
        source.architecture()
    if weights:
        check_weights(source)
    if template:
        ChatTokenizer(tokenizer).render([Message(role="user", content="Hello")])


def check_weights(source: ModelSource) -> None:
    """Open the header of every safetensors file, and compare shapes with those that the configuration asks
    for. Models on the hub, whose files may not be here yet, and quantised ones are not compared.

    Raises:
        BackendError: a file is damaged or cut off, or holds tensors of another shape.
    """
    folder = Path(source.path)
    if not folder.is_dir():
        return
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        shapes.update(_shapes(file))
    with source.explain_errors():
        import transformers

        config = transformers.AutoConfig.from_pretrained(source.path, **source.options)
        if getattr(config, "quantization_config", None) is not None:  # which packs tensors in its own way
            return
        with torch.device("meta"):
            trust = source.trust_remote_code
            skeleton = source.architecture().from_config(config, trust_remote_code=trust)
    wrong = []
    for name, tensor in skeleton.state_dict().items():
        shape = shapes.get(name)  # the library gives some tensors another name as it loads them
        if shape is not None and shape != tuple(tensor.shape):
            wrong.append(f"{name} is {shape} instead of {tuple(tensor.shape)}")
    if wrong:
        examples = ", ".join(wrong[:_EXAMPLES])
        raise BackendError(
            f"the weights in {excerpt(source.path, 200)} do not fit its config.json: {examples}. Copy the "
            "model again, or correct the configuration."
        )


def _shapes(file: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  # it is no dictionary
                yield name, tuple(tensors.get_slice(name).get_shape())
    except (SafetensorError, OSError, ValueError) as error:
        reason: Any = " ".join(str(error).split())
        raise BackendError(
            f"{excerpt(str(file), 200)} is damaged or cut off ({reason[:200]}). Copy the model again."
        ) from None
