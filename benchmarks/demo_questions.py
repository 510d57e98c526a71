"""The demo's questions, and everyday ones: what hand-written summaries tell of the embedded model's answers.

    python benchmarks/demo_questions.py          # measure, with the answers in the files
    python benchmarks/demo_questions.py --draw   # draw the answers anew, and write them into the files

prints how many answers name a value of the evidence, and what each summary and control tells in % of what
the pasted answers tell: of questions with a context to the informed reader, of everyday ones to both readers.
"""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from selfreflect.answers import draw_answers
from selfreflect.metric.engine.engines import Engine, engine_for
from selfreflect.metric.information import NONSENSE, measure, pasted
from selfreflect.models.base import Sampling
from selfreflect.models.judge import Judge
from selfreflect.models.local.generator import HFGenerator
from selfreflect.prompts import load_prompts
from selfreflect.records import AnswerSet, Question, Reader

ROOT = Path(__file__).parents[1]
DATA = ROOT / "src" / "selfreflect" / "data"
FILES = (DATA / "demo_items.json", Path(__file__).with_name("everyday_items.json"))
SAMPLING = Sampling(temperature=0.7, top_p=0.9, max_new_tokens=20)
LETTERS = "q w e r t y"

Row = dict[str, Any]


def draw() -> None:
    """Replace the answers in the files: 10 + 10 for each question."""
    generator = HFGenerator.load("smollm2")
    prompts = load_prompts(DATA / "demo_prompts.toml")
    for file in FILES:
        rows = json.loads(file.read_text("utf-8"))
        questions = [
            Question(id=row["id"], text=row["question"], context=row.get("context", "")) for row in rows
        ]
        drawn = draw_answers(questions, generator, num_answers=10, prompts=prompts, sampling=SAMPLING)
        by_id = {answers.question_id: answers for answers in drawn if isinstance(answers, AnswerSet)}
        for row in rows:
            answers = by_id[row["id"]]
            row["masked_out_task_answers"] = answers.masked_out
            row["conditioning_answers"] = answers.conditioning
        file.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8")


def count_values(row: Row) -> str:
    answers = [*row["masked_out_task_answers"], *row["conditioning_answers"]]
    named = 0
    counts = dict.fromkeys(row["values"], 0)
    for answer in answers:
        values = [value for value in row["values"] if value.lower() in answer.lower()]
        named += bool(values)
        for value in values:
            counts[value] += 1
    listed = ", ".join(f"{value} {count}" for value, count in counts.items())
    return f"{named} of {len(answers)} answers name a value: {listed}"


def table(judge: Judge, engine: Engine, rows: list[Row], reader: Reader) -> None:
    """Print the share that each text recovers, then all questions together and the pairs in order."""
    sums: dict[str, float] = {}
    counted: dict[str, float] = {}
    right = pairs = 0
    for row in rows:
        question = Question(id=row["id"], text=row["question"])
        answers = AnswerSet(
            question_id=row["id"],
            masked_out=tuple(row["masked_out_task_answers"]),
            conditioning=tuple(row["conditioning_answers"]),
        )
        controls = {
            "nonsense": NONSENSE,
            "letters": LETTERS,
            "empty": "",
            "question": row["question"],
            "pasted": pasted(answers.conditioning),
        }
        texts = {**row["summaries"], **controls}
        results = measure(judge, engine, question, answers, list(texts.values()), reader)
        measured = results[controls["pasted"]]
        line = f"  {row['id']:20} {measured.bits_available:6.1f} bits"
        if measured.undefined:
            print(f"{line}  {measured.undefined}")
            continue
        for name, text in texts.items():
            bits = results[text].bits
            sums[name] = sums.get(name, 0.0) + bits
            counted[name] = counted.get(name, 0.0) + measured.bits_available
            line += f"  {name} {bits / measured.bits_available:.0%}"
        names = [*row["order"], "nonsense"]
        shares = [results[texts[name]].bits for name in names]
        right += sum(better > worse for better, worse in pairwise(shares))
        pairs += len(names) - 1
        print(line)
    shares_of_all = [f"{name} {bits / counted[name]:.0%}" for name, bits in sums.items()]
    print("  all together:", ", ".join(shares_of_all) or "nothing to tell")
    print(f"  neighbours in the order of the table and nonsense last: {right} of {pairs} pairs right")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draw", action="store_true", help="draw the answers anew")
    if parser.parse_args().draw:
        draw()
    demo, everyday = [json.loads(file.read_text("utf-8")) for file in FILES]
    judge = Judge.load("smollm2")
    engine = engine_for(judge)
    with_context = [row for row in demo if row.get("context")]
    without = [row for row in demo if not row.get("context")] + everyday
    for row in with_context + without:
        print(f"{row['id']:22} {count_values(row)}")
    print("questions with a context that only the model read, informed reader")
    table(judge, engine, with_context, "informed")
    print("everyday questions, informed reader")
    table(judge, engine, without, "informed")
    print("everyday questions, blind reader")
    table(judge, engine, without, "blind")


if __name__ == "__main__":
    main()
