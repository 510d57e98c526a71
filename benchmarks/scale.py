"""Measures what run directories of many questions take: bytes, memory, seconds. Records are made up, and no
model runs.

    python benchmarks/scale.py DIR --questions 1000 --answers 50 --words 12 --strategies 4 [--without-words]

fills DIR and DIR-*, unless they exist, and prints a line for each file and for each operation on the
directory. An operation runs in its own process, and its line has the seconds of one core, the peak memory of
the process, and its memory before it read the directory.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path

from selfreflect.metric.prompts import MaskedWord, masked_words
from selfreflect.records import AnswerSet, Question, Score, Summary, WordDistance, dump_line
from selfreflect.store.run import Run

COMMON = (
    "the of and to in is that it for as with on be at by this are from or have not but what they can which "
    "one you were there"
).split()
CONSONANTS = "b c d f g k l m n p r s t v st tr".split()
VOWELS = "a e i o u ai er on".split()
SYLLABLES = [consonant + vowel for consonant, vowel in product(CONSONANTS, VOWELS)]


def text(chance: random.Random, words: int) -> str:
    """A text of so many words, four in ten of them common."""
    parts = []
    for _ in range(words):
        if chance.random() < 0.4:
            parts.append(chance.choice(COMMON))
        else:
            parts.append("".join(chance.choices(SYLLABLES, k=chance.randint(2, 4))))
    return " ".join(parts).capitalize() + "."


@cache
def pool(words: int) -> list[str]:
    """Answers of about so many words to choose from."""
    chance = random.Random(0)
    return [text(chance, max(1, round(chance.gauss(words, words / 3)))) for _ in range(5000)]


def question_records(
    number: int, args: argparse.Namespace
) -> Iterator[Question | AnswerSet | Summary | Score]:
    """All records of one question. A masked word has 1.6 tokens on average, as English content words have
    with SmolLM2's tokenizer."""
    chance = random.Random(number)
    id_ = f"q-{number:012x}"
    answers = chance.choices(pool(args.words), k=2 * args.answers)
    masked = tuple(answers[: args.answers])
    yield Question(id=id_, text=text(chance, 10), kind="made up")
    yield AnswerSet(
        question_id=id_,
        masked_out=masked,
        conditioning=tuple(answers[args.answers :]),
        model="HuggingFaceTB/SmolLM2-135M-Instruct",
        revision="0" * 40,
        temperature=1.0,
        top_p=1.0,
        max_new_tokens=256,
        seed=0,
        tokens=2 * args.answers * args.words,
    )
    tasks = [] if args.without_words else list(masked_words(masked))
    for place in range(args.strategies):
        name = f"strategy_{place}"
        yield Summary(
            question_id=id_,
            name=name,
            text=text(chance, 40),
            model="HuggingFaceTB/SmolLM2-135M-Instruct",
            revision="0" * 40,
            seed=0,
        )
        yield Score(
            question_id=id_,
            summary=name,
            value=chance.betavariate(2, 20),
            stderr=chance.random() / 100,
            token_tasks=600,
            judge="HuggingFaceTB/SmolLM2-135M-Instruct",
            judge_revision="0" * 40,
            judge_dtype="float32",
            answer_means=tuple(chance.random() / 10 for _ in masked),
            words=tuple(word_distance(chance, task) for task in tasks),
        )


def word_distance(chance: random.Random, task: MaskedWord) -> WordDistance:
    tokens = chance.choice((1, 1, 1, 2, 3))
    distances = tuple(chance.random() / 10 for _ in range(tokens))
    return WordDistance(answer=task.answer, word=task.word, text=task.text, distances=distances)


def fill(folder: Path, args: argparse.Namespace) -> None:
    """A run directory, written in one go rather than record by record."""
    if (folder / "manifest.json").exists():
        return
    Run.open(folder, {}).close()
    names = {Question: "questions", AnswerSet: "answers", Summary: "summaries", Score: "scores"}
    with contextlib.ExitStack() as stack:
        files = {
            kind: stack.enter_context((folder / f"{name}.jsonl").open("w", encoding="utf-8"))
            for kind, name in names.items()
        }
        for number in range(args.questions):
            for record in question_records(number, args):
                files[type(record)].write(dump_line(record) + "\n")


def command(*arguments: object) -> None:
    from selfreflect.cli import application

    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        application()([str(argument) for argument in arguments])


def read_all(run: Run) -> int:
    return sum(map(len, (run.questions, run.answers, run.summaries, run.scores, run.failures)))


def open_to_resume(folder: Path) -> None:
    with Run.open(folder, {}) as run:
        read_all(run)


def import_run(folder: Path) -> None:
    out = folder.with_name(f"{folder.name}-joined")
    command("import", folder, "--out", out)
    for path in [*out.iterdir()]:
        path.unlink()
    out.rmdir()


OPERATIONS: dict[str, Callable[[Path], object]] = {
    "load": lambda folder: read_all(Run.load(folder)),
    "open to resume": open_to_resume,
    "report": lambda folder: command("report", folder),
    "compare": lambda folder: command("compare", folder),
    "import": import_run,
}


def rss() -> float:
    """Peak memory of this process, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--answers", type=int, default=50, help="per half")
    parser.add_argument("--words", type=int, default=12, help="in an answer")
    parser.add_argument("--strategies", type=int, default=4)
    parser.add_argument(
        "--without-words", action="store_true", help="scores without the distances of single words"
    )
    parser.add_argument("--only", help="these operations, separated by commas")
    parser.add_argument("--operation", choices=OPERATIONS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.operation:
        import selfreflect.cli.console  # noqa: F401  # every command loads it, so it counts as memory before

        before_mb = round(rss())
        began = time.process_time()
        OPERATIONS[args.operation](args.folder)
        seconds = round(time.process_time() - began, 1)
        figures = {"cpu_seconds": seconds, "peak_mb": round(rss()), "before_mb": before_mb}
        print(json.dumps({"operation": args.operation, **figures}))
        return
    fill(args.folder, args)
    for path in sorted(args.folder.glob("*.jsonl")):
        size = path.stat().st_size
        per_question = round(size / args.questions)
        print(json.dumps({"file": path.name, "bytes_per_question": per_question, "gb": size / 1e9}))
    for name in args.only.split(",") if args.only else OPERATIONS:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, *sys.argv, "--operation", name], env=environment, check=True)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
