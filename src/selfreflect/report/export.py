"""Export of results to other programs: data set folders and experiment trackers.

A data set has two parquet files for ``datasets.load_dataset`` and any other reader. Trackers are Weights &
Biases and MLflow; their environment variables name the server, project and key.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import resources
from importlib.util import find_spec
from itertools import chain
from types import MappingProxyType
from typing import Any

from selfreflect.errors import DataError, MissingExtraError
from selfreflect.logprobs import stored_values
from selfreflect.records import Question, Scalar, metadata_headings
from selfreflect.report.document import measure_fields, question_columns, question_table
from selfreflect.report.measures import run_measures
from selfreflect.report.results import strategy_results
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import Estimate
from selfreflect.table import Column
from selfreflect.text import counted, markdown_text, one_line, printable, without_credentials

_ANSWER_COLUMNS = ("id", "question", "context", "kind", "gold", "masked_out", "conditioning", "model")
# Columns that hold lists, and what the entries of these are.
_LISTS = {
    "gold": "text",
    "masked_out": "text",
    "conditioning": "text",
    "tokens": "texts",
    "logprobs": "numbers",
    "self_certainty": "number",
    "top_logprobs": "lists of numbers",
    "token_entropies": "numbers",
}

# Characters of the name of a column.
_LONGEST_NAME = 200


def dataset_files(scorings: Sequence[RunRecords], title: str) -> dict[str, bytes]:
    """Make the files of a data set folder, by relative path.

    Args:
        scorings: the records of one run, once for each judge.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    require_pyarrow()
    run = scorings[0]
    judges = [*run.judges, *(scoring.judge for scoring in scorings[1:])]
    counts = [counted(len(run.questions), "question"), counted(len(run.answers), "answer set")]
    counts.append(counted(len(run.summaries), "summary"))
    template = (resources.files("selfreflect.report") / "templates" / "card.md").read_text(encoding="utf-8")
    card = template.format(
        title=markdown_text(title),
        counts=", ".join(counts),
        models=markdown_text(", ".join(sorted(run.models)) or "of unknown origin"),
        judges=markdown_text("; ".join(dict.fromkeys(judges)) or "none yet"),
    )
    tables = {"summaries": _summaries(scorings), "answers": _answers(run)}
    files = {"README.md": card.encode("utf-8", "backslashreplace")}
    return files | table_files(tables)


def require_pyarrow() -> None:
    """Raise MissingExtraError if pyarrow is not installed."""
    # without importing it, which is slow
    if find_spec("pyarrow") is None:
        raise MissingExtraError("writing a data set", "parquet")


def table_files(tables: Mapping[Any, Any]) -> dict[str, bytes]:
    """Write Arrow tables as parquet, by path in a folder that ``datasets`` loads."""
    import pyarrow.parquet as pq

    files = {}
    for name, table in tables.items():
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        files[f"data/{name}.parquet"] = buffer.getvalue()
    return files


def _answers(run: RunRecords) -> Any:
    tokens = {key: stored_values(answers.logprobs)._asdict() for key, answers in run.answers.items()}
    of_tokens = {name: None for values in tokens.values() for name, value in values.items() if value}
    names = (*_ANSWER_COLUMNS, *of_tokens)
    headings = metadata_headings(run.questions.values(), names, _clean_heading)
    rows = []
    for question in run.questions.values():
        answers = run.answers.get(question.id)
        if answers is None:
            continue
        row: dict[str, Any] = {name: getattr(question, name) for name in ("id", "context", "kind")}
        row |= {"question": question.text, "gold": list(question.gold), "model": answers.model}
        row |= {"masked_out": list(answers.masked_out), "conditioning": list(answers.conditioning)}
        row |= {name: [*tokens[question.id][name]] or None for name in of_tokens}
        rows.append(row | _values(question, headings))
    return _table(list(map(Column, names)), rows, list(headings.values()))


