"""The judge's work for one question, counted without running a model: nodes of prefix trees, token tasks,
operations, stored bytes.

    python benchmarks/question_cost.py --items FILE [--limit N] [--num-answers N]
    python benchmarks/question_cost.py --answers 50 --conditioning 50 --words 12 --summaries 4 --summary-words
    40

The second form makes questions up out of the words of bundled texts. Tokens are those of the embedded judge's
tokenizer. Prints a line of JSON with means over the questions.
"""

from __future__ import annotations

import argparse
import json
import random
from statistics import mean

from transformers import Qwen2Config

from selfreflect.bench.flops import Shape, count_flops, read_shape
from selfreflect.bench.random_model import SHAPES, random_judge
from selfreflect.bench.work import work_of
from selfreflect.metric.tasks import masked_words
from selfreflect.models.smollm2 import model_directory
from selfreflect.sources.items import Item, read_items

PEAK, SHARE = 790e12, 0.6
"""Operations a second of an H200 in bfloat16 matrix products, and the share that the engine is meant to
reach. Neither is measured here."""


def made_up(args: argparse.Namespace) -> list[Item]:
    from selfreflect.pipeline.judge_cost import TYPICAL
    from selfreflect.sources.questions import load_questions

    asked = load_questions("bundled").questions
    known = " ".join([TYPICAL, *(question.text for question in asked)]).split()
    chance = random.Random(0)

    def texts(count: int, words: int) -> tuple[str, ...]:
        return tuple(" ".join(chance.choices(known, k=words)) for _ in range(count))

    return [
        Item(
            id=question.id,
            question=question.text,
            masked_out=texts(args.answers, args.words),
            conditioning=texts(args.conditioning, args.words),
            summaries={
                f"s{place}": text for place, text in enumerate(texts(args.summaries, args.summary_words))
            },
        )
        for question in asked[: args.limit or 4]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--num-answers", type=int)
    parser.add_argument("--answers", type=int, default=50, help="masked-out answers of a made-up question")
    parser.add_argument("--conditioning", type=int, default=50)
    parser.add_argument("--words", type=int, default=12, help="in each answer")
    parser.add_argument("--summaries", type=int, default=4)
    parser.add_argument("--summary-words", type=int, default=40)
    args = parser.parse_args()
    items = (
        read_items(args.items, limit=args.limit, num_answers=args.num_answers)
        if args.items
        else made_up(args)
    )
    judge = random_judge("tiny", device="cpu", dtype="float32")
    shapes = {name: _shape(name) for name in ("smollm2", "qwen2.5-7b")}
    found = [work_of(judge, item) for item in items]
    operations = {
        name: mean(count_flops(one.trees, shape).total for one in found) for name, shape in shapes.items()
    }
    words = mean(len(list(masked_words(one.item.masked_out))) for one in found)
    print(
        json.dumps(
            {
                "questions": len(found),
                "summaries": mean(len(one.trees) - 1 for one in found),
                "words_of_an_answer": round(
                    mean(len(text.split()) for one in found for text in one.item.masked_out), 1
                ),
                "masked_words": round(words),
                "token_tasks_per_context": round(mean(one.requests / len(one.trees) for one in found)),
                "nodes": round(mean(one.tree_tokens for one in found)),
                "nodes_of_reference": round(mean(one.trees[0].computed_tokens for one in found)),
                **{f"tflop_{name}": float(f"{count / 1e12:.4g}") for name, count in operations.items()},
                "h200_seconds_computed": float(f"{operations['qwen2.5-7b'] / (SHARE * PEAK):.3g}"),
            }
        )
    )


def _shape(name: str) -> Shape:
    from transformers import AutoConfig

    shape = read_shape(
        AutoConfig.from_pretrained(model_directory()) if name == "smollm2" else Qwen2Config(**SHAPES[name])
    )
    assert shape is not None
    return shape


if __name__ == "__main__":
    main()
