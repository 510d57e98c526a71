"""Settings and questions for resuming a run directory."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from selfreflect.errors import ConfigError, StoreError, excerpt
from selfreflect.prompts import Prompts
from selfreflect.records import STAGES, Question, SamplingCheck, Stage, dump_line, from_plain
from selfreflect.removed import SCORES
from selfreflect.settings import Config
from selfreflect.sources.questions import QuestionSet, is_file, load_questions
from selfreflect.store.manifest import MANIFEST, Manifest, merge_settings, plain_settings
from selfreflect.store.run import Run
from selfreflect.text import counted

PROMPTED: tuple[Stage, ...] = ("answers", "summaries")
"""Stages whose results depend on the prompts."""


def stage_settings(config: Config, stages: Sequence[Stage], prompts: Prompts) -> dict[Stage, dict[str, Any]]:
    """Collect the settings of stages for a manifest."""
    sections: dict[Stage, dict[str, Any]] = {stage: config.section(stage) for stage in stages}
    for stage in PROMPTED:
        if stage in sections:
            sections[stage]["prompts"] = prompts.hash
    if "summaries" in sections:
        del sections["summaries"]["strategies"]  # adding one later is the normal case
    return sections


UNBOUND = ("measures", "reader", "controls")
"""Settings that a resumed run may change. Values that another reader measured are measured again."""


def scoring_name(scores: Mapping[str, Any]) -> str:
    """Name a set of scores by its settings, as a reproducible file name."""
    bound = _bound(scores)
    # a hash, so that folders of several machines merge by their names
    digest = hashlib.sha256(dump_line(bound).encode()).hexdigest()[:8]
    judge = re.sub(r"[^a-z0-9.]+", "-", bound["judge"].rstrip("/").rpartition("/")[2].lower())
    return f"{judge.strip('-.')[:40] or 'judge'}-{digest}"


def scoring_label(scores: Mapping[str, Any]) -> str:
    """Label a set of scores by its judge and non-default settings."""
    bound = _bound(scores)
    judge = bound.pop("judge")
    return ", ".join([judge, *(f"{key.replace('_', ' ')} {value}" for key, value in bound.items())])


def _bound(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Select the settings that bind scores, without defaults, sorted by name."""
    defaults = Config().section("scores")
    bound = {"judge": defaults["judge"], **plain_settings(scores)}
    for key in ("base_url", *UNBOUND):  # a server may come back at another address
        bound.pop(key, None)
    changes = {key: value for key, value in bound.items() if value != defaults.get(key)}
    return {"judge": bound["judge"], **dict(sorted(changes.items()))}


def select_scoring(run: Run, config: Config) -> None:
    """Select the run's scores with these settings, or a new set if they differ."""
    run.select_scoring("")
    first = run.manifest.config.get("scores")
    name = scoring_name(config.section("scores"))
    if first is not None and scoring_name(first) != name:
        run.select_scoring(name)


def check_settings(manifest: Manifest, settings: Mapping[Stage, dict[str, Any]], path: Path) -> None:
    """Check that the directory at ``path`` can be resumed with these settings.

    Files of questions are compared by what they hold, when they are read.

    Raises:
        StoreError: it was made with others; the message shows each difference.
    """
    # the answers would differ in a column that cannot be filled in later
    answers = manifest.config.get("answers")
    if answers is not None and not answers.get("logprobs") and settings.get("answers", {}).get("logprobs"):
        raise StoreError(
            f"{path}: its answers were sampled without log-probabilities, which cannot be added later",
            code="no_logprobs",
            remedy="Sample new answers into another {out}, or leave out {answers.logprobs}.",
        )
    comparable: dict[str, Any] = {
        stage: _comparable(stage, section, manifest.config[stage])
        for stage, section in settings.items()
        if stage in manifest.config
    }
    merge_settings(manifest.config, plain_settings(comparable), path)


