"""Make untrusted text safe to show in a terminal, in Markdown, or in a spreadsheet cell."""

from __future__ import annotations

import json
import re
import unicodedata

# zero-width joiners and non-joiners are part of ordinary spelling and of emoji
_KEPT = {"\n", "\t", "\u200c", "\u200d"}

# An underscore between letters or digits is never emphasis, and names like chain_of_thought should stay
# readable.
_MARKDOWN = re.compile(r"[\\`*\[\]|~$#]|(?<![^\W_])_|_(?![^\W_])|(?<=www)\.|:(?=//)", re.IGNORECASE)
_MARKDOWN_START = re.compile(r"\A(\d*)([+.)-])(?=[\s-]|\Z)")  # a list item or a rule
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})

_FORMULA = re.compile(r"\A(?=[\t\r\n])|(?:\A|(?<=[;\t\r\n]))(?=(?:[^\S\t\r\n]|\")*[=+\-@＝＋－＠])")
"""Where a cell of a spreadsheet begins that would run: at the start of the text, and after a semicolon or
tab, at which some spreadsheets cut a line. They read quotation marks otherwise, too: a line feed between ours
begins a row, and a quotation mark in the text may open a cell. Of several such places in a row the last one
will do, so that a search takes time in proportion to the text."""


def printable(text: str) -> str:
    """Escape, as in ``\\x1b``, everything that could control a terminal or hide from the reader.

    These are control characters (hence ANSI sequences), bidirectional overrides and other invisible format
    characters, and lone surrogates, which cannot be encoded. Line ends and tabs stay; ``\\r\\n`` becomes
    ``\\n``.
    """
    if text.isprintable():
        return text
    return "".join(map(_visible, text.replace("\r\n", "\n")))


def printable_json(line: str) -> str:
    """Escape in a line of JSON what :func:`printable` escapes, as JSON does, so that its values stay."""
    if line.isprintable():
        return line
    return "".join(one if printable(one) == one else json.dumps(one)[1:-1] for one in line)


def one_line(text: str, limit: int | None = None) -> str:
    """Make text :func:`printable`, collapse whitespace to single spaces, and cut it at ``limit``."""
    line = " ".join(printable(text).split())
    if limit is not None and len(line) > limit:
        return line[: limit - 1] + "…"
    return line


def markdown_text(text: str) -> str:
    """Escape text so that Markdown (CommonMark with GitHub's tables) shows it literally, with ``<br>`` for
    line ends.

    The result is safe in a table cell, and at the start of a paragraph or list item.
    """
    escaped = _MARKDOWN.sub(r"\\\g<0>", printable(text).strip().translate(_ENTITIES))
    return _MARKDOWN_START.sub(r"\1\\\2", escaped).replace("\n", "<br>").replace("\t", " ")


def spreadsheet_text(text: str) -> str:
    """Make text :func:`printable`, with an apostrophe before what a spreadsheet would run as a formula."""
    return printable(_FORMULA.sub("'", text))


def _visible(character: str) -> str:
    if character.isprintable() or character in _KEPT or unicodedata.category(character) == "Zs":
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"
