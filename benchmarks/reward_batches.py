"""Times rewards of a judge in one call of several questions, as trainers make it, and one by one.

    python benchmarks/reward_batches.py [--judge NAME] [--answers N] [--held-out N] [--question-words N]
        [--repeat N | --count]

Four bundled questions with N + N answers and eight completions each: three summaries and five answers.
Questions can be made longer, by words that all of them begin with.
Prints a line of JSON for each reward: the tokens that the judge reads, and seconds of processor time, which
other programs disturb least. "bound" is the ratio of tokens if only the completions' own had to be read.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import selfreflect
from selfreflect.metric.engine.tree import build_tree
from selfreflect.metric.information import nodes
from selfreflect.metric.prompts import prepare, summary_prompts
from selfreflect.records import AnswerSet, Question, question_id
from selfreflect.sources.items import read_item_file
from selfreflect.train.rewards import InformationReward, SelfReflectReward
from selfreflect.train.rewards.judged import JudgeReward

ITEMS = Path(selfreflect.__file__).parent / "data" / "bench_items.json"
COMPLETIONS = 8


class Shape(NamedTuple):
    """How much there is to read."""

    conditioning: int
    held_out: int
    question_words: int
    """Before each question."""


def batch(shape: Shape) -> tuple[list[str], dict[str, list[Any]]]:
    """Completions and the columns of a data set."""
    before = "word " * shape.question_words
    completions: list[str] = []
    columns: dict[str, list[Any]] = {"question": [], "answers": [], "masked_answers": []}
    for item in read_item_file(ITEMS, need_summaries=True).items:
        texts = [*item.summaries.values(), *item.conditioning][:COMPLETIONS]
        completions += texts
        columns["question"] += [before + item.question] * len(texts)
        columns["answers"] += [item.conditioning[: shape.conditioning]] * len(texts)
        columns["masked_answers"] += [item.masked_out[: shape.held_out]] * len(texts)
    return completions, columns


def seconds(reward: JudgeReward, shape: Shape, size: int) -> float:
    """Processor time for all completions, in calls of ``size``."""
    completions, columns = batch(shape)
    started = time.process_time()
    for start in range(0, len(completions), size):
        part = slice(start, start + size)
        reward(None, completions[part], **{name: values[part] for name, values in columns.items()})
    return round(time.process_time() - started, 2)


def timed(reward: JudgeReward, shape: Shape, repeat: int) -> dict[str, Any]:
    """Times of one call and of calls of one completion, with the ratio of their means."""
    together, singly = [], []
    for _ in range(repeat):
        together.append(seconds(reward, shape, 4 * COMPLETIONS))
        singly.append(seconds(reward, shape, 1))
    return {"one call": together, "singly": singly, "ratio": round(mean(singly) / mean(together), 2)}


def tokens(reward: JudgeReward, shape: Shape) -> dict[str, float]:
    """The judge's tokens in one call, in calls of one completion, and those of the completions alone."""
    completions, columns = batch(shape)
    together = singly = own = 0
    for start in range(0, len(completions), COMPLETIONS):
        item = {name: values[start] for name, values in columns.items()}
        question = Question(id=question_id(item["question"]), text=item["question"])
        halves = {"masked_out": item["masked_answers"], "conditioning": item["answers"]}
        answers = AnswerSet(question_id=question.id, **halves)
        texts = completions[start : start + COMPLETIONS]
        shared = _read(reward, question, answers, [])
        alone = [_read(reward, question, answers, [text]) for text in texts]
        group = _read(reward, question, answers, texts)
        together += group
        singly += sum(alone)
        own += group - shared
    ratios = {"ratio": round(singly / together, 2), "bound": round(singly / own, 2)}
    return {"one call": together, "singly": singly, **ratios}


def _read(reward: JudgeReward, question: Question, answers: AnswerSet, texts: list[str]) -> int:
    """The tokens of one call, without those that prompts share."""
    judge = reward.metric.judge
    if isinstance(reward, InformationReward):
        return nodes(judge, question, answers, texts, "informed")
    prompts = prepare(judge, question, answers)
    contexts = [prompts.reference, *(summary_prompts(judge, prompts, text) for text in texts)]
    return sum(build_tree(context).computed_tokens for context in contexts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--judge", default="smollm2")
    parser.add_argument("--answers", type=int, default=10, help="in each half")
    parser.add_argument("--held-out", type=int, help="of these (default: as many)")
    parser.add_argument("--question-words", type=int, default=0, help="more in each question")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--count", action="store_true", help="count tokens, and time nothing")
    arguments = parser.parse_args()
    held_out = arguments.held_out or arguments.answers
    shape = Shape(arguments.answers, held_out, arguments.question_words)
    rewards = [InformationReward(arguments.judge, reader="informed"), SelfReflectReward(arguments.judge)]
    for reward in rewards:
        reward.prepare()
        result = {"reward": reward.__name__, "tokens": tokens(reward, shape)}
        if not arguments.count:
            result["seconds"] = timed(reward, shape, arguments.repeat)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
