"""Compare token-level scores of one answer with those of uqlm and artefactual, on the same arrays.

    selfreflect answers --questions FILE --num-answers 5 --top-logprobs 20 --out RUN
    python benchmarks/one_call_peers.py RUN PYTHON

PYTHON is the interpreter of an environment of its own with ``uqlm==0.6.7`` and ``artefactual==2026.9.1``.
Every stored answer of RUN is one array. The same file runs there with the arrays, and prints what the two
compute.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RANKS = (15, 5)
"""Likely tokens of each token: as many as uqlm's scores and artefactual's weights want, and fewer."""


def ours(run: Path) -> dict[str, Any]:
    """Read the log-probabilities of a run's answers, and whether each is right."""
    from selfreflect.run.records import run_questions, run_records
    from selfreflect.store.run import Run
    from selfreflect.uncertainty.correctness import Correctness

    records = run_records(Run.load(run))
    is_right = Correctness("contains")
    chosen, top, wrong = [], [], []
    for question in run_questions(records, records, "gold"):
        for index, answer in enumerate(question.answers):
            chosen.append(question.token_values.logprobs[index])
            top.append(question.token_values.top_logprobs[index])
            wrong.append(not is_right(question, answer))
    return {"chosen": chosen, "top": top, "wrong": wrong}


def peers(arrays: dict[str, Any]) -> dict[str, Any]:
    """Compute the scores of both peers; runs in their environment."""
    from artefactual.scoring.entropy_methods.entropy_transformer import EntropyTransformer
    from sklearn.linear_model import LogisticRegression
    from uqlm.white_box import SingleLogprobsScorer, TopLogprobsScorer

    result: dict[str, Any] = {}
    for ranks in RANKS:
        answers = [
            [
                {"logprob": logprob, "top_logprobs": [{"logprob": value} for value in likely[:ranks]]}
                for logprob, likely in zip(chosen, top, strict=True)
            ]
            for chosen, top in zip(arrays["chosen"], arrays["top"], strict=True)
        ]
        scores = {**SingleLogprobsScorer().evaluate(answers), **TopLogprobsScorer().evaluate(answers)}
        longest = max(map(len, arrays["top"]))
        padded = np.full((len(answers), longest, ranks), np.nan)
        for row, top in enumerate(arrays["top"]):
            padded[row, : len(top)] = [likely[:ranks] for likely in top]
        scores["epr"] = EntropyTransformer("epr").transform(padded)[:, 0].tolist()
        scores["wepr"] = EntropyTransformer("wepr").transform(padded).tolist()
        features = np.array(scores["epr"])[:, None]
        fitted = LogisticRegression(C=np.inf, max_iter=1000).fit(features, arrays["wrong"])
        scores["P(right) by epr"] = (1 - fitted.predict_proba(features)[:, 1]).tolist()
        plain = {name: np.asarray(values, dtype=float).tolist() for name, values in scores.items()}
        result[str(ranks)] = plain
    return result


def table(arrays: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Print a row for each score: on how many answers it is equal, and the largest difference."""
    from selfreflect.uncertainty import features as f
    from selfreflect.uncertainty.calibrators import fit

    print("| score | K | answers | undefined there | equal to 1e-9 | largest difference |")
    print("| --- | --- | --- | --- | --- | --- |")
    for ranks in RANKS:
        tops = [np.array([likely[:ranks] for likely in top]) for top in arrays["top"]]
        chosen = [np.array(values) for values in arrays["chosen"]]
        shares = [f.probabilities(top) for top in tops]

        def certainty(values: Floats, ranks: int = ranks) -> Floats:
            return 1 - f.renormalised_entropy(values) / np.log(ranks)

        each: dict[str, list[Any]] = {
            "sequence_probability": [np.exp(values.mean()) for values in chosen],
            "min_probability": [np.exp(values.min()) for values in chosen],
            "mean_token_negentropy": [certainty(values).mean() for values in shares],
            "min_token_negentropy": [certainty(values).min() for values in shares],
            "probability_margin": [f.margins(values).mean() for values in shares],
            "epr": [f.truncated_entropy(values).mean() for values in shares],
            "wepr": [f.rank_contributions(top) for top in tops],
        }
        right = 1 - np.array(arrays["wrong"], dtype=float)
        scores = -np.array(each["epr"])
        mapped: Callable[[Floats], Floats] = fit("platt", scores, right)
        each["P(right) by epr"] = mapped(scores).tolist()
        for name, values in each.items():
            mine, other = np.array(values, dtype=float), np.array(theirs[str(ranks)][name], dtype=float)
            undefined = np.isnan(other).reshape(len(other), -1).any(axis=1)
            gaps = np.abs(mine - other).reshape(len(other), -1).max(axis=1)[~undefined]
            equal = int((gaps < 1e-9).sum())
            largest = f"{gaps.max():.1e}" if len(gaps) else "–"
            print(f"| {name} | {ranks} | {len(mine)} | {int(undefined.sum())} | {equal} | {largest} |")


def main(run: Path, python: str) -> None:
    """Compute both sides on the answers of a run, and print the table."""
    arrays = ours(run)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arrays.json"
        path.write_text(json.dumps(arrays))
        done = subprocess.run(
            [python, __file__, "--peer", str(path)], capture_output=True, text=True, check=True
        )
    table(arrays, json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        print(json.dumps(peers(json.loads(Path(sys.argv[2]).read_text()))))
    else:
        main(Path(sys.argv[1]), sys.argv[2])