def _summaries(scorings: Sequence[RunRecords]) -> Any:
    by_heading: dict[str, Column] = {}
    for scoring in scorings:
        by_heading |= {column.heading: column for column in question_columns(scoring)}
    columns = [*by_heading.values(), Column("judge")]
    own_headings = [column.heading for column in columns]
    headings = metadata_headings(scorings[0].questions.values(), own_headings, _clean_heading)
    rows = []
    for scoring in scorings:
        table_headings = [column.heading for column in question_columns(scoring)]
        for cells in question_table(scoring).rows:
            # metadata follow, which get headings of their own here
            row: dict[str, Any] = dict.fromkeys(own_headings)
            row |= dict(zip(table_headings, cells, strict=False))
            row["judge"] = scoring.judge or _judge(scoring, row["question_id"], row["strategy"])
            rows.append(row | _values(scoring.questions[row["question_id"]], headings))
    return _table(columns, rows, list(headings.values()))


def _judge(scoring: RunRecords, question: str, strategy: str) -> str | None:
    """Find the judge that measured a summary."""
    record = scoring.scores.get((question, strategy)) or scoring.information.get((question, strategy))
    return record.judge if record else None


def _clean_heading(name: str) -> str:
    """Remove characters from a column's name that parquet cannot hold."""
    return one_line(name, _LONGEST_NAME) or "metadata"


def _values(question: Question, headings: Mapping[str, str]) -> dict[str, Scalar | None]:
    return {heading: question.metadata.get(name) for name, heading in headings.items()}


def _table(columns: Sequence[Column], rows: Sequence[dict[str, Any]], untyped: Sequence[str]) -> Any:
    """Make an Arrow table, with the narrowest type for each metadata column."""
    import pyarrow as pa

    entries: dict[str, Any] = {"text": pa.string(), "number": pa.float64()}
    entries |= {"texts": pa.list_(pa.string()), "numbers": pa.list_(pa.float64())}
    entries["lists of numbers"] = pa.list_(entries["numbers"])
    types: dict[str, Any] = {}
    for column in columns:
        number = pa.int64() if column.form == "d" else pa.float64()
        types[column.heading] = number if column.form else pa.string()
        if column.heading in _LISTS:
            types[column.heading] = pa.list_(entries[_LISTS[column.heading]])
    for name in untyped:
        try:
            kind = pa.array([row[name] for row in rows]).type
        except (pa.ArrowException, OverflowError, UnicodeError):  # of several kinds, or too large for any
            kind = pa.string()
        types[name] = pa.string() if pa.types.is_null(kind) else kind
    columns = []
    for name, kind in types.items():
        cells = [row[name] for row in rows]
        if kind == pa.string():
            cells = [None if cell is None else str(cell) for cell in cells]
        columns.append(pa.array(encodable(cells), kind))
    return pa.Table.from_arrays(columns, names=list(types))


def encodable(value: Any) -> Any:
    """Escape lone surrogates, which UTF-8 cannot encode, in a text, a list or a row."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list | tuple):
        return list(map(encodable, value))
    if isinstance(value, dict):
        return {name: encodable(item) for name, item in value.items()}
    return value


PROJECT = "selfreflect"
"""Default name of the project or experiment."""

_LONGEST_LABEL = 120


def check_installed(tracker: str) -> None:
    """Raise MissingExtraError if a tracker's package is not installed."""
    if find_spec(tracker) is None:
        raise MissingExtraError(f"--log {tracker}", tracker)


def log_run(tracker: str, run: RunRecords) -> str:
    """Log a run's means, intervals, counts and settings as one run of a tracker.

    Args:
        tracker: a key of ``TRACKERS``.

    Returns:
        Where the tracker put it.

    Raises:
        MissingExtraError: its package is not installed.
        DataError: the tracker refused, for example without a key.
    """
    check_installed(tracker)
    with redirect_stdout(sys.stderr):  # where MLflow greets, and JSON lines go
        # a directory's name may hold bytes that are no text, on which both trackers fail
        label = one_line(run.label, _LONGEST_LABEL)
        return without_credentials(TRACKERS[tracker](label, flat_settings(run), flat_results(run)))


