"""How well shared words tell right claims from wrong ones, by the labels of FActScore (arXiv 2305.14251).

python benchmarks/claims.py FOLDER

FOLDER holds ChatGPT.jsonl, InstructGPT.jsonl and PerplexityAI.jsonl, the labelled data of FActScore. The two
other models' biographies of a person stand for the sampled answers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from sklearn.metrics import roc_auc_score

from selfreflect.uncertainty.claims.sentences import sentences
from selfreflect.uncertainty.claims.words import overlap

MODELS = ("ChatGPT", "InstructGPT", "PerplexityAI")
BEGINNING = 40
"""Characters by which an annotated sentence is found in its text."""


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Read the labelled texts of a model by topic."""
    return {row["topic"]: row for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())}


def print_starts(texts: list[dict[str, Any]]) -> None:
    """Print how many annotated sentences begin where ours do."""
    hits = total = 0
    for row in texts:
        starts = {sentence.start for sentence in sentences(row["output"])}
        for annotation in row["annotations"] or ():
            place = row["output"].find(annotation["text"].strip()[:BEGINNING])
            if place >= 0:
                total += 1
                hits += place in starts
    print(f"sentence starts: {hits} of {total}, {hits / total:.1%}")


def mentioned(claim: str, question: str, texts: list[str]) -> float:
    """Compute the mean over texts of the largest overlap of a sentence with a claim."""
    parts = [[sentence.text for sentence in sentences(text)] for text in texts]
    return fmean(max((overlap(claim, part, question) for part in text), default=0.0) for text in parts)


def print_auroc(name: str, data: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Print how well ``mentioned`` ranks the claims of a model, facts that are not relevant left out."""
    scores, labels = [], []
    for topic, row in data[name].items():
        others = [data[model][topic]["output"] for model in MODELS if model != name and topic in data[model]]
        if len(others) < len(MODELS) - 1:
            continue
        for annotation in row["annotations"] or ():
            for fact in annotation.get("human-atomic-facts") or ():
                if fact["label"] in ("S", "NS"):
                    scores.append(mentioned(fact["text"], row["input"], others))
                    labels.append(fact["label"] == "S")
    print(
        f"{name}: {len(labels)} claims, {fmean(labels):.1%} right, AUROC {roc_auc_score(labels, scores):.3f}"
    )


if __name__ == "__main__":
    labelled = {name: read(Path(sys.argv[1]) / f"{name}.jsonl") for name in MODELS}
    print_starts([row for rows in labelled.values() for row in rows.values()])
    for model in MODELS:
        print_auroc(model, labelled)
