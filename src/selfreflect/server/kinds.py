"""Classification of requests by their words, to find questions worth sampling."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from selfreflect.text import UNSPACED

Kind = Literal["question", "small_talk", "code", "long_text", "rewrite", "ideas", "statement"]

READ = 4000
"""Number of characters at either end of a request that are read to classify it."""

LONGEST_ROW = 6
"""Number of words in the longest row of the tables."""

LONGEST_QUERY = 7
"""Maximum number of words in a search query phrased as a question."""

_SENTENCE = re.compile(r"[^.!?…。！？؟\n]*(?:[.!?…。！？؟]+(?=\s|$|[\"'”»)])|[。！？؟]|\n|$|[.!?…]+)")
_WORD = re.compile(r"[^\W_]+(?:[+#]+|\.js\b)?", re.UNICODE)
_ASKS = re.compile(r"[?？؟]")
_UNSPACED = re.compile(f"[{UNSPACED}]")
# As in "heyyy".
_DRAWN_OUT = re.compile(r"([^\W\d_])\1{2,}")
# The first two answers of a choice: "(a) … (b)", or lines that begin with "A." and "B."
_OPTIONS = [
    re.compile(rf"(?:^[^\S\n]*\(?{letter}[).:]|[\s(]{letter}\))(?:\s|\Z)", re.IGNORECASE | re.MULTILINE)
    for letter in "ab"
]
# Nothing but numbers and signs between them.
_SUM = re.compile(r"\s*[-(]*\d[\d\s.,()]*(?:[-+*/^×÷·%=:][\d\s.,()]*)+\s*")
# No part crosses a line or a second SELECT: a text of nothing else would take seconds.
_IS_CODE = re.compile(
    r"```|^[^\S\n]*(?:def|class|import|from|function|const|let|var|public|private|#include)\b.*[:;({>]"
    r"|=>|</(?:html|head|body|div|span|p|a|ul|li|table|tr|td|h\d|script|style|form|button|svg)>|\bSELECT\b(?:(?!\bSELECT\b).)+\bFROM\b|[;{][^\S\n]*$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class _Tables:
    """The rows of ``data/request_kinds.toml``, each as a tuple of words."""

    rows: dict[str, frozenset[tuple[str, ...]]]
    signs: tuple[str, ...]

    def begins(self, table: str, words: tuple[str, ...]) -> int:
        """Count the words of the longest row at the start of a sentence; 0 if there is none."""
        rows = self.rows[table]
        for count in range(min(LONGEST_ROW, len(words)), 0, -1):
            if words[:count] in rows:
                return count
        return 0

    def holds(self, table: str, words: tuple[str, ...]) -> bool:
        """Check whether any row occurs in a sentence."""
        return any(self.begins(table, words[start : start + LONGEST_ROW]) for start in range(len(words)))


@cache
def _tables() -> _Tables:
    text = (resources.files("selfreflect") / "data" / "request_kinds.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    rows = {name: frozenset(map(_words, value.split(";"))) - {()} for name, value in data.items()}
    return _Tables(rows, tuple(sign.strip() for sign in data["question_signs"].split(";")))


def _words(text: str) -> tuple[str, ...]:
    """Split a text into words, ignoring case, accents and apostrophes."""
    folded = unicodedata.normalize("NFKD", text.replace("'", "").replace("’", "").casefold())
    plain = "".join(letter for letter in folded if not unicodedata.combining(letter))
    # the second form joins the letters of Hangul again
    return tuple(_WORD.findall(_DRAWN_OUT.sub(r"\1", unicodedata.normalize("NFC", plain))))


def ends_of(text: str) -> str:
    """Shorten a long request to its beginning and end."""
    return text if len(text) <= 2 * READ else f"{text[:READ]}\n{text[-READ:]}"


def kind_of(text: str) -> Kind:
    """Classify a request; only a ``question`` is worth sampling.

    The order or question is its first sentence after greetings and courtesies, or else its last one. An order
    begins with a verb of a table; a question has a question mark, begins with a word that asks, or is a few
    words as for a search, with nothing else beside it.
    """
    tables = _tables()
    text = ends_of(text)
    if _SUM.fullmatch(text):
        return "question"
    sentences = [sentence for sentence in _sentences(text) if not _asks_nothing(tables, sentence)]
    if not sentences:
        return "small_talk" if _WORD.search(text) or not _asks(tables, text) else "question"
    # some sentences only say who should answer
    sentences = [
        sentence
        for sentence in sentences
        if not tables.begins("persona", _words(sentence)) or _asks(tables, sentence)
    ] or sentences
    for sentence in (sentences[0], sentences[-1]):
        kind = _kind_of_sentence(tables, sentence, text)
        if kind is not None:
            return kind
    if _IS_CODE.search(text):
        return "code"
    is_query = len(sentences) == 1 and _is_query(tables, sentences[0])
    has_options = all(option.search(text) for option in _OPTIONS)
    return "question" if is_query or has_options or _asks(tables, text) else "statement"


def _sentences(text: str) -> list[str]:
    """Split a text into sentences with at least one word."""
    return [match[0] for match in _SENTENCE.finditer(text) if _WORD.search(match[0])]


def _asks_nothing(tables: _Tables, sentence: str) -> bool:
    """Check whether a sentence is small talk or a heading such as "Task:"."""
    is_heading = sentence.rstrip().endswith(":") and not _asked(tables, _words(sentence))
    return is_heading or _is_small_talk(tables, sentence)


def _is_small_talk(tables: _Tables, sentence: str) -> bool:
    """Check whether a sentence is only a greeting or thanks, with at most one name."""
    words = _words(sentence)
    names = 1 if len(words) <= 3 and not _ASKS.search(sentence) else 0
    is_greeting = False
    while words:
        count = tables.begins("small_talk", words)
        is_greeting = is_greeting or count > 0
        count = count or tables.begins("fillers", words)
        if not count:
            names -= 1
        if names < 0:
            return False
        words = words[count or 1 :]
    return is_greeting


def _kind_of_sentence(tables: _Tables, sentence: str, text: str) -> Kind | None:
    """Classify an order or question; None for a statement."""
    words = _asked(tables, _words(sentence))
    if tables.begins("given", words) and "," in sentence:
        sentence = sentence.partition(",")[2]
        words = _asked(tables, _words(sentence))
    is_code = tables.holds("code_words", words) or _IS_CODE.search(text) is not None
    if is_code and (tables.begins("how_to", words) or tables.begins("code", words)):
        return "code"
    sizes: dict[Kind, int] = {
        kind: tables.begins(kind, words) for kind in ("question", "long_text", "rewrite", "ideas")
    }
    # the longest row decides: "name some" before "name"
    kind = max(sizes, key=lambda name: sizes[name])
    if sizes[kind] and kind != "question":
        return "code" if is_code else kind
    if sizes[kind] or _asks(tables, sentence):
        return "code" if _IS_CODE.search(text) else "question"
    return None


def _is_query(tables: _Tables, sentence: str) -> bool:
    """Check whether a sentence looks like a search query, such as "capital of Oz"."""
    words = _words(sentence)
    is_open = sentence.rstrip()[-1:] not in ".!…。！"
    # one word says nothing of what is asked, but where words are not apart
    is_open = is_open and (len(words) > 1 or _UNSPACED.search(sentence) is not None)
    # thanks for something are none
    is_open = is_open and tables.begins("small_talk", words) < 2
    return is_open and len(words) <= LONGEST_QUERY and not tables.begins("statement", words)


def _asked(tables: _Tables, words: tuple[str, ...]) -> tuple[str, ...]:
    """Remove leading courtesies, greetings and headings."""
    while True:
        count = tables.begins("courtesies", words)
        longer = max(tables.begins(table, words) for table in ("question", "long_text", "rewrite", "ideas"))
        if not count or longer > count:
            return words
        words = words[count:]


def _asks(tables: _Tables, text: str) -> bool:
    return bool(_ASKS.search(text)) or any(sign in text for sign in tables.signs)
