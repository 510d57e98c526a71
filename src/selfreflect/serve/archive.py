"""Keep what was answered as a run directory, which `report`, `uncertainty` and `calibrate` read."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec.structs import replace

from selfreflect.records import AnswerSet, Controls, Failure
from selfreflect.report.run_records import lean
from selfreflect.serve.reflector import Exchange
from selfreflect.store.layout import StoredRecord
from selfreflect.store.run import Run


class Archive:
    """A run directory that is open as long as the server runs.

    Args:
        texts: whether questions, answers and summaries are kept, or only how the answers fall into classes.

    Raises:
        StoreError: the directory cannot be used, or was made with other settings.
    """

    def __init__(self, path: Path, *, texts: bool) -> None:
        self._run = Run.open(path, {"serve": {"texts": texts}})
        self._texts = texts
        self._thread = ThreadPoolExecutor(
            1, "serve-archive"
        )  # a run is for one thread, and waits for the disk

    async def add(self, exchange: Exchange) -> None:
        """Write one exchange. It is on disk when this returns. Raises StoreError if the disk refuses."""
        records = records_of(exchange) if self._texts else without_texts(exchange)
        loop = asyncio.get_running_loop()
        await asyncio.shield(loop.run_in_executor(self._thread, self._run.append_all, records))

    def close(self) -> None:
        """Finish writing, and release the directory."""
        self._thread.shutdown()
        self._run.close()


def records_of(exchange: Exchange) -> list[StoredRecord]:
    """All records of an exchange."""
    return [exchange.question, exchange.answers, *exchange.summaries, *exchange.measured]


def without_texts(exchange: Exchange) -> list[StoredRecord]:
    """The records with a name in place of each text: answers of one class have one name, so shares and
    entropies stay."""
    id_ = exchange.question.id
    names = [f"answer {place + 1}" for place in exchange.classes.labels]
    answers = _renamed(exchange.answers, names)
    records: list[StoredRecord] = [replace(exchange.question, text=id_, context=""), answers]
    records += [replace(one, text=f"{one.name} of {id_}") for one in exchange.summaries]
    for record in exchange.measured:
        if isinstance(record, Failure):
            records.append(replace(record, message="(the message is not kept)"))
        elif not isinstance(record, Controls):
            records.append(lean(record, ("words",)))
    return records


def _renamed(answers: AnswerSet, names: list[str]) -> AnswerSet:
    """An answer set whose sampled answers have these names; held-out answers have no class."""
    if len(names) == len(answers.answers):
        half = len(answers.masked_out)
        return replace(answers, masked_out=tuple(names[:half]), conditioning=tuple(names[half:]))
    held_out = tuple(f"held-out answer {number}" for number in range(1, len(answers.masked_out) + 1))
    return replace(answers, masked_out=held_out, conditioning=tuple(names))
