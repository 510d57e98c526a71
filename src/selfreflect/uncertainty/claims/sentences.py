"""Sentences of a text, with their positions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r"^[ \t]*(```|~~~)(.*)$", re.MULTILINE)
_BULLET = re.compile(r"[ \t]*(?:(?:[-*+•–>]|\(?\d{1,3}[.)]|\(?[A-Za-z]\)|\[[ xX]\]|#{1,6})[ \t]+)+")
# what begins a row of a table, with the cell that numbers it
_ROW = re.compile(r"[ \t]*\|(?:[ \t]*\d{1,3}[.)]?[ \t]*\|)?")
_RULER = re.compile(r"\|?(?:[ \t]*:?-+:?[ \t]*\|)+(?:[ \t]*:?-+:?)?")
"""Line between a table's head, which makes no claim, and its rows."""
# a mark that ends a sentence, what closes with it, and the white space in front of the next one
_END = re.compile(
    r"(?:(?<![.!?…])[.!?…]+[\"'”’“»«)\]*_]*\s+(?=[\"'“‘«(\[*_¿¡]*[^\W_a-zß-öø-ÿ])|[。！？؟۔।]+[」』”»]*\s*)"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:[A-ZÄÖÜ]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Gen|Col|Lt|Sgt|Capt|Rev|Hon|Gov|Sen|Rep|Mt|Ft|No|Nr|vs|etc|ca|cf|approx|"
    r"Inc|Ltd|Co|Corp|Bros|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|z\.B|d\.h|u\.a|usw|bzw|Hr|Fr|e\.g|i\.e|a\.m|p\.m|Ph\.D|U\.S"
    r")|\b[A-Z](?:\.[A-Z])+)\.\s+\Z"
)
_LONGEST_ABBREVIATION = 20
"""Number of characters before a mark in which to search for an abbreviation."""
_FIRST_OF_TWO = re.compile(r"\b[zduosi]\.\s+\Z")
_SECOND_OF_TWO = re.compile(r"(?:B|h|a|U|Ä|ä|o|E)\.")
"""The second letter of ``z. B.``, ``d. h.`` or ``u. a.``, after the first."""
_OF_NUMBER = re.compile(
    r"\b(?:c|pp?|fig|tab|eq|sec|ch|vol|art|abb|abs|bd|kap|ziff|s|v)\.\s+\Z", re.IGNORECASE
)
"""Abbreviations that come before a number, as in ``Fig. 3``, ``c. 1500`` or ``S. 5``."""
_ORDINAL = re.compile(r"(?<!\d)\d{1,2}\.\s+\Z")
_MONTH = re.compile(
    r"(?:Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember)\b"
)
_CLOSES = {"etc.", "usw.", "a.m.", "p.m.", "Inc.", "Ltd.", "Co.", "Corp."}
"""Abbreviations that often also end a sentence."""


class Sentence(NamedTuple):
    """A sentence or similar part of a text."""

    text: str
    start: int
    end: int
    """End of the sentence, with ``whole[start:end]`` as ``text``."""


def sentences(text: str) -> list[Sentence]:
    """List the sentences of a text, with list items and code blocks as separate sentences.

    Headings and lines that only announce what follows (``The towns are:``) say nothing and are left out.
    """
    result: list[Sentence] = []
    position = 0
    for start, end in _blocks(text):
        result += _of_lines(text, position, start)
        result.append(Sentence(text[start:end], start, end))
        position = end
    return [*result, *_of_lines(text, position, len(text))]


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Find code blocks, from an opening fence to the next lone fence."""
    fences = list(_FENCE.finditer(text))
    closing: dict[str, int] = {}
    ends: list[int | None] = []
    # backwards, so that a text of nothing but opening fences takes linear time
    for index in range(len(fences) - 1, -1, -1):
        ends.append(closing.get(fences[index][1]))
        if not fences[index][2].strip():
            closing[fences[index][1]] = index
    ends.reverse()
    first = 0
    for index, last in enumerate(ends):
        if index >= first and last is not None:
            yield fences[index].start(), fences[last].end(1)
            first = last + 1


def _of_lines(text: str, start: int, end: int) -> Iterator[Sentence]:
    position = start
    lines = text[start:end].splitlines(keepends=True)
    rulers = [_RULER.fullmatch(line.strip()) is not None for line in lines]
    for number, line in enumerate(lines):
        stripped = line.strip()
        bullet, row = _BULLET.match(line), _ROW.match(line)
        is_heading = stripped.startswith("#") or (stripped.startswith("**") and stripped.endswith("**"))
        if row is not None:
            if not any(rulers[number : number + 2]):
                last = len(line.rstrip()) - line.rstrip().endswith("|")
                split = _trimmed if "|" in line[row.end() : last] else _in_line
                # a row of several cells is one claim; a single cell may hold several sentences
                yield from split(text, position + row.end(), position + max(last, row.end()))
        elif not is_heading and not stripped.endswith((":", ":**")):
            yield from _in_line(text, position + (bullet.end() if bullet else 0), position + len(line))
        position += len(line)


def _in_line(text: str, start: int, end: int) -> Iterator[Sentence]:
    begin = start
    for mark in _END.finditer(text, start, end):
        before = text[max(begin, mark.start() - _LONGEST_ABBREVIATION) : mark.end()]
        last = before.split()[-1] if before.split() else ""
        if _ABBREVIATION.search(before) and last not in _CLOSES:
            continue
        if _FIRST_OF_TWO.search(before) and _SECOND_OF_TWO.match(text, mark.end()):
            continue
        if _OF_NUMBER.search(before) and text[mark.end() : mark.end() + 1].isdigit():
            continue
        # German dates: "3. Oktober"
        if _ORDINAL.search(before) and _MONTH.match(text, mark.end()):
            continue
        yield from _trimmed(text, begin, mark.end())
        begin = mark.end()
    yield from _trimmed(text, begin, end)


def _trimmed(text: str, start: int, end: int) -> Iterator[Sentence]:
    part = text[start:end]
    begin = start + len(part) - len(part.lstrip())
    stop = begin + len(part.strip())
    # a part without a letter or digit, such as a ruler, says nothing
    if any(character.isalnum() for character in text[begin:stop]):
        yield Sentence(text[begin:stop], begin, stop)
