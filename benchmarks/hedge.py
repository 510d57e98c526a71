"""Teach the embedded model to hedge as another model's samples demand: the second plan of training.md.

    python benchmarks/hedge.py SAMPLES.json build/hedge          # run it again to go on
    python benchmarks/hedge.py SAMPLES.json build/hedge --cool   # the repair: sharper draws of trained models
    python benchmarks/hedge.py SAMPLES.json build/hedge --table  # the tables of what there is

SAMPLES.json lists objects with a ``question`` and 20 sampled ``answers``. Needs the extras train and
datasets. Summaries and their measures are in the run directory ``test``, what each arm says in ``arms``.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from training_tables import percent, with_interval

from selfreflect.grouping import most_common, normal_form
from selfreflect.models.base import Message, Reply, Request, Sampling, seed_for
from selfreflect.models.local.generator import HFGenerator
from selfreflect.pipeline.records import run_records
from selfreflect.prompts import load_prompts
from selfreflect.records import Question, Summary, question_id
from selfreflect.report.results import INFORMATION, control_values
from selfreflect.stats import clear_sign, mean_interval, paired_difference, rank_correlation
from selfreflect.store.run import Run
from selfreflect.train.data import read_rows
from selfreflect.train.hedging import LEADS, hedged, phrase_for
from selfreflect.train.presets import PRESETS
from selfreflect.train.rows import HEDGE_INSTRUCTION, student_prompt
from selfreflect.train.splits import split_of
from selfreflect.train.trainers import AdapterTraining
from selfreflect.uncertainty.hedges import PHRASES
from selfreflect.uncertainty.measures import faithfulness

PARTS = (60, 0, 40)
"""Percentages of the questions to train on, to develop on and to test on."""
TAUGHT = 10
"""Samples of a training question that are trained on; the others are what its hedges are compared with."""
ROWS = 400
"""Random ones of the data set, the same in every arm."""
SEEN = 40
"""Training questions that are asked again."""
MEASURED = 40
"""Test questions of which a judge measures what a text tells, with five of their answers in each half."""
MAX_WORDS = 6
DRAWS = 4
WARM = Sampling(temperature=1.0, max_new_tokens=24)
COOL = Sampling(temperature=0.7, top_p=0.9, max_new_tokens=24)
PRESET = replace(PRESETS["cpu"], epochs=1, max_length=256, save_steps=10_000)
ARMS = ("hedge@0", "shuffled@0", "hedge@1", "shuffled@1")
Item = dict[str, Any]
Texts = dict[str, list[str]]
"""By question id: the most likely text, then the draws."""


def command(*arguments: object) -> None:
    """Run a command of selfreflect."""
    program = [sys.executable, "-c", "from selfreflect.cli import main; main()"]
    subprocess.run([*program, *map(str, arguments)], check=True)


def read_samples(path: Path, smoke: bool) -> dict[str, list[Item]]:
    """The questions to train on and to test on, with stripped answers."""
    parts: dict[str, list[Item]] = {"train": [], "dev": [], "test": []}
    for row in json.loads(path.read_text("utf-8")):
        answers = [answer.strip() for answer in row["answers"]]
        item = {"id": question_id(row["question"]), "question": row["question"], "answers": answers}
        parts[split_of(row["question"], PARTS)].append(item)
    return {name: items[:6] if smoke else items for name, items in parts.items()}


def prepare(out: Path, parts: dict[str, list[Item]]) -> None:
    """Make the run directories and the data set of hedged answers."""
    out.mkdir(parents=True, exist_ok=True)
    taught = [item | {"answers": item["answers"][:TAUGHT]} for item in parts["train"]]
    for name, items in (("train", taught), ("test", parts["test"])):
        source = out / f"{name}.jsonl"
        source.write_text("".join(json.dumps(item) + "\n" for item in items), "utf-8")
        if not (out / name).exists():
            few = ("--limit", MEASURED, "--num-answers", 5) if name == "test" else ()
            command("import", "--items", source, "--out", out / name, *few)
    options = ("--max-words", MAX_WORDS, "--split", "100,0,0")
    if not (out / "data").exists():
        command("dataset", "hedge", out / "train", *options, "--output", out / "data")


def rows_of(out: Path, arm: str) -> list[Item]:
    """The rows of an arm. The control has the same answers, each with the words for another row's share."""
    rows = read_rows(out / "data", "sft")
    rows = random.Random(0).sample(rows, min(ROWS, len(rows)))
    name, _, seed = arm.partition("@")
    if name == "hedge":
        return rows
    shares = [row["share"] for row in rows]
    random.Random(int(seed)).shuffle(shares)
    mixed = []
    for row, share in zip(rows, shares, strict=True):
        answer, _ = read(row["completion"][0]["content"])
        if text := hedged(answer, share):
            mixed.append(row | {"completion": [{"role": "assistant", "content": text}]})
    return mixed


