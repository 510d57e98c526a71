"""Command ``selfreflect claims``: the claims of long answers, with the number of supporting answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from selfreflect.cli import options as o
from selfreflect.cli.answered import ASKING, AskOptions, open_claim_reader
from selfreflect.cli.console import ProgressReporter, check_output, emit, print_table, say, write_file
from selfreflect.cli.options import ItemOptions, Overrides, argument, option, takes
from selfreflect.errors import DataError
from selfreflect.sources.files import is_row_file, source_name
from selfreflect.sources.items import Item, items_from_records
from selfreflect.stats import defined
from selfreflect.store.run import Run
from selfreflect.table import INTERVAL, Cell, Column, Table, interval_text
from selfreflect.text import counted, one_line, percent
from selfreflect.uncertainty.question import AnsweredQuestion

if TYPE_CHECKING:
    from selfreflect.settings import Config
    from selfreflect.uncertainty.claims.labelled import ClaimCalibrator
    from selfreflect.uncertainty.claims.support import ClaimDistribution
    from selfreflect.uncertainty.claims.words import WordReader

_MOST_CLAIMS = 12
"""Maximum number of claims of a question in a table, unless all are requested."""


@takes("answers", only=("--revision", "--base-url", "--extra-body"), config_file=True, execution=ASKING)
def claims_command(
    *,
    source: str = argument(
        "RUN|FILE", "Run directory, or questions with answers as `convert` reads them; - for stdin.", ...
    ),
    reading: ItemOptions,
    asking: AskOptions,
    overrides: Overrides,
    reader: str | None = option(
        "--reader NAME",
        "Reader that decides which answers make a claim: words, embedding (sentences of the same "
        "meaning), nli:MODEL "
        "(a classifier of pairs, as in nli:DIRECTORY), or asked. [default: asked with --model, else words]",
    ),
    calibrator: Path | None = option(
        "--calibrator FILE",
        "Give each claim a calibrated confidence, with a file of `selfreflect calibrate --claims READER "
        "--save`.",
    ),
    output: Path | None = option("--output FILE", "Write a page (.html): texts, shaded by support."),
    explain: bool = option("--explain", "Print every claim.", False),
    json: o.Json = False,
) -> None:
    """Split long answers into claims, and count the answers that make or contradict each claim.

    Without --model each sentence is a claim, and an answer says it if one of its sentences has the claim's
    words, numbers and negations; so a claim in different words counts as missing. With --model the model
    lists the claims of every answer, and then says for each answer which of all claims it makes. Summaries in
    the file or run are read in the same way, to show what share of the claims they cover, weighted by
    support, and which of their claims no answer makes.
    """
    if output is not None:
        check_output([output], source, (".html",))
    items = _items(source, reading)
    if blank := sum(len(item.answer_set.answers) - len(_answers(item)) for item in items):
        say(f"{counted(blank, 'answer')} left out: a blank answer makes no claim.")
    if asking.dry_run:
        _print_cost(items, asking, overrides.config())
        return
    with open_claim_reader(source, reader, asking, overrides) as claim_reader:
        fitted = None if calibrator is None else _calibrator(calibrator, claim_reader, items)
        distributions = _read(items, claim_reader, fitted)
    if output is not None:
        from selfreflect.uncertainty.claims.placed import claims_page

        write_file(output, claims_page(source_name(source), distributions))
    if json:
        for distribution in distributions:
            emit(distribution.to_json())
        return
    _print(distributions, explain)


def _items(source: str, reading: ItemOptions) -> list[Item]:
    if is_row_file(source):
        return reading.read(source).items
    reading.refuse_columns()
    run = Run.load(Path(source))
    items = items_from_records(run.questions.values(), run.answers, run.summaries.values())
    if not items:
        raise DataError(f"{source} has no answers yet", code="no_answers")
    return items[: reading.limit]


def _answers(item: Item) -> list[str]:
    """List the answers that are not blank."""
    return [text for text in item.answer_set.answers if text.strip()]


def _print_cost(items: Sequence[Item], asking: AskOptions, config: Config) -> None:
    """Print the maximum number of model calls, reached if every sentence is a distinct claim."""
    from selfreflect.uncertainty.asking.asker import cost_table
    from selfreflect.uncertainty.claims.readers import inquiries_about

    if asking.model is None:
        say("Without --model no model is asked.")
        return
    inquiries = [
        inquiry
        for item in items
        for inquiry in inquiries_about(item.question, _answers(item), list(item.summaries.values()))
    ]
    price = config.price_of(asking.model)
    print_table(cost_table(inquiries, asking.model, None if price is None else price.cost))


def _calibrator(path: Path, reader: WordReader, items: Sequence[Item]) -> ClaimCalibrator:
    """Read a calibrator of claims. Raises DataError if it was fitted on one of the questions."""
    from selfreflect.uncertainty.claims.labelled import ClaimCalibrator

    calibrator = ClaimCalibrator.load(path, reader.name)
    questions = [
        AnsweredQuestion(id=item.id, text=item.question, answers=tuple(_answers(item))) for item in items
    ]
    calibrator.saved.refuse_overlap(questions)
    calibrator.saved.refuse_other_samples(questions)
    for caveat in dict.fromkeys(calibrator.caveat(len(_answers(item))) for item in items):
        if caveat:
            say(f"{caveat}.".capitalize())
    return calibrator


def _read(
    items: Sequence[Item], reader: WordReader, calibrator: ClaimCalibrator | None
) -> list[ClaimDistribution]:
    from selfreflect.uncertainty.claims.support import claim_distribution

    distributions = []
    with ProgressReporter().stage("claims", len(items)) as progress:
        for item in items:
            distributions.append(
                claim_distribution(
                    reader,
                    id=item.id,
                    question=item.question,
                    answers=_answers(item),
                    summaries=item.summaries,
                    rate=None if calibrator is None else calibrator.rate,
                )
            )
            progress.advance()
    return distributions


def _print(distributions: Sequence[ClaimDistribution], explain: bool) -> None:
    supports = defined(item.mean_support for item in distributions)
    if not supports:
        raise DataError("no answer makes a claim")
    claims = sum(len(item.claims) for item in distributions)
    weak = defined(item.weak for item in distributions)
    say(
        f"{counted(len(distributions), 'question')}, {counted(claims, 'claim')}. On average, "
        f"{percent(fmean(supports))} of the answers make a given claim; {percent(fmean(weak))} of the "
        f"claims are "
        "made by fewer than half of the answers."
    )
    for item in distributions:
        print_table(_claim_table(item, explain))
    if any(item.coverages for item in distributions):
        print_table(_summary_table(distributions))


def _claim_table(distribution: ClaimDistribution, explain: bool) -> Table:
    rows: list[tuple[Cell, ...]] = []
    shown = distribution.claims if explain else distribution.claims[:_MOST_CLAIMS]
    right = [Column("right", ".2f")] if distribution.is_calibrated else []
    kept = [Column("kept")] if any(claim.is_kept is not None for claim in distribution.claims) else []
    for claim in shown:
        support = claim.support
        low, high = support.interval or (None, None)
        cells = (support.share, interval_text(low, high, ".2f"), support.contradicts)
        chance = [claim.confidence] if right else []
        is_kept = ["yes" if claim.is_kept else "no"] if kept else []
        rows.append((*cells, *chance, *is_kept, one_line(claim.text.replace("**", ""), 200)))
    counts = (Column("said", ".2f"), Column(INTERVAL), Column("contradict", "d"))
    columns = (*counts, *right, *kept, Column("claim"))
    notes = []
    if len(shown) < len(distribution.claims):
        notes.append(f"{counted(len(distribution.claims) - len(shown), 'more claim')}: add --explain.")
    title = f"{one_line(distribution.question, 60)} ({counted(len(distribution.answers), 'answer')})"
    return Table(title, columns, tuple(rows), tuple(notes))


def _summary_table(distributions: Sequence[ClaimDistribution]) -> Table:
    names = dict.fromkeys(name for item in distributions for name in item.coverages)
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        coverages = [item.coverages[name] for item in distributions if name in item.coverages]
        covered = defined(coverage.covered for coverage in coverages)
        precisions = defined(coverage.precision for coverage in coverages)
        rows.append(
            (
                one_line(name, 40),
                len(coverages),
                fmean(covered) if covered else None,
                fmean(precisions) if precisions else None,
                sum(len(coverage.added) for coverage in coverages),
            )
        )
    columns = (
        Column("summary"),
        Column("n", "d"),
        Column("covered", ".2f"),
        Column("precision", ".2f"),
        Column("added", "d"),
    )
    notes = (
        "covered: share of the answers' claims that the summary makes, weighted by support. precision: "
        "share of the summary's "
        "claims that some answer makes; added: the number of its other claims.",
    )
    return Table("Summaries, claim by claim", columns, tuple(rows), notes)
