"""Alignment of lists of objects, independent of the objects' positions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from selfreflect.errors import optional
from selfreflect.grouping import normal_form
from selfreflect.stats import Floats
from selfreflect.uncertainty.fields.values import Node, scalar, setting, signature

Objects = list[dict[str, Any]]

IDENTIFIERS = ("id", "name", "key")
"""Keys that identify an object, if unique."""
MOST_MATCHED = 300
"""Maximum number of a list's objects that are matched by content, since answers determine how many there
are."""
# Distinct lists that are compared to find the one that is closest to all, fewer where they are long.
_MOST_CANDIDATES = 32
_MOST_OBJECTS = 2000

Members = list[set[str]]
"""Members of each object of a list."""


def align(lists: Sequence[Objects | None], node: Node, samples: int) -> list[dict[str, Any] | None] | None:
    """Give each object a name shared by the matching objects of other lists.

    That is the value of the key that identifies it: the one which the schema names as ``x-selfreflect:
    {"key": …}``, else ``id``, ``name`` or ``key``, if no list lacks or repeats it. Otherwise objects are
    matched with those of the list that agrees best with all others, so that most of their members are equal.

    Args:
        lists: None for samples without one.
        samples: how many of ``lists`` come first that may be the list all others are matched with.

    Returns:
        The objects of each list by name; None if they have to be matched, and are more than ``MOST_MATCHED``.

    Raises:
        MissingExtraError: objects have to be matched, without the ``fields`` extra.
    """
    declared = setting(node, "key")
    for name in (declared,) if isinstance(declared, str) else IDENTIFIERS:
        texts: dict[str, str] = {}
        mappings = [None if objects is None else _by_identifier(objects, name, texts) for objects in lists]
        # an identifier must be there, and be unique, in every list that exists
        if all(
            mapping is not None or objects is None for mapping, objects in zip(mappings, lists, strict=True)
        ):
            return mappings
    if max((len(objects) for objects in lists if objects), default=0) > MOST_MATCHED:
        return None
    return _matched(lists, samples)


def _by_identifier(objects: Objects, name: str, texts: dict[str, str]) -> dict[str, Any] | None:
    """Name objects by a key; None if it is missing or not unique.

    Args:
        texts: the first spelling of each key, for all lists: they may write "Ann" and "ann", or 1 and "1".
    """
    mapping = {}
    for item in objects:
        if name not in item or isinstance(item[name], dict | list):
            return None
        value = item[name]
        text = value if isinstance(value, str) else scalar(value, {}).text
        # the first spelling, so that 1 and "1" name one object
        spelling = texts.setdefault(normal_form(text) or text, text)
        mapping[f"{name}={spelling}"] = item
    return mapping if len(mapping) == len(objects) else None


def _matched(lists: Sequence[Objects | None], samples: int) -> list[dict[str, Any] | None]:
    # samples first: a right answer must not decide how answers are named
    present = [objects for objects in lists[:samples] if objects] or [objects for objects in lists if objects]
    if not present:
        return [None if objects is None else {} for objects in lists]
    # sorted, so that names do not depend on the order in a sample
    reference = sorted(_closest_to_all(present), key=signature)
    members = list(map(_members, reference))
    mappings: list[dict[str, Any] | None] = []
    for objects in lists:
        if objects is None:
            mappings.append(None)
            continue
        mapping = {}
        objects_members = list(map(_members, objects))
        pairs = dict(_pairs(_similarities(objects_members, members)))
        for index, item in enumerate(objects):
            if index not in pairs:  # it is new; later lists may hold it, too
                pairs[index] = len(members)
                members.append(objects_members[index])
            mapping[str(pairs[index])] = item
        mappings.append(mapping)
    return mappings


def _closest_to_all(lists: Sequence[Objects]) -> Objects:
    """Find the list that agrees best with all others, the first among ties."""
    counts = Counter(tuple(sorted(map(signature, objects))) for objects in lists)
    first_of = {tuple(sorted(map(signature, objects))): objects for objects in reversed(lists)}
    longest = max(map(len, lists))
    # each candidate is compared with all others, so their number is limited by their length
    candidates = counts.most_common(max(2, min(_MOST_CANDIDATES, _MOST_OBJECTS // longest)))
    members = {key: list(map(_members, first_of[key])) for key, _ in candidates}
    scores = [
        sum(count * _agreement(members[key], members[candidate]) for candidate, count in candidates)
        for key, _ in candidates
    ]
    return first_of[candidates[int(np.argmax(scores))][0]]


def _agreement(objects: Members, reference: Members) -> float:
    similarities = _similarities(objects, reference)
    return float(sum(similarities[pair] for pair in _pairs(similarities)))


def _pairs(similarities: Floats) -> list[tuple[int, int]]:
    """Match objects to a reference's objects, maximising common members.

    Args:
        similarities: of each object to each of the reference, shape (objects, reference).
    """
    with optional("Matching the objects of lists", "fields"):
        from scipy.optimize import linear_sum_assignment
    rows, columns = linear_sum_assignment(similarities, maximize=True)
    return [
        (row, column)
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
        # objects that share nothing are not the same, though the assignment pairs them
        if similarities[row, column]
    ]


def _similarities(objects: Members, reference: Members) -> Floats:
    """Compute the share of common members of two objects; shape (objects, reference)."""
    columns: dict[str, list[int]] = {}
    for column, others in enumerate(reference):
        for member in others:
            columns.setdefault(member, []).append(column)
    common = np.zeros((len(objects), len(reference)))
    for row, members in enumerate(objects):
        for member in members:
            common[row, columns.get(member, [])] += 1
    sizes = [np.array([len(members) for members in side], dtype=np.float64) for side in (objects, reference)]
    shares: Floats = common / np.maximum(1, sizes[0][:, None] + sizes[1] - common)
    return shares


def _members(item: dict[str, Any]) -> set[str]:
    return {f"{key!r}: {signature(value)}" for key, value in item.items()}
