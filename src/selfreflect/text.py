"""String helpers: wording of messages and prompts, escaping of untrusted text, and short forms of records."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

PLACEHOLDER = re.compile(r"\{(\w+)\}")

# json.dumps leaves these alone, but some readers take them for line ends, and lone surrogates cannot be
# encoded for a tokenizer.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*@")

# zero-width joiners and non-joiners are part of ordinary spelling and of emoji
_KEPT = {"\n", "\t", "\u200c", "\u200d"}

# An underscore between letters or digits is never emphasis, and names like chain_of_thought should stay
# readable.
_MARKDOWN = re.compile(r"[\\`*\[\]|~$#]|(?<![^\W_])_|_(?![^\W_])|(?<=www)\.|:(?=//)", re.IGNORECASE)
_MARKDOWN_START = re.compile(r"\A(\d*)([+.)-])(?=[\s-]|\Z)")  # a list item or a rule
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})

# Where a cell of a spreadsheet begins that would run: at the start of the text, and after a
# semicolon or tab, at which some spreadsheets cut a line. They read quotation marks otherwise,
# too: a line feed between ours begins a row, and a quotation mark in the text may open a cell. Of
# several such places in a row the last one will do, so that a search takes time in proportion to
# the text.
_FORMULA = re.compile(r"\A(?=[\t\r\n])|(?:\A|(?<=[;\t\r\n]))(?=(?:[^\S\t\r\n]|\")*[=+\-@＝＋－＠])")

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Characters of scripts without spaces between words, for regular expressions: Chinese, Japanese, Thai, Lao,
Khmer and Burmese."""

Fields = Iterable[tuple[str, object]]

# Characters of a field that a Python session shows.
_FIELD_LENGTH = 60


def normalise_question(text: str) -> str:
    """Format a question for a model or judge, as ``Question: …?``."""
    if not text.startswith("Question: "):
        text = "Question: " + text
    text = text.removesuffix("\n")
    if not text.endswith("?"):
        text += "?"
    return text


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replace each ``{name}`` that has a value, in one pass, so that braces in values stay literal."""
    return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), template)


def fenced(text: str) -> str:
    """Put a text between two lines of quotes that it cannot close.

    They are at least three, and more than follow each other in the text.
    """
    longest = max(map(len, re.findall('"+', text)), default=0)
    fence = '"' * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def quoted(text: str) -> str:
    """Quote a text as JSON on one line, so that it cannot pose as a prompt."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))


def numbered(answers: Sequence[str]) -> str:
    """List answers as numbered JSON strings, one per line, so that none can pose as several."""
    return "\n".join(f"{number}. {quoted(answer)}" for number, answer in enumerate(answers, start=1))


def answer_list(answers: Sequence[str]) -> str:
    """List answers as the published scorer does, one line ``x_1 = '…'`` each, unescaped."""
    return "\n".join(f"x_{number} = '{answer}'" for number, answer in enumerate(answers, start=1))


def counted(count: int, noun: str) -> str:
    """Write a count with its noun, as ``1 summary`` or ``2 summaries``."""
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {plural}"


def name_list(text: str) -> list[str]:
    """Split a list of names such as ``a,b``, ignoring blank names."""
    return list(filter(None, map(str.strip, text.split(","))))


def percent(share: float, digits: int = 0) -> str:
    """Format a share as ``56 %``, with ``digits`` decimals."""
    # z: without the minus sign of a value that rounds to 0
    return f"{100 * share:z.{digits}f} %"


def exact_percent(share: float) -> str:
    """Format a user's share without rounding, as ``12.5 %`` for 0.125."""
    # 12 digits hide that 100 * 0.07 is 7.000000000000001
    return f"{100 * share:.12g} %"


def listed(names: Sequence[str], word: str = "and") -> str:
    """Join names, as ``a, b and c``."""
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def without_credentials(text: str) -> str:
    """Replace credentials in every URL of ``text`` with ``***``."""
    return _CREDENTIALS.sub("***@", text)


def common_prefix(a: Sequence[object], b: Sequence[object]) -> int:
    """Measure the longest common prefix of two strings or token sequences.

    For more than two, compare only the smallest and the greatest.
    """
    shorter = min(len(a), len(b))
    if a[:shorter] == b[:shorter]:  # one fast comparison; only where it fails is the place looked for
        return shorter
    for index in range(shorter):
        if a[index] != b[index]:
            return index
    return shorter


def printable(text: str) -> str:
    """Escape, as in ``\\x1b``, all characters that control a terminal or are invisible.

    These are control characters (hence ANSI sequences), bidirectional overrides and other invisible format
    characters, and lone surrogates, which cannot be encoded. Line ends and tabs stay; ``\\r\\n`` becomes
    ``\\n``.
    """
    if text.isprintable():
        return text
    return "".join(map(_visible, text.replace("\r\n", "\n")))


