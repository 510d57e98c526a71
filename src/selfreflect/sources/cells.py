"""Values of cells: right answers, choices, numbers, images and metadata."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from string import ascii_uppercase
from typing import Any

from selfreflect.records import Scalar
from selfreflect.sources.names import GOLD_NAMES, plain_name

METADATA_CHARACTERS = 1000
"""Longest text in characters that becomes question metadata."""
METADATA_COLUMNS = 100
_DATA_ADDRESS = re.compile(r"\s*data:(?:image|audio|video)/", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"<(?:image|audio|video) \d+>|"
    r"(?:\A|\n)[^\S\n]*+<(?:image|audio|video)>|<(?:image|audio|video)>[^\S\n]*+(?:\n|\Z)|"
    r"!\[[^\]\n]*\]\([^()\s]+\)",  # in Markdown
    re.IGNORECASE,
)
_PARTS = {
    **dict.fromkeys("image image_url input_image audio input_audio video video_url input_file".split(), ""),
    "file": "file",
    "document": "source",
}
"""Types of a turn's parts that are not text, each with the object that such a part contains; objects about
documents may have these types, too."""


def holds_image(value: object) -> bool:
    """Check whether a value is or names an image, sound or film, whatever its column's name."""
    if isinstance(value, str):
        return bool(_DATA_ADDRESS.match(value) or _PLACEHOLDER.search(value))
    if isinstance(value, dict):
        is_feature = value.keys() >= {"bytes", "path"} and any(value.values())
        content = _PARTS.get(str(value.get("type")))
        is_part = content == "" or (content is not None and isinstance(value.get(content), dict))
        return is_feature or is_part
    return isinstance(value, list) and any(map(holds_image, value))


def joined_texts(value: object) -> object:
    """Join the texts of a list, also of lists in it such as ``["title", ["sentence", …]]``, with blank lines;
    return other values unchanged."""
    if not isinstance(value, list):
        return value
    parts = [joined_texts(entry) for entry in value]
    return "\n\n".join(map(str, parts)) if parts and all(isinstance(part, str) for part in parts) else value


def is_divided(value: object, name: str) -> bool:
    """Check whether a text in a plural column holds several right answers, ``A; B``."""
    return isinstance(value, str) and ";" in value.strip(" ;") and plain_name(name) in _SEVERAL_GOLD


_SEVERAL_GOLD = {name for name in GOLD_NAMES if name.endswith("s")}


def right_choice(target: Any, choices: object) -> Any:
    """Find the right choice's text by number or letter, or return the target unchanged.

    A number that no choice has stands for none.
    """
    if isinstance(target, list):
        chosen = [right_choice(entry, choices) for entry in target]
        return chosen if all(isinstance(text, str) for text in chosen) else target
    texts = choices.get("text") if isinstance(choices, Mapping) else choices
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        return target
    labels = choices.get("label") if isinstance(choices, Mapping) else None
    has_labels = isinstance(labels, list) and len(labels) == len(texts)
    letters = list(map(str, labels if has_labels and labels else ascii_uppercase[: len(texts)]))
    if isinstance(target, bool) or not isinstance(target, str | int) or target in texts:
        return target
    # choices that are called 1 to 4 are not counted from 0
    if str(target) in letters:
        return texts[letters.index(str(target))]
    if isinstance(target, str) and not target.isdecimal():
        return target
    return texts[int(target)] if is_place(target, texts) else None


def usual_choices(choices: object) -> object:
    """Convert choices as numbers, as objects with ``text`` and ``label``, or as texts by label."""
    if isinstance(choices, Mapping) and choices and "text" not in choices:
        if all(isinstance(text, str) for text in choices.values()):
            return {"text": [*choices.values()], "label": [*choices]}
    elif isinstance(choices, list) and choices:
        if all(type(choice) in (int, float) for choice in choices):
            return list(map(str, choices))
        if all(isinstance(choice, Mapping) and choice.keys() >= {"text", "label"} for choice in choices):
            return {name: [choice[name] for choice in choices] for name in ("text", "label")}
    return choices


def is_place(target: str | int, texts: Sequence[object]) -> bool:
    """Check whether a number or its digits are a position in a list."""
    # Python refuses to convert thousands of digits
    is_number = isinstance(target, int) or (target.isdecimal() and len(target) < _LONGEST_PLACE)
    return is_number and 0 <= int(target) < len(texts)


