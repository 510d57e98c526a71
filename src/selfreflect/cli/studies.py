"""From the options of ``validate`` to a study: its items, and the options that it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selfreflect.models.base import Generator
    from selfreflect.sources.items import Item
    from selfreflect.validate.study import Study

BUNDLED = "bundled"

STUDIES = ("ranked", "interventions", "dose", "choice", "convergence", "judges", "raters", "length")
_OPTIONS = {
    "--order": ("ranked",),
    "--ratings": ("raters",),
    "--groups": ("interventions", "dose"),
    "--writer": ("interventions",),
    "--no-controls": ("ranked",),
    "--pad": ("ranked",),
}
"""Options that only some studies take."""


@dataclass(frozen=True)
class StudyOptions:
    """What the options say of the study."""

    source: str | None
    study: str | None
    order: str | None = None
    controls: bool = True
    pad: bool = False
    ratings: Path | None = None
    groups: str | None = None
    limit: int | None = None
    num_answers: int | None = None
    seed: int = 0
    writer: Callable[[], Generator] | None = None

    @property
    def name(self) -> str:
        """Of the study: the natural one for the source unless it is given."""
        if self.study is not None:
            return self.study
        return "interventions" if self.source is not None and Path(self.source).is_dir() else "ranked"

    def check(self) -> None:
        """Raises ConfigError for a name that is unknown and for options that do not go together; nothing is
        read."""
        from selfreflect.errors import ConfigError, excerpt, nearest

        if self.name not in STUDIES:
            raise ConfigError(
                f"--study {excerpt(self.name)}: it must be one of {', '.join(STUDIES)}.{nearest(self.name, list(STUDIES))}"
            )
        given = {
            "--order": self.order is not None,
            "--ratings": self.ratings is not None,
            "--groups": self.groups is not None,
            "--writer": self.writer is not None,
            "--no-controls": not self.controls,
            "--pad": self.pad,
        }
        for option, there in given.items():
            if there and self.name not in _OPTIONS[option]:
                raise ConfigError(
                    f"{option} belongs to --study {' or '.join(_OPTIONS[option])}, and this study is {self.name}"
                )
        for name, value in (("limit", self.limit), ("num_answers", self.num_answers)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value}")
        if self.groups not in (None, "spelling", "meaning"):
            raise ConfigError(f"--groups {excerpt(self.groups)}: it must be spelling or meaning")
        if self.name == "choice" and self.source is not None:
            raise ConfigError("--study choice makes its own items and takes no SOURCE")
        if self.name != "choice" and self.source is None:
            raise ConfigError(
                f"--study {self.name} needs a SOURCE: {BUNDLED}, a file of items, or a run directory"
            )
        if self.name == "raters" and self.ratings is None:
            raise ConfigError(
                "--study raters needs --ratings FILE, a CSV with the columns rater, item, summary, rating"
            )


def load(wanted: StudyOptions) -> tuple[Study, str]:
    """The study, and what people are to know about its items.

    Raises:
        SelfReflectError: the source cannot be read, or does not suit the study.
    """
    wanted.check()
    if wanted.name == "choice":
        return _choice(wanted), ""
    items, note = _items(wanted)
    if wanted.name == "raters":
        return _raters(items, wanted), note
    return _MAKE[wanted.name](items[: wanted.limit], wanted), note


def _items(wanted: StudyOptions) -> tuple[list[Item], str]:
    from selfreflect.sources.items import read_items

    assert wanted.source is not None
    if wanted.source == BUNDLED:
        with resources.as_file(resources.files("selfreflect") / "data" / "ranked_items.json") as bundled:
            return read_items(bundled, num_answers=wanted.num_answers), ""
    if Path(wanted.source).is_dir():
        return _of_run(Path(wanted.source), wanted.num_answers)
    return read_items(wanted.source, num_answers=wanted.num_answers), ""


def _of_run(path: Path, num_answers: int | None) -> tuple[list[Item], str]:
    from msgspec.structs import replace

    from selfreflect.errors import DataError
    from selfreflect.pipeline.experiment import run_items
    from selfreflect.store.run import Run

    run = Run.load(path)
    found = run_items(run)
    if not found:
        raise DataError(f"{path} holds no answers yet. Draw some with: selfreflect answers --out {path}")
    without = len(run.questions) - len(found)
    items = [
        replace(item, masked_out=item.masked_out[:num_answers], conditioning=item.conditioning[:num_answers])
        for item in found
    ]
    return (
        items,
        f"{without} of {len(run.questions)} questions of the run have no answers and are left out."
        if without
        else "",
    )


def _grouping(groups: str | None) -> Any:
    if groups == "meaning":
        from selfreflect.models.embedder import MeaningGroups

        return MeaningGroups()
    from selfreflect.grouping import group_indices

    return group_indices


def _choice(wanted: StudyOptions) -> Study:
    from selfreflect.validate.edits.choice import MultipleChoice

    make = partial(MultipleChoice, wanted.seed)
    if wanted.limit is not None:
        make = partial(make, grid=wanted.limit)
    return make() if wanted.num_answers is None else make(answers=wanted.num_answers)


def _ranked(items: list[Item], wanted: StudyOptions) -> Study:
    from selfreflect.validate.ranked.study import RankedSets

    return RankedSets(items, wanted.order, wanted.controls, padding=wanted.pad, seed=wanted.seed)


def _interventions(items: list[Item], wanted: StudyOptions) -> Study:
    from selfreflect.validate.edits.interventions import Interventions

    return Interventions(
        items, wanted.seed, _grouping(wanted.groups), wanted.writer() if wanted.writer else None
    )


def _dose(items: list[Item], wanted: StudyOptions) -> Study:
    from selfreflect.validate.edits.dose import ShiftedPercentages

    return ShiftedPercentages(items, wanted.seed, _grouping(wanted.groups))


def _convergence(items: list[Item], wanted: StudyOptions) -> Study:
    from selfreflect.validate.convergence.study import Convergence

    return Convergence(items, wanted.seed)


def _judges(items: list[Item], wanted: StudyOptions) -> Study:
    from selfreflect.validate.ranked.judges import JudgeAgreement

    return JudgeAgreement(items)


def _raters(items: list[Item], wanted: StudyOptions) -> Study:
    """Ratings of items beyond the limit are no mistake, so the file is held against all of them."""
    from selfreflect.validate.raters.ratings import read_ratings
    from selfreflect.validate.raters.study import HumanAgreement

    assert wanted.ratings is not None
    return HumanAgreement(items[: wanted.limit], read_ratings(wanted.ratings, items), wanted.seed)


def _length(items: list[Item], wanted: StudyOptions) -> Study:
    from selfreflect.validate.ranked.length import LengthStudy

    return LengthStudy(items)


_MAKE: dict[str, Callable[[list[Item], StudyOptions], Study]] = {
    "ranked": _ranked,
    "interventions": _interventions,
    "dose": _dose,
    "convergence": _convergence,
    "judges": _judges,
    "length": _length,
}