def read(text: str) -> tuple[str, float]:
    """Split a text of the data set's form into its answer and the share that it states: 1 without words."""
    for phrase, lead in LEADS.items():
        words = lead.removesuffix("{answer}")
        if text.startswith(words):
            return text.removeprefix(words), PHRASES[phrase].middle
    return text, 1.0


def run_arm(out: Path, arm: str, parts: dict[str, list[Item]]) -> None:
    """Train one arm, and keep what it says of seen and of held-out questions."""
    started = time.time()
    model = out / "models" / arm
    shutil.rmtree(model, ignore_errors=True)
    rows = rows_of(out, arm) if arm != "base" else []
    if rows:
        AdapterTraining("smollm2", model, PRESET, int(arm[-1])).fine_tune(rows)
    trained = time.time()
    generator = HFGenerator.load(str(model) if rows else "smollm2", device="cpu")
    texts = draw(generator, [*parts["train"][:SEEN], *parts["test"]], WARM)
    record: Item = {"rows": len(rows), "training": trained - started, "drawing": time.time() - trained}
    if rows:
        record["log"] = json.loads((model / "training.json").read_text("utf-8"))["log"]
    write_arm(out, arm, record | {"texts": texts})


def cool_arm(out: Path, arm: str, parts: dict[str, list[Item]]) -> None:
    """Draw from a trained arm as the demo draws from the embedded model, since at temperature 1 it leaves the
    form."""
    generator = HFGenerator.load(str(out / "models" / arm), device="cpu")
    write_arm(out, f"cool_{arm}", {"texts": draw(generator, parts["test"], COOL)})


def write_arm(out: Path, arm: str, record: Item) -> None:
    partial = out / "arms" / f"{arm}.partial"
    partial.parent.mkdir(exist_ok=True)
    partial.write_text(json.dumps(record), "utf-8")
    partial.replace(partial.with_suffix(".json"))


def draw(generator: HFGenerator, items: list[Item], warm: Sampling) -> Texts:
    """The most likely reply to each question, then ``DRAWS`` sampled ones."""
    prompts = load_prompts()
    greedy = Sampling(temperature=0.0, max_new_tokens=24)
    requests = []
    for item in items:
        question = Question(id=item["id"], text=item["question"])
        turns = student_prompt(prompts, question, HEDGE_INSTRUCTION)
        messages = tuple(Message(**turn) for turn in turns)
        requests.append(Request(messages=messages, sampling=greedy))
        seed = seed_for(0, item["id"], "hedge")
        requests.append(Request(messages=messages, sampling=warm, n=DRAWS, seed=seed))
    replies = []
    for reply in generator.generate(requests):
        assert isinstance(reply, Reply)
        replies.append([completion.text for completion in reply.completions])
    pairs = zip(items, replies[::2], replies[1::2], strict=True)
    return {item["id"]: [*likely, *drawn] for item, likely, drawn in pairs}


def measure(out: Path) -> None:
    """Measure what the most likely text of each arm tells, and two texts made of the samples themselves."""
    with Run.open(out / "test", {}) as run:
        for id_, answers in run.answers.items():
            common = most_common(answers.conditioning)
            share = answers.conditioning.count(common) / len(answers.conditioning)
            texts = {"one_answer": common, "hedged_answer": hedged(common, share) or common}
            for path in sorted((out / "arms").glob("[!c]*.json")):
                texts[path.stem] = json.loads(path.read_text("utf-8"))["texts"][id_][0]
            for name, text in texts.items():
                if (id_, name) not in run.summaries:
                    run.append(Summary(question_id=id_, name=name, text=text))
    command("score", "--out", out / "test", "--judge", "smollm2", "--measures", "information")


def share_of(answer: str, samples: list[str]) -> float:
    """How often a model gives an answer, but for spelling."""
    forms = [normal_form(sample) for sample in samples]
    return forms.count(normal_form(answer)) / len(forms)


def pairs_of(texts: Texts, items: list[Item], first: int) -> dict[str, list[tuple[float, float]]]:
    """Stated and true share of each draw, by question; samples from ``first`` on are the truth."""
    pairs = {}
    for item in items:
        drawn = [read(text) for text in texts[item["id"]][1:]]
        pairs[item["id"]] = [(stated, share_of(answer, item["answers"][first:])) for answer, stated in drawn]
    return pairs


def errors_of(pairs: dict[str, list[tuple[float, float]]], constant: float | None = None) -> dict[str, float]:
    """The mean distance of stated and true share, by question; with a constant, as if all stated that."""
    errors = {}
    for id_, values in pairs.items():
        errors[id_] = fmean(abs((stated if constant is None else constant) - true) for stated, true in values)
    return errors


