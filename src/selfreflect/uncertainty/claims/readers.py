"""Readers of claims that compare meanings or ask a model, with a table of all readers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from selfreflect.errors import ConfigError, unknown_name
from selfreflect.stats import Floats
from selfreflect.store.journal import ModelReplies
from selfreflect.text import counted, normalise_question, numbered, quoted
from selfreflect.uncertainty.asking.asker import Asker, Inquiry, inquiry, parse_numbered, reply_text, required
from selfreflect.uncertainty.claims.sentences import sentences
from selfreflect.uncertainty.claims.support import Stance
from selfreflect.uncertainty.claims.words import ABOUT, WordReader, largest, overlaps
from selfreflect.uncertainty.classes import group_related
from selfreflect.uncertainty.question import NoValue
from selfreflect.uncertainty.relations import EmbeddingSimilarity

if TYPE_CHECKING:
    from selfreflect.models.embed import Entailed, EntailmentModel, Pair

PREMISE = 3
"""Maximum number of sentences per text for a classifier of pairs, which was trained on short texts."""


class EmbeddingReader(WordReader):
    """Reader that compares claims and sentences by the cosine of their embeddings.

    Numbers, negations and opposites are compared as words are, because embeddings hardly see them.

    Raises:
        MissingExtraError: the ``embed`` extra is not installed.
    """

    name = "embedding"
    said, about = 0.75, 0.65

    def __init__(self) -> None:
        self._similarity = EmbeddingSimilarity()

    def closeness(self, question: str, claims: Sequence[str], parts: Sequence[str]) -> Floats:
        return self._similarity.between(parts, claims)

    def mentions(self, question: str, claims: Sequence[str], texts: Sequence[str]) -> Floats:
        """Compute each text's largest cosine between a sentence and each claim."""
        return largest(self.closeness, question, claims, texts)


class EntailmentReader(WordReader):
    """Reader that asks a classifier whether a claim's ``PREMISE`` closest sentences entail it.

    The question stands before both, so that "Ankara" is read as an answer to it.

    Args:
        model: a hub name or a local directory, see :class:`~selfreflect.models.embed.EntailmentModel`.

    Raises:
        ConfigError: no model is named.
    """

    def __init__(self, model: str) -> None:
        if not model:
            raise ConfigError("the reader nli needs a model, as in nli:DIRECTORY or nli:HUB-NAME")
        self.name = f"nli:{model}"
        self._directory = model
        self._model: EntailmentModel | None = None
        self._read: dict[Pair, Entailed | None] = {}

    @property
    def caveats(self) -> list[str]:
        unread = sum(found is None for found in self._read.values())
        return (
            [f"{counted(unread, 'pair')} of text and claim left out: too long for the model."]
            if unread
            else []
        )

    def stances(
        self, question: str, claims: Sequence[str], texts: Sequence[str]
    ) -> list[list[Stance | None]]:
        return [list(map(_likeliest, row)) for row in self._entailed(question, claims, texts)]

    def mentions(self, question: str, claims: Sequence[str], texts: Sequence[str]) -> Floats:
        """Compute probabilities of entailment; 0 for pairs that are too long."""
        rows = self._entailed(question, claims, texts)
        values = [[0.0 if found is None else found.entails for found in row] for row in rows]
        return np.array(values, dtype=np.float64).reshape(len(texts), len(claims))

    def distinct(self, question: str, claims: Sequence[str]) -> list[str]:
        """Remove claims that an earlier claim with common words mutually entails."""
        claims = super().distinct(question, claims)
        close = overlaps(question, claims, claims) >= ABOUT
        related = np.eye(len(claims), dtype=bool)
        pairs = np.argwhere(np.triu(close | close.T, 1)).tolist()
        # both directions: the same claim entails and is entailed
        both = [
            (f"{question} {claims[first]}", f"{question} {claims[second]}")
            for pair in pairs
            for first, second in (pair, pair[::-1])
        ]
        found = [_likeliest(entailed) == "says" for entailed in self._probabilities(both)]
        for (first, second), there, back in zip(pairs, found[::2], found[1::2], strict=True):
            related[first, second] = related[second, first] = there and back
        labels = group_related(related).tolist()
        return [claims[labels.index(label)] for label in dict.fromkeys(labels)]

    def _entailed(
        self, question: str, claims: Sequence[str], texts: Sequence[str]
    ) -> list[list[Entailed | None]]:
        pairs = []
        for text in texts:
            parts = [sentence.text for sentence in sentences(text)]
            # the sentences with most of the claim's words, in the order of the text
            order = np.argsort(-overlaps(question, claims, parts), axis=0, kind="stable")[:PREMISE]
            for claim, best in zip(claims, order.T.tolist(), strict=True):
                premise = " ".join(parts[index] for index in sorted(best))
                pairs.append((f"{question} {premise}", f"{question} {claim}"))
        found = iter(self._probabilities(pairs))
        return [[next(found) for _ in claims] for _ in texts]

    def _probabilities(self, pairs: Sequence[Pair]) -> list[Entailed | None]:
        missing = [pair for pair in dict.fromkeys(pairs) if pair not in self._read]
        # loading takes seconds, and all pairs may be known
        if missing and self._model is None:
            from selfreflect.models.embed import EntailmentModel

            self._model = EntailmentModel(self._directory)
        if self._model is not None:
            self._read.update(zip(missing, self._model.probabilities(missing), strict=True))
        return [self._read[pair] for pair in pairs]


