"""How a field of the settings says its flag, its help and the values it takes, and what reads that."""

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
    """Which values a field takes."""

    description: str
    includes: Callable[[float], bool]
    schema: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """The same for a JSON schema, as far as that can say it."""


@dataclass(frozen=True)
class Key:
    """A field that only files set."""

    help: str
    range: Range
    example: Any = 1


@dataclass(frozen=True)
class Flag:
    """How the command line sets a field, and which values the field takes."""

    usage: str
    """``"--limit N"``, or ``"--writer"`` for a field that is on or off, or whose type lists its values."""
    help: str
    _: KW_ONLY
    default: str | None = None
    """What ``--help`` shows if the field's own default does not say it."""
    negative: str = ""
    """The flag that turns the field off."""
    range: Range | None = None
    example: Any = None
    """A value for the template of a settings file, if the field has no default."""

    @property
    def name(self) -> str:
        return self.usage.partition(" ")[0]


def between(low: int, high: int) -> Range:
    """Make the range of whole numbers from ``low`` to ``high``."""
    limits = {"minimum": low, "maximum": high}
    return Range(f"from {low:,} to {high:,}", lambda value: low <= value <= high, limits)


POSITIVE = Range("at least 1", lambda value: value >= 1, {"minimum": 1})
DRAWS = between(1, 1_000_000)
"""Of texts for one question, all of which are in memory."""
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
def notes_of(settings: type[msgspec.Struct]) -> dict[str, Flag | Key]:
    """What is declared about each field of a settings class."""
    notes: dict[str, Flag | Key] = {}
    for field, hint in get_type_hints(settings, include_extras=True).items():
        for note in getattr(hint, "__metadata__", ()):
            notes[field] = note
    return notes


def fields_of(settings: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The fields of a settings class by name, with their defaults."""
    return {field.name: field for field in msgspec.structs.fields(settings)}


def flags_of(settings: type[msgspec.Struct]) -> dict[str, Flag]:
    """The flags of a settings class by field; fields that only TOML files set have none."""
    return {field: note for field, note in notes_of(settings).items() if isinstance(note, Flag)}


@cache
def choices_of(settings: type[msgspec.Struct], field: str) -> list[str]:
    """The words that a field takes; empty if its type does not list them."""
    kind = get_type_hints(settings)[field]
    for one in (kind, *get_args(kind)):  # an optional field has the list inside
        if get_origin(one) is Literal:
            return list(filter(None, get_args(one)))
    return []


def check_values(settings: msgspec.Struct, section: str = "") -> None:
    """Check every value against its range and its words.

    Raises:
        ConfigError: a value is out of range; the message names the flag, and the key if there is a section.
    """
    fields = fields_of(type(settings))
    for field, note in notes_of(type(settings)).items():
        value = getattr(settings, field)
        if value == fields[field].default:
            continue
        key = f"{section}.{field}"
        name = key
        if isinstance(note, Flag):
            name = f"{note.name} ({key})" if section else note.name
        words = choices_of(type(settings), field)
        if words and value not in words:
            raise ConfigError(f"{name} must be one of {', '.join(words)}, not {excerpt(value)}")
        if note.range is not None and not note.range.includes(value):
            raise ConfigError(f"{name} must be {note.range.description}, not {value}")