def averaged(errors: list[dict[str, float]]) -> dict[str, float]:
    """Means over seeds."""
    return {id_: fmean(one[id_] for one in errors) for id_ in errors[0]}


def print_tables(out: Path, parts: dict[str, list[Item]]) -> None:
    shares = [row["share"] for row in read_rows(out / "data", "sft")]
    constant = PHRASES[phrase_for(fmean(shares))].middle
    held_out, seen = parts["test"], parts["train"][:SEEN]
    print_shares("held-out questions", out, "[!c]*.json", held_out, 0, constant)
    print_shares("questions trained on, held-out samples", out, "[!c]*.json", seen, TAUGHT, constant)
    print_shares("held-out questions, sharper draws", out, "c*.json", held_out, 0, constant)
    print_told(out)


def print_shares(title: str, out: Path, arms: str, items: list[Item], first: int, constant: float) -> None:
    """The table of some arms, with samples from ``first`` on as the truth."""
    print(f"\n**Stated shares against samples: {title}**\n")
    print("| arm | distance [95 %] | cMFG | rank correlation [95 %] | hedges, % | true share | stated |")
    print("|" + " --- |" * 7)
    errors: dict[str, list[dict[str, float]]] = {}
    for path in sorted((out / "arms").glob(arms)):
        texts = json.loads(path.read_text("utf-8"))["texts"]
        pairs = pairs_of(texts, items, first)
        arm = path.stem.removeprefix("cool_").partition("@")[0]
        errors.setdefault(arm, []).append(errors_of(pairs))
        if arm == "hedge":
            errors.setdefault("constant", []).append(errors_of(pairs, constant))
        print_arm(path.stem, texts, pairs, errors[arm][-1])
    print_differences({name: averaged(each) for name, each in errors.items()})


def print_arm(
    arm: str, texts: Texts, pairs: dict[str, list[tuple[float, float]]], errors: dict[str, float]
) -> None:
    flat = [pair for values in pairs.values() for pair in values]
    stated, true = [pair[0] for pair in flat], [pair[1] for pair in flat]
    hedges = [read(text)[1] < 1 for id_ in pairs for text in texts[id_][1:]]
    distance = with_interval(mean_interval(list(errors.values()), len(errors)), ".3f")
    by_question = [[fmean(pair[side] for pair in values) for values in pairs.values()] for side in (0, 1)]
    rank = with_interval(rank_correlation(*by_question), ".2f")
    faithful = faithfulness(stated, true)
    numbers = f"{100 * fmean(hedges):.0f} | {fmean(true):.2f} | {fmean(stated):.2f}"
    print(f"| `{arm}` | {distance} | {faithful:.2f} | {rank} | {numbers} |")


def print_differences(errors: dict[str, dict[str, float]]) -> None:
    """Paired differences of distances from the trained arm; below 0 the trained arm is nearer."""
    print("\n| difference in distance | mean [95 %] | p | |\n| --- | --- | --- | --- |")
    for other in ("shuffled", "constant", "base"):
        if "hedge" in errors and other in errors:
            pair = paired_difference(errors[other], errors["hedge"], len(errors[other]))
            verdict = {1: "farther", -1: "nearer", 0: "unclear"}[clear_sign(pair.difference, pair.p_value)]
            assert pair.p_value is not None  # all have the same questions
            p = "< 0.001" if pair.p_value < 0.001 else f"{pair.p_value:.3f}"
            print(f"| `hedge` − `{other}` | {with_interval(pair.difference, '.3f')} | {p} | {verdict} |")


def print_told(out: Path) -> None:
    run = run_records(Run.load(out / "test"))
    print("\n**What the most likely text tells of held-out samples**\n")
    print("| text | recovers, % [95 %] |\n| --- | --- |")
    values = {name: INFORMATION.of_strategy(run, name) for name in run.strategies}
    values |= {one.name: one.by_measure[INFORMATION.mean] for one in control_values(run)}
    for name, each in values.items():
        print(f"| `{name}` | {percent(each.estimate(len(run.questions)))} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("samples", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--smoke", action="store_true", help="a few questions, to see it work")
    parser.add_argument("--cool", action="store_true", help="draw again from what is trained")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    parts = read_samples(options.samples, options.smoke)
    if options.table:
        print_tables(options.out, parts)
        return
    if options.cool:
        for model in sorted((options.out / "models").glob("*/training.json")):
            cool_arm(options.out, model.parent.name, parts)
        return
    prepare(options.out, parts)
    for arm in ("base", *ARMS):
        if not (options.out / "arms" / f"{arm}.json").exists():
            print(f"{time.strftime('%H:%M:%S')} {arm}", flush=True)
            run_arm(options.out, arm, parts)
    measure(options.out)


if __name__ == "__main__":
    main()
