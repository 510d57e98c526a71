"""The texts of ``data/serve_prompts.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources


@cache
def texts() -> Mapping[str, Mapping[str, str]]:
    """Prompts and sentences by table and name."""
    file = resources.files("selfreflect") / "data" / "serve_prompts.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))
