"""Training rows from a run's records, in the formats of TRL's trainers.

The prompt of a row is what the strategy ``basic`` asks, so that a trained model is measured like any other:
``selfreflect run --strategies basic``. Texts of the run stay data: a row with a marker of some chat format in
it is left out, because a trainer's chat template would take it for its own.
"""

from __future__ import annotations

import math
import random
import re
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Struct

from selfreflect.flags import DRAWS, POSITIVE, ZERO_OR_MORE, Flag, Range
from selfreflect.metric.measure import Measure, measure_keyed
from selfreflect.models.base import seed_for
from selfreflect.prompts import Prompts
from selfreflect.records import Question
from selfreflect.report.measures import run_measures
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import TIE, settled


@dataclass(frozen=True)
class Candidate:
    """A measured summary."""

    name: str
    """Name of the strategy."""
    text: str
    words: int
    value: float
    """Value in the measure's unit."""
    by_answer: tuple[float | None, ...]
    """Contribution of each test answer, see :meth:`~selfreflect.metric.measure.Measure.by_answer`."""

    @property
    def merit(self) -> float:
        """Value with its sign adjusted so that higher is better."""
        return self.value if self.higher_is_better else -self.value

    higher_is_better: bool = True
    helps: bool = True
    """Whether the summary was measured above the empty one."""


# Why a text is left out that nobody should learn to write
EMPTY = "recovers no more than an empty summary"


def candidates(
    run: RunRecords,
    question: str,
    measure: Measure,
    *,
    names: Collection[str] | None = None,
    max_words: int | None = None,
    drops: Counter[str] | None = None,
) -> list[Candidate]:
    """List a question's measured summaries, in the run's order of strategies.

    A text that several strategies wrote is one candidate, of the first.

    Args:
        names: take these strategies only; ``basic`` includes its draws ``basic#1``, ``basic#2``, ….
        max_words: leave out longer summaries.
        drops: counts the summaries that are left out, by the reason.
    """
    drops = Counter() if drops is None else drops
    by_text: dict[str, Candidate] = {}
    for name in run.strategies:
        key = (question, name)
        if key not in run.summaries or not is_named(name, names):
            continue
        summary = run.summaries[key]
        text = summary.text.strip()
        words = len(text.split())
        if not text:
            drops["blank"] += 1
        elif summary.truncated:
            drops["cut off at the limit of tokens"] += 1  # a student would learn to stop in mid-sentence
        elif max_words is not None and words > max_words:
            drops[f"longer than {max_words} words"] += 1
        elif text in by_text:
            drops["equal to another summary of the question"] += 1
        else:
            candidate = _measured(run, key, measure, text, words)
            if isinstance(candidate, str):
                drops[candidate] += 1
            else:
                by_text[text] = candidate
    return list(by_text.values())


def is_named(name: str, names: Collection[str] | None) -> bool:
    """Check whether a strategy, or the strategy that it is one draw of, is in ``names``."""
    return names is None or name in names or name.rpartition("#")[0] in names


def _measured(
    run: RunRecords, key: tuple[str, str], measure: Measure, text: str, words: int
) -> Candidate | str:
    """Make a summary's candidate, or explain its missing value."""
    record = run.results(measure).get(key)
    if record is None:
        return "not measured"
    measurement = measure.measurement(record)
    if measurement.value is None:
        return f"its {measure.name} is undefined ({measurement.undefined})"
    return Candidate(
        key[1],
        text,
        words,
        measurement.value,
        measure.by_answer(record),
        measure.higher_is_better,
        _helps(run, key),
    )


def _helps(run: RunRecords, key: tuple[str, str]) -> bool:
    """Check whether every measure rates a summary above the empty one."""
    controls = run.controls.get(key[0])
    for measure in run.measures:
        record = run.results(measure).get(key)
        if record is not None and not measure.beats_empty(record, controls):
            return False
    return True


def margin(better: Candidate, worse: Candidate) -> tuple[float, float] | None:
    """Estimate one candidate's lead: mean difference and standard error, paired over test answers. None for
    fewer than two common answers."""
    differences = []
    for a, b in zip(better.by_answer, worse.by_answer, strict=False):
        if a is not None and b is not None:
            differences.append(a - b)
    if len(differences) < 2:
        return None
    stderr = statistics.stdev(differences) / math.sqrt(len(differences))
    return math.fsum(differences) / len(differences), stderr


def best(options: Sequence[Candidate]) -> Candidate:
    """Choose the best candidate, the shorter one among ties, then the first."""
    merits = settled([option.merit for option in options])
    return max(zip(merits, options, strict=True), key=lambda pair: (pair[0], -pair[1].words))[1]


Kind: TypeAlias = Literal["sft", "dpo", "grpo"]
Row: TypeAlias = dict[str, Any]

# A marker of a common chat format, such as `<|im_end|>`
CHAT_MARKER = re.compile(
    r"<\|[^<>|\n]{1,60}\|>|</?s>|<(?:bos|eos|pad|unk)>|\[/?(?:INST|SYSTEM_PROMPT)\]|<</?SYS>>|"
    r"<(?:start|end)_of_turn>|</?think>"
)


