"""Estimators that need only sampled answers: classes as labels, shape (M,), or similarities, shape (M, M)."""

from __future__ import annotations

import numpy as np

from selfreflect.stats import Floats
from selfreflect.uncertainty.classes import Labels

HEAT_TIME = 0.3
"""Of the heat kernel."""
_ROUNDING = 1e-9


def modal_share(labels: Labels) -> float:
    """Share of the largest class. Too high for few samples: two equal classes give 0.62 of 10 samples."""
    return float(np.bincount(labels).max()) / len(labels)


def split_half_share(labels: Labels) -> float:
    """Share in one half of the samples of the class that is largest in the other, averaged over both halves
    and over largest classes of equal size. Not inflated by few samples. Needs two."""
    middle = len(labels) // 2
    size = int(labels.max()) + 1
    first, second = (np.bincount(half, minlength=size) for half in (labels[:middle], labels[middle:]))
    shares = []
    for choosing, reading in ((first, second), (second, first)):
        largest = choosing == choosing.max()
        shares.append(float(reading[largest].mean()) / int(reading.sum()))
    return (shares[0] + shares[1]) / 2


def entropy(labels: Labels) -> float:
    """Discrete semantic entropy, in nats: of the shares of classes (Farquhar et al. 2024, Nature 630).

    Too low for few samples: four equal classes give 1.22 of 10 samples instead of 1.39.
    """
    shares = np.bincount(labels) / len(labels)
    shares = shares[shares > 0]
    return abs(float((shares * np.log(shares)).sum()))


def entropy_miller_madow(labels: Labels) -> float:
    """Discrete semantic entropy plus (K - 1) / 2M for K classes, which corrects most of its bias (Miller
    1955)."""
    return entropy(labels) + (len(np.unique(labels)) - 1) / (2 * len(labels))


def number_of_classes(labels: Labels) -> float:
    """How many classes there are."""
    return float(len(np.unique(labels)))


def mean_similarity(similarities: Floats) -> float:
    """Lexical similarity: the mean over pairs of different samples. Needs two."""
    pairs = np.triu_indices(len(similarities), 1)
    return float(similarities[pairs].mean())


def eigenvalue_sum(similarities: Floats) -> float:
    """EigV: the sum of max(0, 1 - eigenvalue) of the graph Laplacian, a soft number of classes (Lin et al.
    2024, arXiv 2305.19187)."""
    values = np.linalg.eigvalsh(_laplacian(similarities))
    return float(np.maximum(0, 1 - values).sum())


def degree(similarities: Floats) -> float:
    """Deg: the mean distance of all pairs, each sample with itself included (Lin et al. 2024)."""
    return float(1 - similarities.mean())


def eccentricity(similarities: Floats, below: float = 0.9) -> float:
    """Ecc: how far samples are from their centre, in the Laplacian's eigenvectors with small eigenvalues (Lin
    et al. 2024). An eigenvalue within 1e-9 of ``below`` is not below it, whatever rounding makes of it."""
    values, vectors = np.linalg.eigh(_laplacian(similarities))
    embedded = vectors[:, values < below - _ROUNDING]
    # rounded, because what is 0 exactly comes out as one of many numbers near 1e-16
    return round(float(np.linalg.norm(embedded - embedded.mean(0))), 10)


def kernel_entropy(similarities: Floats, time: float = HEAT_TIME) -> float:
    """Kernel language entropy: the von Neumann entropy of the heat kernel exp(-t L), L = D - W, of the graph,
    scaled to unit diagonal; as a share of the largest, ln M (Nikitin et al. 2024, arXiv 2405.20003).
    Needs two samples.

    lm-polygraph computes it with L = W - D, which exchanges warm and cold.
    """
    laplacian = np.diag(similarities.sum(1)) - similarities
    values, vectors = np.linalg.eigh(laplacian)
    kernel = (vectors * np.exp(-time * values)) @ vectors.T
    scale = 1 / np.sqrt(np.diag(kernel))
    weights = np.linalg.eigvalsh(scale[:, None] * kernel * scale) / len(kernel)
    weights = weights[weights > 0]
    return abs(float((weights * np.log(weights)).sum())) / float(np.log(len(kernel)))


def _laplacian(similarities: Floats) -> Floats:
    """I - D^(-1/2) W D^(-1/2) with degrees D."""
    scale = 1 / np.sqrt(similarities.sum(1))
    laplacian: Floats = np.eye(len(similarities)) - scale[:, None] * similarities * scale
    return laplacian
