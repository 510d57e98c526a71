"""Layouts of JSON objects with many records, of other programs and of this one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from selfreflect.errors import DataError
from selfreflect.sources.columns import QUESTION_COLUMNS, plain_name
from selfreflect.sources.files import Row
from selfreflect.sources.layouts import Layout


class Items(Layout):
    """Rows of questions with answers, each in its column."""

    name = "items"

    def matches(self, rows: Sequence[Row]) -> bool:
        return True


Places = Iterator[tuple[str, dict[str, Any]]]
"""Records with their place in the object."""

_PLURAL_QUESTIONS = {"questions": "question", "prompts": "prompt", "queries": "query", "inputs": "input"}


class Shape(Layout):
    """Objects with several records each."""

    def matches(self, rows: Sequence[Row]) -> bool:
        return all(self.holds(row.fields) for row in rows)

    def items(self, rows: Sequence[Row]) -> Iterable[Row]:
        for row in rows:
            for label, fields in self.records(row.fields):
                yield row._replace(where=f"{row.where}, {label}", fields=fields)

    def holds(self, fields: Mapping[str, Any]) -> bool:
        """Tell whether an object is in this shape."""
        raise NotImplementedError

    def records(self, fields: Mapping[str, Any]) -> Places:
        """Yield the records of an object."""
        raise NotImplementedError


class ColumnLists(Shape):
    """Each field is a list with an entry for each record."""

    name = "columns"

    def holds(self, fields: Mapping[str, Any]) -> bool:
        lists = [column for column in fields.values() if isinstance(column, list)]
        if not lists or len(lists) < len(fields) or len({len(column) for column in lists}) > 1:
            return False
        return any(
            is_question(name) and all(isinstance(cell, str) for cell in fields[name]) for name in fields
        )

    def records(self, fields: Mapping[str, Any]) -> Places:
        names = {}
        for name, column in fields.items():
            singular = _PLURAL_QUESTIONS.get(plain_name(name), name)
            if plain_name(name) == "responses" and all(isinstance(cell, str) for cell in column):
                singular = "response"  # one for each question
            names[name] = name if singular in fields else singular
        for number, cells in enumerate(zip(*fields.values(), strict=True), 1):
            yield f"row {number}", dict(zip(names.values(), cells, strict=True))

    def explain(self) -> str:
        return "columns as lists"


class Pandas(Shape):
    """A data frame as pandas writes it, by columns, split, or as a table; by index it is :class:`Records`."""

    name = "pandas"

    def holds(self, fields: Mapping[str, Any]) -> bool:
        rows = fields.get("data")
        if isinstance(rows, list) and fields.keys() >= {"columns", "data"}:
            return _is_list_of(fields["columns"], str) and _is_list_of(rows, list)
        if isinstance(rows, list) and fields.keys() >= {"schema", "data"}:
            return _is_list_of(rows, dict)
        columns = [column for column in fields.values() if isinstance(column, dict)]
        if not columns or len(columns) < len(fields) or not any(map(is_question, fields)):
            return False
        index = columns[0].keys()
        return all(map(str.isdecimal, index)) and all(column.keys() == index for column in columns)

    def records(self, fields: Mapping[str, Any]) -> Places:
        if isinstance(fields.get("columns"), list):
            names, rows = fields["columns"], fields["data"]
            for number, cells in enumerate(rows, 1):
                if len(cells) != len(names):
                    raise DataError(f"row {number} has {len(cells)} cells for {len(names)} columns")
                yield f"row {number}", dict(zip(names, cells, strict=True))
        elif isinstance(fields.get("data"), list):
            yield from ((f"row {number}", row) for number, row in enumerate(fields["data"], 1))
        else:
            for index in next(iter(fields.values())):
                yield f"row {index}", {name: column[index] for name, column in fields.items()}

    def explain(self) -> str:
        return "columns of pandas"


def _is_list_of(values: Any, kind: type) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, kind) for value in values)


class Records(Shape):
    """Each field is a record, whose name is its id."""

    name = "records"
    needs: Sequence[str] = ()
    """Fields of which a record has one, if it has no question."""

    def holds(self, fields: Mapping[str, Any]) -> bool:
        records = list(fields.values())
        if not all(isinstance(record, dict) for record in records) or any(map(is_question, fields)):
            return False
        return bool(records) and all(
            any(is_question(name) or name in self.needs for name in record) for record in records
        )

    def records(self, fields: Mapping[str, Any]) -> Places:
        for id_, record in fields.items():
            yield f"record {id_!r}", {"id": id_, **record}

    def explain(self) -> str:
        return "records by id"


def is_question(name: str) -> bool:
    """Tell whether a field is called as a question, or several, may be."""
    plain = plain_name(name)
    return _PLURAL_QUESTIONS.get(plain, plain) in QUESTION_COLUMNS


class Uqlm(ColumnLists):
    """Responses sampled beside the one that is judged."""

    name = "uqlm"

    def matches(self, rows: Sequence[Row]) -> bool:
        return all(map(_is_of_frame, rows)) or super().matches(rows)

    def items(self, rows: Sequence[Row]) -> Iterable[Row]:
        return rows if _is_of_frame(rows[0]) else super().items(rows)

    def holds(self, fields: Mapping[str, Any]) -> bool:
        return isinstance(fields.get("data"), dict) and super().holds(fields["data"])

    def records(self, fields: Mapping[str, Any]) -> Places:
        return super().records(fields["data"])

    def explain(self) -> str:
        return "result of uqlm"


def _is_of_frame(row: Row) -> bool:
    return row.fields.keys() >= {"prompt", "response", "sampled_responses"}


class Judged(Records):
    """Records with a confidence from 0 to 100, and a verdict as label, if any."""

    name = "judged"
    needs = ("judge_response",)

    def holds(self, fields: Mapping[str, Any]) -> bool:
        verdicts = [record.get("judge_response") for record in fields.values() if isinstance(record, dict)]
        return any(isinstance(verdict, dict) for verdict in verdicts) and super().holds(fields)

    def records(self, fields: Mapping[str, Any]) -> Places:
        for label, record in super().records(fields):
            verdict = record.pop("judge_response", None)
            verdict = verdict if isinstance(verdict, dict) else {}
            correct = {"yes": True, "no": False}.get(str(verdict.get("correct")).strip().lower())
            confidence = verdict.get("confidence")
            if isinstance(confidence, int | float) and not isinstance(confidence, bool):
                record["confidence"] = confidence / 100
            if correct is not None:
                record["correct"] = correct
            if isinstance(record.get("response"), str):
                record.setdefault("answers", [record["response"]])
            yield label, record

    def explain(self) -> str:
        return "answers judged as for Humanity's Last Exam"


class Polygraph(ColumnLists):
    """The texts and estimations of a manager of lm-polygraph, as JSON."""

    name = "lm-polygraph"

    def holds(self, fields: Mapping[str, Any]) -> bool:
        stats = fields.get("stats", fields)
        return isinstance(stats, dict) and _are_lists(stats, "input_texts", "greedy_texts")

    def records(self, fields: Mapping[str, Any]) -> Places:
        stats = fields.get("stats", fields)
        names = {"input_texts": "question", "greedy_texts": "response"}
        names |= {"sample_texts": "samples", "target_texts": "gold"}
        columns = {usual: stats[name] for name, usual in names.items() if name in stats}
        columns |= dict(_flat(fields.get("estimations") or {}))
        yield from _in_rows(columns)

    def explain(self) -> str:
        return "manager of lm-polygraph"


class TruthTorch(ColumnLists):
    """The result of TruthTorchLM's evaluation, with the values of its methods."""

    name = "truthtorchlm"

    def holds(self, fields: Mapping[str, Any]) -> bool:
        return _are_lists(fields, "question_text", "generation")

    def records(self, fields: Mapping[str, Any]) -> Places:
        names = {"question_text": "question", "generation": "response", "ground_truths": "gold"}
        columns = {usual: fields[name] for name, usual in names.items() if name in fields}
        labels = fields.get("generation_correctness")
        if isinstance(labels, list):  # -1 for an answer that was not attempted
            columns["correct"] = [None if value == -1 else value for value in labels]
        for name, method in fields.items():
            if isinstance(method, dict) and isinstance(method.get("truth_values"), list):
                columns[str(method.get("name", name)).split(" ")[0]] = method["truth_values"]
        yield from _in_rows(columns)

    def explain(self) -> str:
        return "result of TruthTorchLM"