class RowOptions(Struct, frozen=True, kw_only=True):
    """Options of `selfreflect dataset`: choice and form of rows."""

    measure: Annotated[
        str,
        Flag(
            "--measure NAME",
            "What makes a summary better: recovered, selfreflect, or another measure (sft, dpo).",
            default="the first that reports show: recovered if measured",
        ),
    ] = ""
    strategies: Annotated[
        tuple[str, ...] | None,
        Flag(
            "--strategies A,B",
            "Use summaries of these strategies; NAME includes its draws NAME#1, NAME#2, … (sft, dpo).",
            default="all",
        ),
    ] = None
    max_words: Annotated[
        int | None, Flag("--max-words N", "Leave out longer texts (sft, dpo).", range=POSITIVE)
    ] = None
    select: Annotated[
        Literal["best", "random", "longest"],
        Flag(
            "--select",
            "Which summary of each question to train on; random and longest are controls (sft).",
        ),
    ] = "best"
    margin: Annotated[
        float,
        Flag(
            "--margin K",
            "Use pairs whose difference is at least K of its standard errors over test answers (dpo).",
            range=ZERO_OR_MORE,
        ),
    ] = 1.0
    length_ratio: Annotated[
        float,
        Flag(
            "--length-ratio R",
            "Use pairs whose longer text has at most R times the words of the shorter one (dpo).",
            range=Range("1 or more", lambda value: value >= 1),
        ),
    ] = 1.25
    pairs: Annotated[int, Flag("--pairs N", "Maximum number of pairs per question (dpo).", range=DRAWS)] = 1
    instruction: Annotated[
        str | None,
        Flag(
            "--instruction TEXT",
            "Instruction that the trained model reads after the question.",
            default="the prompt of basic, which then measures the trained model",
        ),
    ] = None
    seed: Annotated[int, Flag("--seed N", "Seed of --select random.")] = 0


KINDS_OF: Mapping[str, frozenset[Kind]] = {
    **dict.fromkeys(("measure", "strategies", "max_words"), frozenset({"sft", "dpo"})),
    **dict.fromkeys(("select", "seed"), frozenset({"sft"})),
    **dict.fromkeys(("margin", "length_ratio", "pairs"), frozenset({"dpo"})),
}
"""Kinds of data set that an option concerns; the instruction concerns all."""


@dataclass
class TrainingRows:
    """Training rows, with counts of dropped ones."""

    rows: list[Row] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    """Number of questions without a row, by reason."""
    dropped_texts: Counter[str] = field(default_factory=Counter)
    """Number of unusable summaries or answers, by reason."""
    notes: list[str] = field(default_factory=list)
    """Notes on the rows for the user."""

    def add(self, row: Row, texts: Sequence[str]) -> bool:
        """Keep a row unless any of its texts contains a chat marker."""
        if any(map(CHAT_MARKER.search, texts)):
            self.dropped_texts["contains a marker of a chat format"] += 1
            return False
        self.rows.append(row)
        return True


def sft_rows(run: RunRecords, prompts: Prompts, options: RowOptions) -> TrainingRows:
    """Make rows of prompt and completion, one summary per question.

    The controls choose among the same candidates, so that arms differ in the choice alone.
    """
    result = TrainingRows()
    counts: Counter[int] = Counter()
    for question, all_choices in _choices(run, options, result):
        choices = [choice for choice in all_choices if choice.helps]
        result.dropped_texts[EMPTY] += len(all_choices) - len(choices)
        if not choices:
            result.dropped["no summary recovers more than an empty one"] += 1
            continue
        counts[len(choices)] += 1
        choice = _select(choices, options, question.id)
        prompt = student_prompt(prompts, question, options.instruction)
        row: Row = {"question_id": question.id, "prompt": prompt, "completion": _completion(choice.text)}
        row |= {"summary": choice.name, "value": choice.value, "words": choice.words}
        if not result.add(row, [*_texts(prompt), choice.text]):
            result.dropped["every text contains a marker of a chat format"] += 1
    if counts:
        mean = sum(count * number for count, number in counts.items()) / counts.total()
        result.notes.append(f"each summary was chosen from {mean:.1f} on average")
        if max(counts) == 1:
            result.notes.append(
                "WARNING: every summary was the only one of its question, so nothing was chosen; draw more "
                "with selfreflect run --strategies basic#1-8"
            )
    result.dropped_texts += Counter()  # without zeros
    return result


