"""Compare what methods stated of the test questions of a SaySelf run with baselines: `sayself.md` says how.

python benchmarks/sayself.py RUN
python benchmarks/sayself.py PILOT --choose pararel.json questions.json
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from selfreflect.sayself.workspace import Workspace
from selfreflect.store.run import Run
from selfreflect.uncertainty.discrimination import auroc
from selfreflect.uncertainty.tally import Tally

Lines = dict[str, dict[str, Any]]
"""What a method stated, by question."""
RESAMPLES = 2_000
KINDS = {
    "native language": "language",
    "headquartered": "headquartered",
    "produce": "produces",
    "develop": "developed",
    "named": "named",
    "its name": "named",
    "religion": "religion",
    "capital": "capital",
    "twin": "twin city",
    "work as": "profession",
    " born": "born",
    " die": "died",
    " play": "plays",
    " field": "field",
    "work for": "employer",
    "represent": "label",
}
"""Words of a question, and its kind; the first that occur count."""
SC, DP = "agreement of samples (SC)", "asked directly (DP)"


def kind_of(question: str) -> str:
    """The kind of a question by its words."""
    return next((kind for words, kind in KINDS.items() if words in question.lower()), "other")


def choose(pilot: Path, pool: Path, target: Path, most: int = 240) -> None:
    """Write questions of the kinds on which a pilot is right 10 to 95 % of the time, and none of its own."""
    shares: dict[str, list[float]] = defaultdict(list)
    run = Run.load(pilot)
    others = {question.text.strip().lower() for question in run.questions.values()}
    for question in run.questions.values():
        if question.id in run.answers and '"true"' not in question.text:
            answers = run.answers[question.id].answers
            right = [any(gold.lower() in answer.lower() for gold in question.gold) for answer in answers]
            shares[kind_of(question.text)].append(sum(right) / len(right))
    kinds = set()
    for kind, values in sorted(shares.items()):
        rate = sum(values) / len(values)
        print(f"{kind}: {len(values)} questions, {rate:.2f} right")
        if 0.1 <= rate <= 0.95 and kind != "other":
            kinds.add(kind)
    rows = []
    for row in json.loads(pool.read_text()):
        text = row["question"].strip()
        if text.lower() not in others and kind_of(text) in kinds:
            others.add(text.lower())
            rows.append({"question": text, "answer": row["answer"], "kind": kind_of(text)})
    random.Random(0).shuffle(rows)
    target.write_text(json.dumps(rows[:most], ensure_ascii=False, indent=0))


def read_lines(run: Path) -> dict[str, Lines]:
    """What each method stated, with labels, by method and question."""
    methods: dict[str, Lines] = defaultdict(dict)
    for text in (run / "sayself/statements-test.jsonl").read_text().splitlines():
        line = json.loads(text)
        methods[line["method"]][line["question_id"]] = line
    return methods


def kind_rates(run: Path) -> Lines:
    """The baseline of kinds: SC's answers, with how often it is right on train questions of the same kind."""
    workspace = Workspace(run)
    parts = workspace.parts()
    labels: dict[str, list[bool]] = defaultdict(list)
    for question in parts["train"]:
        labels[kind_of(question.question)].append(bool(question.clusters[0].correct))
    everything = [label for values in labels.values() for label in values]
    lines = {}
    for question in parts["test"]:
        values = labels.get(kind_of(question.question), everything)
        confidence = sum(values) / len(values)
        lines[question.id] = {"confidence": confidence, "correct": bool(question.clusters[0].correct)}
    return lines


def filled(lines: Lines) -> Lines:
    """The same, with 0.5 wherever no confidence can be read."""
    return {
        key: {**line, "confidence": 0.5 if line["confidence"] is None else line["confidence"]}
        for key, line in lines.items()
    }


def arms_of(methods: dict[str, Lines]) -> dict[str, list[Lines]]:
    """The seeds of each arm: `full-0-brier` is a seed of `full-brier`."""
    arms: dict[str, list[Lines]] = defaultdict(list)
    for name, lines in methods.items():
        variant, _, rest = name.partition("-")
        seed, _, reward = rest.partition("-")
        if seed.isdecimal():
            arms[f"{variant}-{reward}" if reward else variant].append(lines)
    return arms


def brier(lines: Lines, keys: list[str]) -> float:
    """Mean squared error of the confidences."""
    return float(np.mean([(lines[key]["confidence"] - lines[key]["correct"]) ** 2 for key in keys]))


def own_rate(lines: Lines, keys: list[str]) -> float:
    """Brier score of always stating one's own accuracy."""
    rate = float(np.mean([lines[key]["correct"] for key in keys]))
    return rate * (1 - rate)