def _comparable(stage: Stage, settings: dict[str, Any], section: dict[str, Any]) -> dict[str, Any]:
    """Remove irrelevant differences from ``settings``."""
    defaults = Config().section(stage)
    comparable = {}
    for key, value in settings.items():
        is_newer_default = key not in section and key in defaults and value == defaults[key]
        if not is_newer_default:  # the directory is older than the setting
            comparable[key] = value
    for key in UNBOUND:
        comparable.pop(key, None)
        if key in section:
            comparable[key] = section[key]
    # a setting that has gone since, and that the directory did not use
    comparable |= {key: None for key, value in section.items() if key not in defaults and value is None}
    # a file may have moved; what it holds is compared later
    if stage == "questions" and is_file(comparable["source"]) and is_file(section["source"]):
        comparable["source"] = section["source"]
    if section.get("base_url") and comparable.get("base_url"):
        comparable["base_url"] = section["base_url"]  # a server may come back at another address
    return comparable


def check_model(manifest: Manifest, stage: Stage, facts: Mapping[str, Any], path: Path) -> None:
    """Refuse a model whose weights changed under the same name since the run began."""
    before = manifest.models.get(stage)
    if before and before["revision"] != facts["revision"]:
        advice = "the new one, to keep scores by both" if stage == "scores" else "use another {out}"
        raise StoreError(
            f"{path}: {stage} began with revision {before['revision']!r} of {facts['name']!r}, which is now "
            f"{facts['revision']!r}",
            code="other_revision",
            remedy=f"Name the old revision with {{{stage}.revision}}, or {advice}.",
        )


def sampling_checks(manifest: Manifest) -> list[SamplingCheck]:
    """List a run's distinct checks of servers."""
    checks = [from_plain(SamplingCheck, check) for check in manifest.checks.values()]
    # reversed: the check of the earliest stage stands for its server
    by_place = {(check.model, check.base_url): check for check in reversed(checks)}
    return list(by_place.values())


def settings_of(path: Path, scores: Mapping[str, Any], *, scoring: bool = True) -> dict[str, dict[str, Any]]:
    """Read the settings of the run directory at ``path`` by section; empty if there is no such directory.

    A stage without results has the settings that were asked for.

    Args:
        scores: what the user sets in that section. The other settings are those of the first scoring by the
            same judge.
        scoring: whether scores are to be added.

    Raises:
        StoreError: the directory cannot be read.
        ConfigError: its scores were estimated in a way that is gone, and ``scores`` names no other.
    """
    if not (path / MANIFEST).exists():
        return {}
    run = Run.load(path)
    pending = run.manifest.asked
    config = run.manifest.config
    sections: dict[str, dict[str, Any]] = dict(pending)
    sections |= {stage: config[stage] for stage in STAGES if stage in config}
    for section in sections.values():
        section.pop("prompts", None)
    # the first scoring by the named judge, or the main one
    for name in run.scorings:
        run.select_scoring(name)
        sections["scores"] = dict(run.manifest.config.get("scores", pending.get("scores", {})))
        if scores.get("judge") in (None, sections["scores"].get("judge")):
            break
    else:
        sections["scores"] = {}
    sections.get("summaries", {}).pop("strategies", None)  # which a directory keeps elsewhere
    if "summaries" in sections:  # older directories drew at the paper's temperature whatever answers did
        sections["summaries"] = {"sample_temperature": 1.0, "sample_top_p": 1.0, **sections["summaries"]}
    # estimates by a rule that is gone cannot be continued, only kept
    former = [key for key in SCORES if sections["scores"].pop(key, None) is not None]
    if scoring and former and scores.get("budget") is None:
        raise ConfigError(
            f"{path}: its scores were estimated with {' and '.join(former)}, which is no longer a setting. "
            "These scores can still be reported",
            code="removed",
            remedy="To add scores, set {scores.budget}, or set it to none to score all words.",
        )
    return sections


def no_questions() -> ConfigError:
    """Make the error for a new run without questions."""
    return ConfigError(
        "a new run needs questions",
        code="no_source",
        remedy="Use {questions.source} FILE, or {questions.source} bundled for the 64 questions of this "
        "package.",
    )


# Questions of each kind that an error shows.
_EXAMPLES = 3