def dpo_rows(run: RunRecords, prompts: Prompts, options: RowOptions) -> TrainingRows:
    """Make pairs of a better and a worse summary of a question, similar in length.

    Without that, the surest way to be better is to be longer, and the pairs would teach length. Of a question
    the pairs with the widest margins are taken.
    """
    result = TrainingRows()
    lengths = []
    for question, choices in _choices(run, options, result):
        pairs = _pairs(choices, options)
        result.dropped_texts[f"{EMPTY}, so never chosen"] += sum(not choice.helps for choice in choices)
        if isinstance(pairs, str):
            result.dropped[pairs] += 1
            continue
        prompt = student_prompt(prompts, question, options.instruction)
        for better, worse, difference, stderr in pairs[: options.pairs]:
            row: Row = {"question_id": question.id, "prompt": prompt}
            row |= {"chosen": _completion(better.text), "rejected": _completion(worse.text)}
            row |= {"chosen_summary": better.name, "rejected_summary": worse.name}
            row |= {"chosen_value": better.value, "rejected_value": worse.value}
            row |= {"margin": difference, "margin_stderr": stderr}
            if result.add(row, [*_texts(prompt), better.text, worse.text]):
                lengths.append(better.words / max(1, worse.words))
    if lengths:
        mean = sum(lengths) / len(lengths)
        result.notes.append(
            f"words of the chosen summary, divided by words of the rejected one: {mean:.3f} on average"
        )
    result.dropped_texts += Counter()  # without zeros
    return result


def grpo_rows(run: RunRecords, prompts: Prompts, options: RowOptions) -> TrainingRows:
    """Make prompts with the sampled answers that rewards compare summaries with."""
    result = TrainingRows()
    for question in run.questions.values():
        answers = run.answers.get(question.id)
        if answers is None:
            result.dropped["no answers"] += 1
            continue
        if not any(map(str.strip, answers.conditioning)) or not any(map(str.strip, answers.masked_out)):
            result.dropped["one half of the answers is blank"] += 1
            continue
        prompt = student_prompt(prompts, question, options.instruction)
        row: Row = {"question_id": question.id, "prompt": prompt, "question": question.text}
        row |= {"answers": list(answers.conditioning), "masked_answers": list(answers.masked_out)}
        row |= {"context": question.context, "gold": list(question.gold)}
        row |= {"model": answers.model, "revision": answers.revision}
        if not result.add(row, _texts(prompt)):
            result.dropped["contains a marker of a chat format"] += 1
    return result


BUILDERS: Mapping[Kind, Callable[[RunRecords, Prompts, RowOptions], TrainingRows]] = {
    "sft": sft_rows,
    "dpo": dpo_rows,
    "grpo": grpo_rows,
}


def student_prompt(prompts: Prompts, question: Question, instruction: str | None = None) -> list[Row]:
    """Write the student's conversation: strategy ``basic``, or question, context and instruction."""
    if instruction is None:
        messages = prompts.messages(question, prompts.basic["user"])
    else:
        messages = prompts.messages(question, "{question}\n\n{instruction}", instruction=instruction)
    return [{"role": message.role, "content": message.content} for message in messages]


def _choices(
    run: RunRecords, options: RowOptions, result: TrainingRows
) -> Iterator[tuple[Question, list[Candidate]]]:
    """Yield questions with their candidates, counting reasons for missing candidates."""
    measure = measure_keyed(options.measure) if options.measure else run_measures(run)[0]
    for question in run.questions.values():
        has_summaries = any((question.id, name) in run.summaries for name in run.strategies)
        choices = candidates(
            run,
            question.id,
            measure,
            names=options.strategies,
            max_words=options.max_words,
            drops=result.dropped_texts,
        )
        if choices:
            yield question, choices
        else:
            result.dropped["no summary can be used" if has_summaries else "no summary"] += 1


def _select(choices: Sequence[Candidate], options: RowOptions, question: str) -> Candidate:
    if options.select == "best":
        return best(choices)
    if options.select == "longest":
        return max(choices, key=lambda choice: choice.words)
    return random.Random(seed_for(options.seed, question, "select")).choice(choices)


Pair: TypeAlias = tuple[Candidate, Candidate, float, float]
"""A better and a worse summary, their difference and its standard error."""


def _pairs(choices: Sequence[Candidate], options: RowOptions) -> list[Pair] | str:
    """List pairs, widest margin first, or explain their absence."""
    if len(choices) < 2:
        return "only one summary, so no pair"
    if not any(choice.helps for choice in choices):
        return "no summary recovers more than an empty one"
    ranking = sorted(choices, key=lambda choice: -choice.merit)
    # pairs of about equal length, or the surest way to be better would be to be longer
    alike = []
    for number, better in enumerate(ranking):
        if not better.helps:  # a worse one teaches what to avoid, but nothing misleading is to be preferred
            continue
        for worse in ranking[number + 1 :]:
            shorter, longer = sorted((max(1, better.words), max(1, worse.words)))
            if longer <= options.length_ratio * shorter:
                alike.append((better, worse))
    if not alike:
        return f"no pair within a length ratio of {options.length_ratio:g}"
    pairs: list[Pair] = []
    for better, worse in alike:
        estimate = margin(better, worse)
        if estimate is not None and estimate[0] >= TIE and estimate[0] >= options.margin * estimate[1]:
            pairs.append((better, worse, *estimate))
    if not pairs:
        if all(margin(*pair) is None for pair in alike):
            return "no standard error: fewer than two test answers, or a run without details"
        return f"no pair with a margin of {options.margin:g} standard errors"
    return sorted(pairs, key=lambda pair: -pair[2])


def _completion(text: str) -> list[Row]:
    return [{"role": "assistant", "content": text}]


def _texts(conversation: Sequence[Row]) -> list[str]:
    return [message["content"] for message in conversation]
