"""Reading of answered questions, and the model to ask about them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from msgspec import Struct, structs

from selfreflect.cli.console import (
    ProgressReporter,
    ReadingProgress,
    agree_to_start,
    print_table,
    say,
    say_notes,
    stderr,
    stdout,
)
from selfreflect.cli.options import COLUMN
from selfreflect.errors import BackendError, ConfigError, DataError, excerpt
from selfreflect.flags import Flag
from selfreflect.models.backend import backend_of
from selfreflect.models.base import ModelSpec
from selfreflect.run.models import ConfiguredModels, stage_model
from selfreflect.run.records import run_questions, run_records
from selfreflect.sources.columns import assigned_columns
from selfreflect.sources.files import is_row_file
from selfreflect.sources.names import CORRECT, GOLD
from selfreflect.sources.rows import listed
from selfreflect.store.journal import Journal, ModelReplies, open_replies
from selfreflect.store.run import Run
from selfreflect.text import counted, name_list
from selfreflect.traits import traits_of
from selfreflect.uncertainty.question import AnsweredQuestion, graded_by, has_gold, not_blank
from selfreflect.uncertainty.reading import read_answered_questions

if TYPE_CHECKING:
    from selfreflect.cli.options import Overrides
    from selfreflect.settings import Config, Price
    from selfreflect.uncertainty.asking.asker import Asker, Inquiry
    from selfreflect.uncertainty.assess import Assessment, Method
    from selfreflect.uncertainty.claims.words import WordReader
    from selfreflect.uncertainty.fields.distribution import Structured


NAME_MODEL = "Name it with {answers.model}."


class FieldOptions(Struct, frozen=True, kw_only=True):
    """Options that name fields and columns of a file."""

    gold: Annotated[str, Flag("--gold FIELD", "Field with the right answer or its spellings.")] = GOLD
    column: Annotated[list[str] | None, COLUMN] = None


def written_options(columns: FieldOptions, *, is_labelled: bool = True) -> str:
    """Write the options that name fields and columns, for a command that reads such a file.

    Args:
        is_labelled: whether that file also has the labels and right answers.
    """
    words = ["--gold", columns.gold] if is_labelled and columns.gold != GOLD else []
    for pair in columns.column or ():
        if is_labelled or pair.partition("=")[0].strip() != CORRECT:
            words += ["--column", pair]
    return "".join(f" {shlex.quote(word)}" for word in words)


class StructureOptions(Struct, frozen=True, kw_only=True):
    """Options for answers in JSON and for long answers with claims."""

    schema: Annotated[
        str | None,
        Flag(
            "--fields auto|SCHEMA",
            "Compare JSON answers field by field. SCHEMA is a file with a JSON schema, "
            "which says what answers are valid (needs the fields extra); auto takes any JSON.",
        ),
    ] = None
    field: Annotated[
        list[str] | None,
        Flag(
            "--field PATH",
            "Use only this field, as a JSON Pointer such as /total, or /lines/*/price for the price in "
            "every object of a list. Can be repeated.",
        ),
    ] = None
    claims: Annotated[
        str | None,
        Flag(
            "--claims READER",
            "Judge long answers claim by claim. The file labels each claim, in the form that "
            "`selfreflect claims "
            '--json` writes, with "correct". READER decides which answers make a claim: words, embedding, '
            "nli:MODEL or asked (--model).",
        ),
    ] = None


class ComparisonOptions(Struct, frozen=True, kw_only=True):
    """Options for grouping equal answers and judging correctness."""

    classes: Annotated[
        str | None,
        Flag(
            "--classes RULE",
            "Rule that decides which answers are the same. The rules are same (equal in other words, "
            "without a model), exact (but for case, punctuation and articles), numeric, jaccard, rouge or "
            "embedding, the last three with a threshold, as in jaccard:0.6; judge (--model is asked about "
            "pairs that the rule same cannot decide), or nli:MODEL (each answer entails the other; MODEL "
            "classifies pairs).",
            default="judge, for at most 2 pairs per answer, where a model other than the embedded one is "
            "asked or named; else same",
        ),
    ] = None
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
            "What counts as correct. The rules are human (the field 'correct'), graded (the grades in a "
            "log; graded:NAME for one grader), contains (a short answer contains a right answer as whole "
            "words, not negated and not one of several), exact, numeric, substring, squad_f1 (with a "
            "threshold, as in squad_f1:0.8), or judge (--model is asked). `calibrate` takes one.",
            default="contains where --gold is given, human where labelled, graded where a log holds "
            "grades, else contains",
        ),
    ] = None


def read_questions(source: str, fields: FieldOptions, *, structured: bool = False) -> list[AnsweredQuestion]:
    """Read the answered questions of a run directory or file."""
    gold, columns = fields.gold, assigned_columns(fields.column)
    if is_row_file(source):
        progress = ReadingProgress(source)
        file = read_answered_questions(
            source, gold, columns=columns, structured=structured, progress=progress
        )
        questions = file.questions
        say_notes(file.notes)
    elif columns:
        raise ConfigError(
            "the columns of a run directory are known", code="columns", remedy="Leave out {column}."
        )
    else:
        run = Run.load(Path(source))
        records = run_records(run)
        questions = run_questions(records, records, gold)
        _say_origin_of_logprobs(run)
        texts = [answers.answers for answers in run.answers.values()]
        if blank := sum(len(not_blank(answers)) < len(answers) for answers in texts):
            say(f"Left out: blank answers to {counted(blank, 'question')}.")
        if by_hand := sum(bool(question.aliases) for question in questions):
            say(f"Groups of answers were merged by hand in {counted(by_hand, 'question')}.")
        if not questions:
            raise DataError(
                f"{source} has no answers yet",
                code="no_answers",
                remedy=f"Make them with: selfreflect answers --out {source}",
            )
    # a file may lack "gold", but not a field that the user named
    if gold != GOLD and not has_gold(questions):
        raise DataError(
            f"{excerpt(source)}: no row has a right answer in the field {excerpt(gold)}", code="no_gold"
        )
    return questions


class QuestionParts(NamedTuple):
    """Questions to estimate, one per field or claim if answers are split."""

    questions: Sequence[AnsweredQuestion]
    structured: Sequence[Structured] = ()
    """Original questions split by field, if answers are JSON."""
    reader: str = ""
    """Reader of the claims; empty without claims."""

    def without_reader(self, asking: AskOptions) -> AskOptions:
        """Drop the model after it has read the claims: no claim estimator asks it."""
        return structs.replace(asking, model=None) if self.reader else asking


def read_parts(
    source: str,
    fields: FieldOptions,
    structure: StructureOptions,
    asking: AskOptions,
    overrides: Overrides,
    num_answers: int | None = None,
) -> QuestionParts:
    """Read questions with their answers, and split these into fields or claims if the options say so."""
    questions = read_questions(source, fields, structured=structure.schema is not None)
    if num_answers is not None:
        questions = with_answers(questions, num_answers)
    if structure.claims is not None:
        claims, reader = read_claims(source, questions, structure, asking, overrides)
        return QuestionParts(claims, reader=reader)
    structured = take_apart(questions, structure)
    return QuestionParts([part for item in structured for part in item.questions()] or questions, structured)


def take_apart(questions: Sequence[AnsweredQuestion], options: StructureOptions) -> list[Structured]:
    """Split JSON answers by field, and report invalid ones; empty without a schema.

    Raises:
        ConfigError: a field is named without ``schema``, or no answer has it.
        DataError: no answer is valid, or the schema is none.
    """
    from selfreflect.uncertainty.fields.distribution import notes_on, structure
    from selfreflect.uncertainty.fields.values import Schema

    if options.schema is None:
        if options.field:
            raise ConfigError(
                "a field is named, but answers are not split into fields",
                code="usage",
                remedy="{field} needs {fields} auto, or a schema.",
            )
        return []
    schema = None if options.schema == "auto" else Schema.load(Path(options.schema))
    structured = [structure(question, schema) for question in questions if question.answers]
    if not any(item.objects for item in structured):
        raise DataError("no answer is valid JSON, so there are no fields", code="no_fields")
    if not any(item.fields for item in structured):
        raise DataError("the valid answers have no fields", code="no_fields")
    for line in notes_on(structured):
        say(line)
    selected = [item.only(options.field) for item in structured] if options.field else structured
    if without := len(questions) - sum(bool(item.fields) for item in selected):
        fields = "one of these fields" if options.field else "any field"
        say(f"{counted(without, 'question')} left out: no valid answer has {fields}.")
    if not options.field:
        return structured
    if not any(item.fields for item in selected):
        paths = list(dict.fromkeys(field.path for item in structured for field in item.fields))
        raise ConfigError(
            f"no answer has the field {excerpt(options.field[0])}",
            code="no_field",
            remedy=f"The fields are {excerpt(', '.join(paths), 400)}.",
        )
    return [item for item in selected if item.fields]


@contextmanager
def open_claim_reader(
    source: str, name: str | None, asking: AskOptions, overrides: Overrides
) -> Iterator[WordReader]:
    """Open the reader that decides which answers make a claim: a model, or else a comparison of words."""
    from selfreflect.uncertainty.claims.readers import open_reader

    name = name or ("words" if asking.model is None else "asked")
    if asking.model is None:
        reader = open_reader(name)
        yield reader
    elif name != "asked":
        raise ConfigError(
            "only the reader 'asked' calls a model",
            code="usage",
            remedy="Leave out {model}, or use that reader.",
        )
    else:
        with open_store(source, asking, ["claims"]) as store:
            reader = open_reader(name, open_asker(source, asking, overrides, ["claims"], store))
            yield reader
    for caveat in reader.caveats:
        say(caveat)


def read_claims(
    source: str,
    questions: Sequence[AnsweredQuestion],
    options: StructureOptions,
    asking: AskOptions,
    overrides: Overrides,
) -> tuple[list[AnsweredQuestion], str]:
    """Make a question of each labelled claim; also return the reader's name.

    Raises:
        ConfigError: answers cannot be both JSON and long, or there is no such reader.
        DataError: no claim has a label.
    """
    from selfreflect.uncertainty.claims.labelled import claim_questions

    if options.schema is not None or options.field:
        raise ConfigError(
            "answers cannot be split into fields and into claims at once",
            code="usage",
            remedy="Leave out {fields} or {claims}.",
        )
    if not any(claim.correct is not None for question in questions for claim in question.claims):
        raise DataError(
            f"{excerpt(source)} has no labelled claims",
            code="no_labels",
            remedy='`selfreflect claims FILE --json` writes claims; add "correct": true or false to each.',
        )
    if without := sum(not (question.claims and question.answers) for question in questions):
        say(f"{counted(without, 'question')} left out: no claims or no answers.")
    with open_claim_reader(source, options.claims, asking, overrides) as reader:
        return list(claim_questions(reader, questions)), reader.name


def with_answers(questions: Sequence[AnsweredQuestion], number: int) -> list[AnsweredQuestion]:
    """Select ``number`` answers per question at random, leaving out questions with fewer."""
    from selfreflect.uncertainty.assess import subsample

    enough = [question for question in questions if len(question.answers) >= number]
    if not enough:
        raise DataError(f"no question has {number} answers")
    if len(enough) < len(questions):
        few = counted(len(questions) - len(enough), "question")
        say(f"{few} with fewer than {counted(number, 'answer')} left out.")
    return [subsample(question, number) for question in enough]


def _say_origin_of_logprobs(run: Run) -> None:
    """Report which distribution the log-probabilities describe, and whether answers were drawn from it."""
    answers = next((answers for answers in run.answers.values() if answers.logprobs), None)
    if answers is None:
        return
    origin = "the model's at temperature 1, before top-p"
    if backend_of(answers.model).is_remote:
        origin = "as the server returned them"
    line = f"Log-probabilities are {origin}."
    settings = (answers.temperature, answers.top_p)
    if None not in settings and settings != (1, 1):
        line += (
            f" The answers were drawn at temperature {answers.temperature:g} and top-p {answers.top_p:g}, so "
            "their mean does not estimate the model's own distribution."
        )
    say(line)


def by_named_gold(
    questions: Sequence[AnsweredQuestion], comparison: ComparisonOptions, fields: FieldOptions
) -> ComparisonOptions:
    """Prefer the user's field of correct answers to labels and grades, and report that."""
    from selfreflect.uncertainty.correctness import DEFAULT, default_correctness

    if comparison.correctness or fields.gold == GOLD or not has_gold(questions):
        return comparison
    if (others := default_correctness(questions)) != DEFAULT:
        say(
            f"{DEFAULT}: the right answers of --gold count, not the labels in the file. To use both: "
            f"--correctness {DEFAULT},{others}"
        )
    return structs.replace(comparison, correctness=DEFAULT)


