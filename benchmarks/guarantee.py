"""Which share of questions each estimator answers at a guaranteed risk, on published answers.

    python benchmarks/guarantee.py FOLDER

FOLDER holds ``triviaqa_llama13b.json`` (250 questions with 20 answers) and ``rlcr_confidences.json`` (stated
confidences of five methods on two sets), which are not part of this repository. For each estimator, and for
two rows that know nothing of the answers, length and a constant: AUROC with its 95 % interval, and the share
answered at a risk of 5, 10 and 20 % with 95 % confidence, as the mean over random pilot quarters. A split
without a threshold answers nothing; how many there are stands in brackets.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from selfreflect.stats import Floats
from selfreflect.uncertainty.assess import Assessment, Method
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.estimators import ESTIMATORS
from selfreflect.uncertainty.guarantee import search_threshold
from selfreflect.uncertainty.measures import measure
from selfreflect.uncertainty.question import AnsweredQuestion
from selfreflect.uncertainty.relations import words

RISKS = (0.05, 0.1, 0.2)
SPLITS = 200
SAMPLED = ("modal_share", "split_half", "entropy", "lexical", "eigv", "deg", "ecc", "kle")


def answered(scores: Floats, wrong: Floats, risk: float) -> tuple[float, float]:
    """Average the share answered over random pilots, and count the splits without a threshold."""
    generator = np.random.default_rng(0)
    shares = []
    for _ in range(SPLITS):
        order = generator.permutation(len(scores))
        pilot, tested = order[: len(order) // 4], order[len(order) // 4 :]
        chosen = search_threshold(scores[pilot], scores[tested], wrong[tested], risk, 0.95).chosen
        shares.append(chosen.coverage if chosen else 0.0)
    return float(np.mean(shares)), shares.count(0.0) / SPLITS


def show(name: str, scores: Floats, right: Floats) -> None:
    """Print the row of one estimator."""
    auroc = measure("auroc", scores, right)
    cells = [f"{name} | {len(scores)}"]
    numbers = (auroc.value, auroc.low, auroc.high)
    cells.append("–" if None in numbers else "{:.3f} ({:.3f}–{:.3f})".format(*numbers))
    for risk in RISKS:
        share, none = answered(scores, right < 0.5, risk)
        cells.append(f"{share:.1%} [{none:.0%}]")
    print("|", " | ".join(cells), "|")


def main(folder: Path) -> None:
    """Print a table in Markdown for each data set."""
    rows = json.loads((folder / "triviaqa_llama13b.json").read_text())
    questions = [
        AnsweredQuestion(id=r["id"], text=r["question"], answers=tuple(r["answers"]), gold=(r["gold"],))
        for r in rows
    ]
    for samples in (10, 20):
        cut = [
            AnsweredQuestion(id=q.id, text=q.text, answers=q.answers[:samples], gold=q.gold)
            for q in questions
        ]
        assessment = Assessment(cut, SAMPLED, Method(ClassRule("same"), correctness=("contains",)))
        head(f"TriviaQA, LLaMA-13B, {samples} answers, classes same, correctness contains")
        for name in SAMPLED:
            _, scores, right, *_ = assessment.labelled_scores(name, "contains")
            show(name, scores, right)
            assert name in ESTIMATORS
        _, _, right, *_ = assessment.labelled_scores("modal_share", "contains")
        lengths = np.array([float(len(words(text or ""))) for text in assessment.judged.texts])
        show("length only", -lengths, right)
        show("constant", np.zeros(len(right)), right)
    for name, columns in json.loads((folder / "rlcr_confidences.json").read_text()).items():
        right = (np.array(columns["correct"]) >= 0.5).astype(float)
        head(f"{name}, stated confidence")
        show("stated", np.clip(np.array(columns["confidence"], dtype=float), 0, 1), right)
        show("length only", -np.array(columns["length"], dtype=float), right)
        show("constant", np.zeros(len(right)), right)


def head(title: str) -> None:
    """Print the head of a table."""
    print(f"\n{title}\n\n| estimator | n | AUROC | 5 % | 10 % | 20 % |\n|---|---|---|---|---|---|")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
