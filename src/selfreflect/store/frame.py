"""A run's results as a data frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from selfreflect.errors import MissingExtraError
from selfreflect.metric.measure import MEASURES, Measure, measure_names, measures_of
from selfreflect.records import STAGES, Failure, Question, metadata_headings

if TYPE_CHECKING:
    import pandas as pd

    from selfreflect.store.run import Run

_SUMMARY = ("question_id", "question", "kind", "strategy", "summary")
_FAILURE = ("failure", "failure_message")


def data_frame(run: Run) -> pd.DataFrame:
    """Make a row for each scoring, question and strategy of a run, with the columns of each measure; then
    what came with the questions.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtraError("A data frame of the scores", "pandas") from None
    selected = run.scoring
    names = {*MEASURES}
    for scoring in run.scorings:
        run.select_scoring(scoring)
        names |= {measure for measure, _, _ in run.measurements}
    measures = measures_of(names & {*measure_names()})
    # the columns of the first measure stand before those of failures, as scripts may expect by position
    first, *others = [measure.columns for measure in measures]
    columns = [*_SUMMARY, *first, *_FAILURE, *chain.from_iterable(others), "scoring"]
    headings = metadata_headings(run.questions.values(), columns)
    rows = []
    for scoring in run.scorings:
        run.select_scoring(scoring)
        for question, cells in _result_rows(run, measures):
            metadata = {heading: question.metadata.get(name) for name, heading in headings.items()}
            rows.append({**cells, "scoring": scoring, **metadata})
    run.select_scoring(selected)
    columns += headings.values()
    frame = pd.DataFrame([tuple(map(row.get, columns)) for row in rows], columns=columns, dtype=object)
    numbers = chain.from_iterable((measure.columns[0], *measure.numbers) for measure in measures)
    return frame.astype({**dict.fromkeys(numbers, "Float64"), "token_tasks": "Int64"})


def _result_rows(run: Run, measures: Sequence[Measure]) -> Iterator[tuple[Question, dict[str, Any]]]:
    """Yield the cells of each question and strategy of the selected scoring, by column. The failure of a
    whole question is repeated for each of its strategies."""
    reasons: dict[tuple[str, str], Failure] = {}
    for failure in sorted(run.failures, key=lambda failure: STAGES.index(failure.stage)):
        name = failure.name if failure.stage in ("summaries", "scores") else ""
        reasons.setdefault((failure.question_id, name), failure)
    results = [(measure, run.results(measure)) for measure in measures]
    keys = chain(run.summaries, *(records for _, records in results), reasons)
    strategies = dict.fromkeys(name for _, name in keys if name)
    for id_, question in run.questions.items():
        for strategy in strategies:
            key = (id_, strategy)
            summary = run.summaries.get(key)
            reason = reasons.get((id_, "")) or reasons.get(key)
            texts = (id_, question.text, question.kind, strategy, summary and summary.text)
            cells: dict[str, Any] = dict(zip(_SUMMARY, texts, strict=True))
            for measure, records in results:
                record = records.get(key)
                if record is not None:
                    cells |= zip(measure.columns, measure.cells(record), strict=True)
                    if measure.fails:
                        reason = None
            cells |= zip(_FAILURE, (reason and reason.kind, reason and reason.message), strict=True)
            yield question, cells
