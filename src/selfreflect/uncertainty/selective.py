"""Answering only the most confident part of the questions: risk against coverage.

All are expectations over a random order of equal scores. Broken by the order of a file, ties can move the
area by a tenth. Every function takes a :class:`Tally` and returns one value for each of its resamples.
"""

from __future__ import annotations

import numpy as np

from selfreflect.stats import Floats
from selfreflect.uncertainty.tally import Tally


def aurc(tally: Tally) -> Floats:
    """Area under the risk-coverage curve: the mean over k of the risk of the k most confident answers.

    (Geifman et al. 2019, arXiv 1805.08206.) Among g answers of equal score with e errors, after N answers
    with E errors, the expected risk of N + j is (E + j e/g) / (N + j); its sum over j has a closed form.
    """
    counts, wrong = tally.counts[..., ::-1], tally.wrong[..., ::-1]
    after = counts.cumsum(-1)
    before = after - counts
    errors_before = wrong.cumsum(-1) - wrong
    rate = wrong / np.maximum(counts, 1)
    harmonic = _harmonic(tally.n)
    steps = harmonic[after.astype(np.intp)] - harmonic[before.astype(np.intp)]
    area: Floats = (rate * counts + (errors_before - rate * before) * steps).sum(-1) / tally.n
    return area


def expected_risks(tally: Tally) -> Floats:
    """The risk-coverage curve: the expected risk of the k most confident answers, for k = 1, …, n.

    Its mean is :func:`aurc`. Takes counts without leading dimensions; shape (n,).
    """
    counts, wrong = tally.counts[::-1].astype(np.intp), tally.wrong[::-1]
    rates = np.repeat(wrong / np.maximum(counts, 1), counts)
    risks: Floats = rates.cumsum() / np.arange(1, tally.n + 1)
    return risks


def best_aurc(tally: Tally) -> Floats:
    """AURC of scores that put every wrong answer last."""
    n, errors = tally.n, tally.wrong.sum(-1)
    harmonic = _harmonic(n)
    right = n - errors
    area: Floats = (errors - right * (harmonic[n] - harmonic[right.astype(np.intp)])) / n
    return area


def excess_aurc(tally: Tally) -> Floats:
    """E-AURC: AURC minus that of the best order, exact instead of its usual approximation for large n."""
    return np.asarray(aurc(tally) - best_aurc(tally))


def augrc(tally: Tally) -> Floats:
    """Area under the generalized risk-coverage curve: errors among the accepted answers as a share of all
    (Traub et al. 2024, arXiv 2407.01032). It is (1 - AUROC) a (1 - a) + (1 - a)^2 / 2 for accuracy a."""
    counts, wrong = tally.counts[..., ::-1], tally.wrong[..., ::-1]
    errors = wrong.cumsum(-1) - wrong / 2
    area: Floats = (counts * errors).sum(-1) / tally.n**2
    return area


def prr(tally: Tally) -> Floats:
    """Prediction rejection ratio: what the scores gain over a random order, as a share of what the best order
    gains; 1 is best, 0 is random (Malinin and Gales 2021, arXiv 2002.07650).

    NaN where no order gains anything: all answers are correct, or all are wrong.
    """
    risk = 1 - tally.accuracy  # of a random order
    gain = risk - best_aurc(tally)
    mixed = (risk > 0) & (risk < 1)
    gained = np.round(risk - aurc(tally), 12) + 0.0  # equal scores gain nothing, and rounding gives -1e-17
    ratio: Floats = np.where(mixed, gained / np.where(mixed, gain, 1), np.nan)
    return ratio


def _harmonic(n: int) -> Floats:
    """The sums 1 + 1/2 + … + 1/k for k = 0, …, n."""
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, n + 1))])
