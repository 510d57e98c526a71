"""Say where in a settings file a value stands that is wrong, and what was expected there."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from selfreflect.errors import excerpt
from selfreflect.flags import choices_of, fields_of, flags_of, notes_of
from selfreflect.settings.sections import FLAGGED

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text in quotes",
    "array": "a list",
    "object": "a table",
}
"""What msgspec's names of types are called in TOML."""

_MESSAGE = re.compile(r"Expected `(?P<expected>\w+).*?got `(?P<got>\w+)`.*?\$\.(?P<place>.+)`")

_CHOICE = re.compile(r"Invalid enum value (?P<got>.*) - at `\$\.(?P<place>\w+\.\w+)`", re.DOTALL)


def type_error(error: msgspec.ValidationError, path: Path | None, settings: Mapping[str, Any]) -> str:
    """Explain a value of the wrong type: the file, the line, the key, what was expected, and an example.

    Args:
        path: the file of settings, if one was read.
        settings: section -> key -> value, as they were checked.
    """
    match = _MESSAGE.search(str(error)) or _CHOICE.search(str(error))
    if match is None:
        return f"{path or 'settings'}: {error}"
    is_element = match["place"].endswith("]")
    *tables, key = re.sub(r"\[[^]]*\]", "", match["place"]).split(".")
    section = ".".join(tables)
    value: Any = settings
    for name in (*tables, key):
        value = value.get(name) if isinstance(value, Mapping) else None
    if match.re is _CHOICE:
        kind = f"one of {', '.join(choices_of(FLAGGED[section], key))}"
    else:
        kind = _WORDS.get(match["expected"], match["expected"])
    if is_element:
        kind = f"a list, each of it {kind}"
    problem = f"expected {kind}, got {_describe(value, match['got'])}"
    if path is None:
        flag = flags_of(FLAGGED[section]).get(key) if section in FLAGGED else None
        name = f"{flag.name} ({section}.{key})" if flag else f"{section}.{key}"
        return f"settings: {name}: {problem}"
    line = _line(path, section, key)
    place = f"{path}, line {line}" if line else str(path)
    example = _example(section, key)
    hint = f". Write it as in: {example}" if example else ""
    return f"{place}: {section}.{key}: {problem}{hint}"


def _describe(value: Any, got: str) -> str:
    if isinstance(value, str):
        return f"the text {excerpt(value)}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, list | tuple):
        return f"the list {excerpt(json.dumps(value, default=str), 80)[1:-1]}"
    return _WORDS.get(got, f"a {got}")


def _example(section: str, key: str) -> str:
    """``num_answers = 50``: the default of a key, or another value that it can have."""
    kind = FLAGGED.get(section)  # prices and Ray's actors have sections in sections
    if kind is None or key not in fields_of(kind):
        return ""
    value = fields_of(kind)[key].default
    if value in (None, ""):
        value = next(iter(choices_of(kind, key)), getattr(notes_of(kind).get(key), "example", None))
    return "" if value is None else f"{key} = {json.dumps(value)}"


def _line(path: Path, section: str, key: str) -> int | None:
    """The number of the line that sets a key, as far as that is easily seen."""
    current = ""
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
        text = line.strip()
        if text.startswith("["):
            current = text.strip("[] \t")
        elif re.match(rf"[\"']?{re.escape(key)}[\"']?\s*=", text) and current.startswith(section):
            return number
    return None


def flags_in_file(message: str, path: Path, command_line: Mapping[str, Any]) -> str:
    """Add to a message about flags where the file at ``path`` sets them, since the user has not typed them.

    Args:
        command_line: what the command line sets, by section and key; it goes before the file.
    """
    mentions = {*re.findall(r"--[a-z][a-z-]*", message)}
    try:
        file = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):  # which the message is about
        return message
    lines = []
    for section, settings in FLAGGED.items():
        for key, flag in flags_of(settings).items():
            table = file.get(section)
            is_set = isinstance(table, dict) and key in table and key not in command_line.get(section, {})
            if flag.name in mentions and is_set:
                line = _line(path, section, key)
                at = f", line {line}" if line else ""
                lines.append(f"\n  {flag.name} is {key} in [{section}] of {path}{at}")
    return message + "".join(lines)
