"""Tables of what ``training.py`` has run so far, in Markdown."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from selfreflect.grouping import normal_form
from selfreflect.pipeline.records import run_records
from selfreflect.report.results import INFORMATION, Values, control_values
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import Estimate, clear_sign
from selfreflect.store.run import Run

COMPARISONS = (
    ("basic", "greedy"),
    ("basic", "sample_and_summarize"),
    ("basic", "sft_best"),
    ("basic", "dpo"),
    ("basic", "grpo"),
    ("basic", "sft_random"),
    ("basic", "sft_longest"),
    ("basic", "sft_shuffled"),
    ("basic", "sft_other"),
    ("basic", "grpo_length"),
    ("sft_random", "sft_best"),
    ("sft_longest", "sft_best"),
    ("sft_other", "sft_best"),
    ("grpo_length", "grpo"),
)


def print_tables(out: Path) -> None:
    run = run_records(Run.load(out / "test"))
    arms = arm_names(run)
    by_arm = {arm: mean_values(run, names) for arm, names in arms.items()}
    results_table(run, arms, by_arm)
    comparison_table(by_arm, len(run.questions))
    secondary_table(run, arms)
    probe_table(run, by_arm)
    training_table(out)
    drift_table(out, run)


def arm_names(run: RunRecords) -> dict[str, list[str]]:
    """The names of the summaries of each arm, one for each seed."""
    arms: dict[str, list[str]] = {}
    for name in run.strategies:
        arms.setdefault(name.partition("@")[0], []).append(name)
    return arms


def mean_values(run: RunRecords, names: Sequence[str]) -> Values:
    """What an arm tells of each question, averaged over seeds, where all have a value."""
    each = [INFORMATION.of_strategy(run, name) for name in names]
    common = set.intersection(*(set(values.values) for values in each))
    means = {id_: fmean(values.values[id_] for values in each) for id_ in common}
    return Values(means, each[0].scale)


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print(f"\n**{title}**\n")
    print(f"| {' | '.join(headings)} |")
    print(f"|{' --- |' * len(headings)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")


def with_interval(estimate: Estimate, form: str, factor: float = 1) -> str:
    """An estimate, times a factor, with its interval."""
    if estimate.mean is None:
        return "–"
    text = f"{factor * estimate.mean:{form}}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} [{factor * estimate.low:{form}}, {factor * estimate.high:{form}}]"


def percent(estimate: Estimate, form: str = ".0f") -> str:
    """An estimate of shares with its interval."""
    return with_interval(estimate, form, 100)


def results_table(run: RunRecords, arms: Mapping[str, list[str]], by_arm: Mapping[str, Values]) -> None:
    rows = []
    for arm, names in arms.items():
        values = by_arm[arm]
        texts = [one for (_, name), one in run.summaries.items() if name in names]
        missing = len(run.questions) * len(names) - len(texts)
        cut = sum(one.truncated for one in texts)
        each = [INFORMATION.of_strategy(run, name) for name in names]
        seeds = ", ".join(f"{100 * (one.mean(one.values.keys()) or 0):.0f}" for one in each)
        recovered = percent(values.estimate(len(run.questions)))
        rows.append(
            (f"`{arm}`", recovered, seeds if len(names) > 1 else "", len(values.values), missing, cut)
        )
    headings = ("arm", "recovers, % [95 %]", "by seed", "questions", "failures", "cut off")
    table("What summaries of held-out questions recover", headings, rows)


def comparison_table(by_arm: Mapping[str, Values], total: int) -> None:
    rows = []
    for base, arm in COMPARISONS:
        if base not in by_arm or arm not in by_arm:
            continue
        ids = by_arm[base].values.keys() & by_arm[arm].values.keys()
        pair = INFORMATION.pair(by_arm[base], by_arm[arm], ids)
        p_value = "–" if pair.p_value is None else f"{pair.p_value:.3f}"
        verdict = {1: "above", -1: "below", 0: "unclear"}[clear_sign(pair.difference, pair.p_value)]
        counts = f"{pair.wins} / {pair.ties} / {pair.losses}"
        rows.append((f"`{arm}` − `{base}`", percent(pair.difference, "+.1f"), p_value, counts, verdict))
    headings = ("difference", "points [95 %]", "p", "won / tied / lost", "")
    table("Paired differences", headings, rows)


def secondary_table(run: RunRecords, arms: Mapping[str, list[str]]) -> None:
    measures = Secondary(run)
    rows = []
    for arm, names in arms.items():
        pairs = [
            (id_, run.summaries[id_, name].text)
            for name in names
            for id_ in run.questions
            if (id_, name) in run.summaries
        ]
        if pairs and not arm.startswith("probe_"):
            rows.append((f"`{arm}`", *measures.row(pairs)))
    headings = (
        "arm",
        "transport",
        "ROUGE-L",
        "coverage, %",
        "words",
        "distinct pairs, %",
        "repeats question, %",
        "too long, %",
    )
    table("Measures that no arm was trained on", headings, rows)


class Secondary:
    """Means of an arm's summaries, over questions and seeds."""

    def __init__(self, run: RunRecords) -> None:
        from rouge_score.rouge_scorer import RougeScorer  # with nltk, which takes seconds to import

        from selfreflect.models.embedder import SentenceEmbedder
        from selfreflect.validate.metrics.texts import WordTokenizer

        self.run = run
        self.embed = SentenceEmbedder("Measuring distances between embeddings")
        self.embedded: dict[str, Any] = {}
        """Held-out answers by question, which all arms are compared with."""
        self.rouge = RougeScorer(["rougeL"], tokenizer=WordTokenizer())
        basic = [one.text for (_, name), one in run.summaries.items() if name == "basic"]
        self.usual = median(len(text.split()) for text in basic)

    def row(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        lengths = [len(text.split()) for _, text in pairs]
        covered = [value for value in (self.coverage(*pair) for pair in pairs) if value is not None]
        return [
            f"{fmean(self.distance(*pair) for pair in pairs):.3f}",
            f"{fmean(self.overlap(*pair) for pair in pairs):.3f}",
            f"{100 * fmean(covered):.0f}",
            f"{median(lengths):.0f}",
            f"{100 * distinct([text for _, text in pairs]):.0f}",
            f"{100 * fmean(self.repeats(*pair) for pair in pairs):.0f}",
            f"{100 * fmean(length > 2 * self.usual for length in lengths):.0f}",
        ]

    def answers(self, id_: str) -> list[str]:
        return [answer for answer in self.run.answers[id_].masked_out if answer.strip()]

    def distance(self, id_: str, text: str) -> float:
        from selfreflect.validate.metrics.texts import sentences, transport

        if id_ not in self.embedded:
            self.embedded[id_] = self.embed(self.answers(id_))
        costs = 1 - self.embedded[id_] @ self.embed(sentences(text)).T
        return transport(costs.astype(float).clip(0, 2))

    def overlap(self, id_: str, text: str) -> float:
        return fmean(self.rouge.score(answer, text)["rougeL"].fmeasure for answer in self.answers(id_))

    def coverage(self, id_: str, text: str) -> float | None:
        """The share of answers that name a value of the evidence whose value the summary names, too."""
        values = str(self.run.questions[id_].metadata["values"]).split("|")
        named = [value for answer in self.answers(id_) for value in values_in(answer, values)]
        told = values_in(text, values)
        return fmean(value in told for value in named) if named else None

    def repeats(self, id_: str, text: str) -> bool:
        return normal_form(text).startswith(normal_form(self.run.questions[id_].text))


def values_in(text: str, values: Sequence[str]) -> list[str]:
    return [value for value in values if re.search(rf"\b{re.escape(value)}\b", text, re.IGNORECASE)]


def distinct(texts: Sequence[str]) -> float:
    """The share of different pairs of adjacent words among all (Li et al. 2016, arXiv 1510.03055)."""
    pairs = [pair for text in texts for pair in zip(text.split(), text.split()[1:], strict=False)]
    return len(set(pairs)) / len(pairs) if pairs else 0.0


def probe_table(run: RunRecords, by_arm: Mapping[str, Values]) -> None:
    rows = []
    for control in control_values(run):
        values = control.by_measure[INFORMATION.mean]
        rows.append((control.name, percent(values.estimate(len(run.questions)))))
    for arm, values in by_arm.items():
        if arm.startswith("probe_"):
            rows.append(
                (arm.removeprefix("probe_").replace("_", " "), percent(values.estimate(len(run.questions))))
            )
    table("What the reward pays for texts that are no summaries", ("text", "recovers, % [95 %]"), rows)


def training_table(out: Path) -> None:
    rows = []
    for path in sorted((out / "arms").glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        log = record.get("log", [])
        if not log:
            continue
        rows.append(
            (
                f"`{path.stem}`",
                record["rows"],
                f"{record['seconds'] / 60:.0f}",
                first_and_last(log, "loss", 3),
                first_and_last(log, "reward", 1),
                mean_of(log, "frac_reward_zero_std"),
                mean_of(log, "completions/clipped_ratio"),
                mean_of(log, "rewards/margins"),
            )
        )
    headings = (
        "arm and seed",
        "rows",
        "minutes",
        "loss",
        "reward",
        "groups without spread",
        "cut off",
        "DPO margin",
    )
    table("Training (first to last step, or means)", headings, rows)


def first_and_last(log: Sequence[Mapping[str, Any]], name: str, digits: int) -> str:
    values = [float(entry[name]) for entry in log if name in entry]
    return f"{values[0]:.{digits}f} → {values[-1]:.{digits}f}" if values else ""


def mean_of(log: Sequence[Mapping[str, Any]], name: str) -> str:
    values = [float(entry[name]) for entry in log if name in entry]
    return f"{fmean(values):.2f}" if values else ""


def drift_table(out: Path, run: RunRecords) -> None:
    rows = []
    for path in sorted((out / "arms").glob("*.json")):
        answers = json.loads(path.read_text("utf-8")).get("answers")
        if answers:
            distances = [drift(run, id_, texts) for id_, texts in answers.items()]
            known = [distance for distance in distances if distance is not None]
            rows.append((f"`{path.stem}`", f"{fmean(known):.2f}", len(known)))
    table(
        "Belief drift: total variation from the untrained model's answers",
        ("model", "distance", "questions"),
        rows,
    )


def drift(run: RunRecords, id_: str, texts: Sequence[str]) -> float | None:
    values = str(run.questions[id_].metadata["values"]).split("|")
    before, after = (shares(answers, values) for answers in (run.answers[id_].answers, texts))
    if not before or not after:
        return None
    return sum(abs(before[key] - after[key]) for key in before | after) / 2


def shares(answers: Sequence[str], values: Sequence[str]) -> Counter[Any]:
    """How often each set of values is named, as shares."""
    counts = Counter(tuple(values_in(answer, values)) for answer in answers)
    return Counter({key: count / len(answers) for key, count in counts.items()})
