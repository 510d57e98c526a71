"""Files that ``selfreflect uncertainty --output`` writes, and the section that ``report --output`` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from selfreflect.cli.console import check_file, say, write_file
from selfreflect.errors import ConfigError, DataError
from selfreflect.sources.files import source_name
from selfreflect.text import one_line
from selfreflect.uncertainty.question import has_gold

if TYPE_CHECKING:
    from selfreflect.report.page.frame import UncertaintyPart
    from selfreflect.report.run_records import RunRecords
    from selfreflect.uncertainty.assess import Assessment, Prediction

_IN_REPORT = ("modal_share", "split_half", "entropy", "entropy_mm", "classes")
"""Estimators of a run's report, beside what its judge measured: those that need only classes, so that a page
takes no longer."""


def check_output(output: Sequence[Path], source: str = "") -> None:
    """Refuse outputs of an unknown kind, outputs that cannot be written, and the file that is read, before
    anything is computed."""
    for path in output:
        if path.suffix not in (".html", ".md", ".csv"):
            raise ConfigError(f"--output {path}: the name must end in .html, .md or .csv")
        for ending in ("", "-reliability", "-coverage") if path.suffix == ".csv" else ("",):
            check_file("--output", path.with_stem(path.stem + ending), source)


def write_output(
    path: Path, source: str, assessment: Assessment, results: Mapping[str, list[Prediction]]
) -> None:
    """Write a page or tables; ``results`` are predictions by kind of correctness.

    Raises:
        DataError: nothing has a right answer or a label.
    """
    if not results:
        raise DataError(
            f"--output {path}: without right answers or labels there is nothing to predict. If the right "
            "answers are in another field, name it with --gold"
        )
    from selfreflect.uncertainty.output import csv_texts, markdown, page

    if path.suffix == ".html":
        write_file(path, page(one_line(source_name(source), 120), assessment, results))
        say(f"Open {path} in a browser.")
    elif path.suffix == ".md":
        write_file(path, markdown(assessment, results))
    else:
        for name, text in csv_texts(assessment, results).items():
            write_file(path.with_stem(path.stem + name), text)


def report_parts(runs: Sequence[RunRecords]) -> list[UncertaintyPart]:
    """The sections of a report on the runs that have right answers."""
    parts = []
    for number, run in enumerate(runs):
        if any(question.gold for question in run.questions.values()):
            part = _report_part(run, f"uncertainty-{number}")
            if part is not None:
                parts.append(part)
    return parts


def _report_part(run: RunRecords, name: str) -> UncertaintyPart | None:
    from selfreflect.cli.answered import ComparisonOptions, make_method
    from selfreflect.pipeline.answered import GOLD, run_questions
    from selfreflect.uncertainty.assess import Assessment, predictions
    from selfreflect.uncertainty.page import uncertainty_part

    questions = run_questions(run, run, GOLD)
    if not has_gold(questions):
        return None  # right answers, but no sampled ones yet
    names = {name: None for question in questions for name in question.values}
    assessment = Assessment(questions, [*_IN_REPORT, *names], make_method(questions, ComparisonOptions()))
    (correctness,) = assessment.judged.labels
    part = uncertainty_part(
        assessment, correctness, predictions(assessment, correctness), name=name, label=run.label
    )
    part.notes.append("selfreflect uncertainty measures more estimators, with other classes and labels.")
    return part
