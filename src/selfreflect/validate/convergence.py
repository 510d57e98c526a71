"""Study ``convergence``: how many questions does a ranking of strategies need?

Fewer of them are drawn from existing scores. Shapes: Q questions, S strategies, R random draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain, combinations, pairwise
from statistics import NormalDist, stdev

import numpy as np

from selfreflect.errors import DataError, excerpt
from selfreflect.sources.files import listed
from selfreflect.sources.items import Item
from selfreflect.stats import FEWEST_TESTED, TIE, Floats, mean_interval
from selfreflect.table import Approximate
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.study import (
    Finding,
    Numbers,
    Row,
    TableLayout,
    each_metric,
    interval,
    summary_names,
    with_interval,
)

MAIN = "selfreflect"
"""The metric that advice is about."""
DRAWS, STABLE = 500, 0.95
"""A ranking is stable if at least this share of draws gives it."""
Shares = Mapping[int, float | None]
"""By number of questions, the share of draws that give the ranking by all of them."""

_DRAWN = f"share of {DRAWS} draws that rank all strategies as all do; strategies with one mean are not ranked"
_FEW = (
    f"stable from: the share is at least {STABLE:.0%} from there on; a dash below {FEWEST_TESTED} questions"
)
_RANKING = TableLayout("Same ranking by number of questions", ".0%", (_DRAWN, _FEW), {"stable from": "d"})
_PAIR_NOTES = (
    "difference: how much worse, paired over questions; intervals: 95% BCa bootstrap over questions",
    f"questions needed: ((1.96 + 0.84) sd / difference)^2, at least {FEWEST_TESTED}, for 80% power if the "
    "difference is as large as observed",
)
_PAIR_FORMS = {"same order": ".0%", "questions needed": ".0f"}
_PAIRS = TableLayout(f"What separates two strategies ({MAIN})", ".4f", _PAIR_NOTES, _PAIR_FORMS)


class Convergence:
    """Strategies (the names of summaries), ranked from less than everything that was scored.

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
        complete = {info: self._complete(numbers) for info, numbers in each_metric(values, metrics)}
        counts = {
            f"Questions with {len(self._names)} strategies ({listed(self._names)})": len(self.items),
            "items left out because they do not hold all of them": self._left_out,
        }
        for info, table in complete.items():
            counts[f"questions without all values of {info.name}"] = len(self.items) - len(table)
        finding.tally(counts)
        tables = {info: table for info, table in complete.items() if len(table) > 1}
        shares = {info: self._by_questions(table) for info, table in tables.items()}
        for info, table in tables.items():
            headings = sorted({*chain.from_iterable(shares.values())})
            cells: Row = {"metric": info.name, **{str(count): shares[info].get(count) for count in headings}}
            stable = stable_from(shares[info]) if len(table) >= FEWEST_TESTED else None
            order = " > ".join(self._names[index] for index in _order(info, table))
            finding.add(_RANKING, {**cells, "stable from": stable, "ranking, best first": order})
        main = next((info for info in tables if info.name == MAIN), None)
        if main is None:
            finding.says.append(f"There is no advice: {MAIN} did not score two questions or more.")
            return finding
        order_of_main = _order(main, tables[main])
        for better, worse in combinations(order_of_main, 2):
            names = self._names[better], self._names[worse]
            row, advice = self._pair(tables[main][:, [better, worse]], *names)
            finding.add(_PAIRS, row)
            if (better, worse) in pairwise(order_of_main):  # neighbours give the ranking
                finding.says.append(advice)
        return finding

    def _complete(self, numbers: Numbers) -> Floats:
        """Collect the values of the questions for which a metric has one of every strategy, (Q, S)."""
        rows = []
        for item in self.items:
            row = [numbers[item.id, name] for name in self._names if (item.id, name) in numbers]
            if len(row) == len(self._names):
                rows.append(row)
        return np.array(rows, dtype=np.float64).reshape(-1, len(self._names))

    def _by_questions(self, table: Floats) -> Shares:
        """Draw with replacement, because the questions stand for all that might have been asked."""
        same: dict[int, float | None] = {}
        for count in counts_up_to(len(table)):
            rng = np.random.default_rng([self._seed, count])
            draws = rng.multinomial(count, np.full(len(table), 1 / len(table)), size=DRAWS)
            same[count] = same_ranking(draws / count @ table, table.mean(axis=0))
        return same

    def _pair(self, values: Floats, better: str, worse: str) -> tuple[Row, str]:
        """Compare two strategies: a row, and in words how many questions separate them."""
        differences = (values[:, 1] - values[:, 0]).tolist()
        difference = mean_interval(differences, len(differences), seed=self._seed)
        sd = stdev(differences)
        needed = questions_needed(difference.mean, sd)
        row = {
            "better": better,
            "worse": worse,
            **interval("difference", difference),
            "sd of a question": sd,
            "same order": self._by_questions(values)[len(values)],
            "questions needed": None if needed is None else Approximate(needed),
            "n": len(differences),
        }
        advice = _ADVICE["separated"]
        if needed is None:
            advice = _ADVICE["equal"]
        elif difference.n < FEWEST_TESTED:
            advice = _ADVICE["few"]
        elif difference.side_of(0) < 1:
            advice = _ADVICE["unclear"]
        size = f"{with_interval(difference, '.4f')} on {difference.n} questions"
        return row, f"{excerpt(better)} and {excerpt(worse)} {advice.format(size=size, needed=needed)}"


_ADVICE = {
    "separated": "differ by {size}: with this judge, about {needed} questions separate them.",
    "unclear": "differ by {size}, which do not separate them. About {needed} would, if the difference is as "
    "large as observed.",
    "few": "differ by {size}: too few for advice.",
    "equal": "have the same mean score, which no questions separate.",
}


def _order(metric: MetricInfo, table: Floats) -> list[int]:
    """Order the indices of the strategies, the best first."""
    badness = list(map(metric.badness, table.mean(axis=0)))
    return sorted(range(len(badness)), key=badness.__getitem__)


def same_ranking(means: Floats, reference: Floats) -> float | None:
    """Compute the share of the rows of ``means`` (R, S) that order all strategies as ``reference`` (S,) does.

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
    """Find the smallest count from which on the ranking is stable; None if it is not, even at the largest."""
    stable = None
    for count in sorted(same, reverse=True):
        share = same[count]
        if share is None or share < STABLE:
            break
        stable = count
    return stable


def counts_up_to(total: int) -> list[int]:
    """List 1, 2, 5, 10, 20, 50, … below ``total``, then ``total``."""
    steps = [digit * 10**power for power in range(len(str(total))) for digit in (1, 2, 5)]
    return [*(step for step in steps if step < total), total]


def questions_needed(difference: float | None, sd: float) -> int | None:
    """Compute how many paired questions show a difference with 80% power; None if there is none to show.

    Then the 95% interval of the mean difference excludes 0: ((z_.975 + z_.8) sd / |d|)^2, the normal
    approximation of a paired test (Cohen, Statistical Power Analysis, 2nd ed. 1988, chapter 2), at least
    ``FEWEST_TESTED``.
    """
    if not difference:
        return None
    z = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
    count = (z * sd / difference) ** 2
    return max(FEWEST_TESTED, math.ceil(count)) if math.isfinite(count) else None
