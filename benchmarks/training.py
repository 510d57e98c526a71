"""Train the embedded model to say what it believes, and measure whether it does: the plan of training.md.

    python benchmarks/training.py build/training                 # all arms; run it again to go on
    python benchmarks/training.py build/training --only sft_best # this arm alone
    python benchmarks/training.py build/training --table         # the tables of what is there

Needs the extras train, datasets, embed and validate. The result of each arm is kept as it ends: its summaries
in the run directory ``test``, its losses and answers in ``arms/NAME.json``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from training_questions import make_questions

from selfreflect.answers import draw_answers
from selfreflect.models.base import Sampling
from selfreflect.models.local.generator import HFGenerator
from selfreflect.prompts import load_prompts
from selfreflect.records import AnswerSet, Question, Summary
from selfreflect.store.run import Run
from selfreflect.strategies.builtin import basic
from selfreflect.strategies.driver import summarize
from selfreflect.train.data import read_rows
from selfreflect.train.presets import PRESETS, TrainingPreset
from selfreflect.train.rewards import InformationReward
from selfreflect.train.rewards.base import BatchColumns, Outcome, Reward, Unrewarded
from selfreflect.train.splits import split_of
from selfreflect.train.trainers import RECORD, AdapterTraining

PROMPTS = Path(__file__).parents[1] / "src" / "selfreflect" / "data" / "demo_prompts.toml"
ANSWERS = ("--temperature", "0.7", "--top-p", "0.9", "--max-new-tokens", "30")
SCORING = ("--judge", "smollm2", "--measures", "information")
SUMMARY_TOKENS = 48
BASELINES = "greedy,basic,sample_and_summarize,verbalized_sampling"
Rows = list[dict[str, Any]]


class Size(NamedTuple):
    """How large the experiment is."""

    questions: int = 210
    train: int = 64
    """The first of the questions in the train split."""
    test: int = 40
    epochs: float = 2
    steps: int = 12
    """Of GRPO."""


SMOKE = Size(questions=24, train=6, test=3, epochs=0.5, steps=1)


class Arm(NamedTuple):
    """One way to train."""

    data: tuple[str, ...]
    """Arguments of ``selfreflect dataset``."""
    train: Callable[[AdapterTraining, Rows], Path]
    seeds: int = 3
    source: str = "train"
    """The run directory that the data are made of."""


def command(*arguments: object) -> None:
    """Run a command of selfreflect; exit code 1 means recorded failures, such as malformed replies."""
    program = [sys.executable, "-c", "from selfreflect.cli import main; main()"]
    done = subprocess.run([*program, *map(str, arguments)], check=False)
    if done.returncode not in (0, 1):  # 1: failures are recorded
        raise SystemExit(f"{' '.join(map(str, arguments))}: exit code {done.returncode}")


def prepare(out: Path, size: Size) -> None:
    """Draw and measure answers and summaries of the base model, for both sets of questions."""
    out.mkdir(parents=True, exist_ok=True)
    rows = make_questions(size.questions, seed=0)
    parts = {
        name: [row for row in rows if split_of(str(row["question"])) == name] for name in ("train", "test")
    }
    options = {
        "train": ("--num-answers", 5, "--strategies", "basic#1-8", "--no-controls"),
        "test": ("--num-answers", 8, "--strategies", BASELINES, "--num-samples", 8),
    }
    for name, most in (("train", size.train), ("test", size.test)):
        source = out / f"{name}.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in parts[name][:most]), "utf-8")
        common = ("--prompts", PROMPTS, *ANSWERS, "--summary-tokens", SUMMARY_TOKENS)
        scoring = ("--judge", "smollm2", "--measures", "information")
        command("run", "--questions", source, "--out", out / name, "--yes", *common, *scoring, *options[name])


def prepare_other(out: Path) -> None:
    """Measure the summaries of the train questions against another distribution: hotter answers."""
    hot = ("--temperature", "1.5", *ANSWERS[2:], "--num-answers", 5, "--prompts", PROMPTS)
    command("answers", "--questions", out / "train.jsonl", "--out", out / "other", "--yes", *hot)
    summaries = Run.load(out / "train").summaries
    with Run.open(out / "other", {}) as run:
        run.append_all(one for key, one in summaries.items() if key not in run.summaries)
    command(
        "score", "--out", out / "other", "--judge", "smollm2", "--measures", "information", "--no-controls"
    )


def preset(size: Size) -> TrainingPreset:
    """Settings of every arm. No completion may be too long, and no divergence from the base is punished, so
    that nothing but the reward decides."""
    return dataclasses.replace(
        PRESETS["cpu"],
        epochs=size.epochs,
        max_length=512,
        preference_rate=5e-5,
        reinforcement_rate=1e-4,
        steps=size.steps,
        questions=2,
        completions=8,
        max_new_tokens=SUMMARY_TOKENS,
        temperature=0.9,
        kl=0.0,
        max_clipped=1.0,
        save_steps=10_000,
    )


class LengthReward(Reward):
    """The control: every word is worth as much."""

    __name__ = "length_reward"
    scaling = "batch"
    worst = 0.0

    def outcomes(self, texts: Sequence[str | Unrewarded], columns: BatchColumns) -> list[Outcome]:
        return [text if isinstance(text, Unrewarded) else float(len(text.split())) for text in texts]


def reinforced(training: AdapterTraining, rows: Rows) -> Path:
    return training.reinforce(rows, InformationReward("smollm2", reader="informed"))


def lengthened(training: AdapterTraining, rows: Rows) -> Path:
    return training.reinforce(rows, LengthReward())


def shuffled(training: AdapterTraining, rows: Rows) -> Path:
    """The control for form: each question gets the best summary of another one."""
    others = rows[1:] + rows[:1]
    random.Random(training.seed).shuffle(order := list(range(len(rows))))
    mixed = [rows[index] | {"completion": others[index]["completion"]} for index in order]
    return training.fine_tune(mixed)


DPO = ("dpo", "--margin", "1", "--length-ratio", "1.25", "--pairs", "1")
ARMS = {
    "sft_best": Arm(("sft",), AdapterTraining.fine_tune),
    "sft_random": Arm(("sft", "--select", "random"), AdapterTraining.fine_tune),
    "sft_longest": Arm(("sft", "--select", "longest"), AdapterTraining.fine_tune),
    "dpo": Arm(DPO, AdapterTraining.prefer),
    "sft_shuffled": Arm(("sft",), shuffled, seeds=1),
    "grpo": Arm(("grpo",), reinforced, seeds=1),
    "grpo_length": Arm(("grpo",), lengthened, seeds=1),
    "sft_other": Arm(("sft",), AdapterTraining.fine_tune, seeds=1, source="other"),
}


def run_arm(out: Path, name: str, seed: int, size: Size) -> None:
    """Train one arm with one seed, let it summarise the test questions, and measure that."""
    arm = ARMS[name]
    label = f"{name}@{seed}"
    started = time.time()
    data = out / "data" / label
    seeded = ("--seed", seed) if "random" in arm.data else ()
    if not data.exists():
        if arm.source == "other":
            prepare_other(out)
        options = (*arm.data[1:], *seeded, "--split", "100,0,0", "--output", data)
        command("dataset", arm.data[0], out / arm.source, *options)
    rows = read_rows(data, "grpo")  # which have a prompt, as all do
    model = out / "models" / label
    shutil.rmtree(model, ignore_errors=True)  # what a kill left
    arm.train(AdapterTraining("smollm2", model, preset(size), seed), rows)
    log = json.loads((model / RECORD).read_text("utf-8"))["log"]
    record = {"rows": len(rows), "seconds": time.time() - started, "log": log}
    generator = HFGenerator.load(str(model), device="cpu")
    add_summaries(out / "test", label, generator)
    if seed == 0:
        record["answers"] = own_answers(out / "test", generator)
    write_arm(out, label, record)
    shutil.rmtree(model)  # the data, the seed and this script make it again
    command("score", "--out", out / "test")


def add_summaries(path: Path, label: str, generator: HFGenerator) -> None:
    """Summarise the test questions as the strategy basic does, under the name of the arm."""
    with Run.open(path, {}) as run:
        todo = [question for id_, question in run.questions.items() if (id_, label) not in run.summaries]
        sampling = Sampling(temperature=0.0, max_new_tokens=SUMMARY_TOKENS)
        prompts = load_prompts(PROMPTS)
        for outcome in summarize(todo, [(label, basic)], generator, prompts=prompts, sampling=sampling):
            if isinstance(outcome, Summary):
                run.append(outcome)


def own_answers(path: Path, generator: HFGenerator) -> dict[str, list[str]]:
    """Draw answers to the plain test questions, to see whether training changed what the model believes."""
    questions: list[Question] = list(Run.load(path).questions.values())
    sampling = Sampling(temperature=0.7, top_p=0.9, max_new_tokens=30)
    drawn = draw_answers(
        questions, generator, num_answers=2, prompts=load_prompts(PROMPTS), sampling=sampling, seed=1
    )
    return {one.question_id: list(one.answers) for one in drawn if isinstance(one, AnswerSet)}


def write_arm(out: Path, label: str, record: dict[str, Any]) -> None:
    (out / "arms").mkdir(exist_ok=True)
    partial = out / "arms" / f"{label}.partial"
    partial.write_text(json.dumps(record), "utf-8")
    partial.replace(out / "arms" / f"{label}.json")


def add_probes(out: Path) -> None:
    """Add texts that a reward should not pay for, as summaries of the test questions."""
    train = Run.load(out / "train")
    answers = [answer for one in train.answers.values() for answer in one.answers]
    words = Counter(word for answer in answers for word in answer.split())
    frequent = " ".join(word for word, _ in words.most_common(20))
    with Run.open(out / "test", {}) as run:
        for id_, question in run.questions.items():
            texts = {"probe_frequent_words": frequent, "probe_one_value": question.gold[0]}
            for name, text in texts.items():
                if (id_, name) not in run.summaries:
                    run.append(Summary(question_id=id_, name=name, text=text))
    command("score", "--out", out / "test")


def run_all(out: Path, only: Sequence[str], seeds: int, size: Size) -> None:
    """Run what is missing: the first seed of every arm, then the others."""
    prepare(out, size)
    add_probes(out)
    if not (out / "arms" / "base@0.json").exists():
        base = HFGenerator.load("smollm2", device="cpu")
        write_arm(out, "base@0", {"answers": own_answers(out / "test", base)})
    for seed in range(seeds):
        for name in only or ARMS:
            done = (out / "arms" / f"{name}@{seed}.json").exists()
            if seed < ARMS[name].seeds and not done:
                print(f"{time.strftime('%H:%M:%S')} {name}, seed {seed}", flush=True)
                run_arm(out, name, seed, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", action="append", choices=list(ARMS), default=[])
    parser.add_argument("--seeds", type=int, default=3, help="how many of an arm's seeds to run")
    parser.add_argument("--smoke", action="store_true", help="a few questions and steps, to see it work")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        from training_tables import print_tables

        print_tables(options.out)
    else:
        run_all(options.out, options.only, options.seeds, SMOKE if options.smoke else Size())


if __name__ == "__main__":
    main()
