"""From process start to the first score, by parts, on a cached embedded model:

python benchmarks/startup.py

Run it on an idle machine, twice: the first run also reads the files from disk.
"""

from __future__ import annotations

import itertools
import time

START = time.perf_counter()


def main() -> None:
    marks = [("start", START)]

    def mark(name: str) -> None:
        marks.append((name, time.perf_counter()))

    import torch

    mark(f"import torch {torch.__version__}")
    from selfreflect.metric.scorer import SelfReflect
    from selfreflect.models.judge import Judge

    mark("import transformers and the metric")
    judge = Judge.load("smollm2")
    mark("load the judge")
    metric = SelfReflect(judge)
    mark("choose the engine")
    answers = ["Saturn", "Jupiter", "Saturn has the most moons", "Saturn"]
    metric.score(
        "Which planet has the most moons?",
        answers=answers,
        summaries={"first": "Probably Saturn, maybe Jupiter."},
    )
    mark("first score")
    for (_, before), (name, after) in itertools.pairwise(marks):
        print(f"{after - before:6.2f} s  {name}")
    print(f"{marks[-1][1] - START:6.2f} s  all, without the start of Python itself")


if __name__ == "__main__":
    main()
