"""Merging of run directories with the same question set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from selfreflect.atomic import sync_directory
from selfreflect.errors import StoreError
from selfreflect.records import Question, Record, SamplingCheck, from_plain
from selfreflect.sources.questions import Shard, parse_shard
from selfreflect.store.journal import ModelReplies, PartialAnswers, replies_journal, store_errors
from selfreflect.store.manifest import Manifest, merge_settings
from selfreflect.store.run import Run

# Settings in which directories may differ: each may have had its own server, and `score` measures
# what is still missing.
_MAY_DIFFER = ("part", "base_url", "measures", "controls")

# Facts of a model that scores depend on, unlike its device.
_MODEL_FACTS = ("name", "revision", "dtype")


@dataclass(frozen=True)
class JoinedScoring:
    """Merged scores of one judge with one set of settings."""

    settings: Mapping[str, Any]
    paths: Collection[Path]
    """Directories with these scores; others lack them."""


@dataclass
class MergeResult:
    """Records that a merge wrote."""

    records: Counter[type[Record]] = field(default_factory=Counter)
    """Number of records by kind."""
    repeated: dict[str, tuple[Path, Path]] = field(default_factory=dict)
    """Questions found in several directories: the one whose records were kept, and another one."""
    total_questions: int | None = None
    """Number of questions in the whole set, if known."""
    unfinished: int = 0
    """Number of questions with incomplete answers, which are left out."""
    absent: tuple[Shard, ...] = ()
    """Missing shards, if all directories were split alike."""
    scorings: list[JoinedScoring] = field(default_factory=list)
    """Merged scores, the main set first."""


def merge_runs(
    paths: Sequence[Path],
    out: Path,
    *,
    name_scoring: Callable[[Mapping[str, Any]], str],
    defaults: Mapping[str, Mapping[str, Any]] | None = None,
) -> MergeResult:
    """Merge run directories into the new directory ``out``, all or nothing.

    The records of a question that several directories hold all come from the first of them. Scorings are
    matched by their judge and settings, whatever their order in each directory. The main one of the first
    directory that has scores is the main one of the whole.

    Args:
        name_scoring: names the scoring with these settings of scores.
        defaults: by section, what a setting was in a directory that is older than the setting.

    Raises:
        StoreError: settings, models or contents of the question sources differ; a directory is damaged;
            ``out`` exists; or the disk refuses.
    """
    folders = _folders(paths, name_scoring)
    manifests = _manifests(folders)
    settings = {name: _common_settings(of_scoring, defaults or {}) for name, of_scoring in manifests.items()}
    with store_errors(out):
        if out.exists() and any(out.iterdir()):
            raise StoreError(
                f"{out} already exists, but joining needs a new directory",
                code="exists",
                remedy="Use another {out}.",
            )
    target = out.resolve()
    unfinished = target.with_name(f"{target.name}.joining")
    result = MergeResult(absent=_absent_shards(manifests[""].values()))
    result.unfinished = len({file.name for path in folders for file in PartialAnswers(path).files})
    for name, sections in settings.items():
        if "scores" in sections:
            scored_paths = [path for path, manifest in manifests[name].items() if "scores" in manifest.config]
            result.scorings.append(JoinedScoring(sections["scores"], scored_paths))
    # made beside its place and renamed at the end, so that a killed join leaves nothing that looks whole
    with Run.open(unfinished, settings[""], fresh=True, backup=False) as run:
        for name, of_scoring in manifests.items():
            run.select_scoring(name)
            total = _write_manifest(run, list(of_scoring.values()), settings[name])
            result.total_questions = result.total_questions or total
        _write_records(run, folders, result)
        replies = replies_journal(unfinished)
        replies.append_all(list(_replies(paths).values()))
        replies.close()
        with store_errors(out):
            unfinished.rename(target)
            sync_directory(target.parent)
    return result


def _folders(
    paths: Sequence[Path], name_scoring: Callable[[Mapping[str, Any]], str]
) -> dict[Path, dict[str, str]]:
    """Map each directory's sets of scores to those of the merged run; "" is the main set."""
    names: dict[Path, dict[str, str]] = {}
    for path in paths:
        run = Run.load(path)
        names[path] = {}
        for scoring in run.scorings:
            run.select_scoring(scoring)
            section = run.manifest.config.get("scores")
            names[path][scoring] = name_scoring(section) if section else scoring
    main = next((targets_of[""] for targets_of in names.values() if targets_of[""]), "")
    folders: dict[Path, dict[str, str]] = {}
    for path, targets_of in names.items():
        folders[path] = {}
        for scoring, name in targets_of.items():
            target = "" if name == main else name
            # two scorings of one directory must not become one
            folders[path][scoring] = scoring if target in folders[path].values() else target
    return folders


def _manifests(folders: Mapping[Path, Mapping[str, str]]) -> dict[str, dict[Path, Manifest]]:
    """Group the manifests by the merged run's sets of scores; the main set has all manifests."""
    manifests: dict[str, dict[Path, Manifest]] = {"": {}}
    for path, targets in folders.items():
        run = Run.load(path)
        manifests[""][path] = run.manifest.with_scores_of(Manifest())
        for scoring, target in targets.items():
            run.select_scoring(scoring)
            manifests.setdefault(target, {})[path] = run.manifest
    return manifests


