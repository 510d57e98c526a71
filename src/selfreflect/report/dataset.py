"""A run as a data set folder: two parquet files and a card, which ``datasets.load_dataset`` reads."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from selfreflect.errors import MissingExtraError
from selfreflect.records import Question, Scalar, metadata_headings
from selfreflect.render.table import Cell, Column
from selfreflect.render.text import markdown_text
from selfreflect.report.overview import QUESTION_COLUMNS, question_table
from selfreflect.report.run_records import RunRecords
from selfreflect.text import counted

_ANSWER_COLUMNS = ("id", "question", "context", "kind", "gold", "masked_out", "conditioning", "model")

_CARD = """\
---
configs:
- config_name: summaries
  data_files: data/summaries.parquet
  default: true
- config_name: answers
  data_files: data/answers.parquet
---

# {title}

Written by selfreflect: {counts}.

- `answers`: a row for each question, with its sampled answers in two halves: `masked_out`, which summaries
  are measured on, and `conditioning`, which the judge reads. Answers: {models}.
- `summaries`: a row for each summary, with its results: `score` is the SelfReflect score (0 is perfect, lower
  is better), `recovered` the share of what the sampled answers tell that the summary tells (1 is as much),
  `bits` and `bits_available` are per answer; `undefined` and `failure` say why a number is missing.
  Judge: {judges}.

Further columns came with the questions.

```python
from datasets import load_dataset

summaries = load_dataset("path/of/this/folder", "summaries", split="train")
answers = load_dataset("path/of/this/folder", "answers", split="train")
```
"""


def dataset_files(scorings: Sequence[RunRecords], title: str) -> dict[str, bytes]:
    """The files of a data set folder, by their path in it.

    Args:
        scorings: the records of one run, once for each judge.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    run = scorings[0]
    judges = sorted(
        {one.judge for one in run.scores.values()} | {one.judge for one in run.information.values()}
    )
    for scoring in scorings[1:]:
        judges += [scoring.judge]
    models = sorted({one.model for one in run.answers.values() if one.model})
    counts = [counted(len(run.questions), "question"), counted(len(run.answers), "answer set")]
    counts.append(counted(len(run.summaries), "summary"))
    card = _CARD.format(
        title=markdown_text(title),
        counts=", ".join(counts),
        models=markdown_text(", ".join(models) or "of unknown origin"),
        judges=markdown_text("; ".join(dict.fromkeys(judges)) or "none yet"),
    )
    return {
        "README.md": card.encode("utf-8", "backslashreplace"),
        "data/answers.parquet": _answers(run),
        "data/summaries.parquet": _summaries(scorings),
    }


def _answers(run: RunRecords) -> bytes:
    headings = metadata_headings(run.questions.values(), _ANSWER_COLUMNS)
    rows = []
    for question in run.questions.values():
        answers = run.answers.get(question.id)
        if answers is None:
            continue
        row: dict[str, Any] = {name: getattr(question, name) for name in ("id", "context", "kind")}
        row |= {"question": question.text, "gold": list(question.gold), "model": answers.model}
        row |= {"masked_out": list(answers.masked_out), "conditioning": list(answers.conditioning)}
        rows.append(row | _values(question, headings))
    columns = [Column(name) for name in _ANSWER_COLUMNS]
    return _parquet(columns, rows, list(headings.values()), lists=("gold", "masked_out", "conditioning"))


def _summaries(scorings: Sequence[RunRecords]) -> bytes:
    columns = [*QUESTION_COLUMNS, Column("judge")]
    taken = [column.heading for column in columns]
    headings = metadata_headings(scorings[0].questions.values(), taken)
    rows = []
    for scoring in scorings:
        for cells in question_table(scoring).rows:
            row: dict[str, Any] = dict(
                zip(taken, cells, strict=False)
            )  # its metadata follow under our headings
            row["judge"] = scoring.judge or None
            rows.append(row | _values(scoring.questions[row["question_id"]], headings))
    return _parquet(columns, rows, list(headings.values()))


def _values(question: Question, headings: Mapping[str, str]) -> dict[str, Scalar | None]:
    return {heading: question.metadata.get(name) for name, heading in headings.items()}


def _parquet(
    columns: Sequence[Column],
    rows: Sequence[dict[str, Any]],
    untyped: Sequence[str],
    lists: Sequence[str] = (),
) -> bytes:
    """Rows as parquet; a column of metadata gets the narrowest type that holds all its values."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("writing a data set", "datasets") from None
    types: dict[str, Any] = {}
    for column in columns:
        number = pa.int64() if column.form == "d" else pa.float64()
        types[column.heading] = number if column.form else pa.string()
    types |= dict.fromkeys(lists, pa.list_(pa.string()))
    for name in untyped:
        kinds = {type(row[name]) for row in rows} - {type(None)}
        if kinds == {bool}:
            types[name] = pa.bool_()
        elif kinds and kinds <= {int, float}:
            types[name] = pa.int64() if kinds == {int} else pa.float64()
        else:
            types[name] = pa.string()
    plain = [{name: _plain(row[name], types[name] == pa.string()) for name in types} for row in rows]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(plain, schema=pa.schema(list(types.items()))), buffer)
    return buffer.getvalue()


def _plain(cell: Cell | list[str], as_text: bool) -> Any:
    """A cell as parquet holds it: a lone surrogate, which UTF-8 cannot encode, is escaped."""
    if isinstance(cell, list):
        return [_plain(text, True) for text in cell]
    if cell is None or not (as_text or isinstance(cell, str)):
        return cell
    return str(cell).encode("utf-8", "backslashreplace").decode("utf-8")
