"""The texts of ``data/serve_prompts.toml``."""

from __future__ import annotations

from collections.abc import Mapping

from selfreflect.prompts import bundled_texts


def texts() -> Mapping[str, Mapping[str, str]]:
    """Prompts and sentences by table and name."""
    return bundled_texts("serve_prompts.toml")
