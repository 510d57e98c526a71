"""Several run directories of one question set as one. Records go from disk to disk, so that memory holds the
keys of one and all ids."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from selfreflect.errors import StoreError
from selfreflect.records import Question, Record, Score, dump_line
from selfreflect.sources.shards import Part, part_of
from selfreflect.store.journal import explained, sync_directory
from selfreflect.store.run import Manifest, Run, joined_settings, journals
from selfreflect.store.trim import lean

_OWN = ("part", "base_url")
"""Settings in which directories may differ: each may have had a server of its own."""

_FIXED = ("name", "revision", "dtype")
"""Facts of a model that scores depend on; its device is not one of them."""


@dataclass
class Joined:
    """What was put together."""

    records: Counter[type[Record]] = field(default_factory=Counter)
    """How many there are of each kind."""
    repeated: dict[str, tuple[Path, Path]] = field(default_factory=dict)
    """Ids of questions that several directories hold: whose records were kept, and who has it too."""
    expected: int | None = None
    """Questions of the whole set, where it is known."""
    absent: tuple[Part, ...] = ()
    """Parts that no directory holds, where all were cut in the same way."""


def join(paths: Sequence[Path], out: Path, *, leave_out: Collection[str] = ()) -> Joined:
    """Join run directories into the new one ``out``, which is then there as a whole or not at all.

    A question that several of them hold is taken, with all that belongs to it, from the first. ``leave_out``
    names the :data:`~selfreflect.store.trim.PARTS` that the scores do without.

    Raises:
        StoreError: settings, models or contents of the question sources differ; a directory is damaged;
            ``out`` is there; or the disk refuses.
    """
    manifests = {path: Run.load(path).manifest for path in paths}
    settings = _settings(manifests)
    with explained(out):
        if out.exists() and any(out.iterdir()):
            raise StoreError(f"{out} is there already, and joining makes a new directory. Use another --out.")
    whole = out.resolve()
    unfinished = whole.with_name(f"{whole.name}.joining")
    joined = Joined(absent=_absent(manifests.values()))
    with Run.open(unfinished, settings, fresh=True) as run:
        with explained(unfinished), ExitStack() as stack:
            files = {
                kind: stack.enter_context(journal.path.open("wb"))
                for kind, journal in journals(unfinished).items()
            }
            for kind, record in _records(paths, joined, leave_out):
                files[kind].write((dump_line(record) + "\n").encode())
                joined.records[kind] += 1
            for file in files.values():
                file.flush()
                os.fsync(file.fileno())
        joined.expected = _describe(run, list(manifests.values()))
        with explained(out):
            unfinished.rename(whole)
            sync_directory(whole.parent)
    return joined


def _records(
    paths: Sequence[Path], joined: Joined, leave_out: Collection[str]
) -> Iterator[tuple[type[Record], Any]]:
    """All records to keep, each directory's in the order of the stages."""
    owners: dict[str, int] = {}
    for place, path in enumerate(paths):
        for kind, journal in journals(path, {Score: {"words"}} if "words" in leave_out else {}).items():
            for _, record in journal.stream():
                question = record.id if isinstance(record, Question) else record.question_id
                owner = owners.setdefault(question, place)
                if owner != place:
                    joined.repeated.setdefault(question, (paths[owner], path))
                else:
                    yield kind, lean(record, leave_out) if leave_out and isinstance(record, Score) else record


def _settings(manifests: Mapping[Path, Manifest]) -> dict[str, dict[str, Any]]:
    """The settings of the whole, by section. Raises StoreError where directories differ in what scores depend
    on."""
    agreed: dict[str, Any] = {}
    settings: dict[str, dict[str, Any]] = {}
    for path, manifest in manifests.items():
        compared = {name: _less(section, _OWN) for name, section in manifest.config.items()}
        compared |= {
            f"model of {stage}": {name: facts.get(name) for name in _FIXED}
            for stage, facts in manifest.models.items()
        }
        compared |= {
            f"source of {stage}": _less(facts, ("part", "count")) for stage, facts in manifest.sources.items()
        }
        agreed = joined_settings(
            agreed,
            compared,
            path,
            "Only directories of one question set with the same settings can be joined.",
        )
        for name, section in manifest.config.items():
            settings.setdefault(name, {**section, "part": None} if "part" in section else section)
    return settings


def _less(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _describe(run: Run, manifests: Sequence[Manifest]) -> int | None:
    """Complete the manifest of the whole, and return the number of questions of the whole set where it is
    known."""
    versions: dict[str, set[str]] = {}
    times: Counter[str] = Counter()
    for manifest in manifests:
        times.update(manifest.wall_time)
        for name, version in manifest.packages.items():
            versions.setdefault(name, set()).add(str(version))
    source = {
        name: value for manifest in manifests for name, value in manifest.sources.get("questions", {}).items()
    }
    if source:
        # A later `run` adds the questions that are still missing, as it does after an interruption.
        source |= {
            "part": "",
            "count": source["total"] if source["limit"] is None else min(source["limit"], source["total"]),
        }
    run.update_manifest(
        models={stage: facts for manifest in reversed(manifests) for stage, facts in manifest.models.items()},
        packages={name: ", ".join(sorted(found)) for name, found in versions.items()},
        prompts={stage: hashed for manifest in manifests for stage, hashed in manifest.prompts.items()},
        sources={"questions": source} if source else None,
        wall_time=times,
    )
    return source.get("count")


def _absent(manifests: Collection[Manifest]) -> tuple[Part, ...]:
    parts = {
        part_of(part) for manifest in manifests if (part := manifest.config.get("questions", {}).get("part"))
    }
    sizes = {part.of for part in parts}
    if len(sizes) != 1:
        return ()
    [of] = sizes
    return tuple(part for number in range(1, of + 1) if (part := Part(number, of)) not in parts)
