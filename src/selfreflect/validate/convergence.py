"""Study ``convergence``: the number of questions that a strategy ranking needs.

Fewer of them are drawn from existing scores. Shapes: Q questions, S strategies, R random draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from statistics import NormalDist, stdev

import numpy as np

from selfreflect.errors import DataError, excerpt
from selfreflect.sources.items import Item
from selfreflect.sources.rows import listed
from selfreflect.stats import FEWEST_TESTED, TIE, Floats, mean_interval
from selfreflect.table import Approximate
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.study import Finding, Row, each_metric, interval, summary_names

# The metric that the pairs and the advice are about
MAIN = "selfreflect"
# A ranking is stable if at least this share of draws gives it
DRAWS, STABLE = 500, 0.95
Shares = Mapping[int, float | None]
"""Share of draws with the complete ranking, by number of questions."""


class Convergence:
    """Strategies (summary names), ranked from subsets of the scores.

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
                "convergence ranks strategies over questions: it needs two or more items that all have the "
                "same two or more summaries; {len(self.items)} of {len(items)} have all of "
                f"{listed(self._names) or 'none'}",
                code="too_few",
            )

    def finding(self, values: Sequence[Value], metrics: Sequence[MetricInfo]) -> Finding:
        finding = Finding(self.name, "ranking", draws=DRAWS, stable=STABLE, fewest=FEWEST_TESTED)
        counts = {
            f"Questions with {len(self._names)} strategies ({listed(self._names)})": len(self.items),
            "items left out because they lack some of these": self._left_out,
        }
        main = None
        shares_of: dict[str, Shares] = {}
        cells_of: dict[str, Row] = {}
        for info, numbers in each_metric(values, metrics):
            rows = [[numbers.get((item.id, name)) for name in self._names] for item in self.items]
            table = np.array([row for row in rows if None not in row], dtype=np.float64)
            counts[f"questions without all values of {info.name}"] = len(self.items) - len(table)
            if len(table) < 2:
                continue
            shares_of[info.name] = shares = self._by_questions(table)
            stable = stable_from(shares) if len(table) >= FEWEST_TESTED else None
            order = sorted(range(len(self._names)), key=[*map(info.badness, table.mean(axis=0))].__getitem__)
            ranking = " > ".join(self._names[index] for index in order)
            cells_of[info.name] = {"stable from": stable, "ranking, best first": ranking}
            if info.name == MAIN:
                main = table, order
        headings = sorted({count for shares in shares_of.values() for count in shares})
        for name, shares in shares_of.items():
            cells = {str(count): shares.get(count) for count in headings}
            finding.add("ranking", {"metric": name, **cells, **cells_of[name]})
        finding.tally(counts)
        if main is None:
            finding.say("no_advice")
        else:
            self._add_pairs(finding, *main)
        return finding

    def _by_questions(self, table: Floats) -> Shares:
        """Draw questions with replacement, as a sample of all possible questions."""
        shares: dict[int, float | None] = {}
        for count in counts_up_to(len(table)):
            rng = np.random.default_rng([self._seed, count])
            # how often each question is drawn, which is all that a mean needs
            draws = rng.multinomial(count, np.full(len(table), 1 / len(table)), size=DRAWS)
            shares[count] = same_ranking(draws / count @ table, table.mean(axis=0))
        return shares

    def _add_pairs(self, finding: Finding, table: Floats, order: Sequence[int]) -> None:
        """Compare all pairs of strategies, and count the questions that separate ranked neighbours."""
        for better, worse in combinations(order, 2):
            differences = (table[:, worse] - table[:, better]).tolist()
            difference = mean_interval(differences, len(differences), seed=self._seed)
            sd = stdev(differences)
            count = questions_needed(difference.mean, sd)
            row: Row = {
                "better": self._names[better],
                "worse": self._names[worse],
                **interval("difference", difference),
                "sd of a question": sd,
                "same order": self._by_questions(table[:, [better, worse]])[len(table)],
                "questions needed": None if count is None else Approximate(count),
                "n": len(differences),
            }
            finding.add("pairs", row)
            if (better, worse) in pairwise(order):
                case = "separated" if difference.side_of(0) == 1 else "unclear"
                case = "few" if difference.n < FEWEST_TESTED else case
                pair = f"{excerpt(self._names[better])} and {excerpt(self._names[worse])}"
                finding.say("equal" if count is None else case, pair=pair, needed=count, n=difference.n)


def same_ranking(means: Floats, reference: Floats) -> float | None:
    """Compute the share of rows in ``means`` (R, S) with the order of ``reference`` (S,).

    Strategies that tie in the reference are not ranked; None if all do. A tie in a row is another order.
    """
    first, second = np.triu_indices(len(reference), 1)
    gaps = reference[first] - reference[second]
    differ = np.abs(gaps) > TIE
    if not differ.any():
        return None
    draw_gaps = (means[:, first] - means[:, second]) * np.sign(gaps)
    return float((draw_gaps[:, differ] > TIE).all(axis=1).mean())


def stable_from(shares: Shares) -> int | None:
    """Find the smallest count with a stable ranking from there on; None if there is none."""
    stable = None
    for count in sorted(shares, reverse=True):
        share = shares[count]
        if share is None or share < STABLE:
            break
        stable = count
    return stable


def counts_up_to(total: int) -> list[int]:
    """List 1, 2, 5, 10, 20, 50, … below ``total``, then ``total``."""
    steps = [digit * 10**power for power in range(len(str(total))) for digit in (1, 2, 5)]
    return [*(step for step in steps if step < total), total]


def questions_needed(difference: float | None, sd: float) -> int | None:
    """Compute the paired questions for 80% power to detect a difference; None without a difference.

    Then the 95% interval of the mean difference excludes 0: ((z_.975 + z_.8) sd / |d|)^2, the normal
    approximation of a paired test (Cohen, Statistical Power Analysis, 2nd ed. 1988, chapter 2), at least
    ``FEWEST_TESTED``.
    """
    if not difference:
        return None
    z = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
    count = (z * sd / difference) ** 2
    return max(FEWEST_TESTED, math.ceil(count)) if math.isfinite(count) else None
