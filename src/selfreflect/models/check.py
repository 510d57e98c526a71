"""Check that a model can be loaded, without loading its weights."""

from __future__ import annotations

from collections.abc import Callable

from selfreflect.models.base import Message
from selfreflect.models.chat import ChatTokenizer
from selfreflect.models.local.loading import locate
from selfreflect.models.local.threads import set_library_defaults
from selfreflect.models.local.weights import check_weights
from selfreflect.models.spec import ModelSpec, load_generator


def check_loadable(spec: ModelSpec, progress: Callable[[str], None] | None = None) -> None:
    """Check the name, place, architecture, tokenizer, chat template and headers of weights of a model, of a
    judge's server that it serves the model, and of other servers and functions what can be known without
    asking them.

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
    ChatTokenizer(tokenizer).render([Message(role="user", content="Hello")])
