"""Settings: what changes results, and where the work is done; a file, a run directory and flags merged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import msgspec

from selfreflect.errors import ConfigError, excerpt
from selfreflect.flags import check_values, fields_of, flags_of
from selfreflect.metric.measure import measure_names, measures_of
from selfreflect.models.backend import backend_of, on_server, prefixes
from selfreflect.models.base import LOCAL_NAMES, PUBLISHED_SUMMARY_TOKENS, check_extra_body
from selfreflect.records import STAGES, Record
from selfreflect.settings.sections import (
    FLAGGED,
    SAMPLED_ALIKE,
    SEED,
    AnswersConfig,
    Config,
    ExecutionConfig,
    ExecutionOptions,
    Placement,
    Price,
    RayConfig,
    ScoresConfig,
    ServeConfig,
    SummariesConfig,
    sampling_of,
)

__all__ = [
    "SAMPLED_ALIKE",
    "SEED",
    "AnswersConfig",
    "Config",
    "ExecutionConfig",
    "ExecutionOptions",
    "Placement",
    "Price",
    "ScoresConfig",
    "ServeConfig",
    "load_config",
    "read_config",
    "read_execution",
    "sampling_of",
]

MOST_DRAWS = 1000
_DRAWS = re.compile(r"(.+)#([1-9]\d{0,17})-([1-9]\d{0,17})")

_MODEL = ("model", "revision", "base_url", "extra_body")
"""Settings of the answers that say whose they are. Summaries without a model follow them."""


def load_config(
    path: Path | None,
    overrides: Mapping[str, Mapping[str, Any]],
    base: Mapping[str, Mapping[str, Any]] | None = None,
) -> Config:
    """Merge the defaults, ``base`` (what a run directory was made with), the TOML file at ``path``, and
    ``overrides``; the later one wins. Unless one of these says otherwise, summaries are by the model that
    answers, and answers that strategies draw are sampled as the answer distribution is.

    Both mappings are section -> key -> value; an override of None leaves its key alone.

    Raises:
        ConfigError: the file cannot be read, or a key is unknown or has the wrong type or range.
    """
    file = read_config(path) if path else {}
    merged: dict[str, dict[str, Any]] = {}
    for section in Config.__struct_fields__:
        options = {key: value for key, value in overrides.get(section, {}).items() if value is not None}
        merged[section] = {**(base or {}).get(section, {}), **file.get(section, {}), **options}
    if "model" not in merged["summaries"]:  # a summary of one's own belief is by the model that answers
        place = {key: merged["answers"][key] for key in _MODEL if key in merged["answers"]}
        merged["summaries"] = {**place, **merged["summaries"]}
    if merged["summaries"].get("thinking") is True:
        merged["summaries"].setdefault("max_new_tokens", PUBLISHED_SUMMARY_TOKENS)
    for own, other in SAMPLED_ALIKE.items():
        if other in merged["answers"]:
            merged["summaries"].setdefault(own, merged["answers"][other])
    if merged["scores"].get("budget") == "none":
        merged["scores"]["budget"] = None
    try:
        config = msgspec.convert(merged, Config)
    except msgspec.ValidationError as error:
        raise _type_error(error, path, merged) from None
    strategies = each_draw(config.summaries.strategies)
    config = msgspec.structs.replace(
        config, summaries=msgspec.structs.replace(config.summaries, strategies=strategies)
    )
    _check(config)
    if config.scores.limits is None:
        # Exact scores have no seed: a directory of exact scores can be resumed with any --seed.
        scores = msgspec.structs.replace(config.scores, seed=ScoresConfig().seed)
        config = msgspec.structs.replace(config, scores=scores)
    return config


def read_config(path: Path) -> dict[str, Any]:
    """Read a settings file: section -> key -> value.

    Raises:
        ConfigError: it cannot be read, or a key is unknown or missing.
    """
    from selfreflect.prompts import read_toml

    file = read_toml(path)
    _check_keys(path, "", file, Config)
    return file


def read_execution(path: Path) -> dict[str, Any]:
    """Read which execution options a settings file sets.

    Raises:
        ConfigError: it cannot be read, or a key is unknown or has the wrong type or range.
    """
    file = read_config(path)
    table = file.get("execution", {})
    try:
        options = msgspec.convert(table, ExecutionConfig)
    except msgspec.ValidationError as error:
        located = msgspec.ValidationError(str(error).replace("$.", "$.execution."))
        raise _type_error(located, path, file) from None
    options.check("execution")
    return {key: getattr(options, key) for key in table}


def _type_error(
    error: msgspec.ValidationError, path: Path | None, settings: Mapping[str, Any]
) -> ConfigError:
    from selfreflect.settings.places import type_error

    return ConfigError(type_error(error, path, settings))


def _check_keys(path: Path, name: str, table: Any, settings: type[Record]) -> None:
    """Check that a table, and the tables in it, have all keys that a settings class needs, and no others."""
    from selfreflect.prompts import check_known
    from selfreflect.removed import KEYS

    fields = fields_of(settings)
    for key, value in _table(path, name, table).items():
        if key in KEYS.get(name, {}):
            raise ConfigError(f"{path}: {key} in [{name}] is no longer a setting. {KEYS[name][key]}")
        try:
            check_known(path, f"key in [{name}]" if name else "section", key, fields)
        except ConfigError as error:
            misplaced = [key, *value] if isinstance(value, dict) else [key]
            raise ConfigError(f"{error}{_right_places(misplaced)}") from None
        inner = f"{name}.{key}" if name else key
        section = fields[key].type
        if key == "prices":
            for model, price in _table(path, key, value).items():
                _check_keys(path, f"prices.{excerpt(model)}", price, Price)
        elif get_origin(get_type_hints(settings)[key]) is tuple and isinstance(value, str):
            raise ConfigError(f'{path}: {key} in [{name}] is a list, as in {key} = ["greedy", "basic"]')
        elif isinstance(section, type) and issubclass(section, Record):
            _check_keys(path, inner, value, section)
    for key, field in fields.items():
        if field.required and key not in table:
            raise ConfigError(f"{path}: {key} is missing in [{name}]")


def _table(path: Path, name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: [{name}] must be a table, not {excerpt(value)}.{_right_places([name])}")
    return value


def _right_places(keys: Iterable[str]) -> str:
    """Where keys belong that a user wrote elsewhere, or called as their flags are called."""
    lines = []
    for key in keys:
        places = []
        for section, settings in FLAGGED.items():
            for field, flag in flags_of(settings).items():
                if key in (field, flag.name, flag.name.removeprefix("--").replace("-", "_")):
                    places.append(f"[{section}] {field}")
        if places:
            lines.append(f"\n  {excerpt(key)} is written as {' and '.join(places)}")
    return "".join(lines)


def _check(config: Config) -> None:
    for stage in STAGES:
        check_values(getattr(config, stage), stage)
    config.execution.check("execution")
    check_values(config.serve, "serve")
    for name in RayConfig.__struct_fields__:
        check_values(getattr(config.ray, name), f"ray.{name}")
    for model, price in config.prices.items():
        check_values(price, f"prices.{excerpt(model)}")
    if config.questions.part is not None:
        from selfreflect.sources.questions import parse_shard

        parse_shard(config.questions.part)
    _check_strategies(config.summaries.strategies)
    _check_generator_url(config.answers)
    if config.answers.logprobs and not backend_of(config.answers.model).gives_logprobs:
        raise ConfigError(
            f"--logprobs: {excerpt(config.answers.model)} returns texts without log-probabilities. Leave it "
            "out, or name another --model."
        )
    _check_generator_url(config.summaries)
    _check_judge(config.scores)
    _check_limits(config.scores)


def each_draw(names: Sequence[str]) -> tuple[str, ...]:
    """Write ``basic#1-3`` out as ``basic#1``, ``basic#2``, ``basic#3``.

    Raises:
        ConfigError: the numbers are in the wrong order, or too many.
    """
    result: list[str] = []
    for name in names:
        draws = _DRAWS.fullmatch(name)
        if draws is None:
            result.append(name)
            continue
        first, last = int(draws[2]), int(draws[3])
        if not first <= last < first + MOST_DRAWS:
            raise ConfigError(f"strategy {excerpt(name)}: write #FIRST-LAST, with {MOST_DRAWS} draws at most")
        result += [f"{draws[1]}#{number}" for number in range(first, last + 1)]
    return tuple(result)


def _check_strategies(names: tuple[str, ...]) -> None:
    if not names:
        raise ConfigError("--strategies needs at least one name")
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigError(f"--strategies names {excerpt(name)} twice")


def _check_generator_url(section: AnswersConfig | SummariesConfig) -> None:
    backend = backend_of(section.model)
    if backend.is_remote and backend.can_generate:
        if section.revision is not None:
            raise ConfigError(
                f"--revision does not apply on a server; leave it out with {backend.prefix}:NAME"
            )
        backend.server(section.base_url)
        check_extra_body(section.extra_body or {})
        return
    for flag, value in (("--base-url", section.base_url), ("--extra-body", section.extra_body)):
        if value is not None:
            name = on_server(excerpt(section.model)[1:-1])
            raise ConfigError(f"{flag} needs a model on a server. Did you mean --model {name}?")


def _check_judge(scores: ScoresConfig) -> None:
    if not scores.measure_names:
        raise ConfigError(f"--measures names no measure. Known: {', '.join(measure_names())}")
    try:
        measures_of(scores.measure_names)
    except ConfigError as error:
        raise ConfigError(f"--measures: {error}") from None
    backend = backend_of(scores.judge)
    if not backend.can_judge:
        known = ", ".join(f"{prefix}:NAME" for prefix in prefixes(can_judge=True))
        raise ConfigError(
            f"--judge: {excerpt(scores.judge)} cannot be a judge, because it gives texts and no full logits. "
            f"Name {known}, {LOCAL_NAMES}."
        )
    if backend.is_remote:
        if backend.needs_address and scores.base_url is None:
            raise ConfigError(
                f"--judge {backend.prefix}:NAME needs the address of its server: --judge-url "
                "http://localhost:8000/v1"
            )
        backend.server(scores.base_url)
    elif scores.base_url is not None:
        remote = " or ".join(f"{prefix}:NAME" for prefix in prefixes(is_remote=True, can_judge=True))
        raise ConfigError(f"--judge-url goes with --judge {remote}, not with {excerpt(scores.judge)}")


def _check_limits(scores: ScoresConfig) -> None:
    try:
        _ = scores.limits
    except ConfigError as error:
        raise ConfigError(f"--budget (scores.budget): {error}") from None
