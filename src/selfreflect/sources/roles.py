"""Roles of columns with uninformative names, by the values of the first rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from selfreflect.errors import excerpt
from selfreflect.sources.answer_values import verdict
from selfreflect.sources.columns import (
    CONFIDENCE,
    GOLD_COLUMNS,
    GOLD_NAMES,
    asks_by_name,
    item_columns,
    likely_spans,
    plain_name,
    tells_of_questions,
)
from selfreflect.sources.files import Row, is_text_list

ROWS_LOOKED_AT = 500
"""Number of first rows that determine roles."""


def likely_roles(rows: Iterable[Row], assigned: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Recognise the columns of question, answers and summary by the first rows' values.

    Only roles that neither a user nor the names give: a question asks, the answers to one question differ
    where a reply beside them is the same in all of its rows, and numbered columns of texts are answers.

    Returns:
        Columns by role, and notes that say so.
    """
    sample = list(islice(rows, ROWS_LOOKED_AT))
    names = list(dict.fromkeys(name for row in sample for name in row.fields))
    columns = item_columns(names, assigned)
    roles: dict[str, str] = {}
    if not columns.question and not {"question", "id"} & assigned.keys():
        taken = {*columns.answers, *columns.rivals, *columns.beside, columns.reference, columns.context}
        roles |= _question([name for name in names if name not in taken], sample)
        columns = item_columns(names, {**assigned, **roles})
    if columns.question and not columns.halves and not {"answer", CONFIDENCE} & {*assigned, *names}:
        roles |= _answers(columns.question, names, sample, assigned)
    words = {"question": "the question", "answer": "the answers", "summary": "the summary"}
    return roles, [f"taken for {words[role]}: {excerpt(name)}" for role, name in roles.items()]


def _question(names: Sequence[str], rows: Sequence[Row]) -> dict[str, str]:
    """Choose the only text column with a question's name or with questions as texts."""
    texts = {name: _texts(name, rows) for name in names}
    sentences = [name for name in names if sum(" " in text.strip() for text in texts[name]) * 2 > len(rows)]
    asking = [
        name for name in sentences if sum(text.rstrip()[-1] in "?？" for text in texts[name]) * 2 > len(rows)
    ]
    by_name = [name for name in sentences if asks_by_name(name)]
    for candidates in ([name for name in by_name if name in asking], by_name, asking):
        if candidates:
            return {"question": candidates[0]} if len(candidates) == 1 else {}
    return {}


def _answers(
    question: str, names: Sequence[str], rows: Sequence[Row], assigned: Mapping[str, str]
) -> dict[str, str]:
    """Choose the answer columns: one that varies within a question, or numbered ones."""
    columns = item_columns(names, {**assigned, "question": question})
    if len(columns.answers) > 1 or columns.plural:
        return {}
    named = [*columns.answers, *columns.rivals, *columns.beside, *filter(None, [columns.reference])]
    free = [name for name in columns.extras if plain_name(name) not in GOLD_NAMES]
    rows_of: defaultdict[object, list[Row]] = defaultdict(list)
    for row in rows:
        rows_of[repr(row.fields.get(question))].append(row)
    repeated = [group for group in rows_of.values() if len(group) > 1]
    if not repeated:
        lists = [name for name in free if _holds_lists(name, rows) and not tells_of_questions(name)]
        spans = likely_spans(name for name in free if len(_texts(name, rows)) * 2 > len(rows))
        several = [*spans, *([] if columns.answers else lists)]
        return {"answer": several[0]} if len(several) == 1 else {}
    varying: list[str] = []
    for candidates in (named, [name for name in free if not _holds_verdicts(name, rows)]):
        varying = varying or [name for name in candidates if any(_differs(name, group) for group in repeated)]
    if len(varying) != 1 or (varying == [*columns.answers] and not columns.rivals):
        return {}
    roles = {"answer": varying[0]}
    replies = [name for name in named if name not in varying and plain_name(name) not in GOLD_COLUMNS]
    if len(replies) == 1 and "summary" not in assigned and not columns.summaries:
        roles["summary"] = replies[0]
    return roles


def _holds_verdicts(name: str, rows: Iterable[Row]) -> bool:
    """Check whether all values of a column are verdicts or numbers."""
    return all(verdict(text) is not None for text in _texts(name, rows))


def _holds_lists(name: str, rows: Sequence[Row]) -> bool:
    """Check whether most values of a column are lists of several texts."""
    lists = [value for row in rows if isinstance(value := row.fields.get(name), list)]
    return sum(is_text_list(value) and len(value) > 1 for value in lists) * 2 > len(rows)


def _texts(name: str, rows: Iterable[Row]) -> list[str]:
    """List the texts of a column that are neither blank nor numbers."""
    values = (row.fields.get(name) for row in rows)
    texts = (value for value in values if isinstance(value, str) and value.strip())
    return [text for text in texts if not text.strip().replace(".", "", 1).isdecimal()]


def _differs(name: str, rows: Iterable[Row]) -> bool:
    """Check whether a column has more than one value in the rows, not counting missing values."""
    return len({repr(value) for row in rows if (value := row.fields.get(name)) not in (None, "")}) > 1
