"""How often does a better summary get the lower (better) score? Reads lines of ``selfreflect score --json``
on standard input:

    selfreflect score --items good_mid_bad.json --num-answers 5 --json |
    python benchmarks/ordering.py good mid bad

The names are given from best to worst. Prints a Markdown table with 95 % Wilson intervals.
"""

from __future__ import annotations

import json
import sys
from itertools import combinations
from math import sqrt


def wilson(hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval of a proportion (Wilson 1927)."""
    centre = (hits + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * sqrt(hits * (n - hits) / n + z * z / 4)
    return centre - half, centre + half


def main(names: list[str]) -> None:
    scores: dict[str, dict[str, float]] = {}
    for line in sys.stdin:
        row = json.loads(line)
        if row["score"] is not None:
            scores.setdefault(row["id"], {})[row["summary"]] = row["score"]
    if len(names) < 2 or not scores:
        sys.exit(__doc__)
    print("| comparison | lower score for the better one | share | 95 % interval |")
    print("| --- | --- | --- | --- |")
    for better, worse in combinations(names, 2):
        pairs = [(item[better], item[worse]) for item in scores.values() if better in item and worse in item]
        hits = sum(a < b for a, b in pairs)
        low, high = wilson(hits, len(pairs))
        share = hits / len(pairs)
        print(f"| {better} before {worse} | {hits} of {len(pairs)} | {share:.1%} | {low:.1%} to {high:.1%} |")
    print(f"\nMean scores over {len(scores)} questions:")
    for name in names:
        mean = sum(item[name] for item in scores.values()) / len(scores)
        print(f"{name} {mean:.4f}")


if __name__ == "__main__":
    main(sys.argv[1:])
