"""OpenAI-compatible servers: requests, responses and refusals."""

from __future__ import annotations

from selfreflect.models.backend import Backend, Say
from selfreflect.models.base import ModelSpec, StageGenerator


class OpenAI(Backend):
    """Backend of OpenAI-compatible servers."""

    prefix = "openai"
    generator = "selfreflect.models.openai.generator:OpenAIGenerator.load"
    is_remote = True
    can_relay = True
    loads_model = False
    takes_batches = True

    def open(self, spec: ModelSpec, progress: Say | None = None) -> StageGenerator:
        from selfreflect.models.openai import batch

        if spec.write_batch is not None:
            return batch.BatchWriter(spec, spec.write_batch, progress)
        if spec.read_batch is not None:
            return batch.BatchReader(spec, spec.read_batch, progress)
        return super().open(spec, progress)
