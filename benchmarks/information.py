"""Usable information and SelfReflect on items whose summaries have a known order, against controls.

    python benchmarks/information.py good_mid_bad.json --num-answers 3,5,10 --measures information,selfreflect

prints Markdown tables: what each text tells of the held-out answers, how often the better of two wins, and
how the human-written summaries stand to raw answers pasted in their place. ``--budget 0.2`` spends a fifth
of the judge tokens on SelfReflect, or what eight words need where that is more: its scores are estimates
then, with standard errors. With ``--save DIR`` each item's figures are written there as soon as they are
measured, and read from there by the next run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from itertools import chain, combinations, pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from selfreflect.metric import information
from selfreflect.metric.engine.engines import engine_for
from selfreflect.metric.engine.tree import build_tree
from selfreflect.metric.inputs import Limits
from selfreflect.metric.prompts import prepare, summary_prompts
from selfreflect.metric.sampling import Cost, Population, sampled_mean
from selfreflect.metric.scorer import SelfReflect, tree_nodes
from selfreflect.metric.texts import NONSENSE, pasted, pasted_subsets
from selfreflect.models.judge import Judge
from selfreflect.records import Reader, Score, Summary
from selfreflect.sources.items import Item, read_item_file
from selfreflect.stats import wilson

PASTED = (1, 2, 5)
ALL = "all pasted"
LEAST_WORDS = 8
"""Of an item, whatever the budget: where answers are short, a small share does not pay for the contexts."""

Row = dict[str, Any]
"""``id``, ``values`` by name of the text, ``words`` of each text, ``undefined``: why there is no share."""


def texts(item: Item) -> dict[str, str]:
    """The summaries from the best to the worst, then the controls but for pasted answers."""
    return {
        **item.summaries,
        "empty": "",
        "question repeated": item.question,
        "nonsense": NONSENSE,
    }


def pasted_counts(num_answers: int) -> list[int]:
    return [count for count in PASTED if count < num_answers] + [num_answers]


def pasted_texts(item: Item) -> dict[str, list[str]]:
    """Subsets of the conditioning answers, pasted, by the name of their size."""
    named = {}
    for count in pasted_counts(len(item.conditioning)):
        named[f"{count} pasted"] = pasted_subsets(item.conditioning, count)
    return named


def bits(judge: Judge, reader: Reader) -> Callable[[Item], Row]:
    engine = engine_for(judge)

    def measure(item: Item) -> Row:
        named = {name: [text] for name, text in texts(item).items()} | pasted_texts(item)
        asked = item.question_record, item.answer_set
        every = list(chain.from_iterable(named.values()))
        results = information.measure(judge, engine, *asked, every, reader)
        row: Row = {"id": item.id, "undefined": results[""].undefined, "values": {}, "words": {}}
        for name, own in named.items():
            row["words"][name] = float(np.mean([len(text.split()) for text in own]))
            row["values"][name] = float(np.mean([results[text].bits for text in own]))
        ends = [*item.summaries.values(), "", pasted(item.conditioning)]
        row["tokens"] = {
            "information": information.nodes(judge, *asked, every, reader),
            "SelfReflect": sum(tree_nodes(judge, *asked, ends)),
        }
        return row

    return measure


def scores(judge: Judge, share: float | None) -> Callable[[Item], Row]:
    """SelfReflect of the summaries and of the controls that cost as much as a summary each.

    Args:
        share: of the judge tokens; None for all.
    """
    metric = SelfReflect(judge)

    def measure(item: Item) -> Row:
        named = texts(item) | {f"{len(item.conditioning)} pasted": pasted(item.conditioning)}
        question = item.question_record
        summaries = [Summary(question_id=question.id, name=name, text=text) for name, text in named.items()]
        limits, budget = None, None
        if share is not None:
            budget = token_budget(judge, item, list(named.values()), share)
            limits = Limits.parse(budget["spent"])
        results = {}
        for score in metric.score_records(question, item.answer_set, summaries, limits=limits):
            assert isinstance(score, Score), score
            results[score.summary] = score
        row: Row = {"id": item.id, "values": {name: score.value for name, score in results.items()}}
        if limits is not None:
            row["budget"] = budget
            row["errors"] = sampling_errors(judge, item, limits.seed, results)
        return row

    return measure


def token_budget(judge: Judge, item: Item, texts: Sequence[str], share: float) -> dict[str, int]:
    """Judge tokens to be ``spent`` at most on an item, and those of ``all`` its words."""
    question = item.question_record
    prompts = prepare(judge, question, item.answer_set)
    population = Population(prompts.words, prompts.sizes, Limits.seed, question.id)
    nodes = least = 0
    for context in (prompts.reference, *(summary_prompts(judge, prompts, text) for text in texts)):
        nodes += build_tree(context).computed_tokens
        least += Cost(population, context).tokens(min(LEAST_WORDS, population.size))
    return {"spent": max(least, int(share * nodes)), "all": nodes}


def sampling_errors(
    judge: Judge, item: Item, seed: int, results: dict[str, Score]
) -> dict[str, float | None]:
    """Standard errors of each score and of each difference, against those of all words. All texts are scored
    on the same words, so differences vary less."""
    prompts = prepare(judge, item.question_record, item.answer_set)
    population = Population(prompts.words, prompts.sizes, seed, item.question_record.id)
    places = {(word.answer, word.word): index for index, word in enumerate(prompts.words)}
    values: dict[str, dict[int, float]] = {}
    for name, score in results.items():
        values[name] = {places[word.answer, word.word]: sum(word.distances) for word in score.words}
    for one, other in combinations(results, 2):
        values[f"{one} - {other}"] = {
            place: values[one][place] - values[other][place] for place in values[one]
        }
    size = population.size_within(len(next(iter(values.values()))))
    errors = {}
    for name, of_words in values.items():
        errors[name] = sampled_mean(population.samples(size, of_words)).sampling_error
    return errors


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
    low, high = wilson(sum(wins) / len(wins), len(wins))
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
    cells: dict[str, list[bool]] = {}
    for row in rows:
        values = [row["values"][name] for name in curve]
        growing = all(fewer <= more for fewer, more in pairwise(values[1:]))
        cells.setdefault("never fewer bits with more pasted answers", []).append(growing)
        for name in names:
            on_curve = np.interp(row["words"][name], [row["words"][one] for one in curve], values)
            heading = f"{name} above the curve of pasted answers"
            cells.setdefault(heading, []).append(bool(row["values"][name] > on_curve))
    print("\n| of the items | |\n| --- | --- |")
    for heading, wins in cells.items():
        print(f"| {heading} | {share(wins)} |")
    spent = [sum(row["tokens"][measure] for row in rows) for measure in ("information", "SelfReflect")]
    print(f"| judge tokens, of SelfReflect's | {spent[0] / spent[1]:.1%} |")


def mean_scores(rows: Sequence[Row]) -> None:
    """Mean SelfReflect scores, with their errors against all words if they are estimates."""
    best, *others = rows[0]["values"]
    budgets = [row["budget"] for row in rows if "budget" in row]
    if budgets:
        spent = sum(budget["spent"] for budget in budgets) / sum(budget["all"] for budget in budgets)
        print(f"\n{len(rows)} items, at most {spent:.1%} of the judge tokens")
    print("\n| text | mean score | above the best summary's |\n| --- | --- | --- |")
    for name in (best, *others):
        score = np.mean([row["values"][name] for row in rows])
        more = [row["values"][name] - row["values"][best] for row in rows]
        if "errors" not in rows[0]:
            print(f"| {name} | {score:.4f} | {np.mean(more):+.4f} |")
            continue
        own = mean_error(rows, name)
        of_difference = "" if name == best else f" ± {mean_error(rows, f'{best} - {name}'):.4f}"
        print(f"| {name} | ≈ {score:.4f} ± {own:.4f} | {np.mean(more):+.4f}{of_difference} |")


def mean_error(rows: Sequence[Row], name: str) -> float:
    """Standard error of a mean over items, against the mean of exact values."""
    errors = [row["errors"][name] for row in rows if row["errors"][name] is not None]
    return float(np.sqrt(np.sum(np.square(errors))) / len(errors))


def doubtful(rows: Sequence[Row], better: str, worse: str) -> float:
    """How many items the sample of words orders otherwise than all words would, by a normal approximation."""
    total = 0.0
    for row in rows:
        error = row["errors"].get(f"{better} - {worse}", row["errors"].get(f"{worse} - {better}"))
        difference = abs(row["values"][better] - row["values"][worse])
        if error:
            total += NormalDist().cdf(-difference / error)
        elif error is None:
            total += 0.5
    return total


def order(columns: dict[str, list[Row]], names: Sequence[str]) -> None:
    """How often the better of two texts wins: more bits, or a lower SelfReflect score."""
    print("\n| pair | " + " | ".join(columns) + " |\n|" + " --- |" * (len(columns) + 1))
    controls = ["empty", "question repeated", "nonsense"]
    pairs = [*combinations(names, 2), *((names[0], control) for control in controls), (ALL, names[0])]
    for better, worse in pairs:
        cells = []
        for heading, rows in columns.items():
            every = next(name for name in reversed(rows[0]["values"]) if name.endswith(" pasted"))
            first = every if better == ALL else better
            sign = -1 if heading.startswith("SelfReflect") else 1
            wins = [sign * row["values"][first] > sign * row["values"][worse] for row in rows]
            cell = share(wins)
            if "errors" in rows[0]:
                cell = f"≈ {cell}; {doubtful(rows, first, worse):.1f} in doubt"
            cells.append(cell)
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
    parser.add_argument("--measures", default="information", help="information, selfreflect, or both")
    parser.add_argument(
        "--budget", type=float, metavar="SHARE", help="of SelfReflect's judge tokens, such as 0.2"
    )
    parser.add_argument("--save", type=Path, help="directory of what has been measured")
    arguments = parser.parse_args()
    judge = Judge.load(arguments.judge)
    columns: dict[str, list[Row]] = {}
    for count in map(int, arguments.num_answers.split(",")):
        items = read_item_file(
            arguments.items, num_answers=count, limit=arguments.limit, need_summaries=True
        ).items
        names = list(items[0].summaries)

        def path(measure: str, count: int = count) -> Path | None:
            if arguments.save is None:
                return None
            arguments.save.mkdir(parents=True, exist_ok=True)
            return arguments.save / f"{arguments.items.stem}-{count}-{measure}.jsonl"

        if "information" in arguments.measures:
            rows = measured(bits(judge, arguments.reader), items, path(arguments.reader))
            columns[f"usable information, N = {count}"] = rows
            print(f"\nN = {count}, {arguments.reader}")
            means(rows, count)
            against_pasted(rows, names, count)
        if "selfreflect" in arguments.measures:
            kind = "selfreflect" if arguments.budget is None else f"selfreflect-{arguments.budget:g}"
            rows = measured(scores(judge, arguments.budget), items, path(kind))
            columns[f"SelfReflect, N = {count}"] = rows
            print(f"\nSelfReflect, N = {count}")
            mean_scores(rows)
    order(columns, names)


if __name__ == "__main__":
    main()
