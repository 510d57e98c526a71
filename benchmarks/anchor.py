"""What 100 % of usable information should be: five texts of the reference answers, tried on 24 questions.

    python benchmarks/anchor.py

The criteria, written down before anything was measured. With the summary's share of the anchor:

- one: of a question with one answer, its answer as the summary reaches at least 90 %;
- two: of two answers that come equally often, a sentence that names both reaches at least 85 %;
- half: one of the two reaches 35 to 65 %;
- rises: pasting k distinct answers, the most frequent first, tells more with each k;
- long: of long answers that all differ, shares are as before, with all answers pasted, within 5 points.

Half of the questions of each kind were kept apart (part ``kept``): the anchor was chosen on the others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from selfreflect.metric.engine.engines import engine_for
from selfreflect.metric.information import AnswerPrompts
from selfreflect.metric.texts import anchor_texts, distinct, pasted
from selfreflect.models.judge import Judge
from selfreflect.records import AnswerSet, Question

ITEMS = Path(__file__).parent / "anchor_items.json"
Row = dict[str, Any]


def spread(counts: Mapping[str, int]) -> list[str]:
    """List answers as often as they are counted, equal ones far apart."""
    left, answers = dict(counts), []
    while any(left.values()):
        answer = max(left, key=lambda text: left[text] / counts[text])
        left[answer] -= 1
        answers.append(answer)
    return answers


def anchors(reference: list[str]) -> dict[str, list[str]]:
    """The candidates, each a list of texts of which the best counts."""
    counts = Counter(reference)
    counted = [f"{answer} ({count} of {len(reference)})" for answer, count in distinct(reference).items()]
    return {
        "all pasted": [pasted(reference)],
        "distinct spellings": [pasted(list(counts))],
        "distinct answers": [pasted(list(distinct(reference)))],
        "with counts": [pasted(counted)],
        "better of both": anchor_texts(reference),
    }


def measured(judge: Judge, item: Row) -> Row:
    """Bits of every text of an item, mean per answer."""
    reference = spread(item["reference"])
    answers = AnswerSet(
        question_id=item["id"], masked_out=tuple(spread(item["test"])), conditioning=tuple(reference)
    )
    prompts = AnswerPrompts(judge, Question(id=item["id"], text=item["question"]), answers, "informed")
    ways = anchors(reference)
    one_each = list(distinct(reference))
    curve = [pasted(one_each[:count]) for count in range(1, len(one_each) + 1)]
    texts = ["", *item["summaries"].values(), *curve, *(text for way in ways.values() for text in way)]
    contexts, _ = prompts.contexts(texts)
    logs = []
    engine = engine_for(judge)
    for tree in prompts.trees(contexts):
        [states] = engine.states([tree])
        logs += prompts.bits(engine, tree, states)
    totals = {text: np.mean([own.sum() for own in of]) for text, of in zip(contexts, logs, strict=True)}
    bits = {text: float(total - totals[""]) for text, total in totals.items()}
    return {
        **item,
        "told": {name: bits[text] for name, text in item["summaries"].items()},
        "anchors": {name: max(bits[text] for text in way) for name, way in ways.items()},
        "curve": [bits[text] for text in curve],
    }


def criteria(row: Row, anchor: str) -> Iterator[tuple[str, bool]]:
    """Yield each criterion that concerns an item, and whether it is met."""
    share = {name: bits / row["anchors"][anchor] for name, bits in row["told"].items()}
    if row["kind"] == "one":
        yield "one", share["all"] >= 0.9
    if row["kind"] == "two":
        yield "two", share["all"] >= 0.85
        yield "two", share["either"] >= 0.85
        yield "half", 0.35 <= share["one"] <= 0.65
    if row["kind"] in ("many", "long"):
        yield "rises", all(fewer < more for fewer, more in pairwise(row["curve"]))
    if row["kind"] == "long":
        before = row["told"]["all"] / row["anchors"]["all pasted"]
        yield "long", abs(share["all"] - before) <= 0.05


def main() -> None:
    judge = Judge.load("smollm2")
    rows = [measured(judge, item) for item in json.loads(ITEMS.read_text(encoding="utf-8"))]
    names = list(rows[0]["anchors"])
    print("| part | criterion | " + " | ".join(names) + " |\n| --- | --- |" + " --- |" * len(names))
    for part in ("choice", "kept"):
        for criterion in ("one", "two", "half", "rises", "long"):
            cells = []
            for name in names:
                met = [
                    ok
                    for row in rows
                    if row["part"] == part
                    for one, ok in criteria(row, name)
                    if one == criterion
                ]
                cells.append(f"{sum(met)} of {len(met)}")
            print(f"| {part} | {criterion} | {' | '.join(cells)} |")
    print(
        "\n| question | summary | bits | "
        + " | ".join(names)
        + " |\n| --- | --- | --- |"
        + " --- |" * len(names)
    )
    for row in rows:
        for name, bits in row["told"].items():
            shares = " | ".join(f"{bits / row['anchors'][one]:.0%}" for one in names)
            print(f"| {row['id']} | {name} | {bits:.1f} | {shares} |")


if __name__ == "__main__":
    main()
