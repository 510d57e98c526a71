"""Samples of lm-eval (``--log_samples``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from selfreflect.sources.columns import QUESTION_COLUMNS, metadata
from selfreflect.sources.files import Row, is_text_list
from selfreflect.sources.layouts import Layout

_FIELDS = {"doc_id", "doc", "resps"}


class LmEval(Layout):
    """The repeats of each document are its answers; every filter repeats the same documents."""

    name = "lm-eval"
    is_log = True

    def matches(self, rows: Sequence[Row]) -> bool:
        # in the cells of a table they are texts
        return all(row.fields.keys() >= _FIELDS and not isinstance(row.fields["resps"], str) for row in rows)

    def items(self, rows: Sequence[Row]) -> Iterable[Row]:
        items: dict[str, Row] = {}
        labels: set[tuple[str, str]] = set()
        for sample in rows:
            # the ids of each task begin at 0, and a file may hold several tasks
            names = ("task_name", "doc_id", "doc_hash" if "doc_hash" in sample.fields else "doc")
            key = repr([sample.fields.get(name) for name in names])
            fields = _fields(sample)
            label = (key, repr(sample.fields.get("filter")))
            if key not in items:
                items[key] = sample._replace(fields=fields)
            elif label in labels:  # another run of the task
                items[key].fields["answers"] = [*items[key].fields["answers"], *fields["answers"]]
            labels.add(label)
        return items.values()

    def explain(self) -> str:
        return "samples of lm-eval"


def _fields(sample: Row) -> dict[str, Any]:
    requests = sample.fields["resps"]
    repeats = requests[0] if isinstance(requests, list) and len(requests) == 1 else None
    if not is_text_list(repeats):
        raise sample.error(
            "its 'resps' are not generated answers (a task of output_type generate_until has them, multiple "
            "choice has likelihoods)"
        )
    doc = sample.fields["doc"]
    values = dict(doc) if isinstance(doc, dict) else {}
    column = next((name for name in QUESTION_COLUMNS if isinstance(values.get(name), str)), "")
    question = values.pop(column, None) or _prompt(sample.fields.get("arguments"))
    values |= {"target": sample.fields.get("target"), "doc_id": sample.fields["doc_id"]}
    return {"question": question, "answers": repeats, "metadata": metadata(values, values)}


def _prompt(arguments: Any) -> Any:
    """Find the prompt of the first request: ``{"gen_args_0": {"arg_0": …}}``, or a list of lists."""
    for key in ("gen_args_0", "arg_0"):
        if isinstance(arguments, dict):
            arguments = arguments.get(key)
        elif isinstance(arguments, list):
            arguments = next(iter(arguments), None)
    return arguments
