"""OpenAI-compatible servers: what is asked, and what they refuse."""

from __future__ import annotations

from selfreflect.models.backend import Backend


class OpenAI(Backend):
    """Models of a server that give texts."""

    prefix = "openai"
    generator = "selfreflect.models.openai.generator:OpenAIGenerator.load"
    is_remote = True
    can_relay = True
    loads_model = False
