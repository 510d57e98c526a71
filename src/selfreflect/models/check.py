"""Check that a model can be loaded, without loading its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from selfreflect.errors import BackendError, excerpt
from selfreflect.models.base import Message, ModelSpec, load_generator
from selfreflect.models.chat import ChatTokenizer
from selfreflect.models.local.loading import ModelSource, locate
from selfreflect.models.local.machine import set_library_defaults

_EXAMPLES = 2


def check_loadable(
    spec: ModelSpec, progress: Callable[[str], None] | None = None, *, template: bool = True
) -> None:
    """Check the name, place, architecture, tokenizer, chat template and headers of weights of a model, of a
    judge's server that it serves the model, and of other servers and functions what can be known without
    asking them.

    Args:
        template: whether to render the chat template, which is a program of the model's author.

    Raises:
        SelfReflectError: as loading the model would.
    """
    set_library_defaults()
    if spec.kind in ("openai", "function"):
        load_generator(spec, progress)
        return
    if spec.kind == "vllm":
        from selfreflect.models.vllm.engine import check_installed

        check_installed("A model vllm:NAME")
    if spec.kind == "vllm+http":
        from selfreflect.models.openai.endpoint import endpoint
        from selfreflect.models.vllm.server import PoolingServer

        PoolingServer(spec.bare_name, endpoint(spec.base_url), timeout=spec.timeout).longest()
    source = locate(spec, progress, adapters=spec.kind == "local")
    if spec.kind == "local" and source.is_plain:  # whose files were verified when they were made
        return
    with source.explain_errors():
        tokenizer = source.tokenizer()
        source.architecture()
    if spec.kind != "vllm+http":
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
