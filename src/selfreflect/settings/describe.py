"""The file of ``--config``, described from the settings' own classes: a template with every key, a JSON
schema, and the rows of the page that lists the keys."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from selfreflect.flags import choices_of, fields_of, notes_of
from selfreflect.records import Record
from selfreflect.settings.sections import FLAGGED, SAMPLED_ALIKE, Config, Placement, Price, RayConfig

SCHEMA_FILE = "selfreflect.schema.json"
HEADER = f"""\
#:schema ./{SCHEMA_FILE}
# Settings of selfreflect: pass this file with --config. Options on the command line override it.
# Every key is here with its default; a key behind # has none, and shows an example.
# Editors that know taplo check the file and complete its keys with the schema that the first line names:
#   selfreflect config --schema > {SCHEMA_FILE}
"""
PRICES = {
    "openai:gpt-4o-mini": "What a model costs, in any currency, for --dry-run and serve: a table for each "
    "model, by the name that --model takes."
}


class SettingRow(NamedTuple):
    """Row of a page of settings: one key."""

    key: str
    flag: str
    """Empty if only files set the key."""
    help: str
    values: str
    """Which values it takes, where the help does not say it."""
    default: Any
    example: Any
    """What the template shows if there is no default."""


def sections() -> dict[str, list[SettingRow]]:
    """List the rows of every section, by its name in the file."""
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
    """Write a settings file with every key, its comment and its default."""
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
    """Write a value as TOML; a table on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def schema() -> dict[str, Any]:
    """Make the JSON schema of a settings file, with help, ranges and choices."""
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
