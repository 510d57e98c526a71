"""Usable information on items whose summaries have a known order, under two wordings of the request.

    python benchmarks/information.py good_mid_bad.json --num-answers 10

prints a table of shares for each wording: what summaries and controls tell of the held-out answers, in % of
what the pasted conditioning answers tell, and how often the better of two tells more.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import combinations

from selfreflect.metric import information
from selfreflect.metric.engine.engines import engine_for
from selfreflect.metric.tasks import SYSTEM
from selfreflect.models.base import Message
from selfreflect.models.judge import Judge
from selfreflect.records import Reader
from selfreflect.sources.items import Item, read_items
from selfreflect.text import normalise_question

NONSENSE = "18:08:33 37 ;; qx 2044 [ok] 7f 19"


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
    controls = {"empty": "", "question repeated": item.question, "nonsense": NONSENSE}
    return {**item.summaries, **controls, "answers pasted": information.pasted(item.conditioning)}


def table(judge: Judge, items: Sequence[Item], reader: Reader) -> None:
    engine = engine_for(judge)
    told: dict[str, list[float]] = {}
    available = []
    undefined = 0
    for item in items:
        named = texts(item)
        results = information.measure(
            judge, engine, item.question_record, item.answer_set, list(named.values()), reader
        )
        for name, text in named.items():
            told.setdefault(name, []).append(results[text].bits)
        first = next(iter(results.values()))
        available.append(first.bits_available)
        undefined += first.undefined is not None
    total = sum(available)
    print(
        f"{len(items)} items, {total / len(items):.1f} bits available per answer, undefined for {undefined}"
    )
    for name, bits in told.items():
        print(f"  {name:20} {sum(bits) / len(items):7.1f} bits {sum(bits) / total:7.0%}")
    names = [name for name in told if len(told[name]) == len(items)]
    for better, worse in combinations(names, 2):
        pairs = zip(told[better], told[worse], strict=True)
        print(f"  {better} > {worse}: {sum(one > other for one, other in pairs)}/{len(items)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "items", help="items in the order of their quality, as `selfreflect validate` reads them"
    )
    parser.add_argument("--num-answers", type=int, default=10, help="answers per half")
    parser.add_argument("--judge", default="smollm2")
    parser.add_argument("--reader", choices=("informed", "blind"), default="informed")
    parser.add_argument("--compare", action="store_true", help="also measure with the other wording")
    arguments = parser.parse_args()
    items = read_items(arguments.items, num_answers=arguments.num_answers)
    judge = Judge.load(arguments.judge)
    print(f"N = {arguments.num_answers}, {arguments.reader} reader")
    table(judge, items, arguments.reader)
    if arguments.compare:
        information.answering = own_words
        print("told as the judge's own earlier words")
        table(judge, items, arguments.reader)


if __name__ == "__main__":
    main()
