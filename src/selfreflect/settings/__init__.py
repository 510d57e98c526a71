"""Settings of all commands, merged from defaults, run directory, file and flags, and checked."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from selfreflect.errors import ConfigError, excerpt, nearest
from selfreflect.flags import checked_value, choices_of, fields_of, flags_of, notes_of, types_of
from selfreflect.metric.measure import measure_names, measures_of
from selfreflect.models.backend import backend_of, on_server, prefixes
from selfreflect.models.base import LOCAL_NAMES, PUBLISHED_SUMMARY_TOKENS, check_extra_body
from selfreflect.records import Record
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
    "SummariesConfig",
    "load_config",
    "read_config",
    "sampling_of",
]

MAX_DRAWS = 1000
_DRAWS = re.compile(r"(.+)#([1-9]\d{0,17})-([1-9]\d{0,17})")

# Settings of the answers that say whose they are. Summaries without a model follow them.
_MODEL = ("model", "revision", "base_url", "extra_body")


def load_config(
    path: Path | None,
    overrides: Mapping[str, Mapping[str, Any]],
    base: Mapping[str, Mapping[str, Any]] | None = None,
) -> Config:
    """Merge the defaults, a run directory's ``base``, the file at ``path``, and ``overrides``; later ones
    win.

    Both mappings are section -> key -> value; an override of None leaves its key alone.

    Raises:
        ConfigError: the file cannot be read, or a key is unknown or has the wrong type or range.
    """
    file = read_config(path) if path else {}
    merged: dict[str, dict[str, Any]] = {}
    for section in Config.__struct_fields__:
        options = {key: value for key, value in overrides.get(section, {}).items() if value is not None}
        merged[section] = {**(base or {}).get(section, {}), **file.get(section, {}), **options}
    answers, summaries, scores = (merged[section] for section in ("answers", "summaries", "scores"))
    # a model summarises its own answers
    if "model" not in summaries:
        summaries |= {key: answers[key] for key in _MODEL if key in answers and key not in summaries}
    # reasoning takes thousands of tokens, which the usual limit would cut off
    if summaries.get("thinking") is True:
        summaries.setdefault("max_new_tokens", PUBLISHED_SUMMARY_TOKENS)
    for key, answers_key in SAMPLED_ALIKE.items():
        if answers_key in answers:
            summaries.setdefault(key, answers[answers_key])
    if scores.get("budget") == "none":
        scores["budget"] = None
    # options and old run directories have not passed the check of a file
    tables = _checked_table(Config, merged)
    tables["summaries"]["strategies"] = each_draw(
        tables["summaries"].get("strategies", SummariesConfig().strategies)
    )
    config = msgspec.convert(tables, Config)
    _check(config)
    if config.scores.limits is None:
        # Exact scores have no seed: a directory of exact scores can be resumed with any --seed.
        exact = msgspec.structs.replace(config.scores, seed=ScoresConfig().seed)
        config = msgspec.structs.replace(config, scores=exact)
    return config


def read_config(path: Path) -> dict[str, Any]:
    """Read a settings file as section -> key -> value.

    Raises:
        ConfigError: it cannot be read, or a key is unknown, missing, or has the wrong type or range.
    """
    from selfreflect.prompts import read_toml

    file = read_toml(path)
    # a value of a file is changed there, so the message names the file, and no remedy names a flag
    try:
        return _checked_table(Config, file)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", code=error.code, file=path, **error.fields) from None


def _checked_table(settings: type[Record], table: Any, name: str = "") -> dict[str, Any]:
    """Check and convert the keys and values of a table and its nested tables."""
    if not isinstance(table, Mapping):
        raise ConfigError(
            f"[{name}] must be a table, not {excerpt(table)}.{_right_sections([name])}", code="table"
        )
    hints, fields = types_of(settings), fields_of(settings)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in fields:
            raise _unknown_key(key, value, name, fields)
        inner = f"{name}.{key}" if name else key
        if key == "prices":  # the only table whose keys are names of models
            prices = value.items() if isinstance(value, Mapping) else {"": value}.items()
            values[key] = {
                model: _checked_table(Price, price, f"prices.{excerpt(model)}") for model, price in prices
            }
        elif isinstance(hints[key], type) and issubclass(hints[key], Record):
            values[key] = _checked_table(hints[key], value, inner)
        else:
            values[key] = checked_value(settings, key, value, inner)
    for key, field in fields.items():
        if field.required and key not in table:
            raise ConfigError(f"{key} is missing in [{name}]", code="missing_key", key=key)
    return values


def _unknown_key(key: str, value: Any, name: str, names: Iterable[str]) -> ConfigError:
    """Make the error for an unknown key or section, with suggestions."""
    from selfreflect.removed import KEYS

    if key in KEYS.get(name, {}):
        return ConfigError(f"{key} in [{name}] is no longer a setting. {KEYS[name][key]}", code="removed")
    kind = f"key in [{name}]" if name else "section"
    keys = [key, *value] if isinstance(value, Mapping) else [key]
    return ConfigError(
        f"unknown {kind}: {excerpt(key)}. Known: {', '.join(names)}.{nearest(key, list(names))}"
        f"{_right_sections(keys)}",
        code="unknown_key",
        key=key,
    )


def _right_sections(keys: Iterable[str]) -> str:
    """Name the right sections of misplaced keys or flag names."""
    lines = []
    for key in keys:
        matches = []
        for section, settings in FLAGGED.items():
            for field, flag in flags_of(settings).items():
                if key in (field, flag.name, flag.name.removeprefix("--").replace("-", "_")):
                    matches.append(f"[{section}] {field}")
        if matches:
            lines.append(f"\n  {excerpt(key)} is written as {' and '.join(matches)}")
    return "".join(lines)


def _check(config: Config) -> None:
    """Check combinations of settings, and names that must exist."""
    if config.questions.part is not None:
        from selfreflect.sources.questions import parse_shard

        parse_shard(config.questions.part)
    _check_strategies(config.summaries.strategies)
    _check_generator("answers", config.answers)
    if config.answers.wants_logprobs and not backend_of(config.answers.model).gives_logprobs:
        raise ConfigError(
            f"{excerpt(config.answers.model)} returns texts without log-probabilities",
            code="no_logprobs",
            remedy="Leave out {answers.logprobs}, or name another {answers.model}.",
        )
    _check_generator("summaries", config.summaries)
    _check_judge(config.scores)
    _ = config.scores.limits  # raises ConfigError


def each_draw(names: Sequence[str]) -> tuple[str, ...]:
    """Expand ``basic#1-3`` to ``basic#1``, ``basic#2``, ``basic#3``.

    Raises:
        ConfigError: the numbers are in the wrong order, or too many.
    """
    result: list[str] = []
    for name in names:
        draws = _DRAWS.fullmatch(name)
        if draws is None:
            result.append(name)
            continue
        start, end = int(draws[2]), int(draws[3])
        if not start <= end < start + MAX_DRAWS:
            raise ConfigError(
                f"strategy {excerpt(name)}: write #FIRST-LAST, with {MAX_DRAWS} draws at most",
                code="draws",
                strategy=name,
            )
        result += [f"{draws[1]}#{number}" for number in range(start, end + 1)]
    return tuple(result)


def _check_strategies(names: Sequence[str]) -> None:
    remedy = "Name each once with {summaries.strategies}."
    if not names:
        raise ConfigError("no strategy is named", code="no_strategies", remedy=remedy)
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigError(
                f"strategy {excerpt(name)} is named twice",
                code="repeated_strategy",
                remedy=remedy,
                strategy=name,
            )


def _check_generator(section: str, settings: AnswersConfig | SummariesConfig) -> None:
    backend = backend_of(settings.model)
    if backend.is_remote and backend.can_generate:
        if settings.revision is not None:
            raise ConfigError(
                "a model on a server has no revision",
                code="revision_on_server",
                remedy=f"Leave out {{{section}.revision}} with {backend.prefix}:NAME.",
            )
        backend.server(settings.base_url)
        check_extra_body(settings.extra_body or {})
        return
    # a setting that changes nothing would pass for one that does
    for key in ("base_url", "extra_body"):
        if getattr(settings, key) is not None:
            name = on_server(excerpt(settings.model)[1:-1])
            raise ConfigError(
                f"{excerpt(settings.model)} is not a model on a server",
                code="server_setting_without_server",
                remedy=f"Did you mean {{{section}.model}} {name}? Otherwise leave out {{{section}.{key}}}.",
            )


def _check_judge(scores: ScoresConfig) -> None:
    if not scores.measure_names:
        raise ConfigError(
            f"no measure is named. Known: {', '.join(measure_names())}",
            code="no_measures",
            remedy="Name some with {scores.measures}.",
        )
    measures_of(scores.measure_names)
    backend = backend_of(scores.judge)
    if not backend.can_judge:
        judges = ", ".join(f"{prefix}:NAME" for prefix in prefixes(can_judge=True))
        raise ConfigError(
            f"{excerpt(scores.judge)} cannot be a judge, because it returns texts, not full logits",
            code="no_judge",
            remedy=f"Set {{scores.judge}} to {judges}, {LOCAL_NAMES}.",
            judge=scores.judge,
        )
    if backend.is_remote:
        if backend.needs_address and scores.base_url is None:
            raise ConfigError(
                f"a judge {backend.prefix}:NAME needs the address of its server",
                code="no_address",
                remedy="Give {scores.base_url}, such as http://localhost:8000/v1.",
            )
        backend.server(scores.base_url)
    elif scores.base_url is not None:
        remote = " or ".join(f"{prefix}:NAME" for prefix in prefixes(is_remote=True, can_judge=True))
        raise ConfigError(
            f"{excerpt(scores.judge)} is not a judge on a server",
            code="server_setting_without_server",
            remedy=f"{{scores.base_url}} can only be used with a {{scores.judge}} such as {remote}.",
        )


SCHEMA_FILE = "selfreflect.schema.json"
HEADER = f"""\
#:schema ./{SCHEMA_FILE}
# Settings of selfreflect: pass this file with --config. Options on the command line override it.
# Every key is here with its default; a key after # has no default and shows an example.
# Editors that support taplo check the file and complete its keys with the schema that the first line names:
#   selfreflect config --schema > {SCHEMA_FILE}
"""
PRICES = {
    "openai:gpt-4o-mini": "What a model costs, in any currency, for --dry-run and serve: a table for each "
    "model, under the name given to --model."
}


class SettingRow(NamedTuple):
    """A row of the settings page, for one key."""

    key: str
    flag: str
    """Flag of the key; empty if only files set it."""
    help: str
    values: str
    """Accepted values, if not in the help."""
    default: Any
    example: Any
    """Example in the template, without a default."""


def sections() -> dict[str, list[SettingRow]]:
    """List the rows of every section, by its name in the settings file."""
    tables: dict[str, list[SettingRow]] = {}
    for name in Config.__struct_fields__:
        if name == "ray":
            for stage in RayConfig.__struct_fields__:
                tables[f"ray.{stage}"] = list(_rows(Placement))
        elif name == "prices":
            for model in PRICES:
                tables[f'prices."{model}"'] = list(_rows(Price))
        else:
            tables[name] = list(_rows(FLAGGED[name]))
    # some keys of the summaries follow those of the answers unless a file sets them
    for index, row in enumerate(tables["summaries"]):
        if row.key in ("model", *SAMPLED_ALIKE):
            text = f"{row.help} Without it: as for answers."
            tables["summaries"][index] = row._replace(help=text, default=None, example=row.default)
    return tables


def _rows(settings: type[msgspec.Struct]) -> Iterator[SettingRow]:
    fields = fields_of(settings)
    for key, note in notes_of(settings).items():
        default = None if fields[key].required else fields[key].default
        usage = note.usage + (f", {note.negative}" if note.negative else "")
        if usage == note.name and (choices := choices_of(settings, key)):
            usage += f" {'|'.join(choices)}"
        # a usage such as auto|cuda|cpu says already which values there are
        values = note.range.description if note.range and "|" not in note.usage else ""
        yield SettingRow(key, usage, note.help, values, default, note.example)


def template() -> str:
    """Write a settings file with every key, with comments and defaults."""
    lines = [HEADER]
    for name, rows in sections().items():
        is_example = name.startswith("prices.")
        if is_example:
            lines += _comment(PRICES[name.removeprefix("prices.").strip('"')])
        lines += [f"# [{name}]" if is_example else f"[{name}]"]
        for row in rows:
            values = f" {row.values[0].upper()}{row.values[1:]}." if row.values else ""
            lines += _comment(f"{row.help}{values}{f' ({row.flag})' if row.flag else ''}")
            if row.default is None:
                lines += [f"# {row.key} = {_toml(row.example)}", ""]
            else:
                lines += [f"{row.key} = {json.dumps(row.default)}", ""]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    """Write a value as TOML, with tables on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def schema() -> dict[str, Any]:
    """Make the JSON schema of a settings file, with help texts, ranges and choices."""
    document: dict[str, Any] = msgspec.json.schema(Config)
    classes: list[type[Record]] = [*FLAGGED.values(), Placement, Price]
    for settings in classes:
        properties = document["$defs"][settings.__name__]["properties"]
        for key, note in notes_of(settings).items():
            properties[key] |= {"description": note.help, **(note.range.schema if note.range else {})}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of selfreflect",
        **document,
    }