def area(lines: Lines, keys: list[str]) -> float:
    """AUROC of the confidences; NaN where it is undefined."""
    confidences = [float(lines[key]["confidence"]) for key in keys]
    return float(auroc(Tally.of(confidences, [bool(lines[key]["correct"]) for key in keys])))


def difference(seeds: list[Lines], other: Lines | None, score: Any) -> str:
    """The mean over seeds of an arm's score minus the baseline's, with a bootstrap interval over questions.

    Args:
        other: a baseline's lines; None: the arm's own base rate.
    """
    keys = sorted(set.intersection(*({k for k in one if one[k]["confidence"] is not None} for one in seeds)))
    if other is not None:
        keys = [key for key in keys if key in other and other[key]["confidence"] is not None]
    if len(keys) < 5:
        return f"– ({len(keys)} questions)"

    def value(drawn: list[str]) -> float:
        differences = []
        for one in seeds:
            base = own_rate(one, drawn) if other is None else score(other, drawn)
            differences.append(score(one, drawn) - base)
        return float(np.mean(differences))

    rng = np.random.default_rng(0)
    places = rng.integers(0, len(keys), (RESAMPLES, len(keys)))
    values = [value([keys[place] for place in row]) for row in places]
    low, high = np.nanquantile(values, [0.025, 0.975])
    return f"{value(keys):+.3f} [{low:+.3f}, {high:+.3f}], n {len(keys)}"


def describe(name: str, lines: Lines) -> list[str]:
    """A row: how many confidences, accuracy, mean confidence, Brier score and that of the own base rate,
    AUROC, and mean absolute error."""
    keys = [key for key, line in lines.items() if line["confidence"] is not None]
    accuracy = np.mean([bool(line["correct"]) for line in lines.values()])
    cells = [name, f"{len(keys)} of {len(lines)}", f"{accuracy:.2f}"]
    if len(keys) < 5:
        return [*cells, *"–––––"]
    confidences = np.array([lines[key]["confidence"] for key in keys])
    labels = np.array([lines[key]["correct"] for key in keys], dtype=float)
    cells += [f"{confidences.mean():.2f}", f"{brier(lines, keys):.3f}", f"{own_rate(lines, keys):.3f}"]
    return [*cells, f"{area(lines, keys):.2f}", f"{np.abs(confidences - labels).mean():.3f}"]


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def show(run: Path) -> None:
    """Print all tables of a run."""
    methods, kinds = read_lines(run), kind_rates(run)
    arms = dict(sorted(arms_of(methods).items()))
    trained = sorted(name for name in methods if name.partition("-")[2][:1].isdecimal())
    columns = ["method", "confidence", "accuracy", "mean", "Brier", "own base rate", "AUROC", "MAE"]
    print(
        table(
            columns,
            [describe(name, methods[name]) for name in (SC, DP, *trained)] + [describe("kind", kinds)],
        )
    )
    baselines = {"SC": methods[SC], "DP": methods[DP], "base rate": None, "kind": kinds}
    for title, change in (("confidences that can be read", dict), ("0.5 where none can be read", filled)):
        rows = []
        for arm, seeds in arms.items():
            own = [change(one) for one in seeds]
            cells = [difference(own, other and change(other), brier) for other in baselines.values()]
            rows.append([f"{arm} ({len(seeds)})", *cells])
        print(f"\nBrier score minus that of a baseline: {title}\n")
        print(table(["arm (seeds)", *baselines], rows))
    rows = []
    for arm, seeds in arms.items():
        cells = [difference(seeds, other, area) for other in (methods[SC], kinds)]
        rows.append([f"{arm} ({len(seeds)})", *cells])
    print("\nAUROC minus that of a baseline\n")
    print(table(["arm (seeds)", "SC", "kind"], rows))
    for arm in arms:
        if arm.endswith("-brier"):
            show_stages(arm, arms[arm], arms[arm.removesuffix("-brier")])


def show_stages(arm: str, after: list[Lines], before: list[Lines]) -> None:
    """Print how reinforcement changed an arm, seed by seed."""
    for seed, (one, other) in enumerate(zip(after, before, strict=False)):
        keys = [key for key in one if None not in (one[key]["confidence"], other[key]["confidence"])]
        moved = np.mean([abs(one[key]["confidence"] - other[key]["confidence"]) for key in keys])
        same = sum(one[key]["answer"] == other[key]["answer"] for key in keys)
        print(f"\n{arm} minus the arm before, seed {seed}:")
        print(f"Brier {difference([one], other, brier)}; AUROC {difference([one], other, area)}")
        print(f"moved by {moved:.3f} on average; {same} of {len(keys)} answers are the same")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--choose", nargs=2, type=Path, metavar=("POOL", "QUESTIONS"))
    arguments = parser.parse_args()
    if arguments.choose:
        choose(arguments.run, *arguments.choose)
    else:
        show(arguments.run)


if __name__ == "__main__":
    main()
