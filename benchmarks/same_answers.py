"""Measure rules that join answers against labelled pairs: precision and recall.

    python benchmarks/same_answers.py UQ [--judge smollm2]

UQ is a folder with ``triviaqa_llama13b.json``: a list of questions with ``id``, ``question``, ``answers``.
The other pairs, all labels and the rule that they follow are in ``tests/data/same_answers.json``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from selfreflect.grouping import normal_form
from selfreflect.models.backend import load_generator
from selfreflect.models.base import ModelSpec
from selfreflect.models.embed import MeaningGroups
from selfreflect.sameness import are_apart, same_answer
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.question import AnsweredQuestion
from selfreflect.uncertainty.relations import EmbeddingSimilarity

LABELS = Path(__file__).parents[1] / "tests" / "data" / "same_answers.json"


class Pair(NamedTuple):
    part: str
    question: str
    one: str
    other: str
    is_same: bool


def read_pairs(folder: Path) -> Iterator[Pair]:
    """Read all labelled pairs: own logs in two halves, and answers to TriviaQA."""
    labels = json.loads(LABELS.read_text())
    for row in labels["questions"]:
        answers = [(text, place) for place, texts in enumerate(row["classes"]) for text in texts]
        for (one, first), (other, second) in combinations(answers, 2):
            yield Pair(f"own, {row['part']}", row["question"], one, other, first == second)
    questions = {row["id"]: row for row in json.loads((folder / "triviaqa_llama13b.json").read_text())}
    for id_, first, second, label in labels["trivia"]:
        row = questions[id_]
        one, other = (row["answers"][place].strip() for place in (first, second))
        yield Pair("TriviaQA", row["question"], one, other, bool(label))


def rules() -> dict[str, Callable[[Pair], bool]]:
    """Name every rule that is compared."""
    found: dict[str, Callable[[Pair], bool]] = {}
    for name in (
        "exact",
        "jaccard:0.5",
        "rouge:0.7",
        "same",
        "embedding:0.7",
        "embedding:0.8",
        "embedding:0.9",
    ):
        found[name] = _by_class(ClassRule(name))
    found["containment"] = lambda pair: (
        normal_form(pair.one) in normal_form(pair.other) or normal_form(pair.other) in normal_form(pair.one)
    )
    similarity = EmbeddingSimilarity()
    found["embedding:0.7 without a guard"] = lambda pair: similarity([pair.one, pair.other])[0, 1] >= 0.7
    found["embedding:0.9, question in front"] = lambda pair: (
        same_answer(*pair[1:4])
        or (
            similarity([f"{pair.question} {text}" for text in pair[2:4]])[0, 1] >= 0.9
            and not are_apart(*pair[1:4])
        )
    )
    groups = MeaningGroups()
    found["groups of the page"] = lambda pair: len(groups([pair.one, pair.other], pair.question)) == 1
    return found


def _by_class(rule: ClassRule) -> Callable[[Pair], bool]:
    def joins(pair: Pair) -> bool:
        labels = rule(AnsweredQuestion(id="", text=pair.question, answers=(pair.one, pair.other)))
        return bool(labels[0] == labels[1])

    return joins


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="UQ")
    parser.add_argument(
        "--judge", metavar="NAME", help="also ask this model about pairs that same leaves open"
    )
    arguments = parser.parse_args()
    pairs = list(read_pairs(arguments.folder))
    parts = [*dict.fromkeys(pair.part for pair in pairs), "all"]
    print(f"{len(pairs)} pairs; precision and recall", *parts, sep=" | ")
    compared = rules()
    if arguments.judge:
        asker = Asker(arguments.judge, lambda: load_generator(ModelSpec(arguments.judge), print))
        compared[f"judge {arguments.judge}"] = _by_class(ClassRule("judge", asker=asker))
    for name, joins in compared.items():
        cells = []
        verdicts = [bool(joins(pair)) for pair in pairs]
        for part in parts:
            results = zip(verdicts, pairs, strict=True)
            own = [(joined, pair.is_same) for joined, pair in results if part in (pair.part, "all")]
            right = sum(joined and same for joined, same in own)
            joined = sum(joined for joined, _ in own)
            cells.append(f"{right / joined if joined else 1:.2f} {right / sum(same for _, same in own):.2f}")
        print(name, *cells, sep=" | ")


if __name__ == "__main__":
    main()
