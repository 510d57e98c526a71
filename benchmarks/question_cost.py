"""Counts the judge's work for one question without running a model: nodes of prefix trees, token tasks and
operations.

    python benchmarks/question_cost.py --answers 50 --conditioning 50 --words 12 --summaries 4 \
        --summary-words 40

Questions are made up from words of bundled texts. Tokens are counted with the embedded judge's tokenizer.
Prints a line of JSON with means over the questions.
"""

from __future__ import annotations

import argparse
import json
import random
from statistics import mean

from gpu_parts.random_judge import SHAPES, random_judge
from transformers import AutoConfig

from selfreflect.bench import DecoderShape, ItemWork, count_flops, read_shape, work_of
from selfreflect.metric.prompts import masked_words
from selfreflect.models.smollm2 import model_directory
from selfreflect.sources.items import Item
from selfreflect.sources.questions import load_questions

PEAK, SHARE = 790e12, 0.6
"""Operations a second of an H200 in bfloat16 matrix products, and the share that the engine is meant to
reach. Neither is measured here."""


WORDS = (
    "Most people would say that it depends on the soil and on how much sun there is, but radishes or lettuce "
    "are a good first choice because they grow quickly and need little care."
)
"""Words for made-up texts, besides those of the bundled questions."""


def made_up_items(args: argparse.Namespace) -> list[Item]:
    questions = load_questions("bundled").questions
    vocabulary = " ".join([WORDS, *(question.text for question in questions)]).split()
    chance = random.Random(0)

    def texts(count: int, words: int) -> tuple[str, ...]:
        return tuple(" ".join(chance.choices(vocabulary, k=words)) for _ in range(count))

    items = []
    for question in questions[: args.limit or 4]:
        masked_out = texts(args.answers, args.words)
        conditioning = texts(args.conditioning, args.words)
        summaries = texts(args.summaries, args.summary_words)
        items.append(
            Item(
                id=question.id,
                question=question.text,
                masked_out=masked_out,
                conditioning=conditioning,
                summaries={f"s{index}": text for index, text in enumerate(summaries)},
            )
        )
    return items


def count(work: ItemWork, shapes: dict[str, DecoderShape]) -> dict[str, float]:
    """The figures of one question."""
    answers = work.item.masked_out
    figures = {
        "summaries": len(work.trees) - 1,
        "words_of_an_answer": mean(len(text.split()) for text in answers),
        "masked_words": len(masked_words(answers)),
        "token_tasks_per_context": work.requests / len(work.trees),
        "nodes": work.tree_tokens,
        "nodes_of_reference": work.trees[0].computed_tokens,
    }
    for name, shape in shapes.items():
        figures[f"tflop_{name}"] = count_flops(work.trees, shape).total / 1e12
    figures["h200_seconds_computed"] = figures["tflop_qwen2.5-7b"] * 1e12 / (SHARE * PEAK)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=int)
    parser.add_argument("--answers", type=int, default=50, help="masked-out answers of a made-up question")
    parser.add_argument("--conditioning", type=int, default=50)
    parser.add_argument("--words", type=int, default=12, help="in each answer")
    parser.add_argument("--summaries", type=int, default=4)
    parser.add_argument("--summary-words", type=int, default=40)
    args = parser.parse_args()
    judge = random_judge("tiny", device="cpu", dtype="float32")
    shapes = {
        "smollm2": read_shape(AutoConfig.from_pretrained(model_directory())),
        "qwen2.5-7b": SHAPES["qwen2.5-7b"],
    }
    figures = [count(work_of(judge, item), shapes) for item in made_up_items(args)]
    means = {name: float(f"{mean(row[name] for row in figures):.6g}") for name in figures[0]}
    print(json.dumps({"questions": len(figures), **means}))


if __name__ == "__main__":
    main()
