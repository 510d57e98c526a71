"""Grouping of equal answers: exact match after normalising spelling and punctuation."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

_SYMMETRIC = "\"'*_"
_PAIRS = {"()", "[]", "{}", "「」", "『』", *(2 * mark for mark in _SYMMETRIC)}
_LEADING = "¿¡.,;:!?"
_TRAILING = ".,;:!?。、"
# (?=.): a bare "The" stays, or its form would be empty
_ARTICLE = re.compile(r"\A(?:an?|the) (?=.)")
_NESTING = 4  # quotes within brackets within emphasis; deeper nesting is no packaging of an answer

# before NFKC, which would tear some of these apart: an acute accent becomes a space and a combining mark
_TWINS = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛‹›ʼʹ′`´＇", "'"),
        **dict.fromkeys("“”„‟«»″＂", '"'),
        **dict.fromkeys("‐‑‒–—―−﹘﹣－", "-"),
        **{"\u2044": "/", "∕": "/", "・": "·", "٫": ".", "٬": ","},
        **dict.fromkeys(map(chr, range(0xFE00, 0xFE10)), ""),  # ❤ is one heart with and without a selector
    }
)
# U.S.A. and J. K. without their dots; a single letter such as "A." keeps its own
_INITIALS = re.compile(
    r"(?<![^\W_])(?:(?:[^\W\d_]\. ?){1,8}[^\W\d_]\.(?![^\W_])|(?:[^\W\d_]\.){2,8}[^\W\d_]\b)"
)
_MIDDLE_INITIAL = re.compile(r"(?<=[^\W\d_] )([^\W\d_])\.(?= )")
_SERIAL_COMMA = re.compile(r",(?= (?:and|or|und|oder|&) )")
_INNER_ARTICLE = re.compile(r"(?<= )the (?=.)")
_VULGAR = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")
_WAVE = re.compile(r"(?<=\d) ?[~〜] ?(?=\d)")
_TIMES_BETWEEN = re.compile(r"(?<=\d) ?× ?(?=\d)|(?<=[1-9]) x (?=\d)")


def group_indices(answers: Sequence[str]) -> list[list[int]]:
    """Group answers by :func:`normal_form`, as indices: largest group first, most common spelling first in
    each."""
    members = defaultdict(list)
    for index, answer in enumerate(answers):
        members[normal_form(answer)].append(index)
    return ordered_groups(answers, members.values())


def ordered_groups(answers: Sequence[str], groups: Iterable[Sequence[int]]) -> list[list[int]]:
    """Sort groups of indices into ``answers``: the largest first, equal sizes by their first answer.

    Within a group the answers with its most common spelling come first.
    """
    titled = []
    for group in groups:
        # sorted, because the order in which groups are found must not matter
        members = sorted(group)
        text = most_common(answers[index] for index in members)
        titled.append((members[0], sorted(members, key=lambda index: (answers[index] != text, index))))
    titled.sort(key=lambda pair: (-len(pair[1]), pair[0]))
    return [group for _, group in titled]


def merged_groups(
    answers: Sequence[str], groups: Iterable[Sequence[int]], merged: Iterable[Sequence[str]]
) -> list[list[int]]:
    """Merge groups of indices that contain texts of the same entry of ``merged``."""
    result = [list(group) for group in groups]
    for texts in merged:
        chosen = [group for group in result if any(answers[index] in texts for index in group)]
        result = [group for group in result if group not in chosen] + [list(chain.from_iterable(chosen))]
    return ordered_groups(answers, filter(None, result))


def spread(groups: Iterable[Sequence[int]]) -> float | None:
    """Compute the effective number of groups, 2 to the power of their entropy.

    It is the first-order diversity of Hill (1973), Ecology 54, 427-432. None without answers.
    """
    sizes = list(map(len, groups))
    total = sum(sizes)
    if not total:
        return None
    return math.exp(-math.fsum(size / total * math.log(size / total) for size in sizes))


def most_common(texts: Iterable[str]) -> str:
    """Return the most frequent text, the first one sampled among ties."""
    counts = Counter(texts)
    return max(counts, key=lambda text: counts[text])  # the first of equals


_SUPERSCRIPT = re.compile("[⁺⁻]?[⁰¹²³⁴-⁹]+")


def unified(text: str) -> str:
    """Normalise characters: NFKC, one kind of quote, dash and space, and no zero-width characters."""
    if not text.isascii():
        text = _SUPERSCRIPT.sub(r"^\g<0>", text)  # a power is no further digit
        text = _VULGAR.sub(" ", text)  # or 1½ would become 11/2
    plain = unicodedata.normalize("NFKC", text.translate(_TWINS)).translate(_TWINS)
    if not plain.isascii():
        # Cf: zero-width spaces and joiners, soft hyphens, marks of direction
        plain = "".join(character for character in plain if unicodedata.category(character) != "Cf")
    plain = " ".join(plain.split())
    return _WAVE.sub("-", plain) if "~" in plain or "〜" in plain else plain


_LONGEST_KEPT = 500
"""Maximum length in characters of a text whose form is cached, to save memory."""


def normal_form(text: str) -> str:
    """Normalise spelling and punctuation, so that equal answers have equal forms.

    Characters are :func:`unified`; case, an outer article, an inner *the*, surrounding quotes and
    punctuation, an unpaired quote at an end, dots of initials and the comma before *and* or *or* do not
    count. Other quotes, brackets and emphasis go only in pairs and signs stay, so that ``-5``, ``.5``,
    ``$5``, ``5%``, ``[0, 1)`` and ``6'`` keep their meaning. A text of nothing else, such as ``A`` or ``?``,
    stays too.
    """
    return _normal_form(text) if len(text) <= _LONGEST_KEPT else _normal_form.__wrapped__(text)


@lru_cache(maxsize=2**15)
def _normal_form(text: str) -> str:
    result = unified(text).casefold().replace("i\u0307", "i")  # of a Turkish capital
    if "×" in result or " x " in result:
        result = _TIMES_BETWEEN.sub("x", result)
    if "." in result:
        result = _INITIALS.sub(lambda match: re.sub("[. ]", "", match[0]), result)
        result = _MIDDLE_INITIAL.sub(r"\1", result)
    result = _INNER_ARTICLE.sub("", _SERIAL_COMMA.sub("", result))
    # "**(Paris.)**" has three layers
    for _ in range(_NESTING):
        result = _unwrap(result)
    return result


def _unwrap(text: str) -> str:
    """Remove one layer of wrapping: punctuation, then a pair of marks, then an article."""
    trimmed = text.rstrip(_TRAILING)
    inner = trimmed.lstrip(_LEADING)
    removed = trimmed[: len(trimmed) - len(inner)]
    # .5 is not 5
    if inner[:1].isdigit() and removed.endswith(".") and not removed.endswith(".."):
        inner = "." + inner
    # longer than 2, because () and "" hold nothing
    if len(inner) > 2 and inner[0] + inner[-1] in _PAIRS:
        inner = inner[1:-1].strip()
    elif len(inner) > 2 and inner.count('"') == 1 and not inner[-2].isdigit():  # 6" is a length
        inner = inner.strip('"')
    # marks alone, such as "?", are the answer
    return _ARTICLE.sub("", inner) or text
