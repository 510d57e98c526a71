"""A run's results as a data frame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from selfreflect.errors import MissingExtraError
from selfreflect.records import STAGES, Failure, Question, metadata_headings

if TYPE_CHECKING:
    import pandas as pd

    from selfreflect.store.run import Run

COLUMNS = (
    "question_id question kind strategy summary score stderr token_tasks judge failure failure_message "
    "bits bits_available recovered reader zero anchor undefined cause why scoring"
).split()


def data_frame(run: Run) -> pd.DataFrame:
    """Make a row for each scoring, question and strategy of a run: :data:`COLUMNS`, then what came with the
    questions.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtraError("A data frame of the scores", "pandas") from None
    headings = metadata_headings(run.questions.values(), COLUMNS)
    rows = []
    selected = run.scoring
    for scoring in run.scorings:
        run.select_scoring(scoring)
        for question, cells in _result_rows(run):
            rows.append((*cells, scoring, *map(question.metadata.get, headings)))
    run.select_scoring(selected)
    frame = pd.DataFrame(rows, columns=[*COLUMNS, *headings.values()], dtype=object)
    numbers = ("score", "stderr", "bits", "bits_available", "recovered")
    return frame.astype({**dict.fromkeys(numbers, "Float64"), "token_tasks": "Int64"})


def _result_rows(run: Run) -> Iterator[tuple[Question, tuple[Any, ...]]]:
    """Yield all but the last of :data:`COLUMNS` for each question and strategy of the selected scoring. The
    failure of a whole question is repeated for each of its strategies."""
    reasons: dict[tuple[str, str], Failure] = {}
    for failure in sorted(run.failures, key=lambda failure: STAGES.index(failure.stage)):
        name = failure.name if failure.stage in ("summaries", "scores") else ""
        reasons.setdefault((failure.question_id, name), failure)
    keys = (*run.summaries, *run.scores, *run.information, *reasons)
    strategies = dict.fromkeys(name for _, name in keys if name)
    for id_, question in run.questions.items():
        for strategy in strategies:
            key = (id_, strategy)
            summary = run.summaries.get(key)
            reason = reasons.get((id_, "")) or reasons.get(key)
            of_score: tuple[Any, ...] = (None,) * 4
            if score := run.scores.get(key):
                of_score = (score.value, score.stderr, score.token_tasks, score.judge)
                reason = None
            bits: tuple[Any, ...] = (None,) * 9
            if own := run.information.get(key):
                bits = (own.bits, own.bits_available, own.recovered, own.reader, own.zero)
                bits += (own.anchor, own.undefined, own.cause, own.why or None)
            cells = (id_, question.text, question.kind, strategy, summary and summary.text, *of_score)
            yield question, (*cells, reason and reason.kind, reason and reason.message, *bits)
