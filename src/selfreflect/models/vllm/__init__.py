"""Backends of vLLM, in this process or behind a pooling server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selfreflect.models.backend import Backend, Say
from selfreflect.models.base import ModelSpec

if TYPE_CHECKING:
    from selfreflect.models.openai.endpoint import Endpoint


class VLLM(Backend):
    """Backend of models that vLLM runs in this process."""

    prefix = "vllm"
    generator = "selfreflect.models.vllm.engine:VLLMGenerator.load"
    judge = "selfreflect.models.vllm.judge:load_in_process"

    def check(self, spec: ModelSpec, progress: Say | None = None) -> None:
        """Check vLLM, and the model's location, architecture, tokenizer, template and weight headers."""
        from selfreflect.models.local.loading import locate
        from selfreflect.models.local.pretrained import check_source
        from selfreflect.models.vllm.engine import check_installed

        check_installed("A model vllm:NAME")
        check_source(locate(spec, progress))


class VLLMServer(Backend):
    """Backend of judges whose hidden states come from ``vllm serve`` in pooling mode."""

    prefix = "vllm+http"
    judge = "selfreflect.models.vllm.judge:load_served"
    is_remote = True
    needs_address = True
    loads_model = False

    def server(self, base_url: str | None) -> Endpoint:
        from selfreflect.models.openai.endpoint import endpoint

        return endpoint(base_url, setting="scores.base_url")

    def check(self, spec: ModelSpec, progress: Say | None = None) -> None:
        """Check that the server has the model, and check its tokenizer and template."""
        from selfreflect.models.local.loading import locate
        from selfreflect.models.local.pretrained import check_source
        from selfreflect.models.vllm.judge import PoolingServer

        PoolingServer(self.bare_name(spec.name), self.server(spec.base_url), timeout=spec.timeout).longest()
        check_source(locate(spec, progress), weights=False)