def can_compare(model: str) -> bool:
    """Check whether a model compares answers by meaning if the user names no rule."""
    return not traits_of(model).is_show_case


def further_fields(questions: Sequence[AnsweredQuestion]) -> list[str]:
    """List unused fields of a file, which may include the correct answers."""
    return list(dict.fromkeys(name for question in questions for name in question.columns))


def labelled(assessment: Assessment) -> list[str]:
    """List the correctness functions that have labels, and report missing labels."""
    names = []
    for name, labels in assessment.judged.labels.items():
        count = sum(label is not None for label in labels)
        if count:
            names.append(name)
        if count < len(labels):
            missing = _MISSING.get(name.partition(":")[0], "right answer")
            say(
                f"{name}: {len(labels) - count:,} of {len(labels):,} questions have no {missing}, "
                "or no answers: left out."
            )
        if name == "human" and not count and graded_by(assessment.questions):
            say(
                "The file grades answers, but not by a person. To use these grades, add --correctness graded."
            )
    if not assessment.judged.labels:
        fields = further_fields(assessment.questions)
        others = f": {listed(fields)}" if fields else ""
        say(
            "The file has no right answers and no labels of correctness, so there is nothing to "
            "predict. If the right "
            f"answers are in another field, name it with --gold{others}."
        )
    return names


