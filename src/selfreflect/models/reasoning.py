"""Removal of reasoning traces from responses, in any of the usual tags."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class UnclosedReasoningError(ValueError):
    """A trace that never ends, so that the visible text is unknown."""


class Split(NamedTuple):
    visible: str
    """The text after the trace, without surrounding white space."""
    closes_prompted: bool
    """Whether the text ends a reasoning trace that the prompt began."""


_SPEAKER = r"(?:<\|start\|>assistant[^<>]*)?"
_HEADER_END = r"[^<>]*(?:<\|constrain\|>[^<>]*)?<\|message\|>"

_XML_NAMES = "think thinking thought thoughts reasoning reflection scratchpad seed:think".split()

# One row for each way to write a trace: patterns for its opening and its closing tag, without groups that
# capture. No two repeats in a pattern can match the same text, which keeps the search linear.
TRACES: dict[str, tuple[str, str]] = {
    **{name: (rf"<{name}(?:\s[^<>]*)?(?<!/)>", rf"</{name}\s*>") for name in _XML_NAMES},
    "magistral": (r"\[THINK\]", r"\[/THINK\]"),
    "cohere": (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    "open thoughts": (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    "kimi": (r"◁think▷", r"◁/think▷"),
    "gemma": (r"<\|channel>thought", r"<channel\|>"),
    # A harmony trace may span several messages. Only the header of the final one ends it: <|end|> alone is
    # also how Phi ends a turn.
    "harmony": (
        rf"{_SPEAKER}<\|channel\|>(?:analysis|commentary){_HEADER_END}",
        rf"(?:<\|end\|>\s*)?{_SPEAKER}<\|channel\|>final{_HEADER_END}",
    ),
    # what servers leave of it that drop special tokens
    "harmony's words": (r"(?-i:\banalysis(?=[A-Z]))", r"(?-i:assistantfinal)"),
}

# What models put around the visible text when it follows a trace.
WRAPPERS: tuple[tuple[str, str], ...] = (
    ("<answer>", "</answer>"),
    ("<response>", "</response>"),
    ("<output>", "</output>"),
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
    ("", "<|return|>"),
    ("", "<|end|>"),
)

# two groups for each row, so that the number of a group tells row and side
_EITHER = "|".join(f"({opening})|({closing})" for opening, closing in TRACES.values())
# The look-ahead passes over most of a text without trying every row.
_ANY_TAG = re.compile(rf"(?=[<\[◁]/?[|\w]|analysis|assistantfinal)(?:{_EITHER})", re.IGNORECASE)


# Tags that training taught models to put around their answer; in backquotes they are text.
_ANSWER_TAG = re.compile(r"(?<!`)<(/?)answer>", re.IGNORECASE)


class _Tag(NamedTuple):
    start: int
    end: int
    row: int
    opens: bool


def split_reasoning(text: str, in_trace: bool = False, *, unwrap: bool = True) -> Split:
    """Split a response into reasoning trace and visible text.

    A trace stands at the start of the text, opened there by a tag or by the prompt (``in_trace``, or a
    closing tag that no tag opened). More traces may follow it directly. Tags that only occur later, inside
    visible text, are part of that text.

    Args:
        unwrap: whether tags around the visible text, such as ``<answer>``, are taken off.

    Raises:
        UnclosedReasoningError: a trace was opened and never closed.
    """
    tags = _tags(text)
    end = 0  # of the traces so far
    index = 0  # of the first tag after them
    closes_prompted = False
    if not _leads(text, 0, tags, 0):
        closing = _end_of_prompted(tags, in_trace)
        if closing is not None:
            closes_prompted = True
            end, index = tags[closing].end, closing + 1
    # some models write several traces before the answer
    while _leads(text, end, tags, index):
        closing = _end_of_tagged(tags, index)
        end, index = tags[closing].end, closing + 1
    visible = text[end:].strip()
    return Split(_unwrap(visible) if end and unwrap else visible, closes_prompted)


def split_answer(text: str, in_trace: bool = False) -> Split:
    """Find the answer of a response: the text between ``<answer>`` tags, or all visible text.

    A tag may lack its partner: the prompt may have opened it, or the limit of tokens cut the other off.
    Raises UnclosedReasoningError as :func:`split_reasoning`.
    """
    split = split_reasoning(text, in_trace)
    return split._replace(visible=_in_answer_tags(split.visible))


def answer_in(text: str) -> str:
    """Find the answer of a stored response: the text itself without tags.

    Raises UnclosedReasoningError as :func:`split_reasoning`.
    """
    return split_answer(text).visible if _ANY_TAG.search(text) or _ANSWER_TAG.search(text) else text


_STREAMED = [
    (re.compile(rf"\s*{opening}", re.IGNORECASE), re.compile(closing, re.IGNORECASE))
    for opening, closing in TRACES.values()
]
_LONGEST_TAG = 80
"""Maximum length of a tag: a longer streamed text that begins like a tag is not one."""


class StreamedTrace:
    """Removal of leading traces from a streamed text."""

    def __init__(self) -> None:
        self.held = ""
        """Withheld text that may still belong to a trace."""
        self._closing: re.Pattern[str] | None = None
        self._is_past = False

    @property
    def is_open(self) -> bool:
        """Whether a trace has begun and not yet ended."""
        return self._closing is not None

    def take(self, piece: str) -> str:
        """Add a piece, and return the text that can be shown now."""
        if self._is_past:
            return piece
        self.held += piece
        # a tag may stand across two pieces
        start = max(0, len(self.held) - len(piece) - _LONGEST_TAG)
        while not self._is_past:
            if self._closing is None:
                tags = (closing for opening, closing in _STREAMED if opening.match(self.held))
                self._closing = next(tags, None)
                if self._closing is None and _may_open(self.held.lstrip()):
                    return ""
                self._is_past = self._closing is None
                continue
            end = self._closing.search(self.held, start)
            if end is None:
                return ""
            self.held, self._closing, start = self.held[end.end() :].lstrip(), None, 0
        shown, self.held = self.held, ""
        return shown


def _may_open(text: str) -> bool:
    """Check whether a text may become a tag that opens a trace."""
    is_begun = text[:1] in ("", "<", "[", "◁") or "analysis".startswith(text)
    return is_begun and len(text) < _LONGEST_TAG


def _in_answer_tags(text: str) -> str:
    tags = list(_ANSWER_TAG.finditer(text))
    if not tags:
        return text
    # A text may mention the tags before it uses them, so the last pair counts.
    end = max((tag.start() for tag in tags if tag[1]), default=len(text))
    start = max((tag.end() for tag in tags if not tag[1] and tag.end() <= end), default=0)
    return text[start:end].strip() or _ANSWER_TAG.sub("", text).strip()


def _tags(text: str) -> list[_Tag]:
    tags = []
    for match in _ANY_TAG.finditer(text):
        row, closes = divmod((match.lastindex or 0) - 1, 2)  # groups count from 1, two for each row
        tags.append(_Tag(*match.span(), row, not closes))
    return tags


def _leads(text: str, position: int, tags: Sequence[_Tag], index: int) -> bool:
    """Check whether ``tags[index]`` opens a trace after only white space from ``position``."""
    return index < len(tags) and tags[index].opens and not text[position : tags[index].start].strip()


def _end_of_prompted(tags: Sequence[_Tag], in_trace: bool) -> int | None:
    """Find the tag that closes the prompt's trace; None if there is no sign of such a trace."""
    depth: Counter[int] = Counter()
    for index, tag in enumerate(tags):
        # what closes without having been opened closes the prompt's trace
        if not tag.opens and not depth[tag.row]:
            return index
        depth[tag.row] += 1 if tag.opens else -1
    if not in_trace:
        return None
    # Every closing tag has an opening one, yet one of them must end the trace: some opening tag was only
    # mentioned in it.
    return _last_closing(tags, range(len(TRACES)), "the prompt")


def _end_of_tagged(tags: Sequence[_Tag], first: int) -> int:
    """Find the tag that closes the trace of ``tags[first]``, past nested traces."""
    row = tags[first].row
    depth = 0
    for index in range(first, len(tags)):
        if tags[index].row == row:
            depth += 1 if tags[index].opens else -1
            if not depth:
                return index
    # More tags open than close: the trace mentions its own opening tag, or has several messages.
    return _last_closing(tags[first:], (row,), f"a {list(TRACES)[row]!r} tag") + first


def _last_closing(tags: Sequence[_Tag], rows: Sequence[int], opener: str) -> int:
    for index in range(len(tags) - 1, -1, -1):
        if not tags[index].opens and tags[index].row in rows:
            return index
    raise UnclosedReasoningError(
        f"the reasoning trace opened by {opener} never ends; allow more new tokens or switch thinking off"
    )


def _unwrap(visible: str) -> str:
    for opening, closing in WRAPPERS:
        if visible[: len(opening)].lower() == opening.lower():
            visible = visible[len(opening) :]
            if visible[-len(closing) :].lower() == closing.lower():
                visible = visible[: -len(closing)]
            visible = visible.strip()
    return visible
