"""Roles of columns with uninformative names, by the values of the first rows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from selfreflect.errors import excerpt
from selfreflect.sources.answer_values import verdict
from selfreflect.sources.columns import ItemColumns, item_columns
from selfreflect.sources.item_rows import TEXT_FIELDS, recurs_in_list, text_of
from selfreflect.sources.names import (
    CONFIDENCE,
    CORRECT,
    GOLD_COLUMNS,
    GOLD_NAMES,
    QUESTION_COLUMNS,
    RESPONSE,
    asks_by_name,
    column_range,
    likely_gold,
    likely_spans,
    plain_name,
    tells_of_questions,
)
from selfreflect.sources.rows import METADATA, Row, Rows, is_sentence, is_text_list, listed

ROWS_LOOKED_AT = 500
"""Number of first rows that determine the roles."""


class LikelyRoles(NamedTuple):
    """Columns of question and answers by role, and the column of responses next to the answers."""

    roles: dict[str, str]
    reply: str = ""
    """Column of responses next to the answers; empty if there is none."""
    doubt: str = ""
    """Columns that vary within a question although the column of answers does not."""

    @property
    def notes(self) -> list[str]:
        """Notes on the columns of question and answers, one sentence each. The reader of responses adds a
        note on theirs."""
        words = {"question": "the question", "answer": "the answers"}
        notes = [f"{excerpt(name)} is read as {words[role]}" for role, name in self.roles.items()]
        if self.doubt:
            notes.append(
                f"all answers to a question are the same text, while {self.doubt} differ: if one of these "
                "columns holds the answers, add --column answer=NAME"
            )
        return notes


def likely_roles(rows: Iterable[Row], assigned: Mapping[str, str]) -> LikelyRoles:
    """Recognise the columns of question, answers and responses by the first rows' values.

    Only roles that neither a user nor the names give: a question asks, the answers to one question differ
    where a reply beside them is the same in all of its rows, and numbered columns of texts are answers.
    """
    sample = list(islice(rows, ROWS_LOOKED_AT))
    names = list(dict.fromkeys(name for row in sample for name in row.fields))
    columns = item_columns(names, assigned)
    question: dict[str, str] = {}
    if "question" not in assigned and (path := inner_question(columns.question, sample)):
        question = {"question": path}
        for row in sample:
            row.take_inner([path])
        columns = item_columns([*names, path], {**assigned, **question})
    elif "question" not in assigned and _is_doubtful(columns.question, sample):
        taken = {*columns.answers, *columns.rivals, *columns.beside, columns.reference, columns.context}
        others = [name for name in names if name not in {*taken, columns.question}]
        question = _question(others, sample, must_ask=columns.question != "")
        columns = item_columns(names, {**assigned, **question})
    likely = LikelyRoles({})
    if columns.question and not columns.halves and not {"answer", CONFIDENCE} & {*assigned, *names}:
        likely = _answers(columns, sample)
    roles = question | likely.roles
    reply = likely.reply or _reply(item_columns(names, {**assigned, **roles}), sample)
    return LikelyRoles(roles, "" if "summary" in assigned else reply, likely.doubt)


def inner_question(name: str, rows: Iterable[Row]) -> str:
    """Find the text in the objects of a column of questions, such as ``input.text``; empty without one."""
    value = next((row.fields.get(name) for row in rows), None)
    texts = [key for key, entry in value.items() if isinstance(entry, str)] if isinstance(value, dict) else []
    usual = [key for key in texts if key in TEXT_FIELDS]
    return f"{name}.{(usual or texts)[0]}" if len(usual or texts) == 1 else ""


def _is_doubtful(question: str, rows: Sequence[Row]) -> bool:
    """Check whether another column may hold the questions, because no column or a doubtful one is named so.

    A column of system prompts is called ``prompt``, too, and has one text; ``text`` may hold anything.
    """
    if not question:
        return True
    texts = _texts(question, rows)
    has_one_text = len(rows) > 1 and len({*texts}) == 1
    return plain_name(question) != QUESTION_COLUMNS[0] and (has_one_text or not _ask(texts, len(rows)))


def _ask(texts: Sequence[str], count: int) -> bool:
    """Check whether most of ``count`` rows have a text that ends like a question."""
    return sum(text.rstrip()[-1] in "?？" for text in texts) * 2 > count


def _question(names: Sequence[str], rows: Sequence[Row], *, must_ask: bool) -> dict[str, str]:
    """Choose the only text column with questions as texts, or with a question's name, or the only one."""
    names = [name for name in names if sum(recurs_in_list(row, name) for row in rows) * 2 <= len(rows)]
    texts = {name: _texts(name, rows) for name in names}
    sentences = [name for name in names if sum(map(is_sentence, texts[name])) * 2 > len(rows)]
    if len(names) == 1 and names[0].rstrip()[-1:] in (*".!?", "？"):
        return {}  # the first question stands in place of the header
    asking = [name for name in sentences if _ask(texts[name], len(rows)) and len({*texts[name]}) > 1]
    by_name = [name for name in sentences if asks_by_name(name) and len({*texts[name]}) > 1]
    choices = [[name for name in by_name if name in asking], asking]
    if not must_ask:
        choices += [by_name, *_only_texts(sentences, texts, len(rows))]
    for candidates in choices:
        if candidates:
            return {"question": candidates[0]} if len(candidates) == 1 else {}
    return {}


