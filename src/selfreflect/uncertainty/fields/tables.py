"""Fields of structured answers, as a table and as JSON lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from selfreflect.stats import defined
from selfreflect.table import Cell, Column, Table
from selfreflect.uncertainty.assess import Assessment
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.fields.distribution import AnswerField, Structured, entropy

_FREE = "free_text"


def field_lines(structured: Sequence[Structured], rule: ClassRule) -> Iterator[dict[str, Any]]:
    """Write a JSON line for each question: its fields, and the object as a whole."""
    for item in structured:
        yield {"id": item.question.id, "classes": rule.name, **item.summary(rule)}


def field_table(structured: Sequence[Structured], assessment: Assessment) -> Table:
    """Show each field over all questions, the least certain first.

    Shares and entropies (in nats) are means over questions, of valid answers; accuracies are of the answers
    that ``assessment`` judges, by its first kind of correctness.
    """
    rule = assessment.method.rule
    labels = next(iter(assessment.judged.labels.values()), [None] * len(assessment.questions))
    label_of = {question.id: label for question, label in zip(assessment.questions, labels, strict=True)}
    places: dict[str, list[tuple[Structured, AnswerField]]] = defaultdict(list)
    for item in structured:
        for field in item.fields:
            places[field.path].append((item, field))
    rows: list[tuple[Cell, ...]] = []
    for path, fields in places.items():
        classes = [[entry.share for entry in item.classes(field, rule)] for item, field in fields]
        shares = [max(column) for column in classes if column]
        correct = defined(label_of.get(f"{item.question.id}#{field.pointer}") for item, field in fields)
        kinds = sorted({field.kind for _, field in fields})
        rows.append(
            (
                path or "/",
                kinds[0] if len(kinds) == 1 else "mixed",
                len(fields),
                fmean(shares) if shares else None,
                fmean(map(entropy, classes)) if shares else None,
                fmean(correct) if correct else None,
            )
        )
    rows.sort(key=lambda row: (row[3] is None, row[3]))
    columns = (
        Column("field"),
        Column("kind"),
        Column("n", "d"),
        Column("share", ".3f"),
        Column("entropy", ".3f"),
        Column("right", ".3f"),
    )
    return Table("Fields", columns, tuple(rows), tuple(_notes(structured, rule, rows)))


def _notes(structured: Sequence[Structured], rule: ClassRule, rows: Sequence[tuple[Cell, ...]]) -> list[str]:
    wholes = [whole for item in structured if (whole := item.object_share(rule)) is not None]
    notes = [
        "The share of the most common value says how sure the model is of a field. That of the most common "
        f"object as a whole is {fmean(whole.share for whole in wholes):.3f} in the mean."
    ]
    chimeras = sum(not whole.sampled for whole in wholes)
    if chimeras:
        notes.append(
            f"To {chimeras} of {len(wholes)} questions no answer gives the most common value in every field: "
            "an object made of these values was never sampled."
        )
    if any(row[1] == _FREE for row in rows):
        notes.append(
            "Free text: answers that say the same in other words may count as different, so that a low share "
            "says little."
        )
    return notes
