"""Whether words that all reference answers share should count no bits: four rules on 30 questions.

    python benchmarks/shared_words.py

Of "In Geneva." and "In Vienna." a judge may be told mostly that answers begin with "In". The criteria, with
the summary's share of what the distinct answers tell; all but the last were written down before anything was
measured:

- both: of two answers that come equally often, a text that names both reaches at least 85 %;
- half: one of the two reaches 35 to 65 %;
- wrong: another answer in the same form reaches at most 25 %;
- apart: each single answer is at least 20 points above the wrong one;
- list: of three to five answers, all reach at least 85 %, and each at most 65 %;
- fact: of one fact in two wordings, each wording reaches at least 80 %, and is 40 points above a wrong fact;
- word: the same where the wordings differ in one word; written after the half for the choice was seen.

A rule is taken if on the kept half it meets a quarter more of the first five, and not fewer of the others.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from anchor import spread

from selfreflect.grouping import normal_form
from selfreflect.metric.engine.engines import engine_for
from selfreflect.metric.information import AnswerPrompts, words_of_tokens
from selfreflect.metric.texts import distinct, pasted
from selfreflect.models.judge import Judge
from selfreflect.records import AnswerSet, Question
from selfreflect.text import common_prefix

ITEMS = Path(__file__).parent / "shared_words_items.json"
COPIES = {"two": 3, "list": 2, "fact": 3, "word": 3}
"""How often each answer comes in either half."""

Row = dict[str, Any]
Words = list[str]


def ends_of(texts: Sequence[Words]) -> tuple[int, int]:
    """Count the words that all texts begin with, and that all end with."""
    head = common_prefix(min(texts), max(texts))
    backwards = [text[head:][::-1] for text in texts]
    return head, common_prefix(min(backwards), max(backwards))


def uncounted(answers: Sequence[Words], costs: Sequence[Sequence[float]], rule: str) -> list[np.ndarray]:
    """Tell the words of each answer that count no bits.

    Args:
        costs: bits that the judge lacks of each word after an empty summary.
    """
    head, tail = ends_of(answers)
    gaps = [range(head, len(words) - tail) for words in answers]
    wide = not all(gaps) or (rule != "ends" and any(len(gap) > 1 for gap in gaps))
    if rule == "today" or wide:
        return [np.zeros(len(words), dtype=bool) for words in answers]
    limit = np.inf
    if rule == "one word, cheap":
        limit = min(max(cost[index] for index in gap) for cost, gap in zip(costs, gaps, strict=True))
    return [
        np.array([index not in gap and cost[index] <= limit for index in range(len(cost))])
        for cost, gap in zip(costs, gaps, strict=True)
    ]


def measured(judge: Judge, item: Row) -> Row:
    """Bits of each word of each distinct answer, by text that the judge is told."""
    reference = item["reference"]
    answers = spread(dict.fromkeys(reference, COPIES[item["kind"]]))
    record = AnswerSet(question_id=item["id"], masked_out=tuple(reference), conditioning=tuple(answers))
    prompts = AnswerPrompts(judge, Question(id=item["id"], text=item["question"]), record, "informed")
    anchor = pasted(list(distinct(answers)))
    contexts, _ = prompts.contexts(["", anchor, *item["summaries"].values()])
    engine = engine_for(judge)
    logs = []
    for tree in prompts.trees(contexts):
        [states] = engine.states([tree])
        logs += prompts.bits(engine, tree, states)
    words = [answer.split() for answer in reference]
    tokens = [prompt.ids[prompt.first :] for prompt in contexts[""]]
    places = list(map(partial(words_of_tokens, judge.chat.tokenizer), tokens, words))
    of_words = {}
    for text, of_text in zip(contexts, logs, strict=True):
        of_words[text] = list(map(np.bincount, places, of_text))
    return {
        **item,
        "words": [list(map(normal_form, own)) for own in words],
        "bits": of_words,
        "anchor": anchor,
    }


def shares(row: Row, rule: str) -> dict[str, float]:
    """The share of each summary of an item, by its name."""
    nothing = row["bits"][""]
    without = uncounted(row["words"], [-bits for bits in nothing], rule)

    def told(text: str) -> float:
        gains = zip(row["bits"][text], nothing, without, strict=True)
        return sum(float((bits - zero)[~mask].sum()) for bits, zero, mask in gains)

    return {name: told(text) / told(row["anchor"]) for name, text in row["summaries"].items()}


def criteria(kind: str, share: Mapping[str, float]) -> Iterator[tuple[str, bool]]:
    """Yield each criterion that concerns an item, and whether it is met."""
    single = [value for name, value in share.items() if name.startswith(("one", "other"))]
    if kind in ("fact", "word"):
        for name in ("right", "right2"):
            yield kind, share[name] >= 0.8
            yield kind, share[name] - share["wrong"] >= 0.4
        return
    yield "wrong", share["wrong"] <= 0.25
    for value in single:
        yield "apart", value - share["wrong"] >= 0.2
        if kind == "two":
            yield "half", 0.35 <= value <= 0.65
        else:
            yield "list", value <= 0.65
    if kind == "two":
        yield "both", share["all"] >= 0.85
        yield "both", share["either"] >= 0.85
    else:
        yield "list", share["all"] >= 0.85


def main() -> None:
    judge = Judge.load("smollm2")
    rows = [measured(judge, item) for item in json.loads(ITEMS.read_text(encoding="utf-8"))]
    rules = ("today", "ends", "one word", "one word, cheap")
    print(f"| part | criterion | {' | '.join(rules)} |\n| --- | --- |" + " --- |" * len(rules))
    for part in ("choice", "kept"):
        met: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
        for row in rows:
            for rule in rules if row["part"] == part else ():
                for criterion, is_met in criteria(row["kind"], shares(row, rule)):
                    met[criterion][rule].append(is_met)
        for criterion in ("both", "half", "wrong", "apart", "list", "fact", "word"):
            cells = [f"{sum(met[criterion][rule])} of {len(met[criterion][rule])}" for rule in rules]
            print(f"| {part} | {criterion} | {' | '.join(cells)} |")
    print(f"\n| question | summary | {' | '.join(rules)} |\n| --- | --- |" + " --- |" * len(rules))
    for row in rows:
        by_rule = [shares(row, rule) for rule in rules]
        for name in row["summaries"]:
            cells = [f"{share[name]:.0%}" for share in by_rule]
            print(f"| {row['id']} | {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
