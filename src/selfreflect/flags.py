"""Declarations of settings: flag, help text and range of each field, with checks of values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from selfreflect.errors import ConfigError, excerpt


@dataclass(frozen=True)
class Range:
    """Range of values that a field accepts."""

    description: str
    includes: Callable[[Any], object]
    schema: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The range as a JSON schema, if it has a keyword for it."""


@dataclass(frozen=True)
class Flag:
    """Flag that sets a field, with its help text and accepted values."""

    usage: str
    """Usage as ``"--limit N"``, or ``"--writer"`` for switches and listed values; empty if only files set the
    field."""
    help: str
    _: KW_ONLY
    default: str | None = None
    """Default that ``--help`` shows instead of the field's own."""
    negative: str = ""
    """The flag that turns the field off."""
    range: Range | None = None
    example: Any = None
    """A value for the template of a settings file, if the field has no default."""

    @property
    def name(self) -> str:
        return self.usage.partition(" ")[0]


def between(low: int, high: int) -> Range:
    """Make a range of whole numbers from ``low`` to ``high``."""
    limits = {"minimum": low, "maximum": high}
    return Range(f"from {low:,} to {high:,}", lambda value: low <= value <= high, limits)


POSITIVE = Range("at least 1", lambda value: value >= 1, {"minimum": 1})
DRAWS = between(1, 1_000_000)
"""Range of the number of texts for one question, all of which are in memory."""
ZERO_OR_MORE = Range("0 or more", lambda value: 0 <= value < math.inf, {"minimum": 0})
SHARE = Range("in (0, 1]", lambda value: 0 < value <= 1, {"exclusiveMinimum": 0, "maximum": 1})
SECONDS = Range("a number of seconds above 0", lambda value: 0 < value < math.inf, {"exclusiveMinimum": 0})
CPUS = Range("above 0", lambda value: 0 < value < math.inf, {"exclusiveMinimum": 0})
GPUS = Range(
    "a fraction of one GPU or a whole number",
    lambda value: 0 <= value <= 1 or (value > 1 and value.is_integer()),
    {"minimum": 0},
)


@cache
def notes_of(settings: type[msgspec.Struct]) -> dict[str, Flag]:
    """Look up the declaration of each field of a settings class."""
    notes: dict[str, Flag] = {}
    for field, hint in get_type_hints(settings, include_extras=True).items():
        for note in getattr(hint, "__metadata__", ()):
            notes[field] = note
    return notes


def fields_of(settings: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """Look up the fields of a settings class by name, with their defaults."""
    return {field.name: field for field in msgspec.structs.fields(settings)}


def flags_of(settings: type[msgspec.Struct]) -> dict[str, Flag]:
    """Look up the flags of a settings class by field, leaving out fields that only files set."""
    return {field: note for field, note in notes_of(settings).items() if note.usage}


@cache
def types_of(settings: type[msgspec.Struct]) -> dict[str, Any]:
    """Look up the type of each field of a settings class."""
    return get_type_hints(settings)


@cache
def choices_of(settings: type[msgspec.Struct], field: str) -> list[str]:
    """List the words that a field accepts; empty if its type does not list any."""
    hint = types_of(settings)[field]
    for part in (hint, *get_args(hint)):  # an optional field has the list inside
        if get_origin(part) is Literal:
            return list(filter(None, get_args(part)))
    return []


_VALUES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    tuple: "a list of texts",
    dict: "a table, or as an option a JSON object",
}


def checked_value(settings: type[msgspec.Struct], field: str, value: Any, name: str) -> Any:
    """Convert a value to the type of a field.

    Args:
        name: what messages call the field, such as ``answers.num_answers``.

    Raises:
        ConfigError: the value is of another type, not among the words of the field, or out of its range.
    """
    hint = types_of(settings)[field]
    note = notes_of(settings).get(field)
    choices = choices_of(settings, field)
    # an optional field has its type inside a union, a list or a table has it as its origin
    parts = (hint, get_origin(hint), *get_args(hint), *map(get_origin, get_args(hint)))
    kinds = [_VALUES[part] for part in parts if part in _VALUES]
    values_text = f"one of {', '.join(choices)}" if choices else "".join(kinds[:1])
    try:
        # paths are texts in a file of settings
        value = msgspec.convert(value, hint, dec_hook=lambda custom, plain: custom(plain))
    except (msgspec.ValidationError, TypeError):
        is_valid = False
    else:
        is_valid = True
    if is_valid and value is not None and note is not None and note.range is not None:
        values_text = note.range.description
        is_valid = bool(note.range.includes(value))
    if not is_valid:
        value_text = (
            str(value).lower() if isinstance(value, int | float) else excerpt(value)
        )  # True, as in TOML
        raise ConfigError(
            f"{name} must be {values_text}, not {value_text}",
            code="value",
            remedy=f"Give {{{name}}} another value.",
            key=name,
            value=value,
        )
    return value


def check_values(settings: msgspec.Struct, section: str = "") -> None:
    """Check every value against its range and choices.

    Raises:
        ConfigError: a value is out of range; the message names the key, with its section if there is one.
    """
    fields = fields_of(type(settings))
    for field in notes_of(type(settings)):
        value = getattr(settings, field)
        if value != fields[field].default:
            checked_value(type(settings), field, value, f"{section}.{field}" if section else field)