_MISSING = {"human": "label", "graded": "clear grade", "judge": "right answer or no clear verdict"}
"""Name of the missing label, by kind of correctness."""

ASKING = ("--device", "--trust-remote-code", "--batch-size", "--max-connections", "--timeout")
"""Execution options of the model to ask."""


class AskOptions(Struct, frozen=True, kw_only=True):
    """Options for the model to ask, and for storing its responses."""

    model: Annotated[
        str | None,
        Flag(
            "--model NAME",
            "Model that estimators and judges ask, as in `run` (openai:NAME on a server).",
            default="the one that drew the answers of the run",
        ),
    ] = None
    out: Annotated[
        Path | None,
        Flag(
            "--out DIR",
            "Store replies in DIR and reuse them. They are the replies of "
            "--model and the verdicts of nli:MODEL.",
            default="the run directory; for a file nothing is kept",
        ),
    ] = None
    sample_p_true: Annotated[
        bool,
        Flag(
            "--sample-p-true",
            "Estimate P(True) by the share of True in 10 replies, not by the probability of a token.",
        ),
    ] = False
    yes: Annotated[
        bool,
        Flag(
            "--yes",
            "Start without asking. Otherwise you confirm before many replies are requested, or replies "
            "that cost money.",
        ),
    ] = False
    dry_run: Annotated[bool, Flag("--dry-run", "Print what the model would be asked, and exit.")] = False


