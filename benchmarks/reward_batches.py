"""Times rewards of a judge in one call of several questions, as trainers make it, and one by one.

    python benchmarks/reward_batches.py [--judge NAME] [--repeat N]

Four bundled questions with 10 + 10 answers and eight completions each: three summaries and five of the
answers. Each way runs once before the first measurement. Prints a line of JSON for each reward.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import mean
from typing import Any

import selfreflect
from selfreflect.metric.sampling.limits import Limits
from selfreflect.sources.items import read_items
from selfreflect.train.rewards import InformationReward, SelfReflectReward
from selfreflect.train.rewards.judged import JudgeReward

ITEMS = Path(selfreflect.__file__).parent / "data" / "bench_items.json"
COMPLETIONS = 8
BUDGET = 6000


def batch() -> tuple[list[str], dict[str, list[Any]]]:
    """Completions and the columns of a data set."""
    completions: list[str] = []
    columns: dict[str, list[Any]] = {"question": [], "answers": [], "masked_answers": []}
    for item in read_items(ITEMS):
        texts = [*item.summaries.values(), *item.conditioning][:COMPLETIONS]
        completions += texts
        columns["question"] += [item.question] * len(texts)
        columns["answers"] += [item.conditioning] * len(texts)
        columns["masked_answers"] += [item.masked_out] * len(texts)
    return completions, columns


def seconds(reward: JudgeReward, size: int) -> float:
    """Time for all completions, in calls of ``size``."""
    completions, columns = batch()
    started = time.perf_counter()
    for start in range(0, len(completions), size):
        part = slice(start, start + size)
        reward(None, completions[part], **{name: values[part] for name, values in columns.items()})
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--judge", default="smollm2")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    rewards = {
        "information": InformationReward(arguments.judge, reader="informed"),
        f"selfreflect, budget {BUDGET}": SelfReflectReward(arguments.judge, limits=Limits.parse(BUDGET)),
        "selfreflect": SelfReflectReward(arguments.judge),
    }
    count = len(batch()[0])
    for name, reward in rewards.items():
        times: dict[int, list[float]] = {count: [], 1: []}
        seconds(reward, count)
        for _ in range(arguments.repeat):
            for size, measured in times.items():
                measured.append(round(seconds(reward, size), 2))
        ratio = mean(times[1]) / mean(times[count])
        result = {"reward": name, "one call": times[count], "singly": times[1], "ratio": round(ratio, 2)}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
