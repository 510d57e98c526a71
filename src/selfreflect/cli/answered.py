"""What ``selfreflect uncertainty`` and ``selfreflect calibrate`` share: options, and questions with stored
answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Struct

from selfreflect.cli.console import ReadingProgress, say, say_notes
from selfreflect.cli.settings import COLUMN, option
from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.flags import Flag
from selfreflect.models.backend import backend_of
from selfreflect.pipeline.answered import GOLD, run_questions
from selfreflect.sources.columns import assigned_columns
from selfreflect.text import counted, name_list
from selfreflect.traits import traits_of
from selfreflect.uncertainty.question import AnsweredQuestion, has_gold, not_blank

if TYPE_CHECKING:
    from selfreflect.store.journal import Journal
    from selfreflect.store.replies import ModelReplies
    from selfreflect.store.run import Run
    from selfreflect.uncertainty.asking.asker import Asker
    from selfreflect.uncertainty.assess import Assessment, Method


_GOLD = Flag("--gold FIELD", "Field with the right answer or its spellings.")
Gold = Annotated[str, option(_GOLD.usage, _GOLD.help, ...)]


class FieldOptions(Struct, frozen=True, kw_only=True):
    """Which field of a file holds what."""

    gold: Annotated[str, _GOLD] = GOLD
    column: Annotated[list[str] | None, COLUMN] = None


class ComparisonOptions(Struct, frozen=True, kw_only=True):
    """What makes two answers the same, and which are correct."""

    classes: Annotated[
        str | None,
        Flag(
            "--classes RULE",
            "What makes two answers the same: same (equal in other words, without a model), exact (but for "
            "case, punctuation and articles), numeric, jaccard, rouge or embedding, the last three with a "
            "threshold, as in jaccard:0.6; judge (--model is asked about pairs that same leaves open), or "
            "nli:MODEL (each entails the other; MODEL classifies pairs).",
            default="judge, for at most 2 pairs per answer, where a model other than the embedded one is "
            "asked or named; else same",
        ),
    ] = None
    class_order: Annotated[
        Literal["first", "components"],
        Flag(
            "--class-order",
            "What becomes of chains of matches: an answer joins the first class whose first "
            "answer it matches (first), or the whole chain is one class (components).",
        ),
    ] = "first"
    similarity: Annotated[
        str,
        Flag(
            "--similarity NAME",
            "Similarity of answers for eigv, deg, ecc, kle and SAR: jaccard, rouge or embedding. "
            "Token SAR and SAR need embedding.",
        ),
    ] = "jaccard"
    correctness: Annotated[
        str | None,
        Flag(
            "--correctness A,B",
            "What counts as correct: human (the field 'correct'), contains (a right answer stands whole "
            "in a short answer, not negated and not one of several), exact, numeric, substring, squad_f1, "
            "rouge or embedding, the last three with a threshold, as in rouge:0.5; or judge (--model is "
            "asked). `calibrate` takes one.",
            default="human where labelled, else contains",
        ),
    ] = None


def read_questions(source: str, fields: FieldOptions) -> list[AnsweredQuestion]:
    """Read the answered questions of a run directory or a file."""
    from selfreflect.uncertainty.reading import read_answered_questions

    gold, columns = fields.gold, assigned_columns(fields.column)
    if source == "-" or not Path(source).is_dir():
        progress = ReadingProgress(source)
        file = read_answered_questions(source, gold, columns=columns, progress=progress)
        questions = file.questions
        say_notes(file.notes)
    elif columns:
        raise ConfigError("--column belongs to a file; the columns of a run directory are known")
    else:
        from selfreflect.pipeline.records import run_records
        from selfreflect.store.run import Run

        # the words of scores would be most of the reading
        scoring = Run.load(Path(source), detail=False)
        run = Run.load(Path(source))
        questions = run_questions(run_records(run), run_records(scoring), gold)
        _say_whose_logprobs(run)
        blank = sum(len(not_blank(one.answers)) < len(one.answers) for one in run.answers.values())
        if blank:
            say(f"Blank answers to {counted(blank, 'question')} left out: what says nothing is no answer.")
        if not questions:
            raise DataError(
                f"{source} holds no answers yet. Make some with: selfreflect answers --out {source}"
            )
    if gold != GOLD and not has_gold(questions):
        raise DataError(f"{excerpt(source)}: nothing has a right answer in a field {excerpt(gold)}")
    return questions


def _say_whose_logprobs(run: Run) -> None:
    """Say of what the log-probabilities of a run are, and whether the answers were drawn from something
    else."""
    answers = next((one for one in run.answers.values() if one.logprobs), None)
    if answers is None:
        return
    whose = "the model's at temperature 1, before top-p"
    if backend_of(answers.model).is_remote:
        whose = "as the server returned them"
    line = f"Log-probabilities are {whose}."
    settings = (answers.temperature, answers.top_p)
    if None not in settings and settings != (1, 1):
        line += (
            f" The answers were drawn at temperature {answers.temperature:g} and top-p {answers.top_p:g}, so "
            "their mean is not that of the model's own distribution."
        )
    say(line)


def make_method(
    questions: Sequence[AnsweredQuestion],
    options: ComparisonOptions,
    asker: Asker | None = None,
    store: Journal[ModelReplies] | None = None,
) -> Method:
    """What classes, similarities and labels are made with. Without ``classes`` the model that is asked sorts
    what the rule without a model leaves open; without ``correctness`` people's labels count, or else answers
    that contain a right one. ``store`` keeps the verdicts of ``nli``."""
    from selfreflect.uncertainty import correctness
    from selfreflect.uncertainty.assess import Method
    from selfreflect.uncertainty.classes import DEFAULT, ClassRule

    names = name_list(options.correctness) if options.correctness else []
    if options.correctness is None:
        if any(question.correct is not None for question in questions):
            names.append("human")
        elif has_gold(questions):
            names.append(correctness.DEFAULT)
    is_default = options.classes is None and asker is not None and can_compare(asker.model)
    name = options.classes or ("judge" if is_default else DEFAULT)
    rule = ClassRule(name, options.class_order, asker, store, bounded=is_default)
    return Method(rule, options.similarity, tuple(names), asker)


def can_compare(model: str) -> bool:
    """Whether a model is asked which answers mean the same where the user names no rule."""
    return not traits_of(model).is_show_case


def labelled(assessment: Assessment) -> list[str]:
    """The correctness functions that have labels. Says which lack them."""
    names = []
    for name, labels in assessment.judged.labels.items():
        count = sum(label is not None for label in labels)
        if count:
            names.append(name)
        if count < len(labels):
            what = {"human": "label", "judge": "right answer or no clear verdict"}.get(name, "right answer")
            say(f"{name}: {len(labels) - count} of {len(labels)} questions have no {what} and are left out.")
    if not assessment.judged.labels:
        say(
            "No right answers and no labels of correctness, so there is nothing to predict. If the right "
            "answers are in another field, name it with --gold."
        )
    return names