def asking(estimators: Sequence[str], comparison: ComparisonOptions) -> list[str]:
    """List everything that asks a model: estimators, classes and correctness."""
    from selfreflect.uncertainty.estimators import choose_estimators

    users = [name for name, info in choose_estimators(estimators).items() if info.needs == "model"]
    users += ["--classes judge"] if comparison.classes == "judge" else []
    return users + (["--correctness judge"] if "judge" in name_list(comparison.correctness or "") else [])


@contextmanager
def open_method(
    source: str,
    questions: Sequence[AnsweredQuestion],
    estimators: Sequence[str],
    comparison: ComparisonOptions,
    options: AskOptions,
    overrides: Overrides,
    *,
    stored_model: str = "",
) -> Iterator[Method]:
    """Open the model and its stored responses as :func:`open_asker`, and make the method of assessment.

    Without ``classes`` the model that is asked sorts what the rule without a model leaves open; without
    ``correctness`` people's labels count, or else answers that contain a right one.
    """
    from selfreflect.uncertainty.assess import Method
    from selfreflect.uncertainty.classes import DEFAULT, ClassRule
    from selfreflect.uncertainty.correctness import default_correctness

    users = asking(estimators, comparison)
    if comparison.classes is None and options.model is not None and can_compare(options.model):
        users.append("which answers are the same")
    with open_store(source, options, users, comparison.classes) as store:
        asker = open_asker(source, options, overrides, users, store, stored_model=stored_model)
        if asker is None and options.dry_run:
            say("No model is asked: this costs nothing.")
            raise typer.Exit
        is_default = comparison.classes is None and asker is not None and can_compare(asker.model)
        rule_name = comparison.classes or ("judge" if is_default else DEFAULT)
        rule = ClassRule(rule_name, asker, store, bounded=is_default)  # which keeps the verdicts of nli there
        names = name_list(comparison.correctness or default_correctness(questions) or "")
        yield Method(rule, comparison.similarity, tuple(names), asker)


