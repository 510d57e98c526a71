"""Items: questions with answers and summaries to score, from files or records."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.logprobs import TokenValues, stored_values
from selfreflect.records import (
    AnswerSet,
    Graded,
    Halving,
    Question,
    Record,
    Scalar,
    Summary,
    Verdict,
    halves,
    question_id,
)
from selfreflect.sources.answer_values import (
    field_value,
    for_each_answer,
    gold_value,
    grades,
    join_right_answers,
    judged_text,
    name_labels,
    row_grades,
    spell_labels,
    token_values,
)
from selfreflect.sources.cells import gold_texts
from selfreflect.sources.columns import fold_assigned
from selfreflect.sources.item_rows import ItemRow, Reading, item_rows, name_assigned, reasoning_notes, text_of
from selfreflect.sources.layouts import read_row_file
from selfreflect.sources.names import (
    CLAIMS,
    CONDITIONING,
    CONFIDENCE,
    CORRECT,
    GOLD,
    GRADES,
    MASKED_OUT,
    RESPONSE,
    TOKEN_COLUMNS,
    numbered_columns,
)
from selfreflect.sources.roles import take_judged_reply
from selfreflect.sources.rows import METADATA, ROWS_BETWEEN_PROGRESS, RowIds, Rows, in_parts, listed
from selfreflect.text import counted, one_line

_GRADES_ROLE = "grades of the answers"
_LABEL_ROLE = "label of correctness"
TRAVELS = "kept with the question"
"""Role of a column that becomes metadata."""
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
            further_grades=self.further_grades,
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
    """Make an item of each answered question, with its summaries. ``answers`` maps question ids to answer
    sets."""
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
                further_grades=answer_set.further_grades,
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
    """All items, or only the first if ``keep`` got all."""
    columns: dict[str, str]
    """Role of each column, in words."""
    notes: list[str]
    """Notes to the user, one sentence each."""
    ignored: list[str]
    """Unused columns, or unused parts of a log."""
    sizes: Counter[int]
    """Number of items by their number of answers."""
    summaries: Counter[str]
    """Number of summaries by name."""

    @property
    def counts(self) -> str:
        """Counts of questions, answers and summaries in one line."""
        text = f"{counted(self.sizes.total(), 'question')}; answers per question: {min(self.sizes)}"
        if len(self.sizes) > 1:
            text += f" to {max(self.sizes)}, median {median(self.sizes.elements()):g}"
        summaries = ", ".join(f"{one_line(name, 40)} ({count})" for name, count in self.summaries.items())
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
    keep: Callable[[Item], object] | None = None,
) -> ItemFile:
    """Read questions with answers and optional summaries from a file in any layout, or standard input
    (``"-"``).

    A row holds a question with a list of answers, numbered columns of answers, or two halves of them; or one
    answer, and then rows with the same question and context are joined. One list of answers is shuffled and
    halved; with fewer than two answers the first half is empty. Other columns travel along as metadata.

    Args:
        limit: keep only the first items. The whole file is checked nevertheless.
        num_answers: keep only the first answers of each half.
        columns: columns by role, one of :data:`~selfreflect.sources.names.ROLES`, whose names say nothing.
        separator: what separates the answers in a text that holds several, such as ``";"``.
        need_summaries: leave out questions without a summary; a note counts them. Replies are taken, too.
        take_replies: take the one column of replies beside the answers for the summaries, if there are none.
        allow_few: only note that no question has two answers.
        seed: decides, with the id of a question, how its list of answers is shuffled.
        progress: called now and then with the share that is read.
        keep: gets each item, so that a large file need not be in memory.

    Raises:
        DataError: the file or a record in it is malformed, or no question in it has two answers, or the
            summary that it needs.
        ConfigError: ``limit`` or ``num_answers`` is below 1, or ``columns`` does not fit the file.
        MissingExtraError: parquet or a compressed log without pyarrow.
    """
    for name, value in (("limit", limit), ("num_answers", num_answers)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1, not {value}")
    first, second, third = in_parts(progress, 3)
    file = read_row_file(source, first, tuple((columns or {}).values()))
    rows = file.rows
    columns = fold_assigned(columns or {}, rows.columns)
    assigned = name_assigned(rows, columns, file.notes)
    likely = file.with_likely_roles(assigned)
    assigned = likely.roles
    usual = {name: name for name in (CORRECT, GRADES, GOLD, CONFIDENCE, RESPONSE, *TOKEN_COLUMNS)}
    renamed = rows.rename_usual(usual, assigned.values())
    join_right_answers(rows, assigned, file.notes)
    renamed |= name_labels(rows, assigned, file.notes)
    if not (need_summaries or take_replies):
        take_judged_reply(rows, assigned, likely.reply, file.notes)
    spell_labels(rows, file.notes)
    reserved = _columns_with_values(rows) - set(assigned.values())
    reading = Reading(
        assigned,
        cells=file.cells,
        separator=separator,
        reserved=reserved,
        further={*reserved, CORRECT, GRADES, METADATA},
        elsewhere=getattr(file.layout, "elsewhere", ""),
    )
    census = _ItemCensus()
    joined = item_rows(rows, reading, census.join, second)
    # whoever scores needs each text once; a converted file keeps the judged answer, too
    taken = census.reply(likely.reply) if need_summaries or take_replies else ""
    # one label beside several answers judges the reply
    is_judged = CORRECT in rows.columns and not rows.columns[CORRECT].has_list and not census.varying
    kept_as = (RESPONSE if is_judged else taken) if take_replies else ""
    # where each row holds one answer, labels of answers differ between the rows of a question
    label = CORRECT if CORRECT in census.varying else ""
    ids = RowIds()
    items: list[Item] = []
    rows_read = 0
    for number, row in enumerate(joined, 1):
        rows_read += len(row.rows)
        _keep_whole(row)
        if taken:
            _take_reply(row, taken, kept_as=kept_as)
        verdicts = _known_grades(row, reserved, label)
        values = census.tokens(row, reserved - {GRADES, CORRECT})
        item = _item(row, ids, num_answers, values, verdicts, seed)
        census.count(row, item)
        if (limit is None or number <= limit) and census.keeps(item, need_summaries):
            if keep:
                keep(item)
            if not (keep and items):
                items.append(item)
        if third and number % ROWS_BETWEEN_PROGRESS == 0:
            third(rows_read / rows.count)
    too_few = census.too_few
    if too_few and not allow_few:
        raise DataError(f"{file.name}: {too_few}")
    if not items:
        raise census.no_summaries(file.name)
    notes = [*file.notes, *census.notes(is_known=file.layout.name != "items"), *filter(None, [too_few])]
    if taken:
        notes.append(
            f"{excerpt(taken)} was read as the summary, because it has one text for all answers to a question"
        )
    if census.without_summary:
        notes.append(f"{counted(census.without_summary, 'question')} without a summary left out")
    roles = _column_roles(census, reserved, taken, label or CORRECT)
    names = {target: name for name, target in renamed.items()} | dict(getattr(file.layout, "columns", {}))
    names |= {role: name for role, name in columns.items() if role not in assigned}
    roles = {names.get(name, name): role for name, role in roles.items()}
    ignored = [name for name, role in roles.items() if role.startswith(LEFT_OUT)]
    ignored += getattr(file.layout, "ignores", ())
    counts = census.sizes, census.summaries
    words = f"{file.words}{census.shape(is_log=file.layout.is_log)}"
    return ItemFile(file.name, file.layout.name, words, items, roles, notes, ignored, *counts)


def _column_roles(census: _ItemCensus, reserved: Collection[str], reply: str, label: str) -> dict[str, str]:
    """Describe the role of each column, with columns of values per answer last."""
    roles = census.column_roles() | ({reply: "summary"} if reply else {})
    if census.is_labelled and label in roles:
        roles[label] = _GRADES_ROLE
    elif roles.get(CORRECT) == TRAVELS:
        roles[CORRECT] = _LABEL_ROLE
    for name in sorted(reserved):
        roles[name] = _GRADES_ROLE if name in (GRADES, CORRECT) else "of the tokens of each answer"
    return roles


def _columns_with_values(rows: Rows) -> set[str]:
    """Find the columns that hold values of each answer; a count of tokens, for example, does not."""
    lists = {
        name for name in (*TOKEN_COLUMNS, CORRECT) if name in rows.columns and rows.columns[name].has_list
    }
    return lists | {name for name in (GRADES,) if name in rows.columns and rows.columns[name].has_object}


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


def _keep_whole(row: ItemRow) -> None:
    """Keep right answers, labelled claims and a judged answer of any length and kind as metadata."""
    gold, claims = (row.row.fields.get(name) for name in (GOLD, CLAIMS))
    value = gold_value(gold, row.row, row.texts)
    # a list in a text stays as it is, which may be an interval
    if isinstance(gold, list | dict) or (value != gold and str(gold).lstrip()[:1] != "["):
        spelled: Any = gold if isinstance(gold, dict) else []
        with suppress(ValueError):
            spelled = gold_texts(value)
        if spelled:
            row.metadata[GOLD] = json.dumps(spelled, ensure_ascii=False)
    if isinstance(claims, list) and all(isinstance(claim, dict) and "text" in claim for claim in claims):
        labels = [{name: claim.get(name) for name in ("text", CORRECT)} for claim in claims]
        row.metadata[CLAIMS] = json.dumps(labels, ensure_ascii=False)
    if RESPONSE not in (*row.columns.answers, *row.varying) and (text := judged_text(row.row)):
        row.metadata[RESPONSE] = text


def _known_grades(row: ItemRow, columns: Collection[str], by_row: str) -> dict[str, tuple[Graded, ...]]:
    """Read the grades of each row's answers, even from columns that vary between the rows of a question."""
    if not by_row and not {GRADES, CORRECT} & {*columns}:
        return {}
    verdicts = grades(row)
    label = field_value(row.row, CORRECT) if CORRECT in columns else None
    if label not in (None, "") and CORRECT not in verdicts:  # other questions have a list of them
        row.metadata[CORRECT] = label
    if by_row and row.one_answer:
        verdicts[CORRECT] = row_grades(row, by_row)
        row.metadata.pop(by_row, None)
        row.varying -= {by_row}
    return verdicts


