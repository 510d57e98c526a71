"""Make training data of clusters and rationales: which questions train, and what the model is to say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, get_args

from selfreflect.grouping import normal_form
from selfreflect.sayself.clusters import Choice, Cluster, ClusteredQuestion, tenths
from selfreflect.sayself.prompts import prompts
from selfreflect.sayself.rationales import Rationale
from selfreflect.sayself.statement import has_marker, write_statement
from selfreflect.train.splits import place_of

Variant = Literal["full", "no_rationale", "plain", "rtuning", "group"]
"""``full``: answer, self-reflection and confidence. ``no_rationale``: answer and confidence. ``plain``: the
answer. ``rtuning``: the answer, then whether the model is sure, from whether its own answer is right
(R-Tuning, arXiv 2311.09677). ``group``: like ``no_rationale``, with one confidence for all questions of equal
agreement: how often their largest cluster is right."""
VARIANTS: tuple[Variant, ...] = get_args(Variant)

Part = Literal["train", "rl", "dev", "test"]
PARTS: tuple[Part, ...] = get_args(Part)
PERCENTAGES = (50, 15, 10, 25)
"""Of the questions, by part: for fine-tuning, for reinforcement, for choosing, for the final figures."""

WITH_EXAMPLES: tuple[Part, ...] = ("train", "dev")
"""The parts that examples are made of. The others need the questions alone."""

Messages = list[dict[str, str]]


def part_of(text: str) -> Part:
    """Choose the part of a question by its text alone: equal texts and their spellings share one, and further
    questions change nothing for those that are there."""
    place = place_of(text)
    for part, end in zip(PARTS, accumulate(PERCENTAGES), strict=True):
        if place < end:
            return part
    return PARTS[-1]


def overlap(parts: Mapping[str, Sequence[ClusteredQuestion]]) -> list[str]:
    """The ids of questions whose text occurs in more than one part."""
    homes: dict[str, set[str]] = defaultdict(set)
    for part, questions in parts.items():
        for question in questions:
            homes[normal_form(question.question)].add(part)
    ids = []
    for questions in parts.values():
        for question in questions:
            if len(homes[normal_form(question.question)]) > 1:
                ids.append(question.id)
    return sorted(set(ids))


def make_examples(
    questions: Sequence[ClusteredQuestion],
    rationales: Mapping[str, Rationale] | None,
    variant: Variant,
    choice: Choice,
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Make a row for each question that the variant can use.

    Args:
        rationales: by question id. Every variant leaves out questions without a usable one, so that all learn
            from the same questions and can be compared. None: no variant needs them.

    Returns:
        Rows with ``question_id``, ``question``, ``response`` (the published line), and ``prompt`` and
        ``completion`` as chat messages; and how many questions were left out, by reason.
    """
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
        stated = reflection if variant == "full" else ""
        response = write_statement(cluster.reasoning, cluster.answer, stated, confidence)
        rows.append(_row(question, cluster, response, variant))
    return rows, dropped


def _problem(cluster: Cluster) -> str:
    """Say why an answer cannot stand in a statement; empty if it can."""
    if not cluster.answer.strip():
        return "the answer is blank"
    if has_marker(cluster.answer) or has_marker(cluster.reasoning):
        return "the answer holds a marker of the statement"
    return ""


def group_levels(questions: Sequence[ClusteredQuestion]) -> dict[int, int]:
    """How often the largest cluster is right, in tenths, by its share in tenths. Questions without a right
    answer do not count."""
    correct: dict[int, list[bool]] = defaultdict(list)
    for question in questions:
        largest = question.choose("majority")
        if largest is not None and largest.correct is not None:
            correct[tenths(question.share(largest))].append(largest.correct)
    return {level: tenths(sum(labels) / len(labels), least=0) for level, labels in correct.items()}


def _confidence(
    question: ClusteredQuestion, cluster: Cluster, variant: Variant, levels: Mapping[int, int]
) -> int | None:
    if variant in ("plain", "rtuning"):
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
