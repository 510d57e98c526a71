"""Show the records of a run: tables, one question in full, and JSON lines."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from rich.text import Text

from selfreflect.cli.console import emit, print_table, stdout
from selfreflect.grouping import group_indices, most_common, normal_form
from selfreflect.records import Score, WordDistance
from selfreflect.render.text import one_line
from selfreflect.report.overview import estimated_from, failure_table, overview, strategy_results
from selfreflect.report.run_records import RunRecords, SummaryOutcome
from selfreflect.stats import CONFIDENCE

_WIDTH = 110
"""Characters of an answer that are shown; of a summary, three times as many."""


def show_results(records: RunRecords, json: bool) -> None:
    """Print the results of every strategy, and what failed; or one JSON line per strategy."""
    if not json:
        print_table(overview(records))
        if records.failures:
            print_table(failure_table(records))
        return
    for result in strategy_results(records):
        estimate = result.score
        line = {
            "run": records.label,
            "strategy": result.strategy,
            "score": estimate.mean,
            "low": estimate.low,
            "high": estimate.high,
            "confidence": CONFIDENCE,
            "n": estimate.n,
            "questions": estimate.total,
            "coverage": estimate.coverage,
            "median_words": result.median_words,
            "failures": result.failures,
        }
        if result.estimated:
            line["estimated"] = result.estimated
        emit(line)


def grouped_answers(records: RunRecords, question_id: str) -> list[tuple[str, int]]:
    """List the most common spelling of each group of sampled answers with its size, the largest first."""
    answer_set = records.answers.get(question_id)
    answers = answer_set.answers if answer_set else ()
    return [(answers[group[0]], len(group)) for group in group_indices(answers)]


def print_question(records: RunRecords, question_id: str, *, answers: int = 5) -> None:
    """Print a question with its most frequent answers, and each summary with its score and worst words."""
    question = records.question(question_id)
    groups = grouped_answers(records, question_id)
    stdout.print(Text(f"\n{one_line(question.text)}", style="bold"))
    total = sum(count for _, count in groups)
    plural = "" if len(groups) == 1 else "s"
    _print_dim(f"{total} sampled answers of {len(groups)} kind{plural}, the most frequent first:")
    for text, count in groups[:answers]:
        stdout.print(Text(f"  {count:3d} x  {_cut(text, _WIDTH)}"), soft_wrap=True)
    if len(groups) > answers:
        _print_dim(f"   … and {len(groups) - answers} more")
    if records.strategies:
        _print_dim("Summaries, with their SelfReflect score (0 is perfect, lower is better):")
    for outcome in records.outcomes(question_id):
        _print_summary(outcome)


def _print_summary(outcome: SummaryOutcome) -> None:
    result = "not scored yet"
    if outcome.score is not None:
        result = f"score {score_text(outcome.score)}"
    elif outcome.failure is not None:
        result = one_line(f"no score: {outcome.failure.message}")
    line = Text(f"{one_line(outcome.strategy)}  ", style="bold cyan")
    stdout.print(line.append(result, style="not bold default"))
    if outcome.summary is not None:
        stdout.print(Text(f"    {_cut(outcome.summary.text, 3 * _WIDTH)}"))
    worst = worst_words(outcome.score.words, 3) if outcome.score else []
    if worst:
        words = ", ".join(f"{one_line(word)} ({mean:.3f})" for word, mean in worst)
        _print_dim(f"    predicted worst: {words}")


def _print_dim(text: str) -> None:
    stdout.print(Text(text, style="dim"))


def _cut(text: str, limit: int) -> str:
    return one_line(text, limit) or "(blank)"


def score_text(score: Score) -> str:
    """Format as ``0.0954 ± 0.0025``, or ``≈0.0954 ± 0.0025 (estimated from 120 of 840 words)``."""
    text = f"{score.value:.4f}"
    if score.stderr is not None:
        text += f" ± {score.stderr:.4f}"
    source = estimated_from(score)
    return f"≈{text} (estimated from {source})" if source else text


def worst_words(words: Sequence[WordDistance], limit: int) -> list[tuple[str, float]]:
    """Find the ``limit`` words whose occurrences have the largest mean distance; case and punctuation make no
    difference."""
    occurrences = defaultdict(list)
    for word in words:
        if word.distances:
            occurrences[normal_form(word.text)].append(word)
    means = []
    for same in occurrences.values():
        mean = math.fsum(word.mean for word in same) / len(same)
        means.append((most_common(word.text for word in same), mean))
    means.sort(key=lambda pair: (-pair[1], pair[0]))
    return means[:limit]