_LONGEST_PLACE = 20


def gold_texts(value: object) -> tuple[str, ...]:
    """Read the spellings of a right answer from a text, number, truth value or list.

    Of an object the texts are in ``value`` and ``aliases``, as in TriviaQA, where ``"<unk>"`` marks a
    withheld answer; or in ``text``, as in SQuAD, ``spans``, as in DROP, or ``input_text``, as in CoQA.
    Entries may be objects with one text.

    Raises:
        ValueError: it is something else; the message says what.
    """
    values = value if isinstance(value, list | tuple) else [value]
    if isinstance(value, Mapping):
        value = {plain_name(name): entry for name, entry in value.items()}
        values = [value]
    if isinstance(value, Mapping) and "value" in value:
        aliases = value.get("aliases") or []
        aliases = aliases if isinstance(aliases, list) else [aliases]
        values = [text for text in [value["value"], *aliases] if text != "<unk>"]
    elif isinstance(value, Mapping):
        lists = [value[name] for name in GOLD_LISTS if isinstance(value.get(name), list)]
        values = lists[0] if lists else values
    texts = []
    for number, entry in enumerate(values, 1):
        if isinstance(entry, Mapping):
            texts_in = (entry.get(name) for name in ("text", "answer", "value"))
            entry = next((text for text in texts_in if isinstance(text, str)), entry)
        if isinstance(entry, bool):
            texts.append("true" if entry else "false")
        elif isinstance(entry, float) and not math.isfinite(entry):
            raise ValueError(f"{entry:g} is not an answer")
        elif isinstance(entry, float) and entry.is_integer():  # 204.0 stands for 204 beside missing ones
            texts.append(str(int(entry)))
        elif isinstance(entry, int | float):
            texts.append(str(entry))
        elif isinstance(entry, str):
            texts.append(entry)
        elif entry is not None:
            where = f"entry {number} is" if isinstance(value, list) else "it is"
            raise ValueError(f"{where} {type_name(entry)}")
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


GOLD_LISTS = ("text", "spans", "input_text")
"""Fields of an object with the spellings of a right answer."""

_PERCENT = re.compile(r"(.+?)\s*(?:%|％|per ?cent)", re.IGNORECASE)
# One comma before decimals, and none that may divide thousands.
_DECIMAL_COMMA = re.compile(r"[+-]?(?!0*[1-9]\d{0,2},\d{3}$)\d+,\d+")


def is_percent(value: object) -> bool:
    """Check whether a number has a per cent sign or word."""
    return isinstance(value, str) and _PERCENT.fullmatch(value.strip()) is not None


def number_in(value: object) -> float:
    """Parse a number as written in files: 0.85, ``"85%"``, ``"72 per cent"``, or ``"0,85"``.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, str):
        percent = _PERCENT.fullmatch(value.strip())
        text = percent[1] if percent else value.strip()
        number = float(text.replace(",", ".") if _DECIMAL_COMMA.fullmatch(text) else text)
        return number / 100 if percent else number
    # an integer may be too large for a float
    if isinstance(value, float) or (type(value) is int and abs(value) < 1e300):
        return float(value)
    raise ValueError(f"{type_name(value)} is not a number")


_TYPE_NAMES = {
    type(None): "null",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


def type_name(value: object) -> str:
    """Name the type of a value for a message."""
    return _TYPE_NAMES.get(type(value), type(value).__name__)


def scalar(value: object) -> Scalar | None:
    """Convert a value to question metadata; None if missing, blank, too long, not finite or an object."""
    if isinstance(value, list) and value and all(isinstance(entry, str | int | float) for entry in value):
        if any(isinstance(entry, float) and not math.isfinite(entry) for entry in value):
            return None
        value = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str):
        return value if value.strip() and len(value) <= METADATA_CHARACTERS else None
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else None  # what every reader of JSON can hold
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, date | datetime):
        return value.isoformat()
    return None


def metadata(fields: Mapping[str, object], columns: Iterable[str]) -> dict[str, Scalar]:
    """Collect question metadata from columns and from a ``metadata`` object."""
    values: dict[str, Scalar] = {}
    for column in columns:
        cell = fields.get(column)
        entries = cell.items() if column == "metadata" and isinstance(cell, dict) else [(column, cell)]
        for name, entry in entries:
            value = scalar(entry)
            if value is not None and len(values) < METADATA_COLUMNS:
                values[name] = value
    return values
