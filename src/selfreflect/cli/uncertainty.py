"""Command ``selfreflect uncertainty``: estimators on answers."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct
from rich.text import Text

from selfreflect.cli import options as o
from selfreflect.cli.answered import (
    ASKING,
    AskOptions,
    ComparisonOptions,
    FieldOptions,
    StructureOptions,
    by_named_gold,
    labelled,
    open_method,
    read_parts,
    written_options,
)
from selfreflect.cli.console import check_output, emit, print_table, say, stdout, write_file
from selfreflect.cli.options import Overrides, argument, option, takes
from selfreflect.errors import DataError
from selfreflect.flags import POSITIVE, Flag, Range
from selfreflect.sources.files import source_name
from selfreflect.sources.names import plain_name
from selfreflect.text import counted, name_list, one_line, percent
from selfreflect.uncertainty.question import AnsweredQuestion, graded_by

if TYPE_CHECKING:
    from selfreflect.uncertainty.assess import Assessment, Prediction


# Notes under a table, unless all are wanted.
_MOST_NOTES = 3


class UncertaintyOptions(Struct, frozen=True, kw_only=True):
    """Options for estimators, measures and sample sizes."""

    estimators: Annotated[
        str | None,
        Flag(
            "--estimators A,B",
            "Estimators to compute. Those that ask a model are used only if you name them: p_true, "
            "p_true_samples, "
            "self_evaluation, verbalized, verbalized_top4, verbalized_2s. column:NAME is a column of the "
            "file; column:NAME:uncertainty, :confidence or :probability says what a higher value means.",
            default="all that the data allow",
        ),
    ] = None
    measures: Annotated[
        str | None,
        Flag(
            "--measures A,B",
            "Measures of prediction, or all.",
            default="auroc, aurc, prr, ece_10_left, smooth_ece, brier",
        ),
    ] = None
    num_answers: Annotated[
        int | None,
        Flag("--num-answers N", "Use N of each question's answers, drawn at random.", range=POSITIVE),
    ] = None
    risk: Annotated[
        float,
        Flag(
            "--risk RISK",
            "Accepted share of wrong answers, used in the last sentence of the output.",
            range=Range("at least 0 and below 1, as in 0.05", lambda value: 0 <= value < 1),
        ),
    ] = 0.1


@takes("answers", only=("--revision", "--base-url", "--extra-body"), config_file=True, execution=ASKING)
def uncertainty_command(
    *,
    source: str = argument(
        "RUN|FILE",
        "Run directory, or JSON, JSONL, CSV, parquet or log of questions with answers; - for stdin.",
        ...,
    ),
    options: UncertaintyOptions,
    comparison: ComparisonOptions,
    asking: AskOptions,
    overrides: Overrides,
    columns: FieldOptions,
    structure: StructureOptions,
    output: list[Path] = option("--output FILE", "Write a page with figures (.html).", []),
    explain: bool = option("--explain", "Print what each column means, and all notes on the values.", False),
    json: o.Json = False,
) -> None:
    """Estimate uncertainty from stored answers, with every method on the same answers.

    Where right answers or labels are known, shows how well each estimator predicts correctness, with 95 %
    intervals, beside two baselines: always stating the accuracy, and the length of the answer; also the Brier
    score after cross-fitted isotonic calibration (needs the calibrate extra). The answer that is judged is
    the record's 'response', else the most common spelling of the largest class. Needs no model, except for
    embedding, and for estimators that ask one: --model, or the model of the run. Their replies are kept in
    the run, or in --out DIR, and nothing is asked twice.

    A file has questions and answers in any layout that `selfreflect convert` understands, or a "confidence"
    for each question. It may have "gold", "logprobs" (of each answer's tokens), "tokens", "aliases", "length"
    and "correct", too.
    """
    from selfreflect.uncertainty.assess import Assessment, predictions
    from selfreflect.uncertainty.calibrators import FOLDS
    from selfreflect.uncertainty.fields.distribution import field_lines, field_table
    from selfreflect.uncertainty.output import json_lines
    from selfreflect.uncertainty.tables import conclude

    check_output(output, source, (".html",))
    measure_names = _measure_names(options.measures)
    parts = read_parts(source, columns, structure, asking, overrides, options.num_answers)
    questions, structured, asking = parts.questions, parts.structured, parts.without_reader(asking)
    names = name_list(options.estimators or "")
    if parts.reader:
        from selfreflect.uncertainty.claims.labelled import ESTIMATED, check_estimators

        check_estimators(names)
        names = names or list(ESTIMATED)
    names = names or _available(questions, comparison.similarity)
    comparison = by_named_gold(questions, comparison, columns)
    with open_method(source, questions, names, comparison, asking, overrides) as method:
        assessment = Assessment(questions, names, method)
        results = {name: predictions(assessment, name, measure_names) for name in labelled(assessment)}
    for path in output:
        write_output(path, source, assessment, results)
    if json:
        lines = json_lines(assessment, results, options.risk)
        # one at a time: a line takes more memory than all that is known of its question
        for line in chain(field_lines(structured, method.rule), lines):
            emit(line)
        return
    if structured:
        print_table(field_table(structured, assessment))
    # who names estimators wants their values, also where nothing tells which of them is right
    in_full = explain or (options.estimators is not None and not results)
    _print(assessment, results, in_full, measure_names if options.measures else ())
    for name in results:
        if conclusion := conclude(assessment, name, options.risk):
            stdout.print(Text(conclusion.sentence), soft_wrap=True)
    rows = next(iter(results.values()), [])
    ready = [row.estimator for row in rows if not row.baseline and row.n >= FOLDS]
    # with options of fields, the printed command would read other questions
    if ready and source != "-" and structure == StructureOptions():
        named = f"{written_options(columns)} --estimator {shlex.quote(ready[0])}"
        say(f"Calibrate one: selfreflect calibrate {shlex.quote(source)}{named}")


def _measure_names(text: str | None) -> list[str]:
    from selfreflect.uncertainty.assess import MEASURED
    from selfreflect.uncertainty.measures import MEASURES, check_measure

    if text is None:
        return list(MEASURED)
    names = list(MEASURES) if text == "all" else name_list(text)
    for name in names:
        check_measure(name)
    return names


def _print(
    assessment: Assessment,
    results: Mapping[str, list[Prediction]],
    explain: bool,
    measures: Sequence[str] = (),
) -> None:
    from selfreflect.uncertainty import tables
    from selfreflect.uncertainty.measures import INTERVALS, definitions
    from selfreflect.uncertainty.page import best_first, best_sentence

    for name, rows in results.items():
        if sentence := best_sentence(rows):
            stdout.print(Text(one_line(sentence)))
        rows_to_show = [*best_first(rows), *(row for row in rows if row.baseline)]
        names = measures or tables.RANKED_BY
        if explain and not measures:
            names = list(dict.fromkeys(measure for row in rows for measure in row.measures))
        table = tables.ranking_table(rows_to_show, name, names)
        if explain:
            meanings = tables.meanings(row.estimator for row in rows_to_show)
            notes = (*meanings, *definitions(names), INTERVALS, *table.notes)
            table = dataclasses.replace(table, notes=notes)
        print_table(table)
    if results:
        print_table(tables.right_table(assessment))
    if results and not explain:
        for note in tables.assessment_notes(assessment)[:_MOST_NOTES]:
            stdout.print(Text(one_line(note)))
        say(
            "What the estimators and columns mean: add --explain. It also adds all measures and the "
            "estimators' values."
        )
        return
    shares = [] if results or explain else tables.modal_shares(assessment)
    if shares:
        mean = percent(fmean(share for share, _ in shares))
        line = (
            f"On average {mean} of the answers to a question are its most common answer "
            f"({counted(len(shares), 'question')}, same answers by the rule {assessment.method.rule.name})."
        )
        # the first note says again what the line above says
        stdout.print(Text(one_line(line)))
        print_table(tables.agreement_table(assessment, shares))
        for note in tables.assessment_notes(assessment)[1:_MOST_NOTES]:
            stdout.print(Text(one_line(note)))
        say("For the values of all estimators add --explain; for the values of each question add --json.")
        return
    table = tables.value_table(assessment)
    if explain and not results:
        table = dataclasses.replace(table, notes=(*tables.meanings(assessment.values), *table.notes))
    surplus = 0 if explain else len(table.notes) - _MOST_NOTES
    if surplus > 0:
        more = f"{counted(surplus, 'more note')}: add --explain."
        table = dataclasses.replace(table, notes=(*table.notes[:_MOST_NOTES], more))
    print_table(table)
    if not explain:
        say("What the columns mean: add --explain.")


def _available(questions: Sequence[AnsweredQuestion], similarity: str) -> list[str]:
    from selfreflect.uncertainty.asking.asker import Hedge, read_hedge
    from selfreflect.uncertainty.estimators import COLUMN, ESTIMATORS, KNOWN_COLUMNS

    present = set()
    for question in questions:
        present |= {"samples"} if question.answers else set()
        of_tokens = {name for name, column in question.token_values._asdict().items() if column}
        present |= of_tokens if "logprobs" in of_tokens else of_tokens - {"tokens"}
        present |= {"confidence"} if question.confidence is not None else set()
        present |= {ESTIMATORS[name].needs for name in question.values}
        hedge = read_hedge(question.greedy or question.answer or "")
        present |= {"hedge"} if isinstance(hedge, Hedge) else set()
    if "logprobs" not in present and "samples" in present:
        reasons = dict.fromkeys(question.missing_logprobs for question in questions)
        why = "; ".join(filter(None, reasons)) or "--logprobs stores them with the answers of a run"
        say(f"No log-probabilities are stored, so estimators that need them are left out ({why}).")
    if "tokens" in present and similarity != "embedding":
        present.remove("tokens")
        say(
            "token_sar and sar are left out, because they weigh tokens by the similarity of sentences: add "
            "--similarity embedding."
        )
    columns = dict.fromkeys(name for question in questions for name in question.columns)
    for grader in graded_by(questions):
        columns.pop(grader, None)  # a grade is no estimate of itself
    # what follows a colon would be read as the direction of the column
    extra = [f"{COLUMN}{name}" for name in columns if plain_name(name) in KNOWN_COLUMNS and ":" not in name]
    return [
        name
        for name, estimator in ESTIMATORS.items()
        if estimator.needs in present and estimator.inputs is None
    ] + extra


def write_output(
    path: Path, source: str, assessment: Assessment, results: Mapping[str, list[Prediction]]
) -> None:
    """Write a page of predictions by kind of correctness.

    Raises:
        DataError: nothing has a right answer or a label.
    """
    if not results:
        raise DataError(
            f"{path}: without right answers or labels there is nothing to predict",
            code="no_gold",
            remedy="If the right answers are in another field, name it with {gold}.",
        )
    from selfreflect.uncertainty.output import page

    write_file(path, page(one_line(source_name(source), 120), assessment, results))
    say(f"Open {path} in a browser.")
