"""What the page's script reads: an index of each run, small enough to be there at once, and the questions in
chunks that wait."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator
from typing import Any

from selfreflect.grouping import spread
from selfreflect.records import dump_line
from selfreflect.report.overview import RunRecords
from selfreflect.report.page.view import Grouping, SummaryOutcome, question_view

CHUNK = 32
"""Questions per chunk: enough for the compression, and few enough to be unpacked between a click and its
answer."""

_DECIMALS = 6
_UNMEASURED, _ZERO = "!", 0x5D
"""How distances stand in a chunk: a character for each word, the code point of none, and that of 0 (from
where JSON escapes nothing)."""

_LISTED = 300
"""Characters of a question that the list shows and searches."""


def packed(value: Any) -> str:
    """Plain values as JSON, gzipped, in base64: no character of it means anything to an HTML parser. Equal
    values give equal text."""
    return base64.b64encode(gzip.compress(dump_line(value).encode("utf-8"), compresslevel=9, mtime=0)).decode(
        "ascii"
    )


def run_data(run: RunRecords, grouping: Grouping) -> tuple[dict[str, Any], list[str]]:
    """The index of a run, and its questions as packed chunks in the same order.

    The index holds ``label``, ``strategies`` and for each question ``[text, kind, spread, scores,
    estimates]`` with one score or None for each strategy, rounded, and whether it is an estimate; the chunks
    hold the scores in full.
    """
    views = []
    rows = []
    for view in _views(run, grouping):
        scores = [
            None if summary["score"] is None else round(summary["score"], _DECIMALS)
            for summary in view["summaries"]
        ]
        estimates = [int(summary["estimate"] is not None) for summary in view["summaries"]]
        kinds = spread(view["groups"])
        rows.append(
            (
                view["text"][:_LISTED],
                view["kind"],
                None if kinds is None else round(kinds, 2),
                scores,
                estimates,
            )
        )
        views.append(_compact(view))
    chunks = [packed(views[start : start + CHUNK]) for start in range(0, len(views), CHUNK)]
    return {"label": run.label, "strategies": list(run.strategies), "chunk": CHUNK, "questions": rows}, chunks


def _views(run: RunRecords, grouping: Grouping) -> Iterator[Any]:
    behind = run.failure_behind()
    for id_, question in run.questions.items():
        keys = [(id_, name) for name in run.strategies]
        outcomes = [
            SummaryOutcome(key[1], run.summaries.get(key), run.scores.get(key), behind.get(key))
            for key in keys
        ]
        yield question_view(question, run.answers.get(id_), outcomes, grouping)


def _compact(view: Any) -> Any:
    """The view with the distances of each summary as one string, which takes an eighth less room;
    ``report.js`` undoes it."""
    for summary in view["summaries"]:
        if summary["distances"] is not None:
            flat = (distance for answer in summary["distances"] for distance in answer)
            summary["distances"] = "".join(
                _UNMEASURED if distance is None else chr(_ZERO + distance) for distance in flat
            )
    return view