@dataclass(frozen=True)
class NewQuestions:
    """Questions to store, with facts about their source for the manifest."""

    questions: Sequence[Question]
    source: dict[str, Any]
    updated: Sequence[Question] = ()
    """Stored questions whose other columns have changed, such as gold answers or a topic."""
    note: str = ""
    """Note on questions of the source that the run leaves out."""


@dataclass(frozen=True)
class QuestionChanges:
    """Differences between a source's and a run's questions."""

    new: Sequence[Question]
    absent: Sequence[Question]
    edited: Sequence[tuple[Question, Question]]
    """Pairs of earlier and present version, with equal ids."""

    def describe(self) -> str:
        """Count the changes of each kind, followed by a few examples."""
        lines = [f"{len(self.new):,} new, {len(self.absent):,} gone, {len(self.edited):,} edited:"]
        lines += [f"new: {excerpt(question.text, 80)}" for question in self.new[:_EXAMPLES]]
        lines += [f"gone: {excerpt(question.text, 80)}" for question in self.absent[:_EXAMPLES]]
        for before, after in self.edited[:_EXAMPLES]:
            lines.append(f"edited: {excerpt(before.text, 80)} -> {excerpt(after.text, 80)}")
        return "\n  ".join(lines)


def has_all_questions(run: Run) -> bool:
    """Check whether the run has all questions of its source as first read."""
    source = run.manifest.sources.get("questions", {})
    return bool(source) and len(run.questions) == source.get("count")


def new_questions(
    run: Run, settings: dict[str, Any], *, explicit: bool = True, add: bool = False
) -> NewQuestions | None:
    """Find the questions that the run lacks; None if it is complete.

    Args:
        settings: of :func:`~selfreflect.sources.questions.load_questions`.
        explicit: whether the user named the source. If not, a run keeps to the questions that it has.
        add: take in questions that the source did not hold when the run was made, and what its other columns
            hold now.

    Raises:
        ConfigError: the run is empty and no source was named.
        StoreError: the source holds other questions than when the run was made and ``add`` is not set, or a
            question to add has the id of another one.
    """
    recorded = run.manifest.sources.get("questions", {})
    if not explicit and not recorded and not run.questions:
        raise no_questions()
    # a directory keeps to its questions unless somebody names a source
    if not add and not explicit and (has_all_questions(run) or (run.questions and not recorded)):
        return None
    # bundled sets and the hub are told apart by name and revision, files only by reading them
    if not add and has_all_questions(run) and not is_file(settings["source"]):
        return None
    question_set = load_questions(**settings)
    source = msgspec.to_builtins(question_set)
    del source["questions"]
    notes = []
    if with_images := source.pop("with_images"):
        source["with_images"] = with_images
        notes.append(
            f"{counted(with_images, 'question')} with a picture left out, because the model sees only text"
        )
    notes += source.pop("notes")
    if columns := source.pop("left_behind"):
        names = ", ".join(map(excerpt, columns))
        notes.append(f"columns left out, because they contain objects: {names}")
    note = "\n".join(notes)
    if not add:
        _check_revision(run, recorded, question_set)
    missing = [question for question in question_set.questions if question.id not in run.questions]
    if not recorded:
        return NewQuestions(missing, {**source, "count": len(question_set.questions)}, note=note)
    if add:
        return _additions(run, question_set, source)
    # the same bytes: what lacks was cut off by an interruption
    if recorded.get("sha256", "") == question_set.sha256:
        return None if has_all_questions(run) else NewQuestions(missing, recorded)
    changes = compare_questions(run, question_set.questions)
    if changes.new or changes.absent or changes.edited:
        raise StoreError(
            f"{excerpt(settings['source'], 200)} no longer holds the questions of {run.path}: "
            f"{changes.describe()}\nNothing was changed",
            code="other_questions",
            remedy="Leave out {questions.source} to go on with the questions in the directory, or pass "
            "{add_questions} to add the new ones too (both versions of an edited question then count), "
            "or start over with another {out} or with {fresh}.",
        )
    updated, columns = _other_columns(run, question_set.questions)
    if not updated:
        return None
    names = ", ".join(map(excerpt, columns))
    note = (
        f"{len(updated):,} questions now have different values in {names}; the directory keeps the earlier "
        "values. --add-questions takes over the new values without sampling anything again"
    )
    return NewQuestions((), recorded, note=note)