def _write_records(run: Run, folders: Mapping[Path, Mapping[str, str]], result: MergeResult) -> None:
    """Add each question's records from the first directory that has any."""
    owners: dict[str, Path] = {}
    for path, targets in folders.items():
        source = Run.load(path)
        for scoring, target in targets.items():
            source.select_scoring(scoring)
            run.select_scoring(target)
            records = []
            for record in source.records():
                question = record.id if isinstance(record, Question) else record.question_id
                # answers of one directory and summaries of another would not belong together
                owner = owners.setdefault(question, path)
                if owner is path:
                    records.append(record)
                else:
                    result.repeated.setdefault(question, (owner, path))
            run.append_all(records)
            result.records.update(map(type, records))
    run.select_scoring("")


def _replies(paths: Sequence[Path]) -> dict[str, ModelReplies]:
    """Merge the responses of all directories by request."""
    replies: dict[str, ModelReplies] = {}
    for path in paths:
        for request, reply in replies_journal(path).records.items():
            if request not in replies or not replies[request].is_final:
                replies[request] = reply
    return replies


def _common_settings(
    manifests: Mapping[Path, Manifest], defaults: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Merge the settings of all directories by section.

    Raises:
        StoreError: directories differ in what scores depend on.
    """
    advice = "Only directories of one question set with the same settings can be joined."
    common: dict[str, Any] = {}
    settings: dict[str, dict[str, Any]] = {}
    for path, manifest in manifests.items():
        sections = {}
        for name, section in manifest.config.items():
            sections[name] = _without({**defaults.get(name, {}), **section}, _MAY_DIFFER)
        for stage, facts in manifest.models.items():
            sections[f"model of {stage}"] = {name: facts.get(name) for name in _MODEL_FACTS}
        for stage, facts in manifest.sources.items():
            sections[f"source of {stage}"] = _without(facts, ("part", "count", "with_images", "prompts_file"))
        common = merge_settings(common, sections, path, advice)
        for name, section in manifest.config.items():
            settings.setdefault(name, {**section, "part": None} if "part" in section else section)
    return settings


def _without(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _write_manifest(
    run: Run, manifests: Sequence[Manifest], settings: Mapping[str, Mapping[str, Any]]
) -> int | None:
    """Complete the merged run's manifest, and return the size of the question set, if known."""
    models = _joined(manifest.models for manifest in manifests)
    source = _joined(manifest.sources.get("questions", {}) for manifest in manifests)
    finished: dict[str, str] = {}
    versions: dict[str, set[str]] = {}
    checks: dict[str, dict[str, Any]] = {}
    times: Counter[str] = Counter()
    for manifest in manifests:
        for stage, time in manifest.finished.items():
            finished[stage] = max(time, finished.get(stage, ""))
        times.update(manifest.wall_time)
        checks |= _more_suspect(manifest.checks, checks)
        for name, version in manifest.packages.items():
            versions.setdefault(name, set()).add(str(version))
    strategies = dict.fromkeys(
        chain.from_iterable(manifest.plan.get("strategies", ()) for manifest in manifests)
    )
    requests = _joined(manifest.asked for manifest in manifests)
    if source:
        # A later `run` adds the questions that are still missing, as after an interruption.
        limit = source["total"] if source["limit"] is None else source["limit"]
        source |= {"part": "", "count": min(limit, source["total"])}
    if run.scoring:
        sections_of_scoring = {"config": settings, "models": models, "finished": finished, "wall_time": times}
        run.update_manifest(
            **{
                name: {"scores": section["scores"]}
                for name, section in sections_of_scoring.items()
                if "scores" in section
            }
        )
        return None
    run.update_manifest(
        models=models,
        packages={name: ", ".join(sorted(numbers)) for name, numbers in versions.items()},
        prompts=_joined(manifest.prompts for manifest in manifests),
        prompt_texts=_joined(manifest.prompt_texts for manifest in manifests),
        finished=finished,
        sources=_joined(
            [{"questions": source} if source else {}, *(manifest.sources for manifest in manifests)]
        ),
        wall_time=times,
        checks=checks,
        plan={"strategies": [*strategies]} if strategies else {},
        asked=_without(requests, [*settings, "questions"]),
    )
    return source.get("count")


def _joined(sections: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the entries of all sections, preferring the first of each name."""
    entries: dict[str, Any] = {}
    for section in sections:
        entries = {**section, **entries}
    return entries


def _more_suspect(
    checks: Mapping[str, dict[str, Any]], known_checks: Mapping[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Select the servers' checks that most strongly suggest missing sampling."""
    return {
        stage: check
        for stage, check in checks.items()
        if stage not in known_checks or (_is_suspect(check) and not _is_suspect(known_checks[stage]))
    }


def _is_suspect(check: dict[str, Any]) -> bool:
    return from_plain(SamplingCheck, check).is_suspect


def _absent_shards(manifests: Collection[Manifest]) -> tuple[Shard, ...]:
    shards = set()
    for manifest in manifests:
        text = manifest.config.get("questions", {}).get("part")
        if text:
            shards.add(parse_shard(text))
    # shards of different cuts overlap, and nobody can say which are missing
    sizes = {shard.of for shard in shards}
    if len(sizes) != 1:
        return ()
    [of] = sizes
    whole = [Shard(number, of) for number in range(1, of + 1)]
    return tuple(shard for shard in whole if shard not in shards)
