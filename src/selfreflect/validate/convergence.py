"""Study ``convergence``: how many questions and masked-out answers does a ranking of strategies need?

Fewer of them are drawn from existing scores. Shapes: Q questions, S strategies, R random draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations
from statistics import NormalDist, stdev

import numpy as np

from selfreflect.errors import DataError, excerpt
from selfreflect.sources.files import listed
from selfreflect.sources.items import Item
from selfreflect.stats import FEWEST_TESTED, TIE, Floats, mean_interval
from selfreflect.table import Approximate
from selfreflect.validate.base import MetricInfo, Parts, Value
from selfreflect.validate.study import Finding, Layout, Row, interval, summary_names, with_interval

MAIN = "selfreflect"
"""The metric whose values have parts."""
DRAWS, STABLE = 500, 0.95
"""A ranking is stable if at least this share of draws gives it."""
Shares = Mapping[int, float | None]
"""By number of questions or answers, the share of draws that give the ranking by all of them."""

_DRAWN = f"share of {DRAWS} draws that rank all strategies as all do; strategies with one mean are not ranked"
_FEW = (
    f"stable from: the share is at least {STABLE:.0%} from there on; a dash below {FEWEST_TESTED} questions"
)
_RANKING = Layout("Same ranking by number of questions", ".0%", (_DRAWN, _FEW), {"stable from": "d"})
_LESS = Layout(f"Same ranking with fewer masked-out answers ({MAIN})", ".0%", (_DRAWN,))
_PAIR_NOTES = (
    "difference: how much worse, paired over questions; intervals: 95% BCa bootstrap over questions",
    f"questions needed: ((1.96 + 0.84) sd / difference)^2, at least {FEWEST_TESTED}, for 80% power if the "
    "difference is as large as observed",
)
_PAIR_FORMS = {"same order": ".0%", "questions needed": ".0f"}
_PAIRS = Layout(f"What separates two strategies ({MAIN})", ".4f", _PAIR_NOTES, _PAIR_FORMS)


class Convergence:
    """Rank the strategies (the names of summaries) from less than everything that was scored.

    Raises:
        DataError: fewer than two items hold all the summaries that any holds, or these are fewer than two.
    """

    name = "convergence"

    def __init__(self, items: Sequence[Item], seed: int = 0) -> None:
        self._seed = seed
        self._names = tuple(summary_names(items))
        self.items = [item for item in items if len(item.summaries) == len(self._names)]
        self._left_out = len(items) - len(self.items)
        if len(self._names) < 2 or len(self.items) < 2:
            raise DataError(
                "convergence ranks strategies over questions: give it at least two items that all hold the "
                f"same summaries, at least two; {len(self.items)} of {len(items)} hold all of "
                f"{listed(self._names) or 'none'}"
            )

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        finding = Finding(self.name, _RANKING)
        says = f"{len(self.items)} questions with {len(self._names)} strategies each: {listed(self._names)}."
        if self._left_out:
            says += f" Items that do not hold all of them were left out: {self._left_out}."
        by_metric = {info.name: self._complete(values, info.name) for info in metrics}
        for name, rows in by_metric.items():
            if len(rows) < len(self.items):
                says += f" {name} has values for {len(rows)} of them."
        finding.says.append(says)
        tables = {info: _table(by_metric[info.name]) for info in metrics if len(by_metric[info.name]) > 1}
        same = {info.name: self._by_questions(table) for info, table in tables.items()}
        counts = sorted({*chain.from_iterable(same.values())})
        for info, table in tables.items():
            shares = same[info.name]
            cells: Row = {"metric": info.name, **{str(count): shares.get(count) for count in counts}}
            stable = stable_from(shares) if len(table) >= FEWEST_TESTED else None
            order = " > ".join(self._names[index] for index in _order(info, table))
            finding.add(_RANKING, {**cells, "stable from": stable, "ranking, best first": order})
        main = next((info for info in tables if info.name == MAIN), None)
        if main is None:
            finding.says.append(f"There is no advice: {MAIN} did not score two questions or more.")
            return finding
        order_of_main = _order(main, tables[main])
        for better, worse in combinations(order_of_main, 2):
            row, advice = self._pair(tables[main][:, [better, worse]], better, worse)
            finding.add(_PAIRS, row)
            if order_of_main.index(worse) == order_of_main.index(better) + 1:  # neighbours give the ranking
                finding.says.append(advice)
        finding.says.append(_stability("questions", same[MAIN], len(tables[main])))
        parts = [[value.parts for value in row] for row in by_metric[MAIN].values()]
        if questions := [answer_sums(row) for row in parts if all(row)]:
            less = self._by_answers(questions)
            for count, share in less.items():
                finding.add(_LESS, {"answers": count, "same ranking": share, "questions": len(questions)})
            finding.says.append(_stability("masked-out answers", less, len(questions)))
        return finding

    def _complete(self, values: Sequence[Value], metric: str) -> dict[str, list[Value]]:
        """The values of the questions for which a metric has one of every strategy, by question."""
        known = {(v.item, v.summary): v for v in values if v.metric == metric and v.value is not None}
        rows: dict[str, list[Value]] = {}
        for item in self.items:
            row = [known[item.id, name] for name in self._names if (item.id, name) in known]
            if len(row) == len(self._names):
                rows[item.id] = row
        return rows

    def _by_questions(self, table: Floats) -> Shares:
        """With replacement, because the questions stand for all that might have been asked."""
        same: dict[int, float | None] = {}
        for count in counts_up_to(len(table)):
            draws = np.random.default_rng([self._seed, count]).multinomial(
                count, np.full(len(table), 1 / len(table)), size=DRAWS
            )
            same[count] = same_ranking(draws / count @ table, table.mean(axis=0))
        return same

    def _by_answers(self, questions: Sequence[tuple[Floats, Floats]]) -> Shares:
        """So many random answers of each question (all, if it has fewer), drawn without replacement."""
        rng = np.random.default_rng(self._seed)
        counts = counts_up_to(max(len(sizes) for _, sizes in questions))
        totals: Floats = np.zeros((len(counts), DRAWS, len(self._names)))
        for sums, sizes in questions:
            ranks = np.argsort(rng.random((DRAWS, len(sizes))), axis=1)
            for total, count in zip(totals, counts, strict=True):
                inside = (ranks < count).astype(np.float64)
                total += (inside @ sums) / (inside @ sizes)[:, None]
        reference = np.sum([sums.sum(axis=0) / sizes.sum() for sums, sizes in questions], axis=0)
        return {count: same_ranking(total, reference) for count, total in zip(counts, totals, strict=True)}

    def _pair(self, two: Floats, better: int, worse: int) -> tuple[Row, str]:
        """What separates two strategies: a row, and how many questions do in words."""
        differences = (two[:, 1] - two[:, 0]).tolist()
        difference = mean_interval(differences, len(differences), seed=self._seed)
        sd = stdev(differences)
        needed = questions_needed(difference.mean, sd)
        row = {
            "better": self._names[better],
            "worse": self._names[worse],
            **interval("difference", difference),
            "sd of a question": sd,
            "same order": self._by_questions(two)[len(two)],
            "questions needed": None if needed is None else Approximate(needed),
            "n": len(differences),
        }
        names = " and ".join(excerpt(self._names[index]) for index in (better, worse))
        if needed is None:
            return row, f"{names} have the same mean score, which no questions separate."
        size = f"which differ by {with_interval(difference, '.4f')} on {difference.n} questions"
        if difference.n < FEWEST_TESTED:
            return row, f"Too few questions for advice on {names}, {size}."
        if difference.side_of(0) < 1:
            more = f"About {needed} would, if the difference is as large as observed."
            return row, f"These questions do not separate {names}, {size}. {more}"
        return row, f"With this judge, about {needed} questions separate {names}, {size}."


def _table(rows: Mapping[str, Sequence[Value]]) -> Floats:
    """The values of complete questions, (Q, S)."""
    return np.array([[value.value for value in row] for row in rows.values()], dtype=np.float64)


def _order(metric: MetricInfo, table: Floats) -> list[int]:
    """Indices of the strategies, the best first."""
    badness = list(map(metric.badness, table.mean(axis=0)))
    return sorted(range(len(badness)), key=badness.__getitem__)


def _stability(of: str, same: Shares, questions: int) -> str:
    """Say how many ``of`` give the same ranking, by shares that rest on so many questions."""
    stable, most = stable_from(same), max(same)
    verdict = f"stable from {stable} on"
    if questions < FEWEST_TESTED:
        verdict = "too few questions to tell"
    elif same[most] is None:
        verdict = "all strategies have the same mean score, so there is no ranking"
    elif stable is None:
        verdict = f"not stable even with {most}"
    elif stable == most:
        verdict = f"stable only with all {most}"
    return f"Ranking by number of {of} ({questions} questions): {verdict}."


def same_ranking(means: Floats, reference: Floats) -> float | None:
    """Share of the rows of ``means`` (R, S) that order all strategies as ``reference`` (S,) does.

    Strategies that tie in the reference are not ranked; None if all do. A tie in a row is another order.
    """
    first, second = np.triu_indices(len(reference), 1)
    gaps = reference[first] - reference[second]
    differ = np.abs(gaps) > TIE
    if not differ.any():
        return None
    draw_gaps = (means[:, first] - means[:, second]) * np.sign(gaps)
    return float((draw_gaps[:, differ] > TIE).all(axis=1).mean())


def stable_from(same: Shares) -> int | None:
    """The smallest count from which on the ranking is stable; None if it is not, even at the largest."""
    stable = None
    for count in sorted(same, reverse=True):
        share = same[count]
        if share is None or share < STABLE:
            break
        stable = count
    return stable


def counts_up_to(most: int) -> list[int]:
    """1, 2, 5, 10, 20, 50, … below ``most``, then ``most``."""
    return [*_steps(most), most]


def _steps(most: int) -> Iterator[int]:
    for power in range(len(str(most))):
        yield from (count for count in (10**power, 2 * 10**power, 5 * 10**power) if count < most)


def answer_sums(parts: Sequence[Parts]) -> tuple[Floats, Floats]:
    """Sum the distances of a question's masked-out answers by strategy, (answers, S), and count their token
    tasks; answers without any are left out."""
    sums, sizes = [], []
    for of_answer in zip(*parts, strict=True):
        distances = np.array([[*chain.from_iterable(words)] for words in of_answer])
        if distances.size:
            sums.append(distances.sum(axis=1))
            sizes.append(distances.shape[1])
    return np.array(sums), np.array(sizes, dtype=np.float64)


def questions_needed(difference: float | None, sd: float) -> int | None:
    """Paired questions with which the 95% interval of their mean difference excludes 0 with 80% power:
    ((z_.975 + z_.8) sd / |d|)^2, the normal approximation of a paired test (Cohen, Statistical Power
    Analysis, 2nd ed. 1988, chapter 2), at least ``FEWEST_TESTED``. None if there is no difference to find.
    """
    if not difference:
        return None
    z = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
    count = (z * sd / difference) ** 2
    return max(FEWEST_TESTED, math.ceil(count)) if math.isfinite(count) else None
