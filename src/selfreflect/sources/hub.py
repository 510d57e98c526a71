"""Question sets of the Hugging Face hub: which columns hold what, and the one call that fetches them."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from typing import Any

from selfreflect.errors import DataError, MissingExtraError, excerpt
from selfreflect.records import Record
from selfreflect.sources.files import Row

HubLoader = Callable[[str, str | None, str | None], Any]
"""``(name, subset, split)`` to a ``datasets.Dataset``."""


class HubSet(Record, frozen=True, kw_only=True):
    """Where a data set keeps its questions. Without ``question`` the columns are guessed from their names."""

    name: str
    subset: str | None = None
    split: str | None = None
    question: str = ""
    gold: str = ""
    kind: str = ""
    reads: tuple[str, ...] = ()
    """Columns that ``rewrite`` needs besides these."""
    rewrite: Callable[[Row], Row] | None = None


def multiple_choice(row: Row) -> Row:
    """An MMLU row with the whole prompt as its question, and the right letter and choice as its answer."""
    choices, answer, subject = row.get("choices"), row.get("answer"), row.text("subject").replace("_", " ")
    if not isinstance(choices, list) or not 0 < len(choices) <= len(string.ascii_uppercase):
        raise row.error("the field 'choices' must be a list of texts")
    lettered = [
        f"{letter}. {choice}" for letter, choice in zip(string.ascii_uppercase, choices, strict=False)
    ]
    prompt = [
        f"Pick the one right choice for this question about {subject}.",
        row.text("question"),
        *lettered,
        "Answer:",
    ]
    known = isinstance(answer, int) and 0 <= answer < len(choices)
    gold = [string.ascii_uppercase[answer], str(choices[answer])] if known else None
    return row._replace(
        fields={**row.fields, "question": "\n".join(prompt), "answer": gold, "subject": subject}
    )


HUB_SETS: dict[str, HubSet] = {
    "natural_questions": HubSet(
        name="google-research-datasets/natural_questions",
        subset="dev",
        split="validation",
        question="question.text",
    ),
    "trivia_qa": HubSet(
        name="mandarjoshi/trivia_qa", subset="rc", split="test", question="question", gold="answer"
    ),
    "simpleqa": HubSet(name="basicv8vc/SimpleQA", split="test", question="problem", gold="answer"),
    "mmlu": HubSet(
        name="cais/mmlu",
        subset="all",
        split="test",
        question="question",
        gold="answer",
        kind="subject",
        reads=("choices",),
        rewrite=multiple_choice,
    ),
    "truthful_qa": HubSet(
        name="truthfulqa/truthful_qa",
        subset="generation",
        split="validation",
        question="question",
        gold="best_answer",
        kind="category",
    ),
}


def find_hub_set(source: str) -> HubSet | None:
    """The set for an alias, a full name of the table, or ``hf:NAME`` (also of a local directory); None for
    anything else."""
    name = source.removeprefix("hf:")
    known = next((entry for alias, entry in HUB_SETS.items() if name in (alias, entry.name)), None)
    if known or not source.startswith("hf:"):
        return known
    if not name:
        raise DataError("'hf:' needs the name of a data set after it, as in 'hf:rajpurkar/squad'")
    return HubSet(name=name)


def load_hub(name: str, subset: str | None, split: str | None) -> Any:
    """A ``datasets.Dataset``, downloaded once and memory-mapped. Without ``split`` the set must have exactly
    one.

    Raises:
        DataError: the hub or the network fails, or there is no such set, subset or split.
        MissingExtraError: ``datasets`` is not installed.
    """
    try:
        import datasets
        from huggingface_hub.errors import HTTPError
    except ImportError:
        raise MissingExtraError("loading questions from the Hugging Face hub", "datasets") from None
    try:
        return datasets.load_dataset(name, subset, split=split or _only_split(name, subset))
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError, HTTPError) as error:
        raise DataError(
            f"the data set {excerpt(name)} (subset {excerpt(subset or 'default')}, split {excerpt(split or 'the only one')}) "
            f"could not be loaded: {excerpt(str(error), 200)}. "
            "Check these names, the network, and whether HF_HUB_OFFLINE is set while it is not cached yet."
        ) from None


def _only_split(name: str, subset: str | None) -> str:
    import datasets

    splits: list[str] = datasets.get_dataset_split_names(name, subset)
    if len(splits) != 1:
        raise DataError(
            f"the data set {excerpt(name)} has the splits {', '.join(map(excerpt, splits))}; choose one with split"
        )
    return splits[0]


def revision_of(dataset: Any) -> str:
    """The hub commit that a ``datasets.Dataset`` was downloaded from, as far as its files' addresses tell;
    else an empty string."""
    commits = {
        found[1]
        for url in dataset.info.download_checksums or ()
        if (found := re.search(r"@([0-9a-f]{40})/", url))
    }
    return commits.pop() if len(commits) == 1 else ""