@contextmanager
def open_store(
    source: str, options: AskOptions, users: Sequence[str], classes: str | None = None
) -> Iterator[Journal[ModelReplies] | None]:
    """Open the file of stored responses and verdicts; None if nothing is asked or stored."""
    if not users and not (classes or "").startswith("nli:"):
        yield None
        return
    directory = options.out or _directory(source)
    if directory is None:
        say("The responses are not kept; --out DIR would keep them.")
        yield None
        return
    with open_replies(directory) as store:
        try:
            yield store
        except BackendError as error:
            message = error.message.removesuffix(".")
            hint = f"Its replies are kept in {directory}; run the same command"
            raise BackendError(
                f"{message}. {hint}", code=error.code, remedy=error.remedy, **error.fields
            ) from None


def open_asker(
    source: str,
    options: AskOptions,
    overrides: Overrides,
    users: Sequence[str],
    store: Journal[ModelReplies] | None,
    *,
    stored_model: str = "",
) -> Asker | None:
    """Open the model that ``users``, such as estimators, ask; None without users.

    The options name it, or ``--config``, or the run whose answers it drew.

    Args:
        stored_model: the model whose stored replies are read where the user names no model. It is not asked.

    Raises:
        ConfigError: there is neither, or the run names code or a server elsewhere that the user did not name.
    """
    if not users:
        return None
    from selfreflect.uncertainty.asking.asker import Asker, model_name

    # a saved calibrator can be applied from stored replies, without a model to ask
    try:
        config = _config(source, options.model, overrides, users)
    except ConfigError:
        if options.model is not None or not stored_model:
            raise
        return _reader(stored_model, store, options.sample_p_true)
    spec = stage_model(config, overrides.execution, "answers")
    is_named = options.model is not None or overrides.sets("answers", "model")
    # a model that the user did not name is not asked in place of the one whose replies are stored
    if stored_model and not is_named and model_name(spec) != stored_model:
        return _reader(stored_model, store, options.sample_p_true)
    reporter = ProgressReporter()
    directory = _directory(source)
    known = {} if directory is None else dict(Run.load(directory).manifest.models)
    models = ConfiguredModels(config, overrides.execution, reporter, known=known)
    return Asker(
        model_name(spec),
        partial(models.generator, "answers"),
        store,
        confirm=Confirmation(spec, config, options),
        progress=reporter.stage,
        samples_p_true=options.sample_p_true,
    )


