"""Training data from clusters and reflections, and files of all steps in the folder ``sayself``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, get_args

from selfreflect.atomic import write_bytes
from selfreflect.records import Record, dump_line
from selfreflect.store.journal import refuse_links, store_errors
from selfreflect.train.folder import place_of
from selfreflect.train.sayself.clusters import Choice, Cluster, ClusteredQuestion, Rationale, prompts, tenths
from selfreflect.train.sayself.statement import has_marker, write_statement
from selfreflect.train.trainers import RECORD

Variant = Literal["full", "no_rationale", "rtuning", "group"]
"""``full``: answer, self-reflection and confidence. ``no_rationale``: answer and confidence. ``rtuning``: the
answer, then whether the model is sure, from whether its own answer is right
(R-Tuning, arXiv 2311.09677). ``group``: like ``no_rationale``, with one confidence for all questions of equal
agreement: how often their largest cluster is right."""
VARIANTS: tuple[Variant, ...] = get_args(Variant)

Part = Literal["train", "rl", "dev", "test"]
PARTS: tuple[Part, ...] = get_args(Part)
# Of the questions, by part: for fine-tuning, for reinforcement, for choosing, for the final
# figures
PERCENTAGES = (50, 15, 10, 25)

Messages = list[dict[str, str]]


def part_of(text: str) -> Part:
    """Choose a question's part by its text alone, equal for all spellings and unaffected by other
    questions."""
    percentile = place_of(text)
    for part, end in zip(PARTS, accumulate(PERCENTAGES), strict=True):
        if percentile < end:
            return part
    return PARTS[-1]


def make_examples(
    questions: Sequence[ClusteredQuestion],
    rationales: Mapping[str, Rationale] | None,
    variant: Variant,
    choice: Choice,
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Make a row for each question that suits the variant.

    Args:
        rationales: by question id. Every variant leaves out questions without a usable one, so that all learn
            from the same questions and can be compared. None: no variant needs them.

    Returns:
        Rows with ``question_id``, ``question``, ``response`` (the published line), and ``prompt`` and
        ``completion`` as chat messages; and how many questions were left out, by reason.
    """
    # only this variant needs to know how often questions of equal agreement are right
    levels = group_levels(questions) if variant == "group" else {}
    rows = []
    dropped: Counter[str] = Counter()
    for question in questions:
        cluster = question.choose("majority" if variant == "rtuning" else choice)
        if cluster is None:
            dropped["no cluster has the right answer"] += 1
            continue
        reflection = ""
        if rationales is not None:
            rationale = rationales.get(question.id)
            reflection = rationale.text if rationale is not None else ""
            if not reflection:
                dropped["no usable rationale"] += 1
                continue
        if variant == "rtuning" and cluster.correct is None:
            dropped["no right answer to compare with"] += 1
            continue
        if problem := _problem(cluster):
            dropped[problem] += 1
            continue
        confidence = _confidence(question, cluster, variant, levels)
        doubts = reflection if variant == "full" else ""
        response = write_statement(cluster.reasoning, cluster.answer, doubts, confidence)
        rows.append(_row(question, cluster, response, variant))
    return rows, dropped


def _problem(cluster: Cluster) -> str:
    """Explain why an answer does not fit into a statement; empty if it does."""
    if not cluster.answer.strip():
        return "the answer is blank"
    if has_marker(cluster.answer) or has_marker(cluster.reasoning):
        return "the answer contains a marker of the statement"
    return ""


def group_levels(questions: Sequence[ClusteredQuestion]) -> dict[int, int]:
    """Compute the accuracy of the largest clusters in tenths, by their share in tenths. Questions without a
    right answer do not count."""
    correct: dict[int, list[bool]] = defaultdict(list)
    for question in questions:
        largest = question.choose("majority")
        if largest is not None and largest.correct is not None:
            correct[tenths(question.share(largest))].append(largest.correct)
    # a group may never be right, unlike a share of answers, which one answer raises above 0
    return {level: tenths(sum(labels) / len(labels), minimum=0) for level, labels in correct.items()}


def _confidence(
    question: ClusteredQuestion, cluster: Cluster, variant: Variant, levels: Mapping[int, int]
) -> int | None:
    if variant == "rtuning":
        return None
    if variant == "group":
        largest = question.choose("majority")
        assert largest is not None
        level = tenths(question.share(largest))
        return levels.get(level, level)
    return tenths(question.share(cluster))


def _row(question: ClusteredQuestion, cluster: Cluster, response: str, variant: Variant) -> dict[str, Any]:
    prompt: Messages = [{"role": "user", "content": question.asked}]
    completion: Messages = [{"role": "assistant", "content": response}]
    if variant == "rtuning":
        texts = prompts()["sure"]
        prompt += [*completion, {"role": "user", "content": texts["user"]}]
        completion = [{"role": "assistant", "content": texts["yes" if cluster.correct else "no"]}]
    return {
        "question_id": question.id,
        "question": question.question,
        "response": response,
        "prompt": prompt,
        "completion": completion,
    }


@dataclass(frozen=True)
class Adapter:
    """A trained model in its folder."""

    folder: Path
    variant: Variant


class Workspace:
    """Training files in a run directory.

    Args:
        run: the run directory that holds the sampled answers.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.folder = run / "sayself"

    def path(self, name: str) -> Path:
        """Return the path of a file or folder in the workspace. Raises StoreError if a link leads there."""
        return refuse_links(self.run, self.folder / name)

    def adapter(self, variant: Variant, seed: int, reward: str = "") -> Adapter:
        """Return a trained or planned adapter."""
        suffix = f"-{reward}" if reward else ""
        return Adapter(self.path(f"models/{variant}-{seed}{suffix}"), variant)

    def trained(self) -> list[Adapter]:
        """List the finished adapters by name."""
        adapters = []
        for folder in sorted(self.path("models").glob("*")):
            variant = folder.name.partition("-")[0]
            if variant in VARIANTS and (folder / RECORD).exists():
                adapters.append(Adapter(refuse_links(self.run, folder), variant))
        return adapters

    def write(self, name: str, rows: Iterable[Record | Mapping[str, Any]]) -> Path:
        """Replace a file with rows, atomically."""
        path = self.path(name)
        with store_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, "".join(dump_line(row) + "\n" for row in rows).encode())
        return path