class Squad(Shape):
    """Paragraphs with questions and spans as right answers."""

    name = "squad"

    def holds(self, fields: Mapping[str, Any]) -> bool:
        articles = fields.get("data")
        if not isinstance(articles, list) or not _is_list_of(articles, dict):
            return False
        return all("paragraphs" in article for article in articles)

    def records(self, fields: Mapping[str, Any]) -> Places:
        for article in fields["data"]:
            for paragraph in _objects(article.get("paragraphs"), "paragraphs"):
                for entry in _objects(paragraph.get("qas"), "qas"):
                    spans = _objects(entry.get("answers") or [], "answers")
                    texts = [span["text"] for span in spans if "text" in span]
                    record = {"id": entry.get("id"), "question": entry.get("question")}
                    record |= {"context": paragraph.get("context"), "gold": texts}
                    title = {"title": article["title"]} if "title" in article else {}
                    yield f"question {entry.get('id')!r}", record | title

    def explain(self) -> str:
        return "questions of SQuAD"


def _objects(values: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise DataError(f"the field {name!r} must be a list of objects")
    return values


def _are_lists(fields: Mapping[str, Any], *names: str) -> bool:
    """Tell whether fields are lists of the same length."""
    columns = [fields.get(name) for name in names]
    lengths = {len(column) if isinstance(column, list) else 0 for column in columns}
    return len(lengths) == 1 and 0 not in lengths


def _flat(estimations: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield estimations by name; some writers nest them by level, such as ``sequence``."""
    for name, values in estimations.items():
        if isinstance(values, dict):
            yield from values.items()
        else:
            yield name, values


def _in_rows(columns: Mapping[str, Any]) -> Places:
    """Make a record of each entry of the columns that have one for each question."""
    count = len(columns["question"])
    whole = {
        name: values for name, values in columns.items() if isinstance(values, list) and len(values) == count
    }
    for number, cells in enumerate(zip(*whole.values(), strict=True), 1):
        yield f"row {number}", dict(zip(whole, cells, strict=True))
