"""What a run directory remembers about the settings of a stage, and which settings may resume it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from selfreflect.config import Config
from selfreflect.errors import StoreError
from selfreflect.prompts import Prompts
from selfreflect.records import Stage
from selfreflect.store.run import MANIFEST, Manifest, Run, merge_settings, plain_settings

PROMPTED: tuple[Stage, ...] = ("answers", "summaries")
"""Stages whose results depend on the prompts."""


def stage_settings(config: Config, stages: Sequence[Stage], prompts: Prompts) -> dict[Stage, dict[str, Any]]:
    """The settings of some stages, as a manifest keeps them."""
    sections: dict[Stage, dict[str, Any]] = {stage: config.section(stage) for stage in stages}
    for stage in PROMPTED:
        if stage in sections:
            sections[stage]["prompts"] = prompts.hash
    if "summaries" in sections:
        del sections["summaries"]["strategies"]  # adding one later is the normal case
    return sections


UNBOUND = ("measures", "reader", "controls")
"""Settings that a resumed run may change. What another reader has measured is measured again."""


def check_settings(manifest: Manifest, settings: Mapping[Stage, dict[str, Any]], path: Path) -> None:
    """Check that the directory at ``path`` can be resumed with these settings.

    Raises:
        StoreError: it was made with others; the message shows each difference.
    """
    comparable: dict[str, Any] = {
        stage: _comparable(stage, section, manifest.config[stage])
        for stage, section in settings.items()
        if stage in manifest.config
    }
    merge_settings(manifest.config, plain_settings(comparable), path)


def _comparable(stage: Stage, settings: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    """``settings`` less the differences that do not matter."""
    defaults = Config().section(stage)
    comparable = {}
    for key, value in settings.items():
        is_newer_default = key not in earlier and key in defaults and value == defaults[key]
        if not is_newer_default:  # the directory is older than the setting
            comparable[key] = value
    for key in UNBOUND:
        comparable.pop(key, None)
        if key in earlier:
            comparable[key] = earlier[key]
    if earlier.get("base_url") and comparable.get("base_url"):
        comparable["base_url"] = earlier["base_url"]  # a server may come back at another address
    return comparable


def check_model(manifest: Manifest, stage: Stage, facts: Mapping[str, Any], path: Path) -> None:
    """Refuse a model whose weights changed under the same name since the run began."""
    earlier = manifest.models.get(stage)
    if earlier and earlier["revision"] != facts["revision"]:
        raise StoreError(
            f"{path}: {stage} began with revision {earlier['revision']!r} of {facts['name']!r}, which is now "
            f"{facts['revision']!r}. Name the old one with --revision, or use another --out."
        )


def settings_of(path: Path) -> dict[str, dict[str, Any]]:
    """The settings that the run directory at ``path`` was made with, by section; empty without a directory.

    Raises:
        StoreError: the directory cannot be read.
    """
    if not (path / MANIFEST).exists():
        return {}
    sections = Run.load(path).manifest.config
    for section in sections.values():
        section.pop("prompts", None)
    return sections
