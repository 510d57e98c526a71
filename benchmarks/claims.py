"""Measure how well readers tell right claims from wrong ones, by FActScore's labels (arXiv 2305.14251).

python benchmarks/claims.py FOLDER [READER ...]

FOLDER holds ChatGPT.jsonl, InstructGPT.jsonl and PerplexityAI.jsonl, the labelled data of FActScore. The two
other models' biographies of a person stand for the sampled answers. READER is as in ``selfreflect claims``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from sklearn.metrics import roc_auc_score

from selfreflect.uncertainty.claims.readers import open_reader
from selfreflect.uncertainty.claims.sentences import sentences
from selfreflect.uncertainty.claims.words import WordReader

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


def print_controls(name: str, data: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Print how well the brevity of a model's claims and their place in the text rank them."""
    brevity: list[float] = []
    places: list[float] = []
    labels: list[bool] = []
    for topic, row in data[name].items():
        if not all(topic in data[model] for model in MODELS):
            continue
        annotated = (annotation.get("human-atomic-facts") for annotation in row["annotations"] or ())
        facts = [fact for of_sentence in annotated for fact in of_sentence or ()]
        for place, fact in enumerate(facts):
            if fact["label"] in ("S", "NS"):
                brevity.append(-len(fact["text"].split()))
                places.append(-place / len(facts))
                labels.append(fact["label"] == "S")
    values = (roc_auc_score(labels, brevity), roc_auc_score(labels, places))
    print(f"controls, {name}: AUROC of brevity {values[0]:.4f}, of an early place {values[1]:.4f}")


def print_auroc(reader: WordReader, name: str, data: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Print how well a reader ranks the claims of a model, facts that are not relevant left out."""
    mentioned: list[float] = []
    supports: list[float] = []
    labels: list[bool] = []
    for topic, row in data[name].items():
        others = [data[model][topic]["output"] for model in MODELS if model != name and topic in data[model]]
        if len(others) < len(MODELS) - 1:
            continue
        annotated = (annotation.get("human-atomic-facts") for annotation in row["annotations"] or ())
        facts = [fact for of_sentence in annotated for fact in of_sentence or ()]
        facts = [fact for fact in facts if fact["label"] in ("S", "NS")]
        claims = [fact["text"] for fact in facts]
        mentioned += reader.mentions(row["input"], claims, others).mean(0).tolist()
        rows = reader.stances(row["input"], claims, others)
        supports += [fmean(stance == "says" for stance in column) for column in zip(*rows, strict=True)]
        labels += [fact["label"] == "S" for fact in facts]
    said = [label for label, support in zip(labels, supports, strict=True) if support == 1]
    print(
        f"{reader.name}, {name}: {len(labels)} claims, {fmean(labels):.1%} right; AUROC of mentioned "
        f"{roc_auc_score(labels, mentioned):.4f}, of support {roc_auc_score(labels, supports):.4f}; "
        f"said by both {len(said)}, of which right {fmean(said):.1%}",
        flush=True,
    )


if __name__ == "__main__":
    labelled = {name: read(Path(sys.argv[1]) / f"{name}.jsonl") for name in MODELS}
    print_starts([row for rows in labelled.values() for row in rows.values()])
    for model in MODELS:
        print_controls(model, labelled)
    for reader_name in sys.argv[2:] or ["words"]:
        for model in MODELS:
            print_auroc(open_reader(reader_name), model, labelled)
