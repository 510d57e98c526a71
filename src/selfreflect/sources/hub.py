"""Question sets on the Hugging Face hub: columns and downloads."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from selfreflect.errors import DataError, MissingExtraError, excerpt
from selfreflect.models.local.machine import datasets_offline, hub_answers
from selfreflect.sources.rows import Row


class Columns(NamedTuple):
    """The columns to read; an empty name means none. The id is always in ``id``."""

    question: str
    gold: str = ""
    kind: str = ""
    context: str = ""


class HubSet(NamedTuple):
    """A data set on the hub. Without ``columns``, names are guessed."""

    name: str
    subset: str | None = None
    split: str | None = None
    columns: Columns | None = None
    reads: tuple[str, ...] = ()
    """Further columns that ``rewrite`` needs."""
    rewrite: Callable[[Row], Row] | None = None


def multiple_choice(row: Row) -> Row:
    """Rewrite an MMLU row with the prompt as question, and the right letter and choice as answer."""
    choices = row.get("choices")
    answer = row.get("answer")
    subject = row.text("subject").replace("_", " ")
    if not isinstance(choices, list) or not 0 < len(choices) <= len(string.ascii_uppercase):
        raise row.error("the field 'choices' must be a list of texts")
    prompt = f"Pick the one right choice for this question about {subject}.\n{row.text('question')}\n"
    for letter, choice in zip(string.ascii_uppercase, choices, strict=False):
        prompt += f"{letter}. {choice}\n"
    prompt += "Answer:"
    gold = None
    if isinstance(answer, int) and 0 <= answer < len(choices):
        gold = [string.ascii_uppercase[answer], str(choices[answer])]
    return row._replace(fields={**row.fields, "question": prompt, "answer": gold, "subject": subject})


HUB_SETS: dict[str, HubSet] = {
    "natural_questions": HubSet(
        "google-research-datasets/natural_questions", "dev", "validation", Columns("question.text")
    ),
    "trivia_qa": HubSet("mandarjoshi/trivia_qa", "rc", "test", Columns("question", "answer")),
    "simpleqa": HubSet("basicv8vc/SimpleQA", None, "test", Columns("problem", "answer")),
    "mmlu": HubSet(
        "cais/mmlu", "all", "test", Columns("question", "answer", "subject"), ("choices",), multiple_choice
    ),
    "truthful_qa": HubSet(
        "truthfulqa/truthful_qa", "generation", "validation", Columns("question", "best_answer", "category")
    ),
}


def find_hub_set(source: str) -> HubSet | None:
    """Find the set for a name or alias in :data:`HUB_SETS`, or for ``hf:NAME``.

    NAME may also be a local directory.
    """
    name = source.removeprefix("hf:")
    for alias, hub_set in HUB_SETS.items():
        if name in (alias, hub_set.name):
            return hub_set
    if not source.startswith("hf:"):
        return None
    if not name:
        raise DataError("'hf:' needs the name of a data set after it, as in 'hf:rajpurkar/squad'")
    return HubSet(name)


def load_hub(name: str, subset: str | None, split: str | None) -> Any:
    """Load a ``datasets.Dataset``, downloaded once and memory-mapped.

    ``split`` may be None for a set that has only one.

    Raises:
        DataError: the hub or the network fails, or the set, subset or split does not exist.
        MissingExtraError: ``datasets`` is not installed.
    """
    try:
        import datasets
        from huggingface_hub.errors import HTTPError
    except ImportError:
        raise MissingExtraError("loading questions from the Hugging Face hub", "datasets") from None
    is_reachable = Path(name).is_dir() or hub_answers()
    try:
        # without a network the libraries would try for half a minute before they look at the cache
        with nullcontext() if is_reachable else datasets_offline():
            if split is None:
                splits = datasets.get_dataset_split_names(name, subset)
                if len(splits) != 1:
                    names = ", ".join(map(excerpt, splits))
                    raise DataError(
                        f"the data set {excerpt(name)} has the splits {names}; choose one with split"
                    )
                [split] = splits
            return datasets.load_dataset(name, subset, split=split)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError, HTTPError) as error:
        reason = f"{excerpt(str(error), 200)}. Check these names"
        if not is_reachable:
            reason = (
                "the hub cannot be reached, or HF_HUB_OFFLINE is set, and it was not found in the cache "
                f"({excerpt(str(error), 200)}). Check the network, or name a copy on this disk: the "
                "directory as hf:PATH, or a file of questions"
            )
        raise DataError(
            f"the data set {excerpt(name)} (subset {excerpt(subset or 'default')}, split "
            f"{excerpt(split or 'the only one')}) could not be loaded: {reason}."
        ) from None


def rows_with_values(dataset: Any, columns: Iterable[str]) -> set[int]:
    """Find rows of a ``datasets.Dataset`` with a value in any of the columns. Pictures are not decoded."""
    rows = set()
    for column in columns:
        tables = dataset.select_columns([column]).with_format("arrow").iter(batch_size=100)
        values = chain.from_iterable(table[column] for table in tables)
        rows |= {index for index, value in enumerate(values) if _holds_something(value)}
    return rows


def _holds_something(value: Any) -> bool:
    """Check whether an Arrow scalar is neither null nor empty."""
    # Arrow knows the length of a list without converting it, but not that of a text
    is_sized = hasattr(type(value), "__len__")
    return bool(value.is_valid and (len(value) if is_sized else value.as_py()))


def revision_of(dataset: Any) -> str:
    """Find the hub commit in a data set's file URLs; empty if ambiguous."""
    commits: set[str] = set()
    for url in dataset.info.download_checksums or ():
        commits.update(re.findall(r"@([0-9a-f]{40})/", url))
    return commits.pop() if len(commits) == 1 else ""
