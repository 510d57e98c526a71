"""What models replied to questions about answers, in the file ``replies.jsonl`` of a directory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

from selfreflect.logprobs import LikelyToken
from selfreflect.records import RETRIED, Count, FailureKind, Finish, Record
from selfreflect.store.journal import Journal, open_locked

REPLIES = "replies.jsonl"
"""The file of a run directory, or of ``--out``, that keeps replies."""


class ModelReplies(Record, frozen=True, kw_only=True):
    """What a model replied to one inquiry, as it came; it is parsed whenever it is read."""

    step: str
    request: str
    """Digest of the model, the conversation and the sampling. A reply to anything else is not used."""
    model: str
    texts: tuple[str, ...] = ()
    finishes: tuple[Finish, ...] = ()
    first_tokens: tuple[LikelyToken, ...] = ()
    """Likely ones where the first text begins, if the inquiry wants them and the model tells them."""
    tokens: Count = 0
    failure: FailureKind | None = None
    message: str = ""

    _rare: ClassVar[tuple[str, ...]] = ("first_tokens",)

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.finishes) or bool(self.texts) == (self.failure is not None):
            raise ValueError("replies are either texts that each ended somehow, or a failure")

    @property
    def is_final(self) -> bool:
        """Whether another try would give the same."""
        return self.failure not in RETRIED


class RepliesInMemory:
    """Replies that no file keeps, for the life of this object."""

    def __init__(self) -> None:
        self.records: dict[str, ModelReplies] = {}

    def append_all(self, records: Sequence[ModelReplies]) -> None:
        """Add replies."""
        for replies in records:
            self.records[replies.request] = replies


def open_replies(directory: Path) -> AbstractContextManager[Journal[ModelReplies]]:
    """Open the replies of a directory for writing; arguments and errors as of :func:`open_locked`."""
    return open_locked(directory, replies_journal(directory))


def replies_journal(directory: Path) -> Journal[ModelReplies]:
    """Open the replies of a directory, unread."""
    return Journal(
        directory / REPLIES,
        ModelReplies,
        lambda replies: replies.request,
        lambda replies: not replies.is_final,
    )
