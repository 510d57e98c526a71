"""Prints how far the engine's scores are from the published scorer's: ``python benchmarks/parity.py`` (half a
minute on two cores)."""

from __future__ import annotations

import json
from pathlib import Path

from selfreflect import Judge, SelfReflect

DATA = Path(__file__).parent.parent / "tests" / "data"


def main() -> None:
    published = json.loads((DATA / "parity_scores.json").read_text(encoding="utf-8"))["items"]
    metric = SelfReflect(Judge.load("smollm2", device="cpu", dtype="float32"))
    differences = []
    exact = 0
    for item in json.loads((DATA / "parity_items.json").read_text(encoding="utf-8")):
        expected = published[item["id"]]
        scores = metric.score(
            item["question"],
            masked_out=item["masked_out_task_answers"],
            conditioning=item["conditioning_answers"],
            summaries=item["summaries"],
        )
        differences += [abs(score.value - expected["scores"][name]) for name, score in scores.items()]
        exact += all(score.token_tasks == expected["token_tasks_per_context"] for score in scores.values())
    print(f"{len(differences)} scores, largest difference {max(differences):.1e};", end=" ")
    print(f"counts of token tasks exact in {exact} of {len(published)} items")


if __name__ == "__main__":
    main()
