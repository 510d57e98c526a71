"""Usable information and SelfReflect on items whose summaries have a known order, against controls.

    python benchmarks/information.py good_mid_bad.json --num-answers 3,5,10 --measures information,selfreflect

prints Markdown tables: what each text tells of the held-out answers, how often the better of two wins, and
how the human-written summaries stand to raw answers pasted in their place. With ``--save DIR`` each item's
figures are written there as soon as they are measured, and read from there by the next run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from ordering import wilson

from selfreflect.metric import information
from selfreflect.metric.engine.engines import engine_for
from selfreflect.metric.scorer import SelfReflect
from selfreflect.metric.tasks import SYSTEM
from selfreflect.models.base import Message
from selfreflect.models.judge import Judge
from selfreflect.records import Reader, Score, Summary
from selfreflect.sources.items import Item, read_items
from selfreflect.text import normalise_question

PASTED = (1, 2, 5)

Row = dict[str, Any]
"""``id``, ``values`` by name of the text, ``words`` of each text, ``undefined``: why there is no share."""


def own_words(question: str, told: str | None, reader: Reader) -> tuple[Message, ...]:
    """The alternative: the judge has said itself what it is told, as in SelfReflect."""
    asked = normalise_question(question)
    system = Message(role="system", content=SYSTEM)
    if told is None:
        return (system, Message(role="user", content=f"{asked}\n{information.GIVE_ONE}"))
    return (
        system,
        Message(role="user", content=asked),
        Message(role="assistant", content=told),
        Message(role="user", content=information.GIVE_ONE),
    )


def texts(item: Item) -> dict[str, str]:
    """The summaries from the best to the worst, then the controls."""
    named = {
        **item.summaries,
        "empty": "",
        "question repeated": item.question,
        "nonsense": information.NONSENSE,
    }
    for count in pasted_counts(len(item.conditioning))[:-1]:
        named[f"{count} pasted"] = information.pasted(item.conditioning[:count])
    return named


def pasted_counts(num_answers: int) -> list[int]:
    return [count for count in PASTED if count < num_answers] + [num_answers]


def bits(judge: Judge, reader: Reader) -> Callable[[Item], Row]:
    engine = engine_for(judge)

    def measure(item: Item) -> Row:
        named = texts(item)
        results = information.measure(
            judge, engine, item.question_record, item.answer_set, list(named.values()), reader
        )
        values = {name: results[text].bits for name, text in named.items()}
        words = {name: len(text.split()) for name, text in named.items()}
        everything = f"{len(item.conditioning)} pasted"
        values[everything] = results[named["empty"]].bits_available
        words[everything] = sum(len(answer.split()) for answer in item.conditioning)
        return {
            "id": item.id,
            "values": values,
            "words": words,
            "undefined": results[named["empty"]].undefined,
        }

    return measure


def scores(judge: Judge) -> Callable[[Item], Row]:
    metric = SelfReflect(judge)

    def measure(item: Item) -> Row:
        question = item.question_record
        named = {**item.summaries, "empty": ""}
        summaries = [Summary(question_id=question.id, name=name, text=text) for name, text in named.items()]
        values = {}
        for score in metric.score_records(question, item.answer_set, summaries):
            assert isinstance(score, Score), score
            values[score.summary] = score.value
        return {"id": item.id, "values": values}

    return measure


def measured(measure: Callable[[Item], Row], items: Sequence[Item], path: Path | None) -> list[Row]:
    """Measure what ``path`` does not hold yet."""
    rows: dict[str, Row] = {}
    if path is not None and path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            rows[row["id"]] = row
    for item in items:
        if item.id in rows:
            continue
        rows[item.id] = measure(item)
        if path is not None:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[item.id]) + "\n")
    return [rows[item.id] for item in items]


def share(wins: Sequence[bool]) -> str:
    low, high = wilson(sum(wins), len(wins))
    return f"{sum(wins)} of {len(wins)}, {sum(wins) / len(wins):.0%} [{low:.0%}, {high:.0%}]"


def means(rows: Sequence[Row], num_answers: int) -> None:
    """What each text tells, in bits and as a share: a ratio of sums."""
    total = sum(row["values"][f"{num_answers} pasted"] for row in rows)
    undefined = [row["undefined"] for row in rows if row["undefined"]]
    print(f"\n{len(rows)} items, {total / len(rows):.1f} bits available per answer; ", end="")
    print(f"undefined for {len(undefined)}: {', '.join(undefined)}" if undefined else "always defined")
    print("\n| text | words | bits per answer | recovered |\n| --- | --- | --- | --- |")
    for name in rows[0]["values"]:
        told = [row["values"][name] for row in rows]
        words = np.mean([row["words"][name] for row in rows])
        print(f"| {name} | {words:.1f} | {np.mean(told):.1f} | {sum(told) / total:.0%} |")


def against_pasted(rows: Sequence[Row], names: Sequence[str], num_answers: int) -> None:
    """Whether more pasted answers tell more, and which summaries tell more than answers of their length."""
    curve = ["empty"] + [f"{count} pasted" for count in pasted_counts(num_answers)]
    print("\n| of the items | share |\n| --- | --- |")
    print(f"| empty at or below 0 | {share([row['values']['empty'] <= 0 for row in rows])} |")
    growing = []
    for row in rows:
        values = [row["values"][name] for name in curve[1:]]
        growing.append(all(fewer <= more for fewer, more in pairwise(values)))
    print(f"| never fewer bits with more pasted answers | {share(growing)} |")
    for fewer, more in pairwise(curve):
        print(f"| {more} > {fewer} | {share([row['values'][more] > row['values'][fewer] for row in rows])} |")
    for name in names:
        above = []
        for row in rows:
            words = [row["words"][one] for one in curve]
            on_curve = np.interp(row["words"][name], words, [row["values"][one] for one in curve])
            above.append(row["values"][name] > on_curve)
        print(f"| {name} above the curve of pasted answers | {share(above)} |")


def order(rows: dict[str, list[Row]], names: Sequence[str]) -> None:
    """How often the better of two texts wins: more bits, or a lower SelfReflect score."""
    print("\n| pair | " + " | ".join(rows) + " |\n|" + " --- |" * (len(rows) + 1))
    for better, worse in combinations([*names, "empty"], 2):
        cells = []
        for heading, measurements in rows.items():
            sign = -1 if heading.startswith("SelfReflect") else 1
            cells.append(
                share([sign * row["values"][better] > sign * row["values"][worse] for row in measurements])
            )
        print(f"| {better} > {worse} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("items", type=Path, help="items whose summaries go from the best to the worst")
    parser.add_argument("--num-answers", default="10", help="answers per half, such as 3,5,10")
    parser.add_argument("--limit", type=int, help="only the first items")
    parser.add_argument("--judge", default="smollm2")
    parser.add_argument("--reader", choices=("informed", "blind"), default="informed")
    parser.add_argument("--own-words", action="store_true", help="measure with the other wording")
    parser.add_argument("--measures", default="information", help="information, selfreflect, or both")
    parser.add_argument("--save", type=Path, help="directory of what has been measured")
    arguments = parser.parse_args()
    judge = Judge.load(arguments.judge)
    wording = "own-words" if arguments.own_words else arguments.reader
    if arguments.own_words:
        information.answering = own_words
    columns: dict[str, list[Row]] = {}
    for count in map(int, arguments.num_answers.split(",")):
        items = read_items(arguments.items, num_answers=count, limit=arguments.limit)
        names = list(items[0].summaries)

        def path(measure: str, count: int = count) -> Path | None:
            if arguments.save is None:
                return None
            arguments.save.mkdir(parents=True, exist_ok=True)
            return arguments.save / f"{arguments.items.stem}-{count}-{measure}.jsonl"

        if "information" in arguments.measures:
            rows = measured(bits(judge, arguments.reader), items, path(wording))
            columns[f"usable information, N = {count}"] = rows
            print(f"\nN = {count}, {wording}")
            means(rows, count)
            against_pasted(rows, names, count)
        if "selfreflect" in arguments.measures:
            columns[f"SelfReflect, N = {count}"] = measured(scores(judge), items, path("selfreflect"))
    order(columns, names)


if __name__ == "__main__":
    main()
