"""JSON answers, and equality of their values."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from selfreflect.errors import ConfigError, DataError, excerpt, optional
from selfreflect.grouping import normal_form
from selfreflect.quantities import quantities, readable
from selfreflect.uncertainty.classes import WITHOUT_MODEL, ClassRule

Node = Mapping[str, Any]
"""Part of a JSON schema; empty if nothing is known."""

LONGEST = 1_000_000
"""Maximum length in characters of an answer that is read as JSON."""
DEEPEST = 64
"""Maximum number of levels of nesting."""
LARGEST_SCHEMA = 200_000
"""Maximum length in characters of an untrusted schema, since larger ones take seconds."""
MOST_REFERENCES = 50_000
"""Maximum number of references followed in an untrusted schema, which could branch endlessly."""

# in one line only before what opens an object, a list or a text: the word "true" would be the language
_OPENING = re.compile(r"(```|~~~)[\w-]*[ \t]*(?:\r?\n|(?=[\[{\"]))")


class Missing:
    """Marker for a missing key."""

    def __repr__(self) -> str:
        return "(missing)"


MISSING = Missing()


Fault = Literal["not_json", "number", "duplicate_key", "surrogate", "too_deep", "too_long", "schema"]
FAULTS: dict[Fault, str] = {
    "not_json": "not JSON",
    "number": "a number beyond the range of floats, or a value such as NaN",
    "duplicate_key": "an object with the same key twice",
    "surrogate": "half of a character",
    "too_deep": f"nested in more than {DEEPEST} levels",
    "too_long": f"longer than {LONGEST:,} characters",
    "schema": "not what the schema allows",
}


class Unreadable(NamedTuple):
    """Reason for an answer without fields."""

    reason: Fault


class FieldValue(NamedTuple):
    """A field's displayed value, with its comparison key."""

    text: str
    key: str | None
    """Comparison key, equal for equal values; None for a text compared by a class rule."""


ABSENT = FieldValue("(missing)", "missing")
INVALID = FieldValue("(no valid JSON)", "invalid")
OBJECT = FieldValue("(object)", "object")
_MARK = re.compile(r"\((?:missing|no valid JSON|object|[\d,]+ items?)\)|true|false|null", re.IGNORECASE)
"""Texts of values that are not text in an answer."""
_CODE = re.compile(r"0\d+")
"""Digits with a significant leading zero, such as a postcode."""


class _RefusedError(Exception):
    """Raised to stop parsing an answer."""


def parse(text: str) -> Any:
    """Parse an answer as JSON with exact numbers, ignoring a surrounding code fence.

    Nothing is repaired. Numbers with a point or an exponent are :class:`~decimal.Decimal`.

    Returns:
        The value, or why it is :class:`Unreadable`.
    """
    # json.loads of a huge text would take memory before any other limit applies
    if len(text) > LONGEST:
        return Unreadable("too_long")
    try:
        value = json.loads(
            without_fence(text),
            parse_float=_number,
            parse_int=_number,
            parse_constant=_no_number,
            object_pairs_hook=_object,
        )
    except _RefusedError as refusal:
        return refusal.args[0]
    except ValueError:
        return Unreadable("not_json")
    except RecursionError:
        return Unreadable("too_deep")
    return _fault(value) or value


def without_fence(text: str) -> str:
    """Remove a code fence around a text."""
    # no pattern of the whole: a model that writes nothing but spaces would take it quadratic time
    stripped = text.strip().removeprefix("\ufeff")
    opening = _OPENING.match(stripped)
    # the closing fence must be of the same kind
    end = len(stripped) - len(opening[1]) if opening else 0
    if opening is None or not stripped.endswith(opening[1]) or opening.end() > end:
        return text.removeprefix("\ufeff")
    return stripped[opening.end() : end].rstrip(" \t").removesuffix("\n").removesuffix("\r")


def _number(digits: str) -> Decimal:
    # beyond the range of floats no reader of JSON agrees with another
    try:
        number = Decimal(digits)
        size = abs(float(number))
    except (ArithmeticError, ValueError, OverflowError):
        raise _RefusedError(Unreadable("number")) from None
    if math.isinf(size) or (size == 0 and number != 0):
        raise _RefusedError(Unreadable("number"))
    return number if number else Decimal(0)  # written out, 0e-99999999 has as many digits


