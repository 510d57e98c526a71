"""Claims that a model splits and compares."""

from __future__ import annotations

import re
from collections.abc import Sequence

from selfreflect.models.base import Message
from selfreflect.store.journal import ModelReplies
from selfreflect.text import counted, fill, normalise_question, numbered, quoted
from selfreflect.uncertainty.asking.asker import Asker, Inquiry, parse_numbered, prompts, reply_text
from selfreflect.uncertainty.claims.sentences import sentences
from selfreflect.uncertainty.claims.support import Stance
from selfreflect.uncertainty.claims.words import WordReader
from selfreflect.uncertainty.question import NoValue

SPLIT, COMPARE = "claims", "claim_verdicts"
CLAIMS_AT_ONCE = 30
"""Claims of which a model is asked in one request."""
_TOKENS_PER_WORD = 4
_TOKENS_PER_VERDICT = 8
_LINE = re.compile(r"^\s*\(?(\d{1,3})[.:)]+\s*\W*(yes|contradicts|silent)\W*$", re.IGNORECASE)
_STANCES: dict[str, Stance] = {"yes": "says", "contradicts": "contradicts", "silent": "silent"}


class ModelReader(WordReader):
    """Asks a model for the claims of each text, and what each text does with all claims.

    That is one request to split a text and one for every ``CLAIMS_AT_ONCE`` claims to compare it. A text
    whose claims cannot be read is split into sentences; a claim without a clear verdict has none.
    """

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self.name = f"model {asker.model}"
        self._unread = 0

    @property
    def caveats(self) -> list[str]:
        if not self._unread:
            return []
        return [f"The claims of {counted(self._unread, 'text')} could not be read: each sentence is one."]

    def split(self, question: str, texts: Sequence[str]) -> list[list[str]]:
        """List the claims of each text.

        Raises:
            BackendError: the model has stopped working.
        """
        inquiries = [_split_inquiry(question, text) for text in texts]
        claims = []
        for text, reply in zip(texts, self._asker.ask(inquiries), strict=True):
            lines = _numbered_lines(reply)
            self._unread += lines is None
            # a reply that is no list leaves the sentences, and a caveat
            claims.append([sentence.text for sentence in sentences(text)] if lines is None else list(lines))
        return claims

    def split_summaries(self, question: str, texts: Sequence[str]) -> list[list[str]]:
        return self.split(question, texts)

    def stances(
        self, question: str, claims: Sequence[str], texts: Sequence[str]
    ) -> list[list[Stance | None]]:
        """Say what each text does with each claim, shape (texts, claims); None without a clear verdict.

        Raises:
            BackendError: the model has stopped working.
        """
        parts = _parts(claims)
        inquiries = [_compare_inquiry(question, text, part) for text in texts for part in parts]
        replies = iter(self._asker.ask(inquiries))
        return [
            [stance for part in parts for stance in read_stances(next(replies), len(part))] for _ in texts
        ]


def inquiries_about(question: str, answers: Sequence[str], summaries: Sequence[str] = ()) -> list[Inquiry]:
    """List the inquiries about answers and summaries if each sentence is a claim.

    Every text is compared with the claims of the answers, and every answer with those of each summary.
    """
    texts = [*answers, *summaries]
    inquiries = [_split_inquiry(question, text) for text in texts]
    for texts_to_place, sources in ((texts, answers), *((answers, [summary]) for summary in summaries)):
        claims = [sentence.text for text in sources for sentence in sentences(text)]
        parts = _parts(claims)
        inquiries += [_compare_inquiry(question, text, part) for text in texts_to_place for part in parts]
    return inquiries


def _parts(claims: Sequence[str]) -> list[Sequence[str]]:
    starts = range(0, len(claims), CLAIMS_AT_ONCE)
    return [claims[start : start + CLAIMS_AT_ONCE] for start in starts]


def _split_inquiry(question: str, text: str) -> Inquiry:
    values = {"question": quoted(normalise_question(question)), "answer": quoted(text)}
    return _inquiry(SPLIT, values, 64 + _TOKENS_PER_WORD * len(text.split()))


def _compare_inquiry(question: str, text: str, claims: Sequence[str]) -> Inquiry:
    values = {"question": quoted(normalise_question(question)), "answer": quoted(text)}
    values["claims"] = numbered(claims)
    return _inquiry(COMPARE, values, 32 + _TOKENS_PER_VERDICT * len(claims))


def read_stances(reply: ModelReplies, size: int) -> list[Stance | None]:
    """Read lines ``3: silent``. A claim that no line or several different ones name has no verdict."""
    text = reply_text(reply)
    verdicts: dict[int, set[Stance]] = {}
    for line in () if isinstance(text, NoValue) else text.splitlines():
        if match := _LINE.match(line):
            verdicts.setdefault(int(match[1]), set()).add(_STANCES[match[2].lower()])
    stances = [verdicts.get(number, set()) for number in range(1, size + 1)]
    # two lines with different verdicts on one claim decide nothing
    return [next(iter(of_claim)) if len(of_claim) == 1 else None for of_claim in stances]


def _numbered_lines(reply: ModelReplies) -> tuple[str, ...] | None:
    text = reply_text(reply)
    lines = text if isinstance(text, NoValue) else parse_numbered(text)
    return None if isinstance(lines, NoValue) else lines


def _inquiry(step: str, values: dict[str, str], limit: int) -> Inquiry:
    text = fill(prompts()[step]["user"], values).strip()
    return Inquiry(step, (Message(role="user", content=text),), max_new_tokens=limit)
