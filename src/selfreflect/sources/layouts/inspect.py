"""Logs of inspect_ai: ``.eval``, an archive of samples, or ``.json``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from selfreflect.errors import DataError
from selfreflect.sources.columns import GRADES, metadata
from selfreflect.sources.files import Row
from selfreflect.sources.layouts import Layout, right_answers
from selfreflect.sources.layouts.responses import asked
from selfreflect.sources.verdicts import is_grader
from selfreflect.text import counted

_ATTACHMENT = "attachment://"


class _LoggedChoice(msgspec.Struct):
    message: dict[str, Any]
    stop_reason: str | None = ""


class _Output(msgspec.Struct):
    choices: list[_LoggedChoice] = []


class _Grade(msgspec.Struct):
    value: Any = None


class _Sample(msgspec.Struct):
    """What is read of a sample of inspect_ai."""

    id: str | int
    input: str | list[dict[str, Any]]
    output: _Output = msgspec.field(default_factory=_Output)
    target: str | list[str] = ""
    metadata: dict[str, Any] | None = None
    attachments: dict[str, str] | None = None
    scores: dict[str, _Grade] | None = None
    score: _Grade | None = None
    """Of the only scorer, in logs of early versions."""
    error: Any = None


class Inspect(Layout):
    """The epochs of each sample are its answers, and the verdicts of its scorers their grades."""

    name = "inspect"
    is_log = True
    ignores = ("messages after the question", "events", "reasoning", "usage")

    def matches(self, rows: Sequence[Row]) -> bool:
        fields = rows[0].fields
        unpacks = isinstance(fields.get("samples"), Iterator)
        return len(rows) == 1 and (unpacks or fields.keys() >= {"version", "status", "eval"})

    def items(self, rows: Sequence[Row]) -> Iterable[Row]:
        name, items = rows[0].source, dict[str | int, Row]()
        failures = cut_off = 0
        for where, value in _samples(rows[0].fields.get("samples")):
            try:
                sample = msgspec.convert(value, _Sample)
            except msgspec.ValidationError as error:
                raise DataError(f"{name}, {where}: not a sample of inspect_ai: {error}") from None
            choices = sample.output.choices
            if sample.error is not None or not choices:
                failures += 1
                continue
            cut_off += sum(choice.stop_reason in ("max_tokens", "model_length") for choice in choices)
            if sample.id not in items:
                items[sample.id] = Row(name, where, _fields(sample))
            fields = items[sample.id].fields
            # scorers see the first choice only
            missing = [None] * (len(choices) - 1)
            for grader, verdict in _verdicts(sample):
                column = fields[GRADES].setdefault(grader, [None] * len(fields["answers"]))
                column += [verdict, *missing]
            fields["answers"] += [_text(choice.message, sample) for choice in choices]
            for column in fields[GRADES].values():
                column += [None] * (len(fields["answers"]) - len(column))
        _keep_graders([row.fields[GRADES] for row in items.values()])
        if not items:
            raise DataError(
                f"{name} holds no samples with answers",
                code="no_answers",
                remedy="Let inspect evaluate several epochs, and keep its samples.",
            )
        left_out = f"{counted(failures, 'sample')} without an answer left out"
        cut = f"{counted(cut_off, 'answer')} cut off at the token limit"
        self.notes = [left_out] * bool(failures) + [cut] * bool(cut_off)
        return items.values()

    def explain(self) -> str:
        return "log of inspect_ai"


def _samples(samples: Any) -> Iterable[tuple[str, Any]]:
    """Yield the samples of a log with their places, as an archive gives them."""
    if isinstance(samples, Iterator):
        return samples
    entries = samples if isinstance(samples, list) else []
    return ((f"sample {number}", entry) for number, entry in enumerate(entries, start=1))


def _fields(sample: _Sample) -> dict[str, Any]:
    """Make the row of a sample, whose last turn of the user is its question."""
    turns = sample.input
    if isinstance(turns, str):
        turns = [{"role": "user", "content": turns}]
    values = {**(sample.metadata or {}), "target": sample.target, "sample_id": sample.id}
    return {
        "question": "",
        "context": "",
        **asked(turns, lambda turn: _text(turn, sample)),
        "answers": [],
        GRADES: {},
        **right_answers(sample.target),
        "metadata": metadata(values, values),
    }


def _verdicts(sample: _Sample) -> Iterator[tuple[str, Any]]:
    """Yield what each scorer says; a scorer with several values counts as several."""
    scores = sample.scores or ({"scorer": sample.score} if sample.score else {})
    for scorer, grade in scores.items():
        if isinstance(grade.value, dict):
            yield from ((f"{scorer}.{key}", value) for key, value in grade.value.items())
        else:
            yield scorer, grade.value


def _keep_graders(grades: Sequence[dict[str, list[Any]]]) -> None:
    """Remove scores that are no verdicts, such as F1."""
    for name in dict.fromkeys(name for by_name in grades for name in by_name):
        if not is_grader(value for by_name in grades for value in by_name.get(name, ())):
            for by_name in grades:
                by_name.pop(name, None)


def _text(message: Mapping[str, Any], sample: _Sample) -> str:
    """Return the text of a message without its reasoning."""
    parts = message.get("content") or ""
    if isinstance(parts, str):
        parts = [{"type": "text", "text": parts}]
    texts = []
    for part in parts:
        text = part.get("text")
        if part.get("type") == "text" and isinstance(text, str):
            if text.startswith(_ATTACHMENT):
                text = (sample.attachments or {}).get(text.removeprefix(_ATTACHMENT), text)
            texts.append(text)
    return "\n".join(texts)