def _check_revision(run: Run, recorded: Mapping[str, Any], question_set: QuestionSet) -> None:
    """Raise StoreError if a hub data set has changed since the run began."""
    before = recorded.get("revision", "")
    if before and question_set.revision and before != question_set.revision:
        raise StoreError(
            f"the data set {excerpt(question_set.dataset)} has changed since {run.path} was made: it was at "
            f"revision {excerpt(before)}, and is now at {excerpt(question_set.revision)}",
            code="other_revision",
            remedy="Use another {out}, or {add_questions} to add the new questions.",
        )


def _other_columns(run: Run, questions: Sequence[Question]) -> tuple[list[Question], list[str]]:
    """Find stored questions with changed columns, and name these columns."""
    present: dict[tuple[str, str], list[Question]] = {}
    for question in questions:
        present.setdefault((question.text, question.context), []).append(question)
    updated = []
    columns: dict[str, None] = {}
    for question in run.questions.values():
        alike = present.get((question.text, question.context))
        if not alike:
            continue
        # by text and context, to which the answers belong; all else may have changed
        now = msgspec.structs.replace(alike.pop(0), id=question.id)
        if now != question:
            updated.append(now)
            columns |= dict.fromkeys(_differing(question, now))
    return updated, list(columns)


def _differing(before: Question, after: Question) -> list[str]:
    names = [name for name in ("kind", "gold") if getattr(before, name) != getattr(after, name)]
    for name in {**before.metadata, **after.metadata}:
        if before.metadata.get(name) != after.metadata.get(name):
            names.append(name)
    return names


def _additions(run: Run, question_set: QuestionSet, source: dict[str, Any]) -> NewQuestions | None:
    changes = compare_questions(run, question_set.questions)
    questions = [*changes.new, *(after for _, after in changes.edited)]
    for question in questions:
        if question.id in run.questions:
            raise StoreError(
                f"{excerpt(question.text, 80)} cannot be added to {run.path}: it has the id "
                f"{excerpt(question.id)} of {excerpt(run.questions[question.id].text, 80)}, whose answers "
                "are stored there",
                code="same_id",
                remedy="Give it another id, or use another {out}.",
            )
    updated, _ = _other_columns(run, question_set.questions)
    if not questions and not updated:
        return None
    recorded = dict(run.manifest.sources["questions"])
    former_sources = [*recorded.pop("earlier", []), recorded]
    count = len(run.questions) + len(questions)
    return NewQuestions(questions, {**source, "count": count, "earlier": former_sources}, updated)


def compare_questions(run: Run, questions: Sequence[Question]) -> QuestionChanges:
    """Compare a source's and a run's questions by text and context.

    Where questions were added to a run, a source is not expected to hold all of them.
    """
    new = _without(questions, run.questions.values())
    missing = _without(run.questions.values(), questions)
    # a question that has an id of its own keeps it when its text changes
    new_by_id = {question.id: question for question in new}
    edited = [(question, new_by_id[question.id]) for question in missing if question.id in new_by_id]
    edited_ids = {question.id for question, _ in edited}
    # an addition need not repeat what the directory has
    if run.manifest.sources.get("questions", {}).get("earlier"):
        missing = []
    new, missing = (
        [question for question in side if question.id not in edited_ids] for side in (new, missing)
    )
    return QuestionChanges(new, missing, edited)


def _without(questions: Iterable[Question], reference: Iterable[Question]) -> list[Question]:
    """List the questions that ``reference`` lacks, counting repetitions."""
    left = Counter((question.text, question.context) for question in reference)
    missing = []
    for question in questions:
        key = (question.text, question.context)
        if left[key] > 0:
            left[key] -= 1
        else:
            missing.append(question)
    return missing