def _only_texts(
    names: Sequence[str], texts: Mapping[str, Sequence[str]], count: int
) -> tuple[list[str], list[str]]:
    """List the columns of texts that differ between rows, those that several rows repeat first."""
    spans = [column_range(span, names) for span in likely_spans(names)]
    numbered = {name for span in spans for name in span}
    known = {name for name in names if plain_name(name) in GOLD_NAMES or likely_gold([name])}
    free = [name for name in names if name not in numbered | known]
    different = [name for name in free if len({*texts[name]}) * _MOST_ROWS_EACH > count]
    repeated = [name for name in different if len({*texts[name]}) * 2 <= count]
    # a row that holds several answers repeats no question
    return (repeated if len(repeated) < len(different) and not spans else []), different


# Answers that one question may have in as many rows; a column with fewer texts holds kinds or names.
_MOST_ROWS_EACH = 40


def _by_question(rows: Iterable[Row], question: str) -> list[list[Row]]:
    """Group rows by the value of the question's column."""
    groups: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[repr(row.fields.get(question))].append(row)
    return [*groups.values()]


def _answers(columns: ItemColumns, rows: Sequence[Row]) -> LikelyRoles:
    """Choose the answer columns: one that varies within a question, or numbered ones."""
    if len(columns.answers) > 1 or columns.plural:
        return LikelyRoles({})
    named = [*columns.answers, *columns.rivals, *columns.beside, *filter(None, [columns.reference])]
    free = [name for name in columns.extras if plain_name(name) not in GOLD_NAMES]
    repeated = [group for group in _by_question(rows, columns.question) if len(group) > 1]
    if not repeated:
        lists = [name for name in free if _holds_lists(name, rows) and not tells_of_questions(name)]
        texts = [name for name in free if len(_texts(name, rows)) * 2 > len(rows)]
        # labels may be numbered as the answers are
        spans = likely_spans(name for name in texts if not _holds_verdicts(name, rows)) or likely_spans(texts)
        several = [*spans, *([] if columns.answers else lists)]
        return LikelyRoles({"answer": several[0]} if len(several) == 1 else {})
    varying: list[str] = []
    texts = [name for name in free if not _holds_verdicts(name, rows)]
    for candidates in (named, [name for name in texts if not _is_label(name, repeated)], texts):
        varying = varying or [name for name in candidates if any(_differs(name, group) for group in repeated)]
    if len(varying) > 1 and columns.answers and varying[0] not in named:
        return LikelyRoles({}, doubt=listed(varying))
    if len(varying) != 1 or (varying == [*columns.answers] and not columns.rivals):
        return LikelyRoles({})
    replies = [name for name in named if name not in varying and plain_name(name) not in GOLD_COLUMNS]
    reply = replies[0] if len(replies) == 1 and not columns.summaries else ""
    return LikelyRoles({"answer": varying[0]}, reply)


def _is_label(name: str, groups: Sequence[Sequence[Row]]) -> bool:
    """Check whether a column only labels answers: times, ids, or the same few names in each question."""
    by_group = [_texts(name, group) for group in groups]
    texts = [text for group in by_group for text in group]
    if all(len({*group}) == len(group) for group in by_group):
        shapes = {re.sub(r"\d+", "0", text) for text in texts}
        is_id = len({*texts}) == len(texts) and not any(map(_BLANK.search, texts))
        return is_id or (len(shapes) == 1 and "0" in shapes.pop())
    sets = [{*group} for group in by_group]
    return len(sets) > 1 and all(values == sets[0] and len(values) > 1 for values in sets)


_BLANK = re.compile(r"\s")


