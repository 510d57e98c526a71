"""Read questions with stored answers from a user's file.

A record has ``answers`` (a list of texts), or a ``confidence``, and an ``id`` or a ``question``. It may have
``gold``, ``aliases``, ``response``, ``logprobs``, ``tokens``, ``length`` and ``correct``. In CSV, lists are
written as JSON.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from selfreflect.errors import excerpt
from selfreflect.sources.files import Row, RowIds, listed, parse_rows, read_content, type_name
from selfreflect.uncertainty.question import AnsweredQuestion, TokenLogprobs

_EXTRA_TOKENS = 2
"""Tokens without text, such as the end of a text, that an answer may have."""

_LARGEST = 1e300


def read_answered_questions(source: str | Path, gold: str = "gold") -> list[AnsweredQuestion]:
    """Read a .json, .jsonl, .csv or .parquet file, or standard input for ``"-"``.

    Args:
        gold: the field with the right answer, or a list of its spellings.

    Raises:
        DataError: a record is malformed; the message names the file, the record and the field.
    """
    ids = RowIds()
    return [_question(row, ids, gold) for row in parse_rows(read_content(source))]


def _question(row: Row, ids: RowIds, gold: str) -> AnsweredQuestion:
    text = row.optional_text("question")
    if not text and row.get("id") in (None, ""):
        raise row.error("give it a 'question' or an 'id'")
    answers = _texts(row, "answers")
    confidence = _number(row, "confidence", 0, 1)
    if not answers and confidence is None:
        raise row.error(f"give it 'answers' or a 'confidence'; its fields are {listed(row.fields)}")
    aliases = _list(row, "aliases")
    if not all(isinstance(one, list) and all(isinstance(text, str) for text in one) for one in aliases):
        raise row.error("the field 'aliases' must be a list of lists of texts")
    tokens = _token_texts(row, answers)
    return AnsweredQuestion(
        id=ids.take(row, text),
        text=text,
        answers=answers,
        gold=tuple(one for one in _texts(row, gold, single=True) if one.strip()),
        aliases=tuple(tuple(one) for one in aliases),
        answer=row.optional_text("response") or None,
        logprobs=_logprobs(row, answers, tokens),
        tokens=tokens,
        confidence=confidence,
        length=_number(row, "length", 0, math.inf),
        correct=_label(row),
    )


def _list(row: Row, name: str, single: bool = False) -> list[Any]:
    """A field that holds a list, or JSON of one; empty if missing. ``single`` allows one text."""
    value = row.get(name)
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            if not single:
                raise row.error(f"the field {excerpt(name)} is not a JSON list") from None
        else:
            value = parsed
    if value is None or value == "":
        return []
    if single and not isinstance(value, list):
        return [value]
    if not isinstance(value, list):
        raise row.error(f"the field {excerpt(name)} must be a list, not {type_name(value)}")
    return value


def _texts(row: Row, name: str, single: bool = False) -> tuple[str, ...]:
    values = _list(row, name, single)
    for number, value in enumerate(values, 1):
        if not isinstance(value, str):
            raise row.error(
                f"the field {excerpt(name)} must hold texts, but entry {number} is {type_name(value)}"
            )
    return tuple(values)


def _number(row: Row, name: str, low: float, high: float) -> float | None:
    """A number in a range; None if it is missing."""
    value = row.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise row.error(f"the field {name!r} must be a number, not {type_name(value)}")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise row.error(f"the field {name!r} must be a number; it is {excerpt(value)}") from None
    if not math.isfinite(number) or not low <= number <= high:
        limits = f"in [{low:g}, {high:g}]" if math.isfinite(high) else f"finite and at least {low:g}"
        raise row.error(f"the field {name!r} is {number:g}; it must be {limits}")
    return number


def _label(row: Row) -> bool | None:
    value = row.get("correct")
    if value is None or value == "":
        return None
    labels = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
    label = labels.get(str(value).strip().lower())
    if label is None:
        raise row.error(f"the field 'correct' must be true, false, 1 or 0; it is {excerpt(value)}")
    return label


def _token_texts(row: Row, answers: tuple[str, ...]) -> tuple[tuple[str, ...], ...] | None:
    values = _list(row, "tokens")
    if not values:
        return None
    _require_one_each(row, "tokens", values, answers)
    for number, (texts, answer) in enumerate(zip(values, answers, strict=True), 1):
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise row.error(f"entry {number} of the field 'tokens' must be a list of texts")
        if "".join(texts).strip() != answer.strip():
            raise row.error(f"the tokens of answer {number} do not spell it: {excerpt(''.join(texts))}")
    return tuple(map(tuple, values))


def _logprobs(
    row: Row, answers: tuple[str, ...], tokens: tuple[tuple[str, ...], ...] | None
) -> TokenLogprobs | None:
    values = _list(row, "logprobs")
    if not values:
        return None
    _require_one_each(row, "logprobs", values, answers)
    checked = []
    for number, (logprobs, answer) in enumerate(zip(values, answers, strict=True), 1):
        what = f"entry {number} of the field 'logprobs'"
        if not isinstance(logprobs, list) or not logprobs:
            raise row.error(f"{what} must be a list with the log-probability of each token")
        for value in logprobs:
            # an integer may be too large for a float, so it is compared before it is converted
            good = isinstance(value, int | float) and not isinstance(value, bool)
            if not good or not -_LARGEST <= value <= 0:
                raise row.error(f"{what} holds {excerpt(value)}; a log-probability is a number up to 0")
        size = len(answer.encode("utf-8", "replace")) + _EXTRA_TOKENS
        if len(logprobs) > size or (tokens and len(tokens[number - 1]) != len(logprobs)):
            raise row.error(
                f"{what} has {len(logprobs)} values, which does not fit answer {number}: they may belong to "
                "another answer or come from another tokenizer"
            )
        checked.append(tuple(map(float, logprobs)))
    return tuple(checked)


def _require_one_each(row: Row, name: str, values: list[Any], answers: tuple[str, ...]) -> None:
    if len(values) != len(answers):
        raise row.error(f"the field {name!r} has {len(values)} entries for {len(answers)} answers")