def _no_number(name: str) -> Any:
    raise _RefusedError(Unreadable("number"))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    # readers of JSON disagree on which of two equal keys counts
    if len(members) < len(pairs):
        raise _RefusedError(Unreadable("duplicate_key"))
    return members


def _fault(value: Any) -> Unreadable | None:
    """Find excessive nesting or lone surrogates, without recursion."""
    # level by level: recursion would overflow on the nesting that is looked for
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        texts = [item for item in level if isinstance(item, str)]
        texts += [key for item in level if isinstance(item, dict) for key in item]
        if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
            return Unreadable("surrogate")
        nested = (item for item in level if isinstance(item, dict | list))
        level = [child for part in nested for child in (part.values() if isinstance(part, dict) else part)]
        if not level:
            return None
    return Unreadable("too_deep")


def number_text(number: Decimal | int) -> str:
    """Write a number exactly, in its shortest notation without exponent."""
    digits = f"{Decimal(number):f}"
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    # -0 and 0 are one number
    return "0" if digits in ("-0", "") else digits


def scalar(value: Any, node: Node) -> FieldValue:
    """Make a field's value from a scalar or a list of scalars.

    A number that is written as text is a number only where the schema says so, and a text is a date where
    it is one as a whole, with its order of day and month known.
    """
    if value is MISSING:
        return ABSENT
    if isinstance(value, dict):
        return OBJECT
    if value is None or isinstance(value, bool):
        return FieldValue(json.dumps(value), f"literal {json.dumps(value)}")
    if isinstance(value, Decimal):
        # a rule of the schema compares what is else equal or not
        key = None if setting(node, "classes") else f"number {number_text(value)}"
        return FieldValue(number_text(value), key)
    if isinstance(value, list):
        members = {signature(item): item for item in value}
        return FieldValue(dumped([members[key] for key in sorted(members)]), f"set {sorted(members)}")
    return _text(value, node)


def _text(text: str, node: Node) -> FieldValue:
    quoted_text = json.dumps(text, ensure_ascii=False)
    shown = text if text.strip() and not _MARK.fullmatch(text) else quoted_text
    # an enum's members are compared letter by letter
    if "enum" in node or "const" in node or not text.strip():
        return FieldValue(shown, f"text {text}")
    if setting(node, "classes"):
        return FieldValue(shown, None)
    moment = _moment(text, str(node.get("format", "")))
    if moment:
        return FieldValue(text, f"date {moment}")
    # a text that looks like another kind of value, or like one of our marks, keeps its quotes
    if shown != text or _CODE.fullmatch(text) or not isinstance(parse(text), Unreadable):
        return FieldValue(quoted_text, f"text {text.casefold()}")
    return FieldValue(text, None)


_WEEKDAY = re.compile(
    r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch)"
    r"(?:\.?,|\.|) +(?=\S*\d|\S+ \d)",
    re.IGNORECASE,
)
_YEAR_FIRST = re.compile(r"(\d{4})[/.](\d{1,2})[/.](\d{1,2})")
_MONTH_IN_LETTERS = re.compile(r"(\d{1,2})-([^\W\d_]{3,9})-(\d{4})")
_TWO_NUMBERS_FIRST = re.compile(r"(\d{1,2})[/-](\d{1,2})[/-](\d{4})")


def _plain_date(text: str) -> str:
    """Write a date without weekday, and with the year first if the order is clear."""
    text = _WEEKDAY.sub("", text, count=1) if _WEEKDAY.match(text) else text
    if match := _YEAR_FIRST.fullmatch(text):
        return "-".join(match.groups())
    if match := _MONTH_IN_LETTERS.fullmatch(text):
        return " ".join(match.groups())
    if match := _TWO_NUMBERS_FIRST.fullmatch(text):
        first, second, year = match.groups()
        # 12/31/2020 has one reading, 1/2/2020 has two
        if (int(first) > 12) != (int(second) > 12):  # one of them is no month
            day, month = (first, second) if int(first) > 12 else (second, first)
            return f"{year}-{month}-{day}"
    return text