def _reader(model: str, store: Journal[ModelReplies] | None, samples_p_true: bool) -> Asker:
    """Make an asker that only looks up stored responses."""
    from selfreflect.uncertainty.asking.asker import Asker

    # it also stands for loading a model, and then there are no inquiries to count
    def refuse(inquiries: Sequence[Inquiry] = ()) -> Any:
        count = counted(len(inquiries), "reply")
        raise ConfigError(
            f"{count} of the model {excerpt(model)} are missing",
            code="missing_replies",
            remedy="To ask the model for them, name it with {answers.model}.",
        )

    return Asker(model, refuse, store, confirm=refuse, samples_p_true=samples_p_true)


def _config(source: str, model: str | None, overrides: Overrides, users: Sequence[str]) -> Config:
    """Build the settings of the model to ask."""
    from selfreflect.cli.stages import check_named

    if model is not None:
        answers = {**overrides.section("answers"), "model": model}
        overrides = replace(overrides, sections={**overrides.sections, "answers": answers})
    base = {} if overrides.sets("answers", "model") else _run_model(source, users)
    config = overrides.config(base)
    # a run directory may come from anybody, and so may the code or the address that it names
    if base:
        names = set(map(str, overrides.given("answers").values()))
        check_named(Path(source), config.answers.model, config.answers.base_url, names)
    return config


def _directory(source: str) -> Path | None:
    """Return the source as a run directory, or None if it is a file."""
    return None if is_row_file(source) else Path(source)


def _run_model(source: str, users: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read the settings of the model that drew a run's answers."""
    names = ", ".join(users)
    directory = _directory(source)
    if directory is None:
        raise ConfigError(f"no model is named to ask for {names}", code="no_model", remedy=NAME_MODEL)
    answers = Run.load(directory).manifest.config.get("answers", {})
    if not answers.get("model"):
        raise ConfigError(
            f"no model is named to ask for {names}, and {directory} does not say which model drew its "
            f"answers",
            code="no_model",
            remedy=NAME_MODEL,
        )
    return {"answers": {key: answers.get(key) for key in ("model", "revision", "base_url", "extra_body")}}


class Confirmation:
    """Callback that shows the cost of questions to the model, and asks for consent if they are many or cost
    money.

    A step that is asked in several batches, such as pairs of answers, is shown once, and no reason to ask is
    given twice.
    """

    def __init__(self, spec: ModelSpec, config: Config, options: AskOptions) -> None:
        self._spec = spec
        self._price = config.price_of(spec.name)
        self._options = options
        self._steps: set[str] = set()
        self._accepted: set[str] = set()

    def __call__(self, inquiries: Sequence[Inquiry]) -> None:
        from selfreflect.uncertainty.asking.asker import SAME_MEANING, cost_table

        inquiries = [inquiry for inquiry in inquiries if inquiry.step not in self._steps]
        if not inquiries:
            return
        self._steps.update(inquiry.step for inquiry in inquiries)
        cost = None if self._price is None else self._price.cost
        is_dry = self._options.dry_run
        print_table(cost_table(inquiries, self._spec.name, cost), stdout if is_dry else stderr)
        if any(inquiry.step == SAME_MEANING for inquiry in inquiries):
            say("The model may be asked about more pairs, until the classes are decided.")
        if is_dry:
            raise typer.Exit
        reasons = _reasons(inquiries, self._spec, self._price)
        if self._accepted.issuperset(reasons):
            return
        agree_to_start(reasons, yes=self._options.yes, otherwise="No further request was sent.")
        self._accepted.update(reasons)


def _reasons(inquiries: Sequence[Inquiry], spec: ModelSpec, price: Price | None) -> list[str]:
    """List the reasons to confirm before asking the model."""
    from selfreflect.run.cost import MANY_COMPLETIONS

    reasons = []
    if price is not None:
        reasons.append("this costs money")
    elif host := backend_of(spec.name).may_charge(spec.base_url):
        reasons.append(f"{host} may charge for this")
    replies = sum(inquiry.n for inquiry in inquiries)
    if replies >= MANY_COMPLETIONS:
        reasons.append(f"{counted(replies, 'reply')} may take long")
    return reasons
