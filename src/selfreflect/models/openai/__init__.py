"""OpenAI-compatible servers: what is asked, and what they refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selfreflect.models.backend import Backend, Say
from selfreflect.models.base import ModelSpec

if TYPE_CHECKING:
    from selfreflect.models.openai.generator import OpenAIGenerator


class OpenAI(Backend):
    """Models of a server that give texts."""

    prefix = "openai"
    is_remote = True
    can_relay = True
    loads_model = False

    def default_batch(self, questions: int, connections: int) -> int:
        """More questions keep a server busy, because results come one by one."""
        return max(questions, 2 * connections)

    def open(self, spec: ModelSpec, progress: Say | None = None) -> OpenAIGenerator:
        """Make a generator, which sends nothing yet."""
        from selfreflect.models.openai.generator import OpenAIGenerator

        return OpenAIGenerator.load(spec, progress)
