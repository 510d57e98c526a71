"""The scores of one run by several judges, side by side: whether they order summaries alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, combinations

from selfreflect.report.results import INFORMATION, SELFREFLECT, Measure
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import FEWEST_CORRELATED, Estimate, is_tie, ratio_interval
from selfreflect.table import Cell, Column, Table
from selfreflect.text import counted

Numbers = Mapping[str, Mapping[str, float]]
"""A measure by strategy and question id."""


def page_judges(runs: Sequence[Sequence[RunRecords]]) -> dict[str, list[int]]:
    """List the judges of all runs in their order, each with the place of its scoring in every run.

    A run that a judge has not scored takes part with its first scoring, whose label says so.
    """
    judges: dict[str, list[int]] = {}
    for scoring in chain.from_iterable(runs):
        places = [_place(of_run, scoring.judge) for of_run in runs]
        if places not in judges.values():  # two runs with one judge each are shown once
            judges[scoring.judge] = places
    return judges


def _place(scorings: Sequence[RunRecords], judge: str) -> int:
    return next((place for place, one in enumerate(scorings) if one.judge == judge), 0)


def plain_label(run: RunRecords) -> str:
    """Name a run without its judge."""
    return run.label.removesuffix(f", judge {run.judge}")


def judge_tables(runs: Sequence[RunRecords]) -> list[Table]:
    """Tabulate the strategies' means by each judge, for every measure that several judges have; the notes say
    how far each two agree.

    Args:
        runs: the records of one run, once for each judge.
    """
    tables = []
    for measure in (INFORMATION, SELFREFLECT):
        with_values = {}
        for run in runs:
            numbers = {name: measure.of_strategy(run, name).values for name in run.strategies}
            if any(numbers.values()):
                with_values[run.judge] = run, numbers
        if len(with_values) > 1:
            tables.append(_judge_table(with_values, measure))
    return tables


def _judge_table(judged: Mapping[str, tuple[RunRecords, Numbers]], measure: Measure) -> Table:
    strategies = dict.fromkeys(chain.from_iterable(run.strategies for run, _ in judged.values()))
    rows: list[tuple[Cell, ...]] = []
    for name in strategies:
        means = []
        for run, _ in judged.values():
            means.append(measure.of_strategy(run, name).estimate(len(run.questions)).mean)
        rows.append((name, *means))
    notes = []
    for (judge, (_, numbers)), (other, (_, others)) in combinations(judged.items(), 2):
        notes.append(_agreement_sentence(judge, other, same_order(numbers, others)))
    columns = (Column("strategy"), *(Column(judge, measure.form) for judge in judged))
    [run, *_] = [run for run, _ in judged.values()]
    title = f"{measure.title}; by judge ({plain_label(run)})"
    return Table(title, columns, tuple(rows), tuple(notes))


def same_order(first: Numbers, second: Numbers) -> Estimate:
    """Estimate the share of pairs of summaries of one question that two judges put in the same order.

    Pairs that are equal to one of them do not count; ``n`` is the number of questions with a pair.
    """
    counts: dict[str, list[int]] = {}
    strategies = [name for name in first if name in second]
    for a, b in combinations(strategies, 2):
        for id_ in first[a].keys() & first[b].keys() & second[a].keys() & second[b].keys():
            pairs = [(numbers[a][id_], numbers[b][id_]) for numbers in (first, second)]
            if not any(is_tie(*pair) for pair in pairs):
                count = counts.setdefault(id_, [0, 0])
                count[0] += len({value > other for value, other in pairs}) == 1
                count[1] += 1
    return ratio_interval([(same, pairs) for same, pairs in counts.values()], len(counts))


def _agreement_sentence(judge: str, other: str, share: Estimate) -> str:
    if share.mean is None:
        return f"there are no two summaries of one question that both {judge} and {other} tell apart"
    on = counted(share.n, "question")
    if share.n < FEWEST_CORRELATED:
        few = f"too few to tell whether {judge} and {other} agree"
        return f"{on}: {few}; at least {FEWEST_CORRELATED} are needed"
    interval = "" if share.low == share.high else f" [{share.low:.0%}, {share.high:.0%}]"
    return (
        f"{judge} and {other} put two summaries of one question in the same order in {share.mean:.0%}"
        f"{interval} of pairs, on {on}; chance is 50%"
    )
