"""How many samples adaptive sampling takes, and what it changes.

    python benchmarks/stopping.py                       # classes with given shares
    python benchmarks/stopping.py triviaqa_llama13b.json  # replay stored answers, in order

The file is a list of objects with ``id``, ``question``, ``gold`` and ``answers``. Adaptive consistency (arXiv
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
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.features import modal_share
from selfreflect.uncertainty.prediction import Tally, auroc, ece
from selfreflect.uncertainty.question import AnsweredQuestion

MOST = 20
TRIALS = 4000
SHARES = {
    "0.95": [0.95, 0.05],
    "0.7": [0.7, 0.3],
    "0.7, three of 0.1": [0.7, 0.1, 0.1, 0.1],
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
    "error 0.1": StoppingRule(most=MOST, error=0.1),
    "error 0.2": StoppingRule(most=MOST, error=0.2),
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
    questions = []
    for row in json.loads(path.read_text(encoding="utf-8")):
        answers = tuple(answer.strip() for answer in row["answers"][:MOST])
        questions.append(
            AnsweredQuestion(id=row["id"], text=row["question"], answers=answers, gold=(row["gold"],))
        )
    classify, correct = ClassRule("exact"), Correctness("exact")
    all_labels = [classify(question) for question in questions]
    rules: dict[str, Rule] = {**RULES, "all 20": lambda labels: False}
    for n in (7, 15):
        rules[f"the first {n}"] = lambda labels, n=n: len(labels) == n  # type: ignore[misc]
    print("| rule | samples | stops early | other modal answer | accuracy | mean share | ECE | AUROC |")
    print("| --- " * 8 + "|")
    for name, rule in rules.items():
        ends = [stop_at(rule, labels)[0] for labels in all_labels]
        shares, right, other = [], [], 0
        for question, labels, n in zip(questions, all_labels, ends, strict=True):
            modal = mode(labels[:n])
            other += modal != mode(labels)
            shares.append(modal_share(labels[:n]))
            right.append(bool(correct(question, question.answers[int(np.argmax(labels == modal))])))
        tally = Tally.of(shares, right)
        early, changed = sum(n < MOST for n in ends) / len(ends), other / len(ends)
        print(
            f"| {name} | {np.mean(ends):.1f} | {early:.1%} | {changed:.1%} | {np.mean(right):.3f} | "
            f"{np.mean(shares):.3f} | {float(ece(tally)):.3f} | {float(auroc(tally)):.3f} |"
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        replay(Path(sys.argv[1]))
    else:
        synthetic()
