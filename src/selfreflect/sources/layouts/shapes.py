"""Layouts of JSON objects with many records, each in its own layout."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from selfreflect.errors import DataError
from selfreflect.sources.answer_values import is_grader
from selfreflect.sources.columns import item_columns
from selfreflect.sources.item_rows import object_in
from selfreflect.sources.layouts import Layout
from selfreflect.sources.layouts.named import DETAILS, NAMES, WITHOUT_PROMPTS, sampled_texts
from selfreflect.sources.layouts.responses import asked, turns_in
from selfreflect.sources.names import GRADES, QUESTION_COLUMNS, plain_name
from selfreflect.sources.rows import Row, is_text_list, listed

Places = Iterator[tuple[str, dict[str, Any]]]
"""Records with their location in the object."""

_PLURAL_QUESTIONS = {"questions": "question", "prompts": "prompt", "queries": "query", "inputs": "input"}


class Items(Layout):
    """Layout of questions with answers, one column each."""

    name = "items"
    is_free = True
    streams = True

    def matches(self, rows: Sequence[Row]) -> bool:
        return True


class Shape(Layout):
    """Layout of objects with several records each."""

    wraps = True
    words = ""

    def matches(self, rows: Sequence[Row]) -> bool:
        return all(self.holds(row.fields) for row in rows)

    def items(self, rows: Sequence[Row]) -> Iterable[Row]:
        for row in rows:
            try:
                for label, fields in self.records(row.fields):
                    yield row._replace(where=f"{row.where}, {label}", fields=fields)
            except DataError as error:
                raise row.error(error.message, remedy=error.remedy) from None

    def explain(self) -> str:
        return self.words

    def holds(self, fields: Mapping[str, Any]) -> bool:
        """Check whether an object has this shape."""
        raise NotImplementedError

    def records(self, fields: Mapping[str, Any]) -> Places:
        """Yield an object's records."""
        raise NotImplementedError


class ColumnLists(Shape):
    """Layout with a list per field, one entry per record; values of the whole file may stand beside them."""

    name = "columns"
    words = "columns as lists"

    def holds(self, fields: Mapping[str, Any]) -> bool:
        lists = {name: column for name, column in fields.items() if isinstance(column, list)}
        others = [value for name, value in fields.items() if name not in lists]
        if len({len(column) for column in lists.values()}) != 1 or any(isinstance(v, dict) for v in others):
            return False
        return any(is_question(name) and is_text_list(column) for name, column in lists.items())

    def records(self, fields: Mapping[str, Any]) -> Places:
        names = {}
        [length] = {len(column) for column in fields.values() if isinstance(column, list)}
        fields = {
            name: value if isinstance(value, list) else [value] * length for name, value in fields.items()
        }
        for name, column in fields.items():
            singular = _PLURAL_QUESTIONS.get(plain_name(name), name)
            if plain_name(name) == "responses" and all(isinstance(cell, str) for cell in column):
                singular = "response"  # one for each question
            names[name] = name if singular in fields else singular
        for number, cells in enumerate(zip(*fields.values(), strict=True), 1):
            yield f"row {number}", dict(zip(names.values(), cells, strict=True))


class Pandas(Shape):
    """Layout of pandas data frames: by columns, split, or as a table."""

    name = "pandas"
    words = "columns of pandas"

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
        asked = next(column for name, column in fields.items() if is_question(name))
        is_indexed = all(map(str.isdecimal, index)) or all(isinstance(text, str) for text in asked.values())
        return is_indexed and all(column.keys() == index for column in columns)

    def records(self, fields: Mapping[str, Any]) -> Places:
        if isinstance(fields.get("columns"), list):
            names, rows = fields["columns"], fields["data"]
            if len({*names}) < len(names):
                raise DataError(f"among the columns {listed(names)} one name occurs twice; rename one")
            for number, cells in enumerate(rows, 1):
                if len(cells) != len(names):
                    raise DataError(f"row {number} has {len(cells)} cells for {len(names)} columns")
                yield f"row {number}", dict(zip(names, cells, strict=True))
        elif isinstance(fields.get("data"), list):
            yield from ((f"row {number}", row) for number, row in enumerate(fields["data"], 1))
        else:
            for index in next(iter(fields.values())):
                yield f"row {index}", {name: column[index] for name, column in fields.items()}


