"""vLLM, in this process or behind a server in pooling mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selfreflect.models.backend import Backend, Say
from selfreflect.models.base import Compat, ModelSpec

if TYPE_CHECKING:
    from selfreflect.models.vllm.engine import VLLMGenerator
    from selfreflect.models.vllm.judge import PooledJudge


class VLLM(Backend):
    """Models that vLLM runs in this process."""

    prefix = "vllm"
    can_judge = True

    def check(self, spec: ModelSpec, progress: Say | None = None, *, template: bool = True) -> None:
        """Check vLLM, and of the model place, architecture, tokenizer, template and headers of weights."""
        from selfreflect.models.check import check_source
        from selfreflect.models.local.loading import locate
        from selfreflect.models.vllm.engine import check_installed

        check_installed("A model vllm:NAME")
        check_source(locate(spec, progress), template=template)

    def open(self, spec: ModelSpec, progress: Say | None = None) -> VLLMGenerator:
        """Load a generator."""
        from selfreflect.models.vllm.engine import VLLMGenerator

        return VLLMGenerator.load(spec, progress)

    def open_judge(self, spec: ModelSpec, compat: Compat, progress: Say | None) -> PooledJudge:
        """Load a judge."""
        from selfreflect.models.vllm.judge import load_in_process

        return load_in_process(spec, compat, progress)


class VLLMServer(Backend):
    """Judges whose hidden states ``vllm serve`` computes in pooling mode."""

    prefix = "vllm+http"
    is_remote = True
    needs_address = True
    loads_model = False
    can_generate = False
    can_judge = True

    def check(self, spec: ModelSpec, progress: Say | None = None, *, template: bool = True) -> None:
        """Check that the server has the model, and the model's tokenizer and template."""
        from selfreflect.models.check import check_source
        from selfreflect.models.local.loading import locate
        from selfreflect.models.vllm.server import PoolingServer

        PoolingServer(self.bare_name(spec.name), self.server(spec.base_url), timeout=spec.timeout).longest()
        check_source(locate(spec, progress), weights=False, template=template)

    def open_judge(self, spec: ModelSpec, compat: Compat, progress: Say | None) -> PooledJudge:
        """Load the projection of a judge."""
        from selfreflect.models.vllm.judge import load_served

        return load_served(spec, compat, progress)
