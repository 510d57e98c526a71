"""Untrusted text made safe to show: in a terminal, in Markdown and in a spreadsheet cell."""

from __future__ import annotations

import re
import unicodedata

# the zero-width (non-)joiner is part of ordinary spelling and of emoji
_KEPT = {"\n", "\t", "\u200c", "\u200d"}

# An underscore between two letters or digits is never emphasis, and names like chain_of_thought should stay
# readable.
_MARKDOWN = re.compile(r"[\\`*\[\]|~$#]|(?<![^\W_])_|_(?![^\W_])|(?<=www)\.|:(?=//)", re.IGNORECASE)
_MARKDOWN_START = re.compile(r"\A(\d*)([+.)-])(?=[\s-]|\Z)")  # a list item or a rule
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})

_FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def printable(text: str) -> str:
    """``text`` with everything that could steer a terminal or hide from the reader shown as an escape such as
    ``\\x1b``.

    That covers control characters (so ANSI sequences), bidirectional overrides and other invisible format
    characters, and lone surrogates, which could not be encoded. Line ends and tabs stay; ``\\r\\n`` becomes
    ``\\n``.
    """
    if text.isprintable():
        return text
    return "".join(map(_visible, text.replace("\r\n", "\n")))


def one_line(text: str) -> str:
    """:func:`printable`, with every run of white space made one blank."""
    return " ".join(printable(text).split())


def markdown_text(text: str) -> str:
    """``text`` escaped so that Markdown (CommonMark with GitHub's tables) shows it as it is; line ends become
    ``<br>``.

    The result is safe inside a table cell, and at the start of a paragraph or list item.
    """
    escaped = _MARKDOWN.sub(r"\\\g<0>", printable(text).strip().translate(_ENTITIES))
    return _MARKDOWN_START.sub(r"\1\\\2", escaped).replace("\n", "<br>").replace("\t", " ")


def spreadsheet_text(text: str) -> str:
    """:func:`printable`, with a leading apostrophe where a spreadsheet would run ``text`` as a formula."""
    guarded = text[:1] in ("\t", "\r", "\n") or text.lstrip()[:1] in _FORMULA_STARTS
    return ("'" if guarded else "") + printable(text)


def _visible(character: str) -> str:
    if character.isprintable() or character in _KEPT or unicodedata.category(character) == "Zs":
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