class Records(Shape):
    """Layout with a record per field, named by its id."""

    name = "records"
    words = "records by id"

    def holds(self, fields: Mapping[str, Any]) -> bool:
        records = list(fields.values())
        return _are_records(records) and not _is_record(fields)

    def records(self, fields: Mapping[str, Any]) -> Places:
        for id_, record in fields.items():
            yield f"record {id_!r}", {"id": id_, **record}


def _has_texts(value: object) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(isinstance(text, str) for text in value)


def _are_alike(values: Sequence[Any]) -> bool:
    """Check whether objects have the same fields, with a text and a list of texts in each."""
    return len(values) > 1 and all(
        isinstance(value, dict)
        and value.keys() == values[0].keys()
        and any(isinstance(text, str) for text in value.values())
        and any(map(_has_texts, value.values()))
        for value in values
    )


class Wrapped(Shape):
    """Layout with the records in one field, next to values of the whole file."""

    name = "wrapped"
    words = "records in a field"

    def holds(self, fields: Mapping[str, Any]) -> bool:
        names = self._fields(fields)
        # a list of texts beside a dialog holds the answers to it
        beside = [value for name, value in fields.items() if name not in names]
        return bool(names) and not _is_record(fields) and not any(map(_has_texts, beside))

    def records(self, fields: Mapping[str, Any]) -> Places:
        name, *further = self._fields(fields)
        if further:
            raise DataError(
                f"the fields {listed([name, *further])} each contain records",
                remedy="Save the records of one field as a separate file.",
            )
        if isinstance(fields[name], dict):
            yield f"field {name!r}", fields[name]
            return
        for number, record in enumerate(fields[name], 1):
            yield f"{name} {number}", _inner(record)

    def _fields(self, fields: Mapping[str, Any]) -> list[str]:
        return [name for name, value in fields.items() if self._is_whole(value)]

    def _is_whole(self, value: Any) -> bool:
        if isinstance(value, dict):
            return any(shape.holds(value) for shape in (ColumnLists(), Pandas(), self))
        if not isinstance(value, list):
            return False
        return _are_records(list(map(_inner, value))) or _are_alike(value)


class Nested(Shape):
    """Layout with each record in an object of its row, beside an id or the like."""

    name = "nested"
    words = "records in objects"
    is_free = True

    def matches(self, rows: Sequence[Row]) -> bool:
        names = {self._field(row.fields) for row in rows}
        # all objects of a file may be records by their ids
        has_others = any(not isinstance(value, dict) for value in rows[0].fields.values())
        return len(names) == 1 and "" not in names and (len(rows) > 1 or has_others)

    def items(self, rows: Sequence[Row]) -> Iterable[Row]:
        replaced: dict[str, None] = {}
        for row in rows:
            name = self._field(row.fields)
            beside = {column: value for column, value in row.fields.items() if column != name}
            replaced |= dict.fromkeys(beside.keys() & row.fields[name].keys())
            yield row._replace(fields=beside | row.fields[name])
        if replaced:
            self.notes = [
                f"{listed(replaced)} beside {name!r} left out, because the records have fields with "
                "these names"
            ]

    def holds(self, fields: Mapping[str, Any]) -> bool:
        return self._field(fields) != ""

    def _field(self, fields: Mapping[str, Any]) -> str:
        """Name the only field with a record; empty if another field may hold the question."""
        names = [name for name, value in fields.items() if isinstance(value, dict) and self._is_inner(value)]
        if len(names) != 1 or _is_record(fields) or Wrapped().holds(fields):
            return ""
        record = fields[names[0]]
        columns = item_columns(record, {})
        is_whole = bool(columns.answers or columns.halves or {*_OF_RECORD} & record.keys())
        is_whole = is_whole or self.holds(record)
        texts = (value.strip() for value in fields.values() if isinstance(value, str))
        # a sentence beside a part of a record may be the question
        asking = [text for text in texts if text.endswith("?") or (text.count(" ") > 1 and not is_whole)]
        return "" if asking or item_columns(fields, {}).question else names[0]

    def _is_inner(self, fields: Mapping[str, Any]) -> bool:
        return _is_record(fields) or self.holds(fields)