def printable_json(line: str) -> str:
    """Escape the characters of :func:`printable` in a line of JSON, preserving its values."""
    if line.isprintable():
        return line
    return "".join(
        character if printable(character) == character else json.dumps(character)[1:-1] for character in line
    )


def one_line(text: str, limit: int | None = None) -> str:
    """Make text :func:`printable` on one line, cut at ``limit``."""
    # split() also cuts at line ends, so that untrusted text cannot begin a row
    line = " ".join(printable(text).split())
    if limit is not None and len(line) > limit:
        return line[: limit - 1] + "…"
    return line


def cut_apart(names: Sequence[str], limit: int) -> list[str]:
    """Cut names as :func:`one_line`, but keep them distinct: a common beginning is cut if nothing else would
    remain."""
    lines = [one_line(name) for name in names]
    cuts = {line: one_line(line, limit) for line in lines}
    for cut in set(cuts.values()):
        alike = sorted(line for line in cuts if cuts[line] == cut)
        if len(alike) > 1:
            common = common_prefix(alike[0], alike[-1])
            start = alike[0].rfind(" ", 0, common) + 1
            if common - start > limit // 2:  # the difference has to be in sight
                start = common - limit // 2
            ends = cut_apart([line[start:] for line in alike], limit - 1)
            cuts |= {line: f"…{end.removeprefix('…')}" for line, end in zip(alike, ends, strict=True)}
    return [cuts[line] for line in lines]


def markdown_text(text: str) -> str:
    """Escape text so that Markdown shows it literally, with ``<br>`` for line ends.

    The result is safe in a table cell, and at the start of a paragraph or list item.
    """
    escaped = _MARKDOWN.sub(r"\\\g<0>", printable(text).strip().translate(_ENTITIES))
    return _MARKDOWN_START.sub(r"\1\\\2", escaped).replace("\n", "<br>").replace("\t", " ")


def spreadsheet_text(text: str) -> str:
    """Make text :func:`printable`, with an apostrophe before a spreadsheet formula."""
    return printable(_FORMULA.sub("'", text))


def _visible(character: str) -> str:
    # Zs: isprintable() is False for a no-break space
    if character.isprintable() or character in _KEPT or unicodedata.category(character) == "Zs":
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"


def one_liner(name: str, fields: Fields) -> str:
    """Write a record as ``Score(value=0.0954, stderr=0.0025)``, leaving out fields that are None."""
    parts = [f"{field}={_brief(value)}" for field, value in fields if value is not None]
    return f"{name}({', '.join(parts)})"


def _brief(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, str):
        return repr(one_line(value, _FIELD_LENGTH))
    if isinstance(value, tuple) and all(isinstance(number, float) for number in value):
        return f"({', '.join(f'{number:.4g}' for number in value)})"
    return one_line(str(value), _FIELD_LENGTH)


# Common in questions, and no words of other languages in Latin letters that are as common there.
_ENGLISH = frozenset(
    "the of and to are were what who whose how which when where why does did should would could can with "
    "for that this it you your my there has have".split()
)


def in_english(texts: Iterable[str]) -> bool:
    """Check whether most sentences contain an English function word; True without letters."""
    sentences = [set(re.findall(r"[^\W\d_]+", text.casefold())) for text in texts]
    sentences = list(filter(None, sentences))
    return 2 * sum(not _ENGLISH.isdisjoint(words) for words in sentences) >= len(sentences)


# Start of a path: a file URL, a home, a drive, a relative path with dots, the root, a Windows
# share, a drive's root.
_START = (
    r"(?:file:[/\\]+|~(?:[A-Za-z_][\w.-]{0,63})?[/\\]+|[A-Za-z]:[/\\]+"
    r"|\.{1,2}[/\\]+|/+|\\{2,}|\\(?=[\w.$-]+\\))"
)

_PART = r"[^\s/\\'\"`,:;()<>|]+"

# Matches a web address, which stays; a quoted path, whatever it contains; and a bare path. A path
# contains a blank only where another of its parts follows.
_PATH = re.compile(
    rf"(?P<url>\b(?!file:)[A-Za-z][A-Za-z0-9+.-]{{1,15}}://\S*)"
    rf"|(?<=(?P<quote>['\"])){_START}[^'\"\n]+(?=(?P=quote))"
    rf"|(?<![\w.<…/\\]){_START}(?:{_PART}(?: {_PART})*[/\\]+)*{_PART}[/\\]*"
)


def shorten_paths(text: str) -> str:
    """Shorten paths to ``…/name``, so that a text does not reveal where files are.

    A relative path without dots, such as ``runs/mine``, stays: it looks like the name of a model.
    """
    return _PATH.sub(_shorten, text)


def _shorten(match: re.Match[str]) -> str:
    if match["url"]:
        return match[0]
    # a message needs the name of a file, not its folder
    name = re.split(r"[/\\]", match[0].rstrip("/\\"))[-1]
    return f"…/{name}"
