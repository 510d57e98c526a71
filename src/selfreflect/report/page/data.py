"""Pack the data of a page for its script: a small index of each run, and the questions in chunks that are
unpacked on demand."""

from __future__ import annotations

import base64
import gzip
from typing import Any

from selfreflect.grouping import spread
from selfreflect.records import dump_line
from selfreflect.report.page.view import Grouping, SummaryOutcome, question_view
from selfreflect.report.run_records import RunRecords

CHUNK = 32
"""Questions per chunk: enough to compress well, few enough to unpack between a click and its answer."""

_DECIMALS = 6
_UNMEASURED = "!"
_ZERO = 0x5D
"""In a chunk each distance is one character: this code point plus the thousandths. JSON escapes none of
them."""

_LIST_LENGTH = 300
"""Characters of a question that the list shows and searches."""


def packed(value: Any) -> str:
    """Encode plain values as gzipped JSON in base64, which is inert in HTML. Equal values give equal text."""
    data = gzip.compress(dump_line(value).encode("utf-8"), compresslevel=9, mtime=0)
    return base64.b64encode(data).decode("ascii")


def run_data(run: RunRecords, grouping: Grouping) -> tuple[dict[str, Any], list[str]]:
    """Make the index of a run, and its questions as packed chunks in the same order.

    The index holds ``label``, ``strategies``, and for each question ``[text, kind, spread, scores,
    estimates]``, with a rounded score or None and an estimate flag for each strategy. The chunks hold the
    scores in full.
    """
    failures = run.failures_by_score()
    rows = []
    views = []
    for id_, question in run.questions.items():
        outcomes = []
        for name in run.strategies:
            key = (id_, name)
            outcome = SummaryOutcome(name, run.summaries.get(key), run.scores.get(key), failures.get(key))
            outcomes.append(outcome)
        view = question_view(question, run.answers.get(id_), outcomes, grouping)
        rows.append(_index_row(view))
        for summary in view["summaries"]:
            summary["distances"] = _compact(summary["distances"])
        views.append(view)
    chunks = [packed(views[start : start + CHUNK]) for start in range(0, len(views), CHUNK)]
    index = {"label": run.label, "strategies": list(run.strategies), "chunk": CHUNK, "questions": rows}
    return index, chunks


def _index_row(view: Any) -> tuple[Any, ...]:
    scores = []
    estimates = []
    for summary in view["summaries"]:
        score = summary["score"]
        scores.append(None if score is None else round(score, _DECIMALS))
        estimates.append(int(summary["estimate"] is not None))
    kinds = spread(view["groups"])
    if kinds is not None:
        kinds = round(kinds, 2)
    return view["text"][:_LIST_LENGTH], view["kind"], kinds, scores, estimates


def _compact(distances: list[list[int | None]] | None) -> str | None:
    """Encode distances as one string, an eighth of the size; ``report.js`` decodes it."""
    if distances is None:
        return None
    characters = []
    for answer in distances:
        characters += [_UNMEASURED if distance is None else chr(_ZERO + distance) for distance in answer]
    return "".join(characters)