def _inner(record: Any) -> Any:
    """Unwrap a data set server's record, ``{"row_idx": 0, "row": …}``; return others unchanged."""
    return record.get("row", record) if isinstance(record, dict) else record


def _are_records(values: Sequence[Any]) -> bool:
    if not _is_list_of(values, dict):
        return False
    # a record may lack what others have
    names = {name for value in values if _is_record(value) for name in value}
    return any(map(_is_record, values)) and all(value and value.keys() <= names for value in values)


def _is_record(fields: Mapping[str, Any]) -> bool:
    """Check whether an object is a record, which has a question field or a field that replaces it."""
    return any(
        (is_question(name) or name in _OF_RECORD)
        and (not isinstance(value, list) or _is_list_of(value, dict))
        for name, value in fields.items()
    )


def is_question(name: str) -> bool:
    """Check whether a field has a usual name for one or several questions."""
    plain = plain_name(name)
    return _PLURAL_QUESTIONS.get(plain, plain) in QUESTION_COLUMNS or plain in _THEIR_QUESTIONS


_THEIR_QUESTIONS = {
    name for names in NAMES.values() for name in names.usual if names.usual[name] == "question"
}
_OF_RECORD = ("judge_response", "custom_id", "messages")
"""Fields of records without a question as text."""


def _is_list_of(values: Any, kind: type) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, kind) for value in values)


class Uqlm(ColumnLists):
    """Layout of uqlm results, possibly without prompts."""

    name = "uqlm"
    words = "result of uqlm"
    elsewhere = WITHOUT_PROMPTS

    def holds(self, fields: Mapping[str, Any]) -> bool:
        data = fields.get("data")
        return (
            isinstance(data, dict)
            and "metadata" in fields
            and _are_lists(data, *{"prompts", "sampled_responses"} & {*data}, "responses")
        )

    def records(self, fields: Mapping[str, Any]) -> Places:
        columns = _of_length(len(fields["data"]["responses"]), fields["data"])
        columns |= _logprobs(columns.pop("sampled_logprob", []))
        for number, (label, record) in enumerate(super().records(columns), 1):
            yield label, record if "prompts" in columns else {"id": number, **record}


def _logprobs(samples: Sequence[Any]) -> dict[str, list[Any]]:
    """Take tokens and log-probabilities out of objects for each token of each sample, as uqlm stores them;
    empty if any is missing."""
    columns: dict[str, list[Any]] = {}
    for name, key in (("tokens", "token"), ("logprobs", "logprob")):
        try:
            columns[name] = [[[token[key] for token in tokens] for tokens in answers] for answers in samples]
        except (TypeError, KeyError):
            return {}
    return columns if samples else {}


class Polygraph(Shape):
    """Layout of lm-polygraph's texts, estimations and metrics of generation, as JSON."""

    name = "lm-polygraph"
    words = "manager of lm-polygraph"

    def holds(self, fields: Mapping[str, Any]) -> bool:
        stats = fields.get("stats", fields)
        if not isinstance(stats, dict) or not isinstance(fields.get("estimations"), dict | None):
            return False
        return _are_lists(stats, "input_texts", "greedy_texts")

    def records(self, fields: Mapping[str, Any]) -> Places:
        stats = fields.get("stats", fields)
        metrics = _flat(fields.get("gen_metrics") or {})
        columns = {**stats, **_flat(fields.get("estimations") or {}), **metrics}
        if "sample_texts" not in columns:  # values of tokens of nothing
            columns.pop("sample_log_likelihoods", None)
        whole = _of_length(len(stats["input_texts"]), columns)
        if left_out := [name for name in columns if name not in whole]:
            self.notes = [f"left out, because they have no value for each text: {listed(left_out)}"]
        graders = [name for name, values in metrics.items() if name in whole and is_grader(values)]
        for label, row in _in_rows("input_texts", whole):
            # a question of an instructed model may be a list of turns
            turns = asked(turns_in(row["input_texts"]))
            text = turns.pop("question", row["input_texts"])
            grades = {name: row[name] for name in graders}
            yield label, {**row, **turns, "input_texts": text, GRADES: grades}


