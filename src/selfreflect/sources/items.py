"""Items: questions with answers and summaries to score, from files or records."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.logprobs import TokenValues, stored_values
from selfreflect.records import AnswerSet, Halving, Question, Record, Scalar, Summary, halves, question_id
from selfreflect.sources.answer_values import (
    Graded,
    Verdict,
    field_value,
    for_each_answer,
    grades,
    label_columns,
    row_grades,
    token_values,
)
from selfreflect.sources.columns import (
    CLAIMS,
    CONDITIONING,
    CONFIDENCE,
    CORRECT,
    GOLD,
    GRADES,
    MASKED_OUT,
    TOKEN_COLUMNS,
    columns_with_values,
    fold_assigned,
    gold_texts,
    numbered_columns,
)
from selfreflect.sources.files import Row, RowIds, field_names, listed, rename, usual_columns
from selfreflect.sources.item_rows import ItemRow, Reading, item_rows, name_assigned
from selfreflect.sources.layouts import read_row_file
from selfreflect.text import counted, one_line

_GRADES_ROLE = "grades of the answers"
LEFT_OUT = "left out"
"""Role prefix of an unused column."""
SEPARATORS = ("\n", ";", "|")
"""Possible separators of answers, for advice to the user."""


class Item(Record, frozen=True, kw_only=True):
    """A question to score. A half may be empty or blank: then scoring the item fails, not reading the
    file."""

    id: str
    question: str
    masked_out: tuple[str, ...]
    conditioning: tuple[str, ...]
    summaries: dict[str, str]
    """Summary texts by name."""
    order: tuple[tuple[str, ...], ...] = ()
    """Known orders: names of summaries, best first. The names are not checked here."""
    context: str = ""
    """Text that the model read with the question. The metric does not use it."""
    metadata: dict[str, Scalar] = {}  # noqa: RUF012 (msgspec makes a new one for each record)
    """Further columns of the file."""
    token_values: TokenValues = TokenValues()
    """Values of all answers' tokens, test answers first."""
    halved: Halving = ""
    """How the answers came into their halves."""
    grades: dict[str, tuple[Verdict, ...]] = {}  # noqa: RUF012
    """Verdicts on all answers by grader, test answers first."""
    further_grades: dict[str, tuple[Graded, ...]] = {}  # noqa: RUF012
    """Verdicts on other texts by grader, such as a judged part of an answer."""

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
        """Make an item with its question's hash as id. One list ``answers`` is shuffled and halved.

        Raises:
            ValueError: there are fewer than two ``answers``.
        """
        id_ = question_id(question, context)
        if answers is not None:
            masked_out, conditioning = halves(answers, id_)
        return cls(
            id=id_,
            question=question,
            masked_out=tuple(masked_out),
            conditioning=tuple(conditioning),
            summaries=dict(summaries),
            context=context,
            halved="given" if answers is None else "shuffled",
        )

    @property
    def question_record(self) -> Question:
        return Question(id=self.id, text=self.question, context=self.context, metadata=self.metadata)

    @property
    def answer_set(self) -> AnswerSet:
        return AnswerSet(
            question_id=self.id,
            masked_out=self.masked_out,
            conditioning=self.conditioning,
            logprobs=self.token_values.records((*self.masked_out, *self.conditioning)),
            halved=self.halved,
            grades=self.grades,
        )

    @property
    def summary_records(self) -> list[Summary]:
        return [Summary(question_id=self.id, name=name, text=text) for name, text in self.summaries.items()]

    @property
    def records(self) -> list[Question | AnswerSet | Summary]:
        """Records for a run directory."""
        return [self.question_record, self.answer_set, *self.summary_records]


def items_from_records(
    questions: Iterable[Question], answers: Mapping[str, AnswerSet], summaries: Iterable[Summary]
) -> list[Item]:
    """Make an item of each answered question, with its summaries. ``answers`` are by question id."""
    texts: dict[str, dict[str, str]] = {}
    for summary in summaries:
        texts.setdefault(summary.question_id, {})[summary.name] = summary.text
    items = []
    for question in questions:
        answer_set = answers.get(question.id)
        if answer_set is not None:
            item = Item(
                id=question.id,
                question=question.text,
                masked_out=answer_set.masked_out,
                conditioning=answer_set.conditioning,
                summaries=texts.get(question.id, {}),
                context=question.context,
                metadata=question.metadata,
                token_values=stored_values(answer_set.logprobs),
                halved=answer_set.halved,
                grades=answer_set.grades,
            )
            items.append(item)
    return items


