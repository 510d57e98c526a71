"""How many samples adaptive sampling takes, and what it changes.

    python benchmarks/stopping.py                       # classes with given shares
    python benchmarks/stopping.py triviaqa_llama13b.json  # replay stored answers, in order

The file is a list of objects with ``id``, ``question`` and ``answers``. Adaptive consistency (arXiv
2305.11860) stops when a Beta posterior of the two leading counts exceeds 0.95.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from math import comb
from pathlib import Path

import numpy as np

from selfreflect.server.stopping import StoppingRule
from selfreflect.uncertainty.classes import ClassRule, Labels
from selfreflect.uncertainty.features import modal_share
from selfreflect.uncertainty.question import AnsweredQuestion

MOST = 20
TRIALS = 4000
SHARES = {
    "0.95": [0.95, 0.05],
    "0.7": [0.7, 0.3],
    "0.5, 0.3, 0.2": [0.5, 0.3, 0.2],
    "0.51, 0.49": [0.51, 0.49],
}
Rule = Callable[[Labels], object]


def adaptive_consistency(labels: Labels) -> bool:
    """P(the leading class has more than half of the two leading ones) > 0.95, with a uniform prior."""
    counts = np.sort(np.bincount(labels, minlength=2))
    most, second = int(counts[-1]), int(counts[-2])
    size = most + second + 1
    posterior: float = sum(comb(size, k) for k in range(most + 1)) / 2**size
    return posterior > 0.95


RULES: dict[str, Rule] = {
    "error 0.05": StoppingRule(most=MOST),
    "adaptive consistency": adaptive_consistency,
}


def stop_at(rule: Rule, labels: Labels) -> tuple[int, object]:
    """After how many samples a rule stops, at least 3, and why."""
    for n in range(3, len(labels)):
        if reason := rule(labels[:n]):
            return n, reason
    return len(labels), "limit"


def mode(labels: Labels) -> int:
    return int(np.bincount(labels).argmax())


def synthetic() -> None:
    """Mean number of samples of at most 20, and how often a rule that is sure names the wrong class."""
    print("| shares |", " | ".join(f"{name}: samples | wrong" for name in RULES), "|")
    print("| --- |" + " --- | --- |" * len(RULES))
    for name, chances in SHARES.items():
        cells = []
        for rule in RULES.values():
            rng = np.random.default_rng(0)
            taken, wrong = 0, 0
            for _ in range(TRIALS):
                draws = rng.choice(len(chances), MOST, p=chances)
                _, firsts, labels = np.unique(draws, return_index=True, return_inverse=True)
                labels = np.argsort(np.argsort(firsts))[labels]  # numbered by first samples
                n, reason = stop_at(rule, labels)
                taken += n
                leader = int(draws[np.argmax(labels == mode(labels[:n]))])
                wrong += reason in ("ahead", True) and leader != 0
            cells.append(f"{taken / TRIALS:.1f} | {wrong / TRIALS:.3f}")
        print(f"| {name} |", " | ".join(cells), "|")


def replay(path: Path) -> None:
    """Sample stored answers one after the other, and compare with all of them."""
    classify, all_labels = ClassRule("exact"), []
    for row in json.loads(path.read_text(encoding="utf-8")):
        answers = tuple(answer.strip() for answer in row["answers"][:MOST])
        all_labels.append(classify(AnsweredQuestion(id=row["id"], text=row["question"], answers=answers)))
    print("| rule | samples | other modal answer | mean share |\n| --- | --- | --- | --- |")
    for name, rule in {**RULES, "all 20": lambda labels: False}.items():
        ends = [stop_at(rule, labels)[0] for labels in all_labels]
        pairs = list(zip(all_labels, ends, strict=True))
        changed = np.mean([mode(labels[:n]) != mode(labels) for labels, n in pairs])
        share = np.mean([modal_share(labels[:n]) for labels, n in pairs])
        print(f"| {name} | {np.mean(ends):.1f} | {changed:.1%} | {share:.3f} |")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        replay(Path(sys.argv[1]))
    else:
        synthetic()
