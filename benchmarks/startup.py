"""Time `selfreflect score` on a small file and `import torch, transformers` in turns, as whole processes:

python benchmarks/startup.py [--pairs N]

Run it twice: the first run also reads the files from disk.
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
from pathlib import Path
from typing import NamedTuple

QUESTION = "Which planet has the most moons?"
ANSWERS = ["Saturn", "Jupiter", "Saturn has the most moons", "Saturn"]
SUMMARY = "Probably Saturn, maybe Jupiter."


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
    parser.add_argument("--pairs", type=int, default=5, metavar="N")
    pairs(parser.parse_args().pairs)