def _take_reply(row: ItemRow, name: str, *, kept_as: str) -> None:
    """Use the text in a column as the row's summary, and keep it in the metadata under a name, if any."""
    text = row.row._replace(fields={name: text_of(row.row.fields.get(name))}).optional_text(name)
    if text.strip():
        row.summaries = {name: [text]}
    row.metadata.pop(name, None)
    if kept_as and text.strip():
        row.metadata[kept_as] = text


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
    columns: dict[str, tuple[Verdict, ...]] = {}
    further_grades: dict[str, tuple[Graded, ...]] = {}
    for name, graded in verdicts.items():
        columns[name], further_grades[name] = for_each_answer(graded, texts)
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


class _ItemCensus:
    """Counts over all questions of a file, for its notes."""

    def __init__(self) -> None:
        self.varying: set[str] = set()
        """Columns in which the rows of a question differ."""
        self._beside: dict[str, None] = {}
        self._names: set[str] = set()
        """Names of all summaries."""
        self._sizes: Counter[int] = Counter()
        """Number of all questions by their number of answers."""
        self.sizes: Counter[int] = Counter()
        self.summaries: Counter[str] = Counter()
        """Number of summaries by name, among kept items like ``sizes``."""
        self.without_summary = 0
        self._texts: dict[str, None] = {}
        """Names of metadata with texts, in items without a summary."""
        self.is_labelled = False
        self.has_single_answers = False
        self._kinds: dict[object, ItemRow] = {}
        """One question for each combination of columns."""
        self._differing: dict[str, None] = {}
        self._references: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        """First example of each kind of problem that is counted."""
        self.cells = CellCensus()

    def join(self, row: ItemRow) -> None:
        """Record the columns and summary names of a question whose rows were joined, perhaps not all of
        them."""
        self.varying |= row.varying
        self._beside |= dict.fromkeys(row.columns.beside)
        self._names |= row.summaries.keys()

    def shape(self, *, is_log: bool) -> str:
        """Describe what each row holds; empty for a log, whose rows are samples."""
        if self.has_single_answers:
            return ", one row per answer"
        return "" if is_log else ", one row per question"

    def reply(self, likely: str) -> str:
        """Choose the only column of responses next to sampled answers, by name or else ``likely``.

        Empty where a row has a summary, or several columns could be meant.
        """
        candidates = [*self._beside] or [likely]
        return candidates[0] if len(candidates) == 1 and not self._names else ""

    def tokens(self, row: ItemRow, columns: Collection[str]) -> TokenValues:
        """Read the token values of a question, and count questions with impossible ones."""
        try:
            return token_values(row, row.texts, columns) if columns else TokenValues()
        except DataError as error:
            self._counts["problems"] += 1
            self._examples.setdefault("problems", str(error))
            return TokenValues()

    def count(self, row: ItemRow, item: Item) -> None:
        """Count a question and the item that was made of it."""
        answers = (*item.masked_out, *item.conditioning)
        self._sizes[len(answers)] += 1
        self._names |= row.summaries.keys()
        self._kinds.setdefault((row.columns, *row.row.fields, *row.metadata), row)
        self._differing |= dict.fromkeys(sorted(row.varying))
        self._references.add(row.columns.reference)
        self._counts["nulls"] += row.nulls
        self._counts["shortened"] += row.shortened
        self._counts["unfinished"] += row.unfinished
        self._counts["missing"] += row.answers.count(None) - row.unfinished if row.one_answer else 0
        self.has_single_answers |= row.one_answer
        self.cells.count(row)
        for kind, number in (("few", len(answers) < 2), ("blank", sum(not text.strip() for text in answers))):
            if number:
                self._counts[kind] += number
                self._examples.setdefault(kind, item.question)

    def keeps(self, item: Item, need_summaries: bool) -> bool:
        """Check whether an item is kept, and count it."""
        if need_summaries and not item.summaries:
            self.without_summary += 1
            self._texts |= dict.fromkeys(n for n, value in item.metadata.items() if isinstance(value, str))
            return False
        self.sizes[len(item.masked_out) + len(item.conditioning)] += 1
        self.summaries.update(item.summaries.keys())
        self.is_labelled |= CORRECT in item.grades
        return True

    def no_summaries(self, name: str) -> DataError:
        """Make the error that no item has a summary."""
        # the only other column of texts is likely the one
        column = shlex.quote(next(iter(self._texts))) if len(self._texts) == 1 else "NAME"
        # a remedy names options in braces
        if not column.isprintable() or "{" in column:
            column = "NAME"
        return DataError(
            f"{name} has answers but no summaries, so there is nothing to score",
            code="no_summaries",
            remedy="Add a column 'summary', or name the one that holds them with {column} "
            f"summary={column}, or let a model write them: selfreflect import --items FILE --out DIR, "
            "then selfreflect summarize --out DIR.",
        )

    def notes(self, *, is_known: bool) -> list[str]:
        """List notes on the items; the columns of a known layout need none."""
        notes = []
        few, blank, nulls, missing = (self._counts[kind] for kind in ("few", "blank", "nulls", "missing"))
        if 0 < few < self._sizes.total():
            notes.append(
                f"{counted(few, 'question')} with fewer than 2 answers cannot be scored, such as "
                f"{excerpt(self._examples['few'])}"
            )
        for name in () if is_known else [name for name in self._beside if name not in self._names]:
            if len(self._beside.keys() - self._names) == 1:
                role = "score reads it as the summary; for other commands add"
            else:
                role = "if it is a summary, add"
            notes.append(
                f"{excerpt(name)} is not one of the answers; {role} --column summary={shlex.quote(name)}"
            )
        if nulls:
            notes.append(f"{counted(nulls, 'answer')} left out because null stands for a missing answer")
        if missing:
            notes.append(f"{counted(missing, 'row')} without an answer left out")
        if blank:
            are = "answer is" if blank == 1 else "answers are"
            notes.append(
                f"{blank} {are} blank, such as one to {excerpt(self._examples['blank'])}: a blank answer "
                "counts, but has no words to score"
            )
        notes += reasoning_notes(self._counts["shortened"], self._counts["unfinished"])
        if references := self._references - {""}:
            notes.append(f"{listed(references)} read as a reference answer, not as an answer of the model")
        if self._differing:
            names = listed(self._differing)
            notes.append(
                f"left out, because their values differ between the answers to one question: {names}"
            )
        if problems := self._counts["problems"]:
            first = self._examples["problems"]
            notes.append(f"log-probabilities of {counted(problems, 'question')} left out: {first}")
        return notes

    @property
    def too_few(self) -> str:
        """Explain why no item can be scored; empty if any has two answers."""
        if max(self._sizes) > 1:
            return ""
        hint = ""
        if cell := self.cells.separated:
            hint = (
                f". If {excerpt(cell.text)} is several answers, split it with: --separator {cell.separator!r}"
            )
        elif numbered := numbered_columns(next(iter(self._kinds.values())).metadata):
            first, last = numbered[0], numbered[-1]
            span = shlex.quote(f"{first}..{last}")
            hint = f". If {excerpt(first)} to {excerpt(last)} are the answers: --column answers={span}"
        subject = "no question has more than one; the first has"
        if self._sizes.total() == 1:
            subject = "the question has"
        return (
            "an answer distribution needs at least 2 answers, one for each half; "
            f"{subject} {next(iter(self._sizes))}{hint}"
        )

    def column_roles(self) -> dict[str, str]:
        """Describe the role of each column."""
        roles: dict[str, str] = {}
        travelling = {name for row in self._kinds.values() for name in row.metadata}
        for row in self._kinds.values():
            for name in row.row.fields:
                role = row.columns.role(name)
                if name in row.metadata:
                    role = ""  # a number
                if name in self._differing:
                    role = f"{LEFT_OUT}: its values differ between the answers to a question"
                elif not role:
                    role = f"{LEFT_OUT}: blank, too long or not a value"
                    if name in travelling or name == METADATA:
                        role = "right answers" if name == GOLD else TRAVELS
                if not roles.get(name) or roles[name].startswith(f"{LEFT_OUT}: blank"):
                    roles[name] = role
        return roles


class SeparatedCell(NamedTuple):
    """A single answer that probably holds several."""

    text: str
    separator: str


class CellCensus:
    """Counts of single answers with a separator."""

    def __init__(self) -> None:
        self._questions = 0
        self._counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def count(self, row: ItemRow) -> None:
        """Count a question, and the separators in its single answer."""
        self._questions += 1
        if row.one_answer and len(row.answers) == 1:
            text = row.answers[0] or ""
            for separator in SEPARATORS:
                if separator in text.strip():
                    self._counts[separator] += 1
                    self._first.setdefault(separator, text)

    @property
    def separated(self) -> SeparatedCell | None:
        """A single answer with a separator, if at least half of the questions have one."""
        for separator in SEPARATORS:
            if self._counts[separator] and 2 * self._counts[separator] >= self._questions:
                return SeparatedCell(self._first[separator], separator)
        return None
