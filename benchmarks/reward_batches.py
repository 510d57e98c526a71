"""Times rewards of a judge in one call of several questions, as trainers make it, and one by one.

    python benchmarks/reward_batches.py [--judge NAME] [--answers N] [--repeat N]

Four bundled questions with N + N answers and eight completions each: three summaries and five answers.
Prints a line of JSON for each reward, in seconds of processor time, which other programs disturb least.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import mean
from typing import Any

import selfreflect
from selfreflect.sources.items import read_items
from selfreflect.train.rewards import InformationReward, SelfReflectReward
from selfreflect.train.rewards.judged import JudgeReward

ITEMS = Path(selfreflect.__file__).parent / "data" / "bench_items.json"
COMPLETIONS = 8


def batch(count: int) -> tuple[list[str], dict[str, list[Any]]]:
    """Completions and the columns of a data set with ``count`` answers in each half."""
    completions: list[str] = []
    columns: dict[str, list[Any]] = {"question": [], "answers": [], "masked_answers": []}
    for item in read_items(ITEMS):
        texts = [*item.summaries.values(), *item.conditioning][:COMPLETIONS]
        completions += texts
        columns["question"] += [item.question] * len(texts)
        columns["answers"] += [item.conditioning[:count]] * len(texts)
        columns["masked_answers"] += [item.masked_out[:count]] * len(texts)
    return completions, columns


def seconds(reward: JudgeReward, count: int, size: int) -> float:
    """Processor time for all completions, in calls of ``size``."""
    completions, columns = batch(count)
    started = time.process_time()
    for start in range(0, len(completions), size):
        part = slice(start, start + size)
        reward(None, completions[part], **{name: values[part] for name, values in columns.items()})
    return round(time.process_time() - started, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--judge", default="smollm2")
    parser.add_argument("--answers", type=int, default=10, help="in each half")
    parser.add_argument("--repeat", type=int, default=1)
    arguments = parser.parse_args()
    rewards = [InformationReward(arguments.judge, reader="informed"), SelfReflectReward(arguments.judge)]
    for reward in rewards:
        reward.prepare()
        together, singly = [], []
        for _ in range(arguments.repeat):
            together.append(seconds(reward, arguments.answers, 4 * COMPLETIONS))
            singly.append(seconds(reward, arguments.answers, 1))
        result = {"reward": reward.__name__, "one call": together, "singly": singly}
        print(json.dumps(result | {"ratio": round(mean(singly) / mean(together), 2)}), flush=True)


if __name__ == "__main__":
    main()