def _reply(columns: ItemColumns, rows: Sequence[Row]) -> str:
    """Choose the only column next to several answers whose texts resemble the answers; empty if there is
    none."""
    if not columns.answers or columns.summaries or columns.named_summaries or columns.beside:
        return ""
    groups = _by_question(rows, columns.question)
    answers = [_answers_in(group, columns.answers) for group in groups]
    similar = []
    for name in columns.extras:
        is_known = name == METADATA or plain_name(name) in GOLD_NAMES or likely_gold([name])
        if is_known or tells_of_questions(name, is_single=True):
            continue
        count = longer = 0
        for group, texts in zip(groups, answers, strict=True):
            reply = text_of(group[0].fields.get(name))
            if not _differs(name, group):
                says_the_same = _says_the_same(reply, texts)
                longer += says_the_same
                count += says_the_same or _is_copy(reply, texts)
        # copies such as "Yes." may be verdicts, where no longer text says the same
        similar += [name] * (longer > 0 and count * 2 > len(groups))
    return similar[0] if len(similar) == 1 else ""


def _answers_in(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """List the answers to a question in lower case, from several columns, a list or several rows."""
    values = [row.fields.get(name) for row in rows for name in names]
    if len(values) == 1:
        values = values[0] if isinstance(values[0], list) else []
    return [value.strip(" .").casefold() for value in values if isinstance(value, str) and value.strip(" .")]


def _is_copy(reply: object, answers: Sequence[str]) -> bool:
    return isinstance(reply, str) and reply.strip(" .").casefold() in answers


# A text so many times as long as the longest answer, with some room, is what a model read.
_LONGEST_REPLY, _ROOM = 4, 40


def _says_the_same(reply: object, answers: Sequence[str]) -> bool:
    """Check whether a response of several words contains an answer, or takes most of its words from the
    answers."""
    words = {*_WORD.findall(reply.casefold())} if isinstance(reply, str) else set()
    if len(words) < 2 or not answers or len(str(reply)) > _LONGEST_REPLY * max(map(len, answers)) + _ROOM:
        return False
    if not any(map(str.isalpha, str(reply))):  # a date or a number
        return False
    known = {word for text in answers for word in _WORD.findall(text)}
    # an answer such as "3" or "B" is part of many words; scripts without blanks have no ends of words
    whole = "|".join(rf"(?<![0-9a-z]){re.escape(text)}(?![0-9a-z])" for text in answers)
    return len(words & known) * 2 > len(words) or re.search(whole, str(reply).casefold()) is not None


_WORD = re.compile(r"\w+")


def _holds_verdicts(name: str, rows: Iterable[Row]) -> bool:
    """Check whether all values of a column are verdicts or numbers."""
    return all(verdict(text) is not None for text in _texts(name, rows))


def _holds_lists(name: str, rows: Sequence[Row]) -> bool:
    """Check whether most values of a column are lists of several texts."""
    lists = [value for row in rows if isinstance(value := row.fields.get(name), list)]
    return sum(is_text_list(value) and len(value) > 1 for value in lists) * 2 > len(rows)


def _texts(name: str, rows: Iterable[Row]) -> list[str]:
    """List the texts of a column that are neither blank nor numbers, also in per cent."""
    values = (row.fields.get(name) for row in rows)
    texts = (value for value in values if isinstance(value, str) and value.strip())
    return [text for text in texts if not text.strip().rstrip("%").replace(".", "", 1).isdecimal()]


def _differs(name: str, rows: Iterable[Row]) -> bool:
    """Check whether a column has more than one value in the rows, not counting missing values."""
    return len({repr(value) for row in rows if (value := row.fields.get(name)) not in (None, "")}) > 1


def take_judged_reply(rows: Rows, roles: Mapping[str, str], likely: str, notes: list[str]) -> None:
    """Rename a reply to ``response`` where a label stands beside several answers: the label judges the reply.

    Args:
        likely: the column that its texts tell as the reply, if any.
    """
    columns = item_columns(rows.columns, roles)
    label = rows.columns.get(CORRECT)
    has_samples = len(columns.answers) > 1 or columns.plural
    if not has_samples or label is None or label.has_list or RESPONSE in rows.columns:
        return
    candidates = [*columns.beside] or [likely]
    if columns.summaries or columns.named_summaries or len(candidates) > 1 or not candidates[0]:
        notes.append("a label beside several answers is read as the verdict on the most common one")
        return
    rows.rename({candidates[0]: RESPONSE})
    notes.append(f"{excerpt(candidates[0])} is read as the answer that the labels judge")
