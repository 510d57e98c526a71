"""Items: questions with answers and summaries to score, from a file or from records, without a run
directory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.records import AnswerSet, Question, Record, Summary, halves, question_id
from selfreflect.sources.files import Row, RowIds, listed, parse_rows, read_content, type_name

MASKED_OUT = "masked_out_task_answers"
CONDITIONING = "conditioning_answers"
ANSWERS = "answers"


class Item(Record, frozen=True, kw_only=True):
    """One question to score. A half may be empty or blank: then scoring the item fails, not reading the
    file."""

    id: str
    question: str
    masked_out: tuple[str, ...]
    conditioning: tuple[str, ...]
    summaries: dict[str, str]
    """Texts by name."""
    order: tuple[tuple[str, ...], ...] = ()
    """Known orders: names of summaries, best first. The names are not checked here."""
    context: str = ""
    """What the model read with the question. The metric does not use it."""

    @classmethod
    def of(
        cls,
        question: str,
        summaries: Mapping[str, str],
        *,
        answers: Sequence[str] | None = None,
        masked_out: Sequence[str] = (),
        conditioning: Sequence[str] = (),
        context: str = "",
    ) -> Item:
        """Make an item whose id is the hash of its question. One list ``answers`` is halved.

        Raises:
            ValueError: there are fewer than two ``answers``.
        """
        if answers is not None:
            masked_out, conditioning = halves(answers)
        return cls(
            id=question_id(question, context),
            question=question,
            masked_out=tuple(masked_out),
            conditioning=tuple(conditioning),
            summaries=dict(summaries),
            context=context,
        )

    @property
    def question_record(self) -> Question:
        return Question(id=self.id, text=self.question, context=self.context)

    @property
    def answer_set(self) -> AnswerSet:
        return AnswerSet(question_id=self.id, masked_out=self.masked_out, conditioning=self.conditioning)

    @property
    def summary_records(self) -> list[Summary]:
        return [Summary(question_id=self.id, name=name, text=text) for name, text in self.summaries.items()]


def items_from_records(
    questions: Mapping[str, Question], answers: Iterable[AnswerSet], summaries: Iterable[Summary]
) -> list[Item]:
    """Make an item of each answer set whose question is known, with the summaries of that question."""
    texts: dict[str, dict[str, str]] = {}
    for summary in summaries:
        texts.setdefault(summary.question_id, {})[summary.name] = summary.text
    items = []
    for answer_set in answers:
        question = questions.get(answer_set.question_id)
        if question:
            item = Item(
                id=question.id,
                question=question.text,
                masked_out=answer_set.masked_out,
                conditioning=answer_set.conditioning,
                summaries=texts.get(question.id, {}),
                context=question.context,
            )
            items.append(item)
    return items


def read_items(source: str | Path, *, limit: int | None = None, num_answers: int | None = None) -> list[Item]:
    """Read items from a JSON list, a JSONL file, or standard input (``"-"``).

    One list ``answers`` is halved; with fewer than two answers the first half is empty. Unknown keys are
    ignored.

    Args:
        limit: keep only the first items. The whole file is checked nevertheless.
        num_answers: keep only the first answers of each half.

    Raises:
        DataError: the file or a record in it is malformed.
        ConfigError: ``limit`` or ``num_answers`` is below 1.
    """
    for name, value in (("limit", limit), ("num_answers", num_answers)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1, not {value}")
    content = read_content(source)
    if content.suffix not in (".json", ".jsonl"):
        raise DataError(
            f"{content.name}: write items as a JSON list (.json) or as one object per line (.jsonl)"
        )
    ids = RowIds()
    return [_item(row, ids, num_answers) for row in parse_rows(content)][:limit]


def _item(row: Row, ids: RowIds, num_answers: int | None) -> Item:
    question = row.text("question")
    context = row.optional_text("context")
    names = [name for name in (MASKED_OUT, CONDITIONING, ANSWERS) if name in row.fields]
    if names == [MASKED_OUT, CONDITIONING]:
        masked_out, conditioning = _texts(row, MASKED_OUT), _texts(row, CONDITIONING)
    elif names == [ANSWERS]:
        answers = _texts(row, ANSWERS)
        masked_out, conditioning = halves(answers) if len(answers) > 1 else ((), answers)
    else:
        raise row.error(
            f"give either both {MASKED_OUT!r} and {CONDITIONING!r}, or {ANSWERS!r} alone; its fields are "
            f"{listed(row.fields)}"
        )
    return Item(
        id=ids.take(row, question, context),
        question=question,
        masked_out=masked_out[:num_answers],
        conditioning=conditioning[:num_answers],
        summaries=_summaries(row),
        order=_order(row),
        context=context,
    )


def _texts(row: Row, name: str) -> tuple[str, ...]:
    values = row.fields[name]
    if values is None:
        return ()
    if not isinstance(values, list):
        raise row.error(f"the field {name!r} must be a list of texts, not {type_name(values)}")
    for number, value in enumerate(values, 1):
        if not isinstance(value, str):
            raise row.error(
                f"the field {name!r} must be a list of texts, but entry {number} is {type_name(value)}"
            )
    return tuple(values)


def _summaries(row: Row) -> dict[str, str]:
    value: Any = row.fields.get("summaries")
    if not isinstance(value, dict):
        problem = "is missing" if value is None else f"is {type_name(value)}"
        raise row.error(
            f"the field 'summaries' {problem}; it must give every summary a name, as in "
            '{"mine": "Probably radishes."}'
        )
    if not value:
        raise row.error("the field 'summaries' is empty, so there is nothing to score")
    for name, text in value.items():
        if not name.strip():
            raise row.error("a summary has a blank name")
        if not isinstance(text, str):
            raise row.error(f"the summary {excerpt(name)} must be a text, not {type_name(text)}")
    return dict(value)


def _order(row: Row) -> tuple[tuple[str, ...], ...]:
    value = row.fields.get("order")
    if value is None:
        return ()
    for chains in (value, [value]):
        try:
            orders = msgspec.convert(chains, tuple[tuple[str, ...], ...])
        except msgspec.ValidationError:
            continue
        return tuple(chain for chain in orders if chain)
    raise row.error(
        'the field \'order\' must list names of summaries, best first, as in ["good", "bad"], or be a '
        "list of such lists"
    )