def flat_results(run: RunRecords) -> dict[str, float]:
    """Flatten a run's defined numbers as ``STRATEGY/NUMBER``."""
    numbers: dict[str, float | None] = {"questions": len(run.questions), "failures": len(run.failures)}
    for result in strategy_results(run):
        name = _key(result.strategy, numbers)
        for measure in run_measures(run):
            numbers |= _with_ends(f"{name}/{measure.key}", result.estimate(measure))
        fields = measure_fields(run, result)
        parts = chain.from_iterable(measure.ratio or () for measure in run_measures(run))
        numbers |= {f"{name}/{part}": fields.get(part) for part in parts}
        numbers |= {
            f"{name}/median_words": result.median_words,
            f"{name}/failures": result.failures,
        }
    return {name: float(value) for name, value in numbers.items() if value is not None}


def _with_ends(name: str, estimate: Estimate) -> dict[str, float | None]:
    ends = {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return {name: estimate.mean, **ends, f"{name}_n": estimate.n or None}


def flat_settings(run: RunRecords) -> dict[str, Any]:
    """Flatten a run's settings and models as ``SECTION.KEY``, without secrets."""
    settings: dict[str, Any] = {"scores.zero": run.zero, "scores.scale": run.scale} if run.information else {}
    for section in ("config", "models"):
        for stage, values in run.manifest.get(section, {}).items():
            if isinstance(values, Mapping):
                prefix = stage if section == "config" else f"{stage}.model"
                settings |= {f"{prefix}.{key}": value for key, value in values.items()}
    return {_key(name, {}): value for name, value in settings.items() if value not in (None, "")}


def _key(name: str, taken_names: Mapping[str, Any]) -> str:
    """Make a name of letters, digits and ``_.-`` that no tracker mistakes for a path."""
    # two names that differ by such characters alone would overwrite each other
    key = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:100].strip(".") or "_"
    number = 2
    unique = key
    while any(name.startswith(f"{unique}/") for name in taken_names):
        unique = f"{key}-{number}"
        number += 1
    return unique


def _log_wandb(label: str, settings: Mapping[str, Any], results: Mapping[str, float]) -> str:
    import wandb

    try:
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        with wandb.init(project=project, name=label, config=dict(settings), job_type="report") as logged:
            logged.summary.update(dict(results))
            return str(logged.url or logged.dir)
    except (wandb.Error, OSError, UnicodeError) as error:
        raise _refused("wandb", error) from None


def _log_mlflow(label: str, settings: Mapping[str, Any], results: Mapping[str, float]) -> str:
    import mlflow

    try:
        if not os.environ.keys() & {"MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"}:
            mlflow.set_experiment(PROJECT)
        with mlflow.start_run(run_name=label) as logged:
            # older servers of MLflow refuse longer values
            mlflow.log_params({name: printable(str(value))[:500] for name, value in settings.items()})
            mlflow.log_metrics(dict(results))
            return f"run {logged.info.run_id} at {mlflow.get_tracking_uri()}"
    except (mlflow.MlflowException, OSError) as error:
        advice = "MLFLOW_TRACKING_URI names the server; a local database needs the whole mlflow package."
        raise _refused("mlflow", error, advice) from None


def _refused(tracker: str, error: Exception, advice: str = "") -> DataError:
    message = f"{tracker}: {without_credentials(str(error))}"
    return DataError(message, code="tracker", remedy=advice, tracker=tracker)


TRACKERS: Mapping[str, Callable[[str, Mapping[str, Any], Mapping[str, float]], str]] = MappingProxyType(
    {"wandb": _log_wandb, "mlflow": _log_mlflow}
)