def _likeliest(entailed: Entailed | None) -> Stance | None:
    if entailed is None:
        return None
    stances: tuple[Stance, ...] = ("says", "contradicts", "silent")
    return stances[entailed.index(max(entailed))]


SPLIT, COMPARE = "claims", "claim_verdicts"
CLAIMS_AT_ONCE = 30
"""Number of claims per request to a model."""
_TOKENS_PER_WORD = 4
_TOKENS_PER_VERDICT = 8
_LINE = re.compile(r"^\s*\(?(\d{1,3})[.:)]+\s*\W*(yes|contradicts|silent)\W*$", re.IGNORECASE)
_STANCES: dict[str, Stance] = {"yes": "says", "contradicts": "contradicts", "silent": "silent"}


class ModelReader(WordReader):
    """Reader that asks a model for each text's claims, and for its stance on all claims.

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
        return [
            f"The claims of {counted(self._unread, 'text')} could not be read, so each sentence "
            f"counts as a claim."
        ]

    def split(self, question: str, texts: Sequence[str]) -> list[list[str]]:
        """List each text's claims.

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
        """Determine each text's stance on each claim, shape (texts, claims); None without a clear verdict.

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
    """List the inquiries about answers and summaries, with each sentence as a claim.

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
    return inquiry(SPLIT, values, 64 + _TOKENS_PER_WORD * len(text.split()))


def _compare_inquiry(question: str, text: str, claims: Sequence[str]) -> Inquiry:
    values = {"question": quoted(normalise_question(question)), "answer": quoted(text)}
    values["claims"] = numbered(claims)
    return inquiry(COMPARE, values, 32 + _TOKENS_PER_VERDICT * len(claims))


def read_stances(reply: ModelReplies, size: int) -> list[Stance | None]:
    """Parse lines ``3: silent``. A claim without a unique verdict has none."""
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


READERS: Mapping[str, Callable[[str, Asker | None], WordReader]] = {
    "words": lambda model, asker: WordReader(),
    "embedding": lambda model, asker: EmbeddingReader(),
    "nli": lambda model, asker: EntailmentReader(model),
    "asked": lambda model, asker: ModelReader(required(asker, "the reader 'asked'")),
}
"""Constructors of readers, from the text after a colon in the name and the model to ask."""


def open_reader(name: str, asker: Asker | None = None) -> WordReader:
    """Make a reader of ``READERS``; ``nli:MODEL`` names a classifier.

    Raises:
        ConfigError: there is no such reader, or it lacks its model.
        MissingExtraError: ``embedding`` without the ``embed`` extra.
    """
    kind, colon, model = name.partition(":")
    if kind not in READERS:
        raise unknown_name("reader of claims", kind, READERS)
    if colon and kind != "nli":
        raise ConfigError(f"the reader {kind!r} takes no model after a colon", code="usage")
    return READERS[kind](model, asker)
