"""Models of torch: loaded here, to generate and to judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selfreflect.models.backend import Backend, Say
from selfreflect.models.base import Compat, ModelSpec

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge
    from selfreflect.models.local.generator import HFGenerator


class Local(Backend):
    """The embedded model, models in directories and those of the hub."""

    is_torch = True
    can_judge = True

    def check(self, spec: ModelSpec, progress: Say | None = None, *, template: bool = True) -> None:
        """Check place, architecture, tokenizer, chat template and headers of weights."""
        from selfreflect.models.check import check_source
        from selfreflect.models.local.loading import locate

        source = locate(spec, progress, adapters=True)
        if not source.is_plain:  # whose files were verified when they were made
            check_source(source, template=template)

    def open(self, spec: ModelSpec, progress: Say | None = None) -> HFGenerator:
        """Load a generator."""
        from selfreflect.models.local.generator import HFGenerator

        return HFGenerator.load(spec, progress)

    def open_judge(self, spec: ModelSpec, compat: Compat, progress: Say | None) -> Judge:
        """Load a judge."""
        from selfreflect.models.judge import Judge
        from selfreflect.models.local.loading import load_causal_lm

        return Judge(load_causal_lm(spec, progress), compat=compat)