@lru_cache(maxsize=2**14)
def _moment(text: str, form: str) -> str:
    """Write a date in ISO 8601, with any time in UTC; empty for other texts."""
    if not any(map(str.isdigit, text)) or len(text) > 40:
        return ""
    if "-" in text or form in ("date", "date-time"):
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            pass
        else:
            # a date with the time 00:00 is a date, unless the schema asks for a time
            if form != "date-time" and not any(moment.timetuple()[3:6]):
                return moment.date().isoformat()
            try:
                return (moment.astimezone(UTC) if moment.tzinfo else moment).isoformat()
            except OverflowError:  # before the year 1 or after 9999 in UTC
                return moment.isoformat()
    plain = _plain_date(readable(text).strip())
    found_quantities = quantities(plain)
    # a date must be the whole text, not a part of it
    if len(found_quantities) == 1 and (found_quantities[0].start, found_quantities[0].end) == (0, len(plain)):
        parts = found_quantities[0].text.split("-")
        if len(parts) == 3 and all(map(str.isdigit, parts)):
            try:
                return date(*map(int, parts)).isoformat()
            except ValueError:
                return ""
    return ""


def _steps(pointer: str) -> list[str]:
    # in this order: ~01 stands for ~1
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _step(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name, MISSING)
    is_place = isinstance(value, list) and name.isdecimal() and int(name) < len(value)
    return value[int(name)] if is_place else MISSING


def value_at(value: Any, pointer: str) -> Any:
    """Look up the value at a JSON Pointer, or return ``MISSING``."""
    for name in _steps(pointer):
        value = _step(value, name)
    return value


def put(value: Any, pointer: str, part: Any) -> bool:
    """Set or remove (``MISSING``) the value at a JSON Pointer, and return whether that was possible."""
    *steps, last = _steps(pointer) or [""]
    for name in steps:
        value = _step(value, name)
    if isinstance(value, list) and _step(value, last) is not MISSING and part is not MISSING:
        value[int(last)] = part
        return True
    if not pointer or not isinstance(value, dict):
        return False
    if part is MISSING:
        return value.pop(last, MISSING) is not MISSING
    value[last] = part
    return True


def dumped(value: Any) -> str:
    """Write a parsed value as JSON with exact numbers."""
    if isinstance(value, Decimal):
        return number_text(value)
    if isinstance(value, dict):
        members = (f"{json.dumps(key, ensure_ascii=False)}: {dumped(item)}" for key, item in value.items())
        return f"{{{', '.join(members)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(dumped, value))}]"
    return json.dumps(value, ensure_ascii=False)


def signature(value: Any, schema: Schema | None = None, node: Node | None = None) -> str:
    """Write a text for comparison: keys sorted, lists as sets, texts in normal form.

    Args:
        schema, node: what is known of the value; lists whose order counts are none.
    """
    node = node or {}
    if isinstance(value, dict):
        members = (
            f"{key!r}: {signature(value[key], schema, schema.member(node, key) if schema else None)}"
            for key in sorted(value)
        )
        return f"{{{', '.join(members)}}}"
    if isinstance(value, list):
        items = [
            signature(item, schema, schema.item(node, place) if schema else None)
            for place, item in enumerate(value)
        ]
        # order counts only where the schema says so, and repetitions never do
        return f"[{', '.join(items if is_ordered(node) else sorted({*items}))}]"
    identity = scalar(value, node)
    return f"text {normal_form(str(value))}" if identity.key is None else identity.key


