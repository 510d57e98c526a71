"""Uncertainty estimators against lm-polygraph, uqlm and relplot on the same random arrays.

    pip download --no-deps lm-polygraph==0.7.0 uqlm==0.6.7 relplot==1.0.3 && unzip each into one folder
    python benchmarks/uncertainty_parity.py FOLDER

Nothing of them is installed: the modules with the formulas are loaded alone, without their packages' own
imports. Needs the validate extra.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from selfreflect.uncertainty import calibration, likelihoods, samples, selective
from selfreflect.uncertainty.classes import group_related
from selfreflect.uncertainty.similarity import jaccard
from selfreflect.uncertainty.tally import Tally

TRIALS = 200
rng = np.random.default_rng(0)


PACKAGES = (
    "lm_polygraph lm_polygraph.estimators lm_polygraph.utils lm_polygraph.ue_metrics uqlm uqlm.nli relplot"
)


def make_packages(folder: Path) -> None:
    """Stand in for the packages, so that their own ``__init__``, which import much more, are not run."""
    for name in PACKAGES.split():
        package = types.ModuleType(name)
        package.__path__ = [str(folder.joinpath(*name.split(".")))]
        sys.modules[name] = package


def worst(name: str, pair: Callable[[], tuple[float, float]]) -> None:
    """Print the largest difference over random trials."""
    differences = [abs(np.subtract(*pair())) for _ in range(TRIALS)]
    print(f"{name:50} largest difference {max(differences):.1e}")


def matrix(size: int) -> np.ndarray:
    """A random similarity that is not symmetric."""
    similar = rng.random((size, size))
    np.fill_diagonal(similar, 1)
    return similar


def symmetric(similar: np.ndarray) -> np.ndarray:
    return (similar + similar.T) / 2


def graph_estimators() -> None:
    for file, name, ours in (
        ("eig_val_laplacian", "EigValLaplacian", samples.eigenvalue_sum),
        ("deg_mat", "DegMat", samples.degree),
        ("eccentricity", "Eccentricity", samples.eccentricity),
    ):
        theirs = getattr(import_module(f"lm_polygraph.estimators.{file}"), name)()

        def pair(theirs: Any = theirs, ours: Callable[[np.ndarray], float] = ours) -> tuple[float, float]:
            similar = matrix(int(rng.integers(2, 12)))
            stats = {"sample_texts": [["x"] * len(similar)], "semantic_matrix_entail": similar[None]}
            return float(theirs(stats)[0]), ours(symmetric(similar))

        worst(f"lm-polygraph {name}", pair)
    estimator = import_module("lm_polygraph.estimators.eig_val_laplacian").EigValLaplacian("Jaccard_score")

    def words() -> tuple[float, float]:
        texts = [" ".join(rng.choice(list("abcd"), 3)) for _ in range(8)]
        return float(estimator({"sample_texts": [texts]})[0]), samples.eigenvalue_sum(jaccard(texts))

    worst("lm-polygraph EigValLaplacian, Jaccard", words)


def entropies() -> None:
    module = import_module("lm_polygraph.estimators.semantic_entropy")
    for kind, ours in (
        ("mean", likelihoods.semantic_entropy_monte_carlo),
        ("direct", likelihoods.semantic_entropy_direct),
    ):
        theirs = module.SemanticEntropy(entropy_estimation=kind)

        def pair(theirs: Any = theirs, ours: Callable[..., float] = ours) -> tuple[float, float]:
            logs = -5 * rng.random(9)
            labels = np.unique(rng.integers(0, 4, 9), return_inverse=True)[1]
            members = [np.flatnonzero(labels == label).tolist() for label in range(labels.max() + 1)]
            classes = {"class_to_sample": [members], "sample_to_class": [labels.tolist()]}
            stats = {
                "sample_log_probs": [logs],
                "sample_texts": [["x"] * 9],
                "semantic_classes_entail": classes,
            }
            return float(theirs(stats)[0]), ours(logs, labels)

        worst(f"lm-polygraph SemanticEntropy, {kind}", pair)
    utilities = import_module("uqlm.nli.entropy_utils")

    def discrete() -> tuple[float, float]:
        labels = np.unique(rng.integers(0, 4, 9), return_inverse=True)[1]
        shares = (np.bincount(labels) / 9).tolist()
        return float(utilities.compute_semantic_entropy(cluster_probabilities=shares)), samples.entropy(
            labels
        )

    worst("uqlm discrete semantic entropy", discrete)


def token_relevance() -> None:
    sentence = import_module("lm_polygraph.estimators.sentence_sar").SentenceSAR()
    whole = import_module("lm_polygraph.estimators.sar").SAR()

    def of_sentences() -> tuple[float, float]:
        similar, logs = symmetric(matrix(6)), -5 * rng.random(6)
        stats = {"sample_log_probs": [logs], "sample_sentence_similarity": [similar]}
        return float(sentence(stats)[0]), likelihoods.sentence_sar(logs, similar)

    def of_tokens() -> tuple[float, float]:
        similar = symmetric(matrix(4))
        logs = [-5 * rng.random(5) for _ in range(4)]
        close = [rng.random(5) for _ in range(4)]
        stats = {
            "sample_log_likelihoods": [logs],
            "sample_token_similarity": [close],
            "sample_sentence_similarity": [similar],
        }
        each = [likelihoods.token_sar(*pair) for pair in zip(logs, [1 - c for c in close], strict=True)]
        return float(whole(stats)[0]), likelihoods.sar(each, similar)

    worst("lm-polygraph SentenceSAR", of_sentences)
    worst("lm-polygraph SAR", of_tokens)


class StubNLI:
    """Says which of three texts entail each other: a and b, b and c."""

    def get_nli_results_batch(self, pairs: list[tuple[str, str]]) -> list[dict[str, Any]]:
        related = [set(pair) in ({"a", "b"}, {"b", "c"}) for pair in pairs]
        scores = dict.fromkeys(("noncontradiction_score", "entailment_score"), 0.5)
        return [{**scores, "entailment": entails} for entails in related]


def clusters() -> None:
    nli: Any = types.ModuleType("uqlm.nli.nli")
    nli.NLI = StubNLI
    sys.modules["uqlm.nli.nli"] = nli
    clusterer = import_module("uqlm.nli.cluster").SemanticClusterer(nli=StubNLI())
    print("a~b, b~c, not a~c, in the order a c b:")
    print("  uqlm:", [list(map(int, one)) for one in clusterer.cluster_responses(["a", "c", "b"])[1]])
    related = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 1]], bool)
    for order in ("first", "components"):
        print(f"  here, {order}: labels", group_related(related, order).tolist())


def measures() -> None:
    area = import_module("lm_polygraph.ue_metrics.pred_rej_area").PredictionRejectionArea()

    def without_ties() -> tuple[float, float]:
        scores, correct = rng.random(50), rng.random(50) < 0.6
        return float(area((-scores).tolist(), correct.astype(float).tolist())), 1 - float(
            selective.aurc(Tally.of(scores, correct))
        )

    worst("lm-polygraph PRR area, no ties", without_ties)
    scores, correct = rng.integers(1, 5, 300) / 4, rng.random(300) < 0.6
    areas = []
    for _ in range(TRIALS):
        order = rng.permutation(300)
        areas.append(float(area((-scores[order]).tolist(), correct[order].astype(float).tolist())))
    ours = 1 - float(selective.aurc(Tally.of(scores, correct)))
    print(f"  with 4 distinct values, shuffled: {min(areas):.3f} to {max(areas):.3f}; here always {ours:.3f}")
    decorators: Any = types.ModuleType("deprecation")
    decorators.deprecated = lambda *_, **__: lambda function: function
    sys.modules.setdefault("deprecation", decorators)
    sys.modules["relplot"].config = import_module("relplot.config")
    relplot = import_module("relplot.metrics")

    def smooth() -> tuple[float, float]:
        confidence = rng.random(300)
        labels = rng.random(300) < confidence**2
        return float(relplot.smECE(confidence, labels.astype(float))), float(
            calibration.smooth_ece(Tally.of(confidence, labels))
        )

    worst("relplot smECE", smooth)
    grid = rng.integers(0, 11, 1100) / 10
    labels = rng.random(1100) < 0.2 + 0.6 * (grid > 0.45)
    tally = Tally.of(grid, labels)
    theirs = relplot.binnedECE(grid, labels.astype(float))
    print(f"ECE of 1100 confidences on a grid of 0.1: relplot {theirs:.4f}")
    for name, ours in (
        ("[low, high)", calibration.ece(tally)),
        ("(low, high]", calibration.ece(tally, edges="right")),
        ("per value", calibration.ece_exact(tally)),
    ):
        print(f"  here {name}: {float(ours):.4f}")


def main() -> None:
    make_packages(Path(sys.argv[1]))
    for check in (graph_estimators, entropies, token_relevance, clusters, measures):
        check()


if __name__ == "__main__":
    main()