class ItemFile(NamedTuple):
    """A file of items, with its interpretation."""

    name: str
    """Name of the file in messages."""
    layout_name: str
    """Name of the layout in :mod:`selfreflect.sources.layouts`."""
    layout: str
    """Layout or format in words."""
    items: list[Item]
    columns: dict[str, str]
    """Role of each column, in words."""
    notes: list[str]
    """Notes to the user, one sentence each."""
    ignored: list[str]
    """Unused columns or parts of a log."""

    @property
    def counts(self) -> str:
        """Counts of questions, answers and summaries in one line."""
        sizes = [len(item.answer_set.answers) for item in self.items]
        text = f"{counted(len(self.items), 'question')}; answers per question: {min(sizes)}"
        if len(set(sizes)) > 1:
            text += f" to {max(sizes)}, median {median(sizes):g}"
        names = Counter(chain.from_iterable(item.summaries for item in self.items))
        summaries = ", ".join(f"{one_line(name, 40)} ({count})" for name, count in names.items())
        return f"{text}; summaries: {summaries or 'none'}"


def read_item_file(
    source: str | Path,
    *,
    limit: int | None = None,
    num_answers: int | None = None,
    columns: Mapping[str, str] | None = None,
    separator: str = "",
    need_summaries: bool = False,
    take_replies: bool = False,
    allow_few: bool = False,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> ItemFile:
    """Read questions with answers and optional summaries from a file in any layout, or standard input
    (``"-"``).

    A row holds a question with a list of answers, numbered columns of answers, or two halves of them; or one
    answer, and then rows with the same question and context are joined. One list of answers is shuffled and
    halved; with fewer than two answers the first half is empty. Other columns travel along as metadata.

    Args:
        limit: keep only the first items. The whole file is checked nevertheless.
        num_answers: keep only the first answers of each half.
        columns: columns by role, one of :data:`~selfreflect.sources.columns.ROLES`, whose names say nothing.
        separator: what separates the answers in a text that holds several, such as ``";"``.
        need_summaries: leave out questions without a summary; a note counts them. Replies are taken, too.
        take_replies: take the one column of replies beside the answers for the summaries, if there are none.
        allow_few: only note that no question has two answers.
        seed: decides, with the id of a question, how its list of answers is shuffled.
        progress: called now and then with the share that is read.

    Raises:
        DataError: the file or a record in it is malformed, or no question in it has two answers, or the
            summary that it needs.
        ConfigError: ``limit`` or ``num_answers`` is below 1, or ``columns`` does not fit the file.
        MissingExtraError: parquet or a compressed log without pyarrow.
    """
    for name, value in (("limit", limit), ("num_answers", num_answers)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1, not {value}")
    # reading the file is the first half of the progress, joining its rows the second
    half = progress and (lambda share: progress(share / 2))
    file = read_row_file(source, half, tuple((columns or {}).values()))
    columns = fold_assigned(columns or {}, field_names(file.rows))
    assigned = name_assigned(file.rows, columns, file.notes)
    assigned = file.with_likely_roles(assigned)
    usual = {name: name for name in (CORRECT, GRADES, GOLD, CONFIDENCE, "response", *TOKEN_COLUMNS)}
    renamed = usual_columns(file.rows, usual, assigned.values())
    labels, renamed_labels = _name_labels(file.rows, assigned.values())
    renamed |= renamed_labels
    _spell_gold(file.rows)
    reserved = columns_with_values(file.rows) - set(assigned.values())
    reading = Reading(
        assigned,
        cells=file.cells,
        separator=separator,
        reserved=reserved,
        elsewhere=getattr(file.layout, "elsewhere", ""),
    )
    rows = item_rows(file.rows, reading, progress and (lambda share: progress(0.5 + share / 2)))
    # whoever scores needs each text once; a converted file keeps the judged answer, too
    taken = _take_replies(rows, keep=take_replies) if need_summaries or take_replies else ""
    ids = RowIds()
    values, problems = _known_tokens(rows, reserved - {GRADES, CORRECT})
    # where each row holds one answer, labels of answers differ between the rows of a question
    label = next((name for name in (CORRECT, *labels) if any(name in row.varying for row in rows)), "")
    verdicts = _known_grades(rows, reserved, label)
    # what further rows of a question hold is read, and a large file must not be in memory twice
    file.rows.clear()
    for row in rows:
        del row.rows[1:]
        _keep_objects(row)
    items = [
        _item(row, ids, num_answers, token_values, by_grader, seed)
        for row, token_values, by_grader in zip(rows, values, verdicts, strict=True)
    ]
    layout = file.words
    if any(row.one_answer for row in rows):
        layout += ", one row per answer"
    elif not file.layout.is_log:
        layout += ", one row per question"
    is_known = file.layout.name != "items"
    too_few = _too_few(rows, items)
    if too_few and not allow_few:
        raise DataError(f"{file.name}: {too_few}")
    notes = [*file.notes, *_notes(rows, items, is_known), *filter(None, [too_few])]
    if problems:
        notes.append(f"log-probabilities of {counted(len(problems), 'question')} left out: {problems[0]}")
    if taken:
        notes.append(f"{excerpt(taken)} was read as the summary, because it has one text beside the answers")
    items = items[:limit]
    if need_summaries:
        items = _with_summaries(items, file.name, notes)
    roles = _column_roles(rows) | ({taken: "summary"} if taken else {})
    if any(CORRECT in item.grades for item in items):
        roles |= {name: _GRADES_ROLE for name in roles if name == (label or CORRECT)}
    for name in sorted(reserved):
        roles[name] = _GRADES_ROLE if name in (GRADES, CORRECT) else "of the tokens of each answer"
    names = {target: name for name, target in renamed.items()} | dict(getattr(file.layout, "columns", {}))
    names |= {role: name for role, name in columns.items() if role not in assigned}
    roles = {names.get(name, name): role for name, role in roles.items()}
    ignored = [name for name, role in roles.items() if role.startswith(LEFT_OUT)]
    ignored += getattr(file.layout, "ignores", ())
    return ItemFile(file.name, file.layout.name, layout, items, roles, notes, ignored)


def _name_labels(rows: list[Row], assigned: Collection[str]) -> tuple[list[str], dict[str, str]]:
    """Find label columns under other names, and call the first with lists ``correct``.

    Returns:
        Their names before, and the new name of the one that was renamed.
    """
    labels = label_columns(rows, [name for name in field_names(rows) if name not in assigned])
    for name in labels:
        if any(str(row.fields.get(name)).startswith("[") for row in rows):
            rename(rows, {name: CORRECT})
            return labels, {name: CORRECT}
    return labels, {}


def bundled_items(name: str, *, limit: int | None = None, num_answers: int | None = None) -> list[Item]:
    """Read bundled items."""
    with resources.as_file(resources.files("selfreflect") / "data" / f"{name}.json") as path:
        return read_item_file(path, limit=limit, num_answers=num_answers, need_summaries=True).items


def to_plain(item: Item) -> dict[str, Any]:
    """Convert an item to JSON that :func:`read_item_file` reads."""
    fields: dict[str, Any] = {"id": item.id, "question": item.question}
    if item.context:
        fields["context"] = item.context
    answers = (*item.masked_out, *item.conditioning)
    given = item.masked_out, item.conditioning
    # one list is halved again when it is read, and another seed gives other halves
    if item.halved == "shuffled" and len(answers) > 1 and halves(answers, item.id) == given:
        fields["answers"] = answers
    else:
        fields |= {MASKED_OUT[0]: item.masked_out, CONDITIONING[0]: item.conditioning}
    if item.summaries:
        fields["summaries"] = item.summaries
    if item.order:
        fields["order"] = item.order
    if item.metadata:
        fields["metadata"] = item.metadata
    fields |= {name: values for name, values in item.token_values._asdict().items() if values}
    verdicts: dict[str, Sequence[Any]] = dict(item.grades)
    for name, further in item.further_grades.items():
        verdicts[name] = [*zip(answers, item.grades.get(name, ()), strict=False), *further]
    if verdicts:
        fields[GRADES] = verdicts
    return fields


def _known_tokens(rows: Sequence[ItemRow], columns: Collection[str]) -> tuple[list[TokenValues], list[str]]:
    """Read token values of rows, and describe impossible ones."""
    if not columns:
        return [TokenValues()] * len(rows), []
    values: list[TokenValues] = []
    problems: list[str] = []
    for row in rows:
        try:
            values.append(token_values(row, row.texts, columns))
        except DataError as error:
            values.append(TokenValues())
            problems.append(str(error))
    return values, problems


def _spell_gold(rows: Iterable[Row]) -> None:
    """List the spellings of right answers given as objects, as in TriviaQA."""
    for row in rows:
        if isinstance(value := row.fields.get(GOLD), dict):
            with suppress(ValueError):
                row.fields[GOLD] = list(gold_texts(value))


def _keep_objects(row: ItemRow) -> None:
    """Keep right answers that are JSON objects, and labelled claims, as metadata."""
    gold, claims = (row.row.fields.get(name) for name in (GOLD, CLAIMS))
    if isinstance(gold, dict):
        row.metadata[GOLD] = json.dumps(gold, ensure_ascii=False)
    if isinstance(claims, list) and all(isinstance(claim, dict) and "text" in claim for claim in claims):
        labels = [{name: claim.get(name) for name in ("text", CORRECT)} for claim in claims]
        row.metadata[CLAIMS] = json.dumps(labels, ensure_ascii=False)


def _known_grades(
    rows: Sequence[ItemRow], columns: Collection[str], by_row: str
) -> list[dict[str, tuple[Graded, ...]]]:
    """Read the grades of each row's answers, even from columns that vary within a question."""
    if not by_row and not {GRADES, CORRECT} & {*columns}:
        return [{}] * len(rows)
    all_grades = []
    for row in rows:
        verdicts = grades(row)
        label = field_value(row.row, CORRECT) if CORRECT in columns else None
        if label not in (None, "") and CORRECT not in verdicts:  # other questions have a list of them
            row.metadata[CORRECT] = label
        if by_row and row.one_answer:
            verdicts[CORRECT] = row_grades(row, by_row)
            row.metadata.pop(by_row, None)
            row.varying -= {by_row}
        for name, [(text, right), *_] in verdicts.items():
            if text not in row.texts and right is not None:  # of an answer that is not among these
                row.metadata.setdefault(name, right)
        all_grades.append(verdicts)
    return all_grades


def _take_replies(rows: Sequence[ItemRow], *, keep: bool) -> str:
    """Use a lone column of responses as summaries, if no row has any.

    Returns its name, or nothing where there is no such column, or several.
    """
    names = {name for row in rows for name in row.columns.beside}
    if len(names) != 1 or any(row.summaries for row in rows):
        return ""
    [name] = names
    for row in rows:
        text = row.row.optional_text(name)
        if text.strip():
            row.summaries = {name: [text]}
        if not keep:
            row.metadata.pop(name, None)
    return name


def _with_summaries(items: Sequence[Item], name: str, notes: list[str]) -> list[Item]:
    """Keep the items with a summary, and note the number of others."""
    scorable = [item for item in items if item.summaries]
    if not scorable:
        texts = {name for item in items for name, value in item.metadata.items() if isinstance(value, str)}
        # the only other column of texts is likely the one
        column = shlex.quote(texts.pop()) if len(texts) == 1 else "NAME"
        # a remedy names options in braces
        if not column.isprintable() or "{" in column:
            column = "NAME"
        raise DataError(
            f"{name} holds answers and no summaries, so there is nothing to score",
            code="no_summaries",
            remedy="Add a column 'summary', or name the one that holds them with {column} "
            f"summary={column}, or let a model write them: selfreflect import --items FILE --out DIR, "
            "then selfreflect summarize --out DIR.",
        )
    if len(scorable) < len(items):
        notes.append(f"{counted(len(items) - len(scorable), 'question')} without a summary left out")
    return scorable


def _item(
    row: ItemRow,
    ids: RowIds,
    num_answers: int | None,
    values: TokenValues,
    verdicts: Mapping[str, tuple[Graded, ...]],
    seed: int,
) -> Item:
    id_ = ids.take(row.row, row.question, row.context, row.id_column)
    first, second = (half[:num_answers] for half in row.halves(id_, seed))
    texts = row.texts
    columns = {name: for_each_answer(pairs, texts) for name, pairs in verdicts.items()}
    further_grades = {
        name: tuple(pair for pair in pairs if pair.answer not in texts and pair.right is not None)
        for name, pairs in verdicts.items()
    }
    return Item(
        id=id_,
        question=row.question,
        masked_out=tuple(map(texts.__getitem__, first)),
        conditioning=tuple(map(texts.__getitem__, second)),
        summaries=row.named_summaries,
        order=row.order,
        context=row.context,
        metadata=row.metadata,
        token_values=values.choose([*first, *second]),
        halved="shuffled" if row.given_halves is None else "given",
        grades={
            name: tuple(map(column.__getitem__, (*first, *second)))
            for name, column in columns.items()
            if any(right is not None for right in column)
        },
        further_grades={name: pairs for name, pairs in further_grades.items() if pairs},
    )


def _notes(rows: Sequence[ItemRow], items: Sequence[Item], is_known: bool) -> list[str]:
    """List notes on the items, without notes on columns of known layouts."""
    notes = []
    few = [item for item in items if len(item.answer_set.answers) < 2]
    if few and len(few) < len(items):
        notes.append(
            f"{counted(len(few), 'question')} with fewer than 2 answers cannot be scored, such as "
            f"{excerpt(few[0].question)}"
        )
    names = {name for row in rows for name in row.summaries}
    beside = dict.fromkeys(name for row in rows for name in row.columns.beside if name not in names)
    for name in () if is_known else beside:
        if len(beside) == 1:
            role = "score reads it as the summary; for other commands add"
        else:
            role = "if it is a summary, add"
        notes.append(
            f"{excerpt(name)} is not one of the answers; {role} --column summary={shlex.quote(name)}"
        )
    if nulls := sum(row.nulls for row in rows):
        notes.append(f"{counted(nulls, 'answer')} left out because null stands for a missing answer")
    missing = sum(row.answers.count(None) for row in rows if row.one_answer)
    if missing:
        notes.append(f"{counted(missing, 'row')} without an answer left out")
    blank = [item for item in items for text in item.answer_set.answers if not text.strip()]
    if blank:
        are = "answer is" if len(blank) == 1 else "answers are"
        notes.append(
            f"{len(blank)} {are} blank, such as one to {excerpt(blank[0].question)}: a blank answer counts, "
            "but has no words to score"
        )
    references = {row.columns.reference for row in rows} - {""}
    if references:
        notes.append(f"{listed(references)} read as a reference answer, not as an answer of the model")
    varying = {name: None for row in rows for name in sorted(row.varying)}
    if varying:
        notes.append(
            f"left out, because values differ between the answers to one question: {listed(varying)}"
        )
    return notes


def _too_few(rows: Sequence[ItemRow], items: Sequence[Item]) -> str:
    """Explain why no item can be scored, if none has two answers."""
    counts = [len(item.answer_set.answers) for item in items]
    if max(counts) > 1:
        return ""
    hint = ""
    if cell := separated_cell(rows):
        hint = f". If {excerpt(cell.text)} is several answers, split it with: --separator {cell.separator!r}"
    elif numbered := numbered_columns(rows[0].metadata):
        first, last = numbered[0], numbered[-1]
        span = shlex.quote(f"{first}..{last}")
        hint = f". If {excerpt(first)} to {excerpt(last)} are the answers: --column answers={span}"
    subject = "the question has" if len(items) == 1 else "no question has more than one; the first has"
    return f"an answer distribution needs at least 2 answers, one for each half; {subject} {counts[0]}{hint}"


class SeparatedCell(NamedTuple):
    """A single answer that probably holds several."""

    text: str
    separator: str


def separated_cell(rows: Sequence[ItemRow]) -> SeparatedCell | None:
    """Find a single answer with a separator, if half of the questions have one."""
    texts = [row.answers[0] or "" for row in rows if row.one_answer and len(row.answers) == 1]
    for separator in SEPARATORS:
        divided = [text for text in texts if separator in text.strip()]
        if divided and 2 * len(divided) >= len(rows):
            return SeparatedCell(divided[0], separator)
    return None


def _column_roles(rows: Sequence[ItemRow]) -> dict[str, str]:
    roles: dict[str, str] = {}
    travelling = {name for row in rows for name in row.metadata}
    varying = {name for row in rows for name in row.varying}
    for row in rows:
        for name in row.row.fields:
            role = row.columns.role(name)
            if name in row.metadata:
                role = ""  # a number
            if name in varying:
                role = f"{LEFT_OUT}: differs between the answers to a question"
            elif not role:
                role = f"{LEFT_OUT}: blank, too long or not a value"
                if name in travelling or name == "metadata":
                    role = "right answers" if name == GOLD else "travels with the question"
            if not roles.get(name) or roles[name].startswith(f"{LEFT_OUT}: blank"):
                roles[name] = role
    return roles
