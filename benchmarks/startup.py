"""From process start to the first score, by parts, on a cached embedded model:

python benchmarks/startup.py [--pairs N]

With --pairs, whole processes: `selfreflect score` on a small file and `import torch, transformers` in turns,
by both clocks. Run it twice: the first run also reads the files from disk.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

START = time.perf_counter()
QUESTION = "Which planet has the most moons?"
ANSWERS = ["Saturn", "Jupiter", "Saturn has the most moons", "Saturn"]
SUMMARY = "Probably Saturn, maybe Jupiter."


def parts() -> None:
    """Time the parts of one process."""
    marks = [("start", START)]

    def mark(name: str) -> None:
        marks.append((name, time.perf_counter()))

    import torch

    mark(f"import torch {torch.__version__}")
    from selfreflect.metric.scorer import SelfReflect
    from selfreflect.models.judge import Judge

    mark("import the metric")
    judge = Judge.load("smollm2")
    mark("load the judge")
    metric = SelfReflect(judge)
    mark("choose the engine")
    metric.score(QUESTION, answers=ANSWERS, summaries={"first": SUMMARY})
    mark("first score")
    for (_, before), (name, after) in itertools.pairwise(marks):
        print(f"{after - before:6.2f} s  {name}")
    print(f"{marks[-1][1] - START:6.2f} s  all, without the start of Python itself")


def pairs(count: int) -> None:
    """Compare scoring a file with importing what it is built on."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "items.json")
        file.write_text(json.dumps([{"question": QUESTION, "answers": ANSWERS, "summary": SUMMARY}]))
        commands = {
            "import torch, transformers": ["-c", "import torch, transformers"],
            "score --items": ["-m", "selfreflect", "score", "--items", str(file), "--json"],
        }
        seconds: dict[str, list[Seconds]] = {name: [] for name in commands}
        for _, (name, command) in itertools.product(range(count), commands.items()):
            seconds[name].append(timed([sys.executable, *command]))
    for clock in Seconds._fields:
        print(f"{clock} time")
        medians = []
        for name, runs in seconds.items():
            times = [getattr(run, clock) for run in runs]
            medians.append(statistics.median(times))
            print(f"{medians[-1]:6.2f} s ({min(times):.2f} to {max(times):.2f})  {name}")
        print(f"{medians[1] / medians[0]:6.2f} times as long, {count} pairs")


class Seconds(NamedTuple):
    """What a process took."""

    wall: float
    processor: float


def timed(command: list[str]) -> Seconds:
    before = os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return Seconds(after.elapsed - before.elapsed, processor)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=int, default=0, metavar="N")
    count = parser.parse_args().pairs
    if count:
        pairs(count)
    else:
        parts()
