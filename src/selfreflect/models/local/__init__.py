"""Local torch models, for generating and judging."""

from __future__ import annotations

from selfreflect.models.backend import Backend, Say
from selfreflect.models.base import ModelSpec


class Local(Backend):
    """Backend of the embedded model, of local directories and of hub models."""

    generator = "selfreflect.models.local.generator:HFGenerator.load"
    judge = "selfreflect.models.judge:load_local"
    is_torch = True

    def check(self, spec: ModelSpec, progress: Say | None = None) -> None:
        """Check a model's location, architecture, tokenizer, chat template and weight headers."""
        from selfreflect.models.local.loading import locate
        from selfreflect.models.local.pretrained import check_source

        source = locate(spec, progress, adapters=True)
        if not source.is_plain:  # whose files were verified when they were made
            check_source(source)
