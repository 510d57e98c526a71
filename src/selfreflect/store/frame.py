"""A run's results as a data frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from selfreflect.errors import MissingExtraError
from selfreflect.records import STAGES, Failure, Information, Question, Score, Summary, metadata_headings

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "question_id question kind strategy summary score stderr token_tasks judge failure failure_message "
    "bits bits_available recovered reader zero scoring"
).split()

Key = tuple[str, str]
"""(question id, strategy)"""


def result_rows(
    questions: Mapping[str, Question],
    summaries: Mapping[Key, Summary],
    scores: Mapping[Key, Score],
    information: Mapping[Key, Information],
    failures: Sequence[Failure],
) -> Iterator[tuple[Any, ...]]:
    """Yield the first of :data:`COLUMNS` of each question and strategy of one scoring. The failure of a whole
    question is repeated for each of its strategies."""
    reasons: dict[Key, Failure] = {}
    for failure in sorted(failures, key=lambda failure: STAGES.index(failure.stage)):
        name = failure.name if failure.stage in ("summaries", "scores") else ""
        reasons.setdefault((failure.question_id, name), failure)
    strategies = dict.fromkeys(name for _, name in (*summaries, *scores, *information, *reasons) if name)
    for id_, question in questions.items():
        for strategy in strategies:
            key = (id_, strategy)
            summary = summaries.get(key)
            reason = reasons.get((id_, "")) or reasons.get(key)
            of_score: tuple[Any, ...] = (None,) * 4
            if score := scores.get(key):
                of_score = (score.value, score.stderr, score.token_tasks, score.judge)
                reason = None
            bits: tuple[Any, ...] = (None,) * 5
            if own := information.get(key):
                bits = (own.bits, own.bits_available, own.recovered, own.reader, own.zero)
            row = (id_, question.text, question.kind, strategy, summary and summary.text, *of_score)
            yield *row, reason and reason.kind, reason and reason.message, *bits


def data_frame(rows: Sequence[tuple[Any, ...]], questions: Mapping[str, Question]) -> pd.DataFrame:
    """Make a data frame of rows with all :data:`COLUMNS`, followed by what came with their questions.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtraError("A data frame of the scores", "pandas") from None
    headings = metadata_headings(questions.values(), COLUMNS)
    whole = []
    for row in rows:
        metadata = questions[row[0]].metadata
        whole.append((*row, *map(metadata.get, headings)))
    frame = pd.DataFrame(whole, columns=[*COLUMNS, *headings.values()], dtype=object)
    numbers = ("score", "stderr", "bits", "bits_available", "recovered")
    return frame.astype({**dict.fromkeys(numbers, "Float64"), "token_tasks": "Int64"})
