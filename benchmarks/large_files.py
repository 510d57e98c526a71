"""Measure time and memory of reading a log of inspect_ai of 517 MB and a CSV file of 1,000,000 rows.

python benchmarks/large_files.py FOLDER [--commands convert,uncertainty]
"""

from __future__ import annotations

import argparse
import base64
import csv
import json
import os
import random
import subprocess
import sys
import time
import zipfile
from pathlib import Path

TOWNS = ("Emerald City", "Ruby Town", "Silver Bay")


def write_log(path: Path, draw: random.Random) -> None:
    """Write 1,000 samples of 5 epochs, each with a message of 130 kB that nothing is made of."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number in range(5000):
            message = base64.b64encode(draw.randbytes(100_000)).decode()
            reply = {"message": {"role": "assistant", "content": draw.choice(TOWNS)}, "stop_reason": "stop"}
            sample = {
                "id": number // 5,
                "epoch": number % 5 + 1,
                "input": f"What is the capital of land {number // 5}?",
                "target": TOWNS[0],
                "messages": [{"role": "user", "content": message}],
                "output": {"choices": [reply]},
                "scores": {"match": {"value": draw.choice("CI")}},
            }
            name = f"samples/{sample['id']}_epoch_{sample['epoch']}.json"
            archive.writestr(name, json.dumps(sample))


def write_table(path: Path, draw: random.Random) -> None:
    """Write 250,000 questions with four rows each."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["question", "answer", "correct", "topic"])
        for number in range(1_000_000):
            question = f"What is the name of town number {number // 4}?"
            writer.writerow([question, draw.choice(TOWNS), draw.choice("CI"), "towns"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--commands", default="convert,uncertainty")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, write in (("log.eval", write_log), ("rows.csv", write_table)):
        path = arguments.folder / name
        if not path.exists():
            write(path, random.Random(1))
        for command in arguments.commands.split(","):
            line = [sys.executable, "-c", "from selfreflect.cli import main; main()", command, str(path)]
            started = time.monotonic()
            process = subprocess.Popen([*line, "--json"], stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            seconds, memory = time.monotonic() - started, usage.ru_maxrss / 1000
            size = path.stat().st_size / 1e6
            print(f"{name} ({size:.0f} MB), {command}: exit {status}, {seconds:.0f} s, {memory:.0f} MB")


if __name__ == "__main__":
    main()