class Schema:
    """A JSON schema, with the kinds of fields and the validation of answers.

    References within the document are followed; nothing is fetched. A ``format`` says how a text is compared
    and makes no answer invalid.

    Args:
        trusted: whether patterns are checked, all references followed, and any size read. Those of strangers
            may take a short text years.

    Raises:
        DataError: the document is no schema.
        MissingExtraError: without the ``fields`` extra.
    """

    def __init__(self, document: Node, *, trusted: bool = True) -> None:
        with optional("A JSON schema", "fields"):
            from jsonschema import exceptions, validators
            from referencing import Registry
            from referencing.exceptions import Unresolvable
        self.document = document
        self._unresolvable = Unresolvable
        self._parts: dict[int, Node] = {}
        """Resolved parts of allOf, by identity."""
        if not isinstance(document.get("$schema", ""), str):
            raise DataError("not a JSON schema: its $schema is not a text", code="schema")
        kind = validators.validator_for(document, default=validators.validator_for({}))
        try:
            if not trusted and len(json.dumps(document)) > LARGEST_SCHEMA:
                raise DataError(f"it is larger than {LARGEST_SCHEMA:,} characters", code="schema")
            kind.check_schema(document)
            _check_rules(document)
            # a pattern may take exponential time on a short text
            checked = document if trusted else _without_patterns(document)
        except exceptions.SchemaError as error:
            raise DataError(f"not a JSON schema: {excerpt(error.message)}", code="schema") from None
        except RecursionError:
            raise DataError("not a JSON schema: it is nested too deeply", code="schema") from None
        if not trusted:
            followed = itertools.count()
            kind = validators.extend(
                kind,
                {
                    name: _bounded(keyword, followed)
                    for name, keyword in kind.VALIDATORS.items()
                    if name in ("$ref", "$dynamicRef", "$recursiveRef")
                },
            )
        self._validator = kind(checked, registry=Registry())

    @classmethod
    def load(cls, path: Path) -> Schema:
        """Read a schema from a file.

        Raises:
            DataError: it cannot be read, or is no JSON object or no schema.
        """
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(f"{excerpt(str(path), 200)} cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise DataError(f"{excerpt(str(path), 200)} is not a JSON schema: it must hold a JSON object")
        return cls(document)

    def read(self, value: Any) -> Any:
        """Convert text to numbers where the schema requires numbers, and validate.

        Returns:
            The value, or why it is :class:`Unreadable`.
        """
        value = self._converted(value, self.document)
        return value if self.allows(value) else Unreadable("schema")

    def allows(self, value: Any) -> bool:
        """Check whether a parsed value is valid as written. Raises the errors of the class."""
        try:
            # jsonschema knows no Decimal
            return bool(self._validator.is_valid(json.loads(dumped(value))))
        except RecursionError:
            return False
        except self._unresolvable as error:
            raise DataError(
                f"the schema refers to a definition that it does not hold: {excerpt(str(error))}",
                code="schema",
            ) from None

    def _converted(self, value: Any, node: Node) -> Any:
        node = self.resolved(node)
        if isinstance(value, dict):
            return {key: self._converted(item, self.member(node, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._converted(item, self.item(node, place)) for place, item in enumerate(value)]
        types = set(_types(node))
        # a text stays a text where the schema allows one
        if not isinstance(value, str) or "string" in types:
            return value
        spelled = parse(value.strip().lower())
        if isinstance(spelled, bool):
            return spelled if "boolean" in types else value
        return spelled if isinstance(spelled, Decimal) and {"number", "integer"} & types else value

    def resolved(self, node: Node) -> Node:
        """Resolve references and nullable alternatives, and join allOf parts."""
        for _ in range(DEEPEST):
            reference = node.get("$ref")
            alternatives = node.get("anyOf") or node.get("oneOf") or node.get("allOf") or ()
            # keys beside a reference hold, too
            if isinstance(reference, str) and reference.startswith("#"):
                node = {**self._at(reference), **{key: node[key] for key in node if key != "$ref"}}
                continue
            # a union with null is the other type, and null
            others = [part for part in alternatives if isinstance(part, Mapping) and part != {"type": "null"}]
            if len(others) > 1 and alternatives is node.get("allOf"):
                return self._joined(node, others)
            if len(others) != 1:
                return node
            node = {**others[0], **{key: node[key] for key in node if key not in ("anyOf", "oneOf", "allOf")}}
        return node

    def _joined(self, node: Node, parts: Sequence[Node]) -> Node:
        """Join schemas that all apply, with all properties and required keys."""
        whole = {key: value for key, value in node.items() if key != "allOf"}
        resolved = [whole, *map(self._once_resolved, parts)]
        properties = {key: part for item in resolved for key, part in part_of(item, "properties").items()}
        lists = [item["required"] for item in resolved if isinstance(item.get("required"), list)]
        required = list(dict.fromkeys(key for keys in lists for key in keys if isinstance(key, str)))
        # reversed, so that the schema's own keys win over those of its parts
        joined = {key: value for item in reversed(resolved) for key, value in item.items()}
        return {**joined, "properties": properties, "required": required}

    def _once_resolved(self, part: Node) -> Node:
        """Resolve a part of allOf once, to avoid endless recursion."""
        if id(part) not in self._parts:
            # what a part that holds itself is, while it is resolved
            self._parts[id(part)] = part
            with suppress(RecursionError):
                self._parts[id(part)] = self.resolved(part)
        return self._parts[id(part)]

    def _at(self, reference: str) -> Node:
        part: Any = self.document
        for token in _steps(reference):
            part = part.get(token) if isinstance(part, Mapping) else None
        return part if isinstance(part, Mapping) else {}

    def member(self, node: Node, key: str) -> Node:
        """Look up the schema of an object's key."""
        part = part_of(node, "properties").get(key, node.get("additionalProperties"))
        return self.resolved(part) if isinstance(part, Mapping) else self._of_alternatives(node, key)

    def _of_alternatives(self, node: Node, key: str) -> Node:
        """Look up a key in the objects of a union, without defaults of single alternatives."""
        objects = [item for item in node.get("anyOf") or node.get("oneOf") or () if isinstance(item, Mapping)]
        found = [part_of(self._once_resolved(item), "properties").get(key) for item in objects]
        parts = [{**self.resolved(part)} for part in found if isinstance(part, Mapping)]
        for part in parts:
            # a default of one kind of object is none of the others
            part.pop("default", None)
        if parts and all("const" in part or isinstance(part.get("enum"), list) for part in parts):
            return {"enum": [value for part in parts for value in part.get("enum") or [part.get("const")]]}
        return parts[0] if len(parts) == 1 else {"anyOf": parts}

    def item(self, node: Node, place: object = None) -> Node:
        """Look up the schema of a list's item, by index if positions matter."""
        part = node.get("items")
        places = node.get("prefixItems") or part
        if isinstance(places, list) and isinstance(place, int):
            part = places[place] if place < len(places) else node.get("additionalItems", part)
        return self.resolved(part) if isinstance(part, Mapping) else {}


def _bounded(keyword: Callable[..., Iterable[Any]], followed: Iterator[int]) -> Callable[..., Iterable[Any]]:
    """Limit how many references a validator's keyword follows. Beyond the limit, DataError is raised."""

    def check(*args: Any) -> Iterator[Any]:
        if next(followed) >= MOST_REFERENCES:
            raise DataError(f"more than {MOST_REFERENCES:,} of its references were followed", code="schema")
        yield from keyword(*args) or ()

    return check


def _check_rules(part: Any) -> None:
    """Refuse unknown or model-based class rules with DataError."""
    if isinstance(part, list):
        for item in part:
            _check_rules(item)
    if not isinstance(part, Mapping):
        return
    for value in part.values():
        _check_rules(value)
    rule = setting(part, "classes")
    if rule is None:
        return
    try:
        # a rule that loads a model may not come from a stranger's file
        if not isinstance(rule, str) or rule.partition(":")[0] not in WITHOUT_MODEL:
            raise ConfigError(f"a field has one of the class rules {', '.join(WITHOUT_MODEL)}")
        ClassRule(rule)
    except ConfigError as error:
        raise DataError(f"the schema names the class rule {excerpt(rule)}: {error}", code="schema") from None


def _without_patterns(part: Any, *, names: bool = False) -> Any:
    """Remove regular expressions from a schema. With ``names``, ``part`` maps keys to schemas."""
    if isinstance(part, list):
        return [_without_patterns(item) for item in part]
    if not isinstance(part, Mapping):
        return part
    result = {}
    for key, value in part.items():
        if names or key not in ("pattern", "patternProperties", "enum", "const", "default"):
            result[key] = _without_patterns(
                value, names=not names and key in ("properties", "$defs", "definitions")
            )
        elif key not in ("pattern", "patternProperties"):
            result[key] = value
    if "patternProperties" in part and not names:
        result.pop("additionalProperties", None)  # it is about what no pattern names
        result.pop("unevaluatedProperties", None)
    return result


def _types(node: Node) -> list[str]:
    kinds = node.get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)


def part_of(node: Node, name: str) -> Node:
    """Look up a part of a schema; empty if there is none."""
    part = node.get(name)
    return part if isinstance(part, Mapping) else {}


def is_ordered(node: Node) -> bool:
    """Check whether list positions matter, by declaration or item schemas."""
    return bool(setting(node, "ordered") or node.get("prefixItems") or isinstance(node.get("items"), list))


def setting(node: Node, name: str) -> Any:
    """Look up a setting under ``x-selfreflect`` in a schema."""
    return part_of(node, "x-selfreflect").get(name)


def default_of(node: Node) -> Any:
    """Return the schema's default for a missing key."""
    value = parse(json.dumps(node["default"])) if "default" in node else MISSING
    return MISSING if isinstance(value, Unreadable) else value
