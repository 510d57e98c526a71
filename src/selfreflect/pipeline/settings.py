"""What a run directory remembers about the settings of a stage, and which settings may resume it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from selfreflect.errors import ConfigError, StoreError
from selfreflect.prompts import Prompts
from selfreflect.records import STAGES, SamplingCheck, Stage, dump_line, from_plain
from selfreflect.removed import SCORES
from selfreflect.settings import Config
from selfreflect.sources.questions import is_file
from selfreflect.store.layout import MANIFEST, Manifest, merge_settings, plain_settings
from selfreflect.store.run import Run

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


def scoring_name(scores: Mapping[str, Any]) -> str:
    """Name the scoring with these settings, as a file name that is the same wherever it is made."""
    bound = _bound(scores)
    digest = hashlib.sha256(dump_line(bound).encode()).hexdigest()[:8]
    judge = re.sub(r"[^a-z0-9.]+", "-", bound["judge"].rstrip("/").rpartition("/")[2].lower())
    return f"{judge.strip('-.')[:40] or 'judge'}-{digest}"


def scoring_label(scores: Mapping[str, Any]) -> str:
    """Name a scoring for people: its judge, and the settings that are not the defaults."""
    bound = _bound(scores)
    judge = bound.pop("judge")
    return ", ".join([judge, *(f"{key.replace('_', ' ')} {value}" for key, value in bound.items())])


def _bound(scores: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that scores are bound to, less those that have their default, in the order of names."""
    defaults = Config().section("scores")
    bound = {"judge": defaults["judge"], **plain_settings(scores)}
    for key in ("base_url", *UNBOUND):  # a server may come back at another address
        bound.pop(key, None)
    changes = {key: value for key, value in bound.items() if value != defaults.get(key)}
    return {"judge": bound["judge"], **dict(sorted(changes.items()))}


def select_scoring(run: Run, config: Config) -> None:
    """Select the scoring of a run that has these settings: its first if it has none yet, else a new one."""
    run.select_scoring("")
    first = run.manifest.config.get("scores")
    name = scoring_name(config.section("scores"))
    if first is not None and scoring_name(first) != name:
        run.select_scoring(name)


def check_settings(manifest: Manifest, settings: Mapping[Stage, dict[str, Any]], path: Path) -> None:
    """Check that the directory at ``path`` can be resumed with these settings.

    Files of questions are compared by what they hold, when they are read.

    Raises:
        StoreError: it was made with others; the message shows each difference.
    """
    answers = manifest.config.get("answers")
    if answers is not None and not answers.get("logprobs") and settings.get("answers", {}).get("logprobs"):
        raise StoreError(
            f"{path}: its answers were drawn without log-probabilities, which cannot be added. Draw others "
            "with --logprobs into another --out, or go on without --logprobs."
        )
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
    # a setting that has gone since, and that the directory did not use
    comparable |= {key: None for key, value in earlier.items() if key not in defaults and value is None}
    if stage == "questions" and is_file(comparable["source"]) and is_file(earlier["source"]):
        comparable["source"] = earlier["source"]
    if earlier.get("base_url") and comparable.get("base_url"):
        comparable["base_url"] = earlier["base_url"]  # a server may come back at another address
    return comparable


def check_model(manifest: Manifest, stage: Stage, facts: Mapping[str, Any], path: Path) -> None:
    """Refuse a model whose weights changed under the same name since the run began."""
    earlier = manifest.models.get(stage)
    if earlier and earlier["revision"] != facts["revision"]:
        advice = "Name the old one with --revision, or use another --out."
        if stage == "scores":
            advice = "Name the old one with --judge-revision, or the new one to keep the scores of both."
        raise StoreError(
            f"{path}: {stage} began with revision {earlier['revision']!r} of {facts['name']!r}, which is now "
            f"{facts['revision']!r}. {advice}"
        )


def sampling_checks(manifest: Manifest) -> list[SamplingCheck]:
    """What a run found out of its servers, each once."""
    checks = [from_plain(SamplingCheck, check) for check in manifest.checks.values()]
    by_place = {(check.model, check.base_url): check for check in reversed(checks)}
    return list(by_place.values())


def settings_of(path: Path, scores: Mapping[str, Any], *, scoring: bool = True) -> dict[str, dict[str, Any]]:
    """The settings that the run directory at ``path`` was made with, or asked for where a stage has no result
    yet, by section; empty without a directory.

    Args:
        scores: what the user sets in that section. The other settings are those of the first scoring by the
            same judge.
        scoring: whether scores are to be added.

    Raises:
        StoreError: the directory cannot be read.
        ConfigError: its scores were estimated in a way that is gone, and ``scores`` names no other.
    """
    if not (path / MANIFEST).exists():
        return {}
    run = Run.load(path)
    pending = run.manifest.asked
    config = run.manifest.config
    sections: dict[str, dict[str, Any]] = dict(pending)
    sections |= {stage: config[stage] for stage in STAGES if stage in config}
    for section in sections.values():
        section.pop("prompts", None)
    for name in run.scorings:
        run.select_scoring(name)
        sections["scores"] = dict(run.manifest.config.get("scores", pending.get("scores", {})))
        if scores.get("judge") in (None, sections["scores"].get("judge")):
            break
    else:
        sections["scores"] = {}
    sections.get("summaries", {}).pop("strategies", None)  # which a directory keeps elsewhere
    if "summaries" in sections:  # older directories drew at the paper's temperature whatever answers did
        sections["summaries"] = {"sample_temperature": 1.0, "sample_top_p": 1.0, **sections["summaries"]}
    former = [key for key in SCORES if sections["scores"].pop(key, None) is not None]
    if scoring and former and scores.get("budget") is None:
        raise ConfigError(
            f"{path}: its scores were estimated with {' and '.join(former)}, which is no longer a setting. "
            "They can still be reported. To add others, give --budget, or --budget none for all words."
        )
    return sections