class TruthTorch(Shape):
    """Layout of TruthTorchLM's evaluation results, with its methods' values."""

    name = "truthtorchlm"
    words = "result of TruthTorchLM"

    def holds(self, fields: Mapping[str, Any]) -> bool:
        output = fields.get("output_dict", fields)
        return isinstance(output, dict) and _are_lists(output, "question_text", "generations")

    def records(self, fields: Mapping[str, Any]) -> Places:
        output = fields.get("output_dict", fields)
        columns = {name: output[name] for name in _OF_TRUTH_TORCH if name in output}
        details = []
        for method in output.values():
            if isinstance(method, dict) and isinstance(method.get("truth_values"), list):
                details.append(method.get("method_specific_details"))
                name = str(method.get("name")).split(" ")[0]  # its settings follow
                if f"{name}_value" in columns:
                    name = f"{name}_{len(columns)}"  # with other settings
                columns |= {f"{name}_value": method["truth_values"]}  # "Confidence" is not a probability
                columns |= {f"{name}_normalized": method.get("normalized_truth_values")}
        by_row = list(zip(*filter(None, details), strict=False))
        if any(map(sampled_texts, by_row)):  # some methods sample no answers
            columns[DETAILS] = by_row
        yield from _in_rows("question_text", columns)


_OF_TRUTH_TORCH = "question_text generations generations_correctness ground_truths contexts".split()
"""Columns of TruthTorch's results; other lists of equal length are ignored."""


class Squad(Shape):
    """Layout of SQuAD: paragraphs with questions and answer spans, or one row per question."""

    name = "squad"
    words = "questions of SQuAD"

    def holds(self, fields: Mapping[str, Any]) -> bool:
        articles, answers = fields.get("data"), object_in(fields.get("answers"))
        is_row = isinstance(answers, dict) and answers.keys() == {"text", "answer_start"}
        return is_row or (
            _is_list_of(articles, dict) and all("paragraphs" in article for article in articles or ())
        )

    def records(self, fields: Mapping[str, Any]) -> Places:
        if "answers" in fields:
            rest = {name: value for name, value in fields.items() if name != "answers"}
            yield "row", {**rest, "gold": (object_in(fields["answers"]) or {})["text"]}
            return
        for article in fields["data"]:
            for paragraph in _objects(article.get("paragraphs"), "paragraphs"):
                for entry in _objects(paragraph.get("qas"), "qas"):
                    spans = _objects(entry.get("answers") or [], "answers")
                    texts = [span["text"] for span in spans if "text" in span]
                    record = {"id": entry.get("id"), "question": entry.get("question")}
                    record |= {"context": paragraph.get("context"), "gold": texts}
                    title = {"title": article["title"]} if "title" in article else {}
                    yield f"question {entry.get('id')!r}", record | title


def _objects(values: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise DataError(f"the field {name!r} must be a list of objects")
    return values


def _are_lists(fields: Mapping[str, Any], *names: str) -> bool:
    """Check whether fields are lists of equal length."""
    columns = [fields.get(name) for name in names]
    lengths = {len(column) if isinstance(column, list) else 0 for column in columns}
    return len(lengths) == 1 and 0 not in lengths


def _flat(estimations: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the levels from the names of estimations: ``{"sequence": {…}}``, or ``"('sequence',
    'Perplexity')"``."""
    flat: dict[str, Any] = {}
    for name, values in estimations.items():
        flat |= values if isinstance(values, dict) else {_OF_LEVEL.sub(r"\1", name): values}
    return flat


# A tuple that was made a key of JSON.
_OF_LEVEL = re.compile(r"^\('\w+', '(.*)'\)$")


def _of_length(count: int, columns: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Select columns with one value per row, leaving out columns that describe the whole file."""
    return {
        name: values for name, values in columns.items() if isinstance(values, list) and len(values) == count
    }


def _in_rows(question: str, columns: Mapping[str, Any]) -> Places:
    """Yield one record per entry of the columns as long as the questions."""
    whole = _of_length(len(columns[question]), columns)
    for number, cells in enumerate(zip(*whole.values(), strict=True), 1):
        yield f"row {number}", dict(zip(whole, cells, strict=True))
