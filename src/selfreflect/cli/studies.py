"""The studies of ``validate``: which there are, the options that each takes, and how it gets its items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from selfreflect.cli.settings import grouping
from selfreflect.config import SEED, Flag, check_values, flags_of
from selfreflect.errors import ConfigError, DataError, excerpt, nearest
from selfreflect.models.base import Generator
from selfreflect.pipeline.records import run_items
from selfreflect.sources.items import Item, read_items
from selfreflect.store.run import Run

if TYPE_CHECKING:
    from selfreflect.validate.study import Study


@dataclass(frozen=True)
class StudyRow:
    path: str
    """Module below ``selfreflect.validate`` and class, imported on use."""
    takes: tuple[str, ...]
    """Fields of :class:`StudyOptions` that its constructor takes."""
    about: str
    """One line for ``--help``."""


STUDIES = {
    "ranked": StudyRow(
        "ranked.study:RankedSets",
        ("order", "controls", "pad", "seed"),
        "summaries whose order is known: how often does the better one win?",
    ),
    "interventions": StudyRow(
        "edits.interventions:Interventions",
        ("groups", "writer", "seed"),
        "summaries made worse in known ways: does the score notice?",
    ),
    "dose": StudyRow(
        "edits.percentages:ShiftedPercentages",
        ("groups", "seed"),
        "stated percentages shifted by 10 to 50 points: does the score rise with the shift?",
    ),
    "choice": StudyRow(
        "edits.percentages:MultipleChoice",
        ("seed",),
        "multiple choice with a known truth: does the score follow the true distance? (takes no SOURCE)",
    ),
    "convergence": StudyRow(
        "convergence.study:Convergence",
        ("seed",),
        "how many questions, answers and words does a stable ranking of strategies need?",
    ),
    "judges": StudyRow("ranked.judges:JudgeAgreement", (), "do several judges agree?"),
    "raters": StudyRow(
        "raters.study:HumanAgreement",
        ("ratings", "seed"),
        "does the score agree with people? (needs --ratings)",
    ),
    "length": StudyRow(
        "ranked.length:LengthStudy", (), "do longer summaries score better, whatever they say?"
    ),
}


class StudyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which study is made from what."""

    source: str | None = None
    """An argument rather than an option: the items."""
    study: Annotated[
        str | None,
        Flag("--study NAME", f"{', '.join(STUDIES)}; see above.", default="ranked; for a run interventions"),
    ] = None
    limit: Annotated[int | None, Flag("--limit N", "Take only N items.", at_least=1)] = None
    num_answers: Annotated[
        int | None, Flag("--num-answers N", "Use the first N answers of each half.", at_least=1)
    ] = None
    seed: Annotated[int, SEED] = 0
    order: Annotated[
        str | None,
        Flag(
            "--order CHAINS",
            "Names of summaries, best first, as in 'good>mid>bad' or 'detailed>terse, detailed>vague'.",
            default="each item's own field 'order', or good before all others and mid before bad",
        ),
    ] = None
    controls: Annotated[
        bool,
        Flag("--controls", "Add an empty summary and the repeated question.", negative="--no-controls"),
    ] = True
    pad: Annotated[
        bool,
        Flag("--pad", "Also measure the shorter of two summaries, padded with filler to the longer one."),
    ] = False
    groups: Annotated[
        str,
        Flag("--groups spelling|meaning", "Group answers by spelling, or by meaning (with the embed extra)."),
    ] = "spelling"
    writer: Annotated[
        bool, Flag("--writer", "Let --model put the statements of interventions into its own words.")
    ] = False
    ratings: Annotated[
        Path | None,
        Flag(
            "--ratings FILE", "CSV: rater, item, summary, rating, or rater, item, summary, other, preferred."
        ),
    ] = None

    @property
    def name(self) -> str:
        """The name of the study: if it is not given, the natural one for the source."""
        is_run = self.source is not None and Path(self.source).is_dir()
        return self.study or ("interventions" if is_run else "ranked")


def check(options: StudyOptions) -> None:
    """Check what can be checked before anything is read.

    Raises:
        ConfigError: the study is unknown, a value is out of range, or an option does not go with the study.
    """
    check_values(options)
    study, source = options.name, options.source
    if study not in STUDIES:
        known = f"it must be one of {', '.join(STUDIES)}.{nearest(study, list(STUDIES))}"
        raise ConfigError(f"--study {excerpt(study)}: {known}")
    defaults = StudyOptions()
    for field, flag in flags_of(StudyOptions).items():
        users = [name for name, row in STUDIES.items() if field in row.takes]
        if field == "seed" or not users or study in users:  # a seed harms no study without chance
            continue
        if getattr(options, field) != getattr(defaults, field):
            name = flag.negative or flag.name
            raise ConfigError(f"{name} belongs to --study {' or '.join(users)}, and this study is {study}")
    if study == "choice" and source is not None:
        raise ConfigError("--study choice makes its own items and takes no SOURCE")
    if study != "choice" and source is None:
        raise ConfigError(f"--study {study} needs a SOURCE: bundled, a file of items, or a run directory")
    if study == "raters" and options.ratings is None:
        raise ConfigError(
            "--study raters needs --ratings FILE, a CSV with the columns rater, item, summary, rating"
        )


def load(options: StudyOptions, writer: Callable[[], Generator] | None) -> tuple[Study, str]:
    """Make a study, and a note that people must know about its items.

    Args:
        writer: loads the model that ``--writer`` asks.

    Raises:
        SelfReflectError: the source cannot be read, or does not suit the study.
    """
    row = STUDIES[options.name]
    module, _, class_name = row.path.partition(":")
    make = getattr(import_module(f"selfreflect.validate.{module}"), class_name)
    arguments: dict[str, Any] = {name: getattr(options, name) for name in row.takes}
    if options.source is None:
        sizes = {"grid": options.limit, "answers": options.num_answers}
        return make(**arguments, **{name: size for name, size in sizes.items() if size is not None}), ""
    items, note = _read_items(options.source, options.num_answers)
    if options.ratings is not None:
        from selfreflect.validate.raters.ratings import read_ratings

        # with all items, since ratings of items beyond the limit are no mistake
        arguments["ratings"] = read_ratings(options.ratings, items)
    if "groups" in arguments:
        arguments["grouping"] = grouping(arguments.pop("groups"))
    if "writer" in arguments:
        arguments["writer"] = writer() if options.writer and writer is not None else None
    return make(items[: options.limit], **arguments), note


def _read_items(source: str, num_answers: int | None) -> tuple[list[Item], str]:
    if source == "bundled":
        with resources.as_file(resources.files("selfreflect") / "data" / "ranked_items.json") as bundled:
            return read_items(bundled, num_answers=num_answers), ""
    if not Path(source).is_dir():
        return read_items(source, num_answers=num_answers), ""
    run = Run.load(Path(source))
    items = []
    for item in run_items(run):
        masked_out, conditioning = item.masked_out[:num_answers], item.conditioning[:num_answers]
        items.append(msgspec.structs.replace(item, masked_out=masked_out, conditioning=conditioning))
    if not items:
        raise DataError(f"{source} holds no answers yet. Draw some with: selfreflect answers --out {source}")
    without = len(run.questions) - len(items)
    note = f"{without} of {len(run.questions)} questions of the run have no answers and are left out."
    return items, note if without else ""
