"""Files that ``selfreflect uncertainty --output`` writes, and the section that ``report --output`` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from selfreflect.cli.console import say, write_file
from selfreflect.errors import ConfigError, DataError
from selfreflect.render.text import one_line
from selfreflect.uncertainty.question import has_gold

if TYPE_CHECKING:
    from selfreflect.report.page.uncertainty_part import UncertaintyPart
    from selfreflect.report.run_records import RunRecords
    from selfreflect.uncertainty.assess import Assessment, Prediction

_IN_REPORT = ("modal_share", "split_half", "entropy", "entropy_mm", "classes")
"""Estimators of a run's report, beside what its judge measured: those that need only classes, so that a page
takes no longer."""


def check_output(output: Sequence[Path]) -> None:
    """Refuse files of an unknown kind before anything is computed."""
    for path in output:
        if path.suffix not in (".html", ".md", ".csv"):
            raise ConfigError(f"--output {path}: the name must end in .html, .md or .csv")


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
    if path.suffix == ".html":
        write_file(path, _page(source, assessment, results))
        say(f"Open {path} in a browser.")
    elif path.suffix == ".md":
        write_file(path, _markdown(assessment, results))
    else:
        _write_csv(path, assessment, results)


def _page(source: str, assessment: Assessment, results: Mapping[str, list[Prediction]]) -> str:
    from selfreflect.report.page.uncertainty_part import uncertainty_page
    from selfreflect.uncertainty.page import uncertainty_part
    from selfreflect.uncertainty.page_tables import sample_numbers

    parts = []
    for number, (correctness, rows) in enumerate(results.items()):
        parts.append(uncertainty_part(assessment, correctness, rows, name=f"part-{number}"))
    facts = [
        ("questions", f"{len(assessment.questions):,}"),
        ("samples of each", sample_numbers(assessment)),
        ("classes", assessment.method.rule.name),
    ]
    title = "standard input" if source == "-" else Path(source).name
    return uncertainty_page(one_line(title, 120), parts, facts)


def _markdown(assessment: Assessment, results: Mapping[str, list[Prediction]]) -> str:
    from selfreflect.render.table import to_markdown
    from selfreflect.render.text import markdown_text
    from selfreflect.uncertainty.page import all_curves, joined_tables, uncertainty_part

    texts = []
    for correctness, rows in results.items():
        part = uncertainty_part(assessment, correctness, rows, panels=0)
        texts += [f"{markdown_text(sentence)}\n" for sentence in (part.lead, *part.about)]
        texts.append(to_markdown(part.table))
        if every := all_curves(assessment, correctness, rows):
            texts += map(to_markdown, joined_tables(every))
        texts += [f"{markdown_text(note)}\n" for note in part.notes]
    return "\n".join(texts)


def _write_csv(path: Path, assessment: Assessment, results: Mapping[str, list[Prediction]]) -> None:
    """Write the estimators to the file, and their bins and coverages beside it."""
    from selfreflect.render.table import Table, to_csv
    from selfreflect.report.question_table import joined
    from selfreflect.uncertainty.page import all_curves, joined_tables
    from selfreflect.uncertainty.page_tables import overview_table

    estimators: dict[str, Table] = {}
    bins: dict[str, Table] = {}
    coverages: dict[str, Table] = {}
    for correctness, rows in results.items():
        estimators[correctness] = overview_table(assessment, rows)
        if every := all_curves(assessment, correctness, rows):
            bins[correctness], coverages[correctness] = joined_tables(every)
    write_file(path, to_csv(joined(estimators, "labels")))
    for name, tables in (("reliability", bins), ("coverage", coverages)):
        if tables:
            write_file(path.with_stem(f"{path.stem}-{name}"), to_csv(joined(tables, "correctness")))


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
    from selfreflect.cli.answered import GOLD, ComparisonOptions, make_method, run_questions
    from selfreflect.uncertainty.assess import Assessment, predictions
    from selfreflect.uncertainty.page import uncertainty_part

    questions = run_questions(run, run, GOLD)
    if not has_gold(questions):
        return None  # right answers, but no sampled ones yet
    names = {name: None for question in questions for name in question.values}
    assessment = Assessment(questions, [*_IN_REPORT, *names], make_method(questions, ComparisonOptions()))
    (correctness,) = assessment.labels
    part = uncertainty_part(
        assessment, correctness, predictions(assessment, correctness), name=name, label=run.label
    )
    part.notes.append("selfreflect uncertainty measures more estimators, with other classes and labels.")
    return part
