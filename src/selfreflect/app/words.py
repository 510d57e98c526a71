"""Say an error in words of the page: one sentence with what to do there, and the rest as details.

Most messages are written for commands, and name flags that nobody can give on a page.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z'\"])")
_FLAG = re.compile(r"(?<![\w-])--[a-z]|\bselfreflect [a-z]+ --|Run the same command|run the same command")
_LONGEST = 240
"""Characters of the first sentence, from which on it is cut at a colon."""

_MAX_MESSAGE = 4000
"""Characters of a message that are read. A run directory from elsewhere may hold one of any length, and the
time of the rules grows with its square."""

_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.DOTALL), text)
    for pattern, text in (
        (
            r"could not load the model in (?P<name>'[^']*'|\"[^\"]*\"): (?P<rest>.*)",
            "Could not load the model in {name}. Check the files in this directory.",
        ),
        (
            r"could not load the model (?P<name>'[^']*'|\"[^\"]*\"): (?P<rest>.*)",
            "Could not load the model {name}. Check its name, and whether it is on this machine or the "
            "network.",
        ),
        (
            r"(?:--judge: )?(?P<name>'[^']*'|\"[^\"]*\") cannot be a judge[:,] (?P<rest>.*?)"
            r"(?: Name vllm.*)?",
            "{name} cannot be a judge. Choose smollm2, or a model that runs on this machine.",
        ),
        (
            r"(?P<name>'[^']*') needs a key\. (?P<advice>.*?), or name another server.*(?P<rest>)",
            "{name} needs a key. {advice}, and start the app again.",
        ),
        (
            r"(?P<url>https?://\S+): the server does not accept the key \(HTTP \d+\)(?P<rest>.*?)"
            r"\. (?P<advice>(?:Set|OPENAI)[^.]*?)\.?(?: Nothing.*| \d.*)?",
            "{url} does not accept the key. {advice}, and start the app again.",
        ),
        (
            r"(?P<url>https?://\S+): the server knows no such model or path \(HTTP 404\)(?P<rest>.*?)"
            r"(?:\. Check base_url.*)?",
            "{url} knows no such model. Check its name, or start the app with another --base-url, "
            "which usually ends in /v1.",
        ),
        (
            r"(?P<url>https?://\S+): (?P<what>the connection failed: .*?) \(\d+ tries\)\..*?"
            r"base_url\.?(?P<rest>.*)",
            "{url}: {what}. Start that server, or start the app with another --base-url.",
        ),
        (
            r"(?P<url>https?://\S+): the response is not JSON; (?P<rest>its type.*)",
            "{url} does not answer as an API. Start the app with another --base-url, which usually ends "
            "in /v1.",
        ),
        (
            r"(?P<url>https?://\S+): the server points to another address(?P<rest>.*)",
            "{url} points to another address. Start the app with that as --base-url.",
        ),
        (
            r"(?P<url>https?://\S+): (?P<what>[^:']*HTTP \d+[^:']*): (?P<rest>.*)",
            "{url}: {what}. The server refused the request.",
        ),
        (
            r"(?P<name>'[^']*') brings its own code.*(?P<rest>)",
            "{name} brings its own code, which the app does not run. Choose another model.",
        ),
        (
            r"(?P<what>device '[^']*': .*?)\. Use --device cpu.*(?P<rest>)",
            "{what}. Start the app with --device cpu.",
        ),
        (
            r"the token limit was reached before there was a summary(?P<rest>.*)",
            "The limit of tokens was reached before there was a summary. Ask again with more summary tokens.",
        ),
    )
)
"""What an error looks like, and how the page says it; ``rest`` becomes details."""


CUT_OFF = "The limit of tokens cut this summary off. Ask again with more summary tokens."


class Words(NamedTuple):
    message: str
    details: str = ""


def in_app_words(text: str) -> Words:
    """Split an error's message into a sentence for the page and details, without advice on flags."""
    text = text.strip()
    if len(text) > _MAX_MESSAGE:
        text = f"{text[: _MAX_MESSAGE - 1]}…"
    text = text.replace(" (see --timeout)", "")
    for pattern, sentence in _RULES:
        match = pattern.fullmatch(text)
        if match:
            groups = {name: value or "" for name, value in match.groupdict().items()}
            return Words(sentence.format(**groups), without_flags(groups["rest"].lstrip(".,:; ")))
    first, _, rest = _split(without_flags(text) or text)  # a reason that names flags is better than none
    return Words(first or "This did not work.", rest)


def _split(text: str) -> tuple[str, str, str]:
    """The first sentence, or its part before a colon if it is long; what follows is details."""
    parts = _SENTENCE.split(text, maxsplit=1)
    if len(parts) == 2 and (len(text) > _LONGEST):
        return parts[0], " ", parts[1]
    if len(text) > _LONGEST and ": " in text[20:_LONGEST]:
        cut = 20 + text[20:_LONGEST].rindex(": ")
        return text[:cut] + ".", " ", text[cut + 2 :]
    return text, "", ""


def without_flags(text: str) -> str:
    """Leave out sentences, and parts of them behind a semicolon, that advise on a command."""
    sentences = []
    for sentence in _SENTENCE.split(text):
        if "tart the app" in sentence:
            sentences.append(sentence)
            continue
        clauses = [clause for clause in sentence.split("; ") if not _FLAG.search(clause)]
        if clauses:
            whole = "; ".join(clauses)
            sentences.append(
                whole
                if whole.endswith((".", "!", "?", "…", "'")) or not sentence.endswith(".")
                else f"{whole}."
            )
    return " ".join(sentences)
