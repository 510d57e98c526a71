"""Rules that decide, without a model, whether two short answers to a question are the same.

Answers are the same with an equal normal form, with the same content words in the same order, or where a
short one is contained in the other and what the other adds names nothing else. Words of the question and
function words are no content. Numbers, dates, units, negations, yes and no must agree. The tables are of
English and German, with the commonest words of French and Spanish.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from importlib import resources
from itertools import chain, combinations, pairwise
from typing import Any, Literal, NamedTuple

from selfreflect.grouping import normal_form, ordered_groups
from selfreflect.numerals import in_digits
from selfreflect.quantities import MINUS, Quantity, has_digit, last_quantity, quantities, readable, with_month
from selfreflect.text import UNSPACED

MOST_WORDS = 60
"""Maximum number of words of a short answer. Longer answers must be spelled alike.

Where no spaces stand between words, two characters are one."""
MOST_COMPARED = 200
"""Maximum number of different answers that are compared pairwise, which takes about a second."""

_TABLES = tomllib.loads(
    (resources.files("selfreflect") / "data" / "answer_words.toml").read_text(encoding="utf-8")
)


def _table(name: str) -> set[str]:
    return set(_TABLES[name].split())


# the words stand in data/answer_words.toml, so that a language is added without code
_YES, _NO, _OR, _BUT, _AND = map(_table, ("yes", "no", "or", "but", "and"))
_CHOICES = _OR | _BUT
_NEGATIONS = _NO | _table("negations")
_ARTICLES, _DENIALS, _PRONOUNS = map(_table, ("articles", "denials", "pronouns"))
_RELATIVE, _PLACES, _CLOSED = map(_table, ("relative", "places", "closed"))
_LIMITS, _MAYBE, _PARTS = map(_table, ("limits", "maybe", "parts"))
_COPULAS, _SYMMETRIC, _COMPARING = map(_table, ("copulas", "symmetric", "comparing"))
_FUNCTION = _YES | _table("function_words")
_JOINTS = _RELATIVE | _table("joints")
_SIDES = [set(words.split()) for words in _TABLES["sides"]]
_ABBREVIATIONS = {
    name: re.compile(rf"(?<!\w)(?:{spellings})(?!\w)") for name, spellings in _TABLES["abbreviations"].items()
}
_SCRIPTS = {name: re.compile(spellings) for name, spellings in _TABLES["scripts"].items()}
_ABSTENTION = re.compile(
    rf"(?:{'|'.join(_TABLES['abstentions'])})(?=\W*\Z|\s*[.,;:!?(–-]|[{UNSPACED}가-힣]|\s+(?:if|whether|who|what|when|where"
    r"|which|why|how|about|on|yet|but|to(?! be)|available|provided|given|found"
    r"|ob|wer|wie|wann|wo|zu|über)\b)",
    re.IGNORECASE,
)

FUNCTION_WORDS = frozenset(_FUNCTION | _ARTICLES)
"""Words without content for an answer."""


def _opposites(name: str) -> dict[str, frozenset[str]]:
    pairs = [pair.split(":") for pair in _TABLES[name].split()]
    return {
        word: frozenset(chain.from_iterable(pair for pair in pairs if word in pair)) - {word}
        for word in chain.from_iterable(pairs)
    }


OPPOSITES, BOUNDS = map(_opposites, ("opposites", "bounds"))
"""Words that reverse an answer, and words that reverse a number's limit, by word."""

# "between 5 and 7" is 5-7
_BETWEEN = re.compile(r"\b(?:between|zwischen) (\S*\d) (?:and|und) (?=(\S*\d))\S*\d", re.IGNORECASE)
# "2 to 1" and the score 2:1 are 2-1, but 10:30 is a time
_SPOKEN_RANGE = re.compile(r"(?<=\d) (?:to|zu|bis) (?=\d)|(?<![\d:]\d\d)(?<=\d):(?=\d(?![\d:]))")
# "1 in 5", "3 out of 10", "einer von fünf", and scores, which _as_fraction tells apart
_RATIO = re.compile(
    r"\b(?P<part>\d+|one|eine?[rs]?|une?|uno) "
    r"(?P<joint>to|zu|bis|in|(?:out )?of|von|aus|sur|de cada) (?:the |den )?(?P<whole>\d[\d,]*)\b(?![.%]\d)",
    re.IGNORECASE,
)
# each character of a script without spaces counts as a word
_WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+(?:['&.-][^\W_{UNSPACED}]+)*|&")
_TOKEN = re.compile(rf"{_WORD.pattern}|[^\w\s'\".]")
_CAPITAL = re.compile(r"\b[^\W\d_a-z]\w*")
_LIST_MARKS = frozenset(",;/&")
_MARK = re.compile(r"[^\w\s]")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_HIRAGANA = re.compile("[\u3041-\u309f]")
_ASIDE = re.compile(r"(?<!\s)\s*\((?![A-ZÄÖÜ]\w*(?:,? [A-ZÄÖÜ]\w*)*\))[^()]*\)")  # but not (Cardiff, Wales)
# "not Ann, but Bob" means Bob; "not only Ann but Bob" means both
_CORRECTION = re.compile(
    r"\b(?:not|nicht|kein\w*|isn't|wasn't)\b(?! only\b| nur\b)[^.;]*?\b(?:but|sondern)\b", re.IGNORECASE
)
# "Ankara, not Istanbul" affirms what stands before the comma
_CONTRAST = re.compile(r", (?:and |und )?(?:not|nicht) .*\Z", re.IGNORECASE | re.DOTALL)
# Questions that a number answers.
_MEASURED = re.compile(
    r"\b(?:when|how (?:many|much|long|old|far|often|high|tall|big|large|heavy|deep|fast|wide)|wann|"
    r"wie ?(?:viele?|lange|alt|weit|oft|hoch|groß|schwer|tief|schnell|breit)|what (?:year|number|age|price)|"
    r"which year|in welchem jahr)\b",
    re.IGNORECASE,
)
# "Le magasin est-il ouvert ?" but not "Où est-il ?"
_INVERTED = re.compile(r"\w-(?:t-)?(?:ce|il|elle|on|ils|elles|je|tu|nous|vous)(?![\w-])", re.IGNORECASE)
_FRENCH_QUESTION_WORD = re.compile(
    r"\b(?:qu'|(?:qui|que|quoi|où|quand|comment|combien|pourquoi|(?:le|la|les)?quel(?:le)?s?)\b)",
    re.IGNORECASE,
)
# A letter that is no article or pronoun, as in "A and B".
_LETTER = re.compile(r"[AI](?= (?:and\b|or\b|und\b|oder\b|&)|[^\w\s']|\s*\Z)")
# What makes another number of the one before it, as in "7a" and "two thirds".
_CHANGED = re.compile(rf"[a-z](?!\w)| (?i:{'|'.join(_PARTS)})\b")
_POSSESSIVE = re.compile(r"'s?\Z|s'\Z")
# Where the spelling in capitals is another word, and where a letter makes a milli of a mega, a bit of a byte.
_CASED = re.compile(
    rf"\b(?:{_TABLES['cased'].replace(' ', '|')})\b|(?<![^\W\d])(?:m[A-Z][a-z]{{0,2}}|[kKMGT]b(?:it)?)(?!\w)"
)
# U.S. is the country, as US is
_DOTTED = re.compile(r"\b[A-Z](?:\.[A-Z])+\b\.?")
# Beside these words 3.10 is not 3.1.
_VERSION = re.compile(
    r"\b(?:versions?|releases?|chapter|section|python|java|fassung|kapitel|abschnitt|versión|capítulo)\b",
    re.IGNORECASE,
)
# the article or joint of "l'heure" and "qu'il"
_ELISION = re.compile(r"(?:[cdjlmnst]|qu)'(?=\w{2})")
_NEGATING_PREFIXES = frozenset(["un", "in", "im", "il", "ir", "non", "non-", "dis", "nicht"])
_YEAR_MONTH = re.compile(r"\d{4}-\d{1,2}\Z")
_NEAR = 3
# First letters that two forms of a word have in common.
_SHARED = 3
# a sign between words can be the whole difference: 5 × 3 and 5+3, e^x and e^-x, O+ and O-
_SIGNS = re.compile(
    # of the mathematical operators all but those that are minus, times, divided or about
    r"!=|\^-?|[<>=≤≥≠±#~]+|[¬\u2200-\u2211\u2213-\u2214\u221a-\u2235\u2237-\u223b\u223d-\u2247\u2249-\u225f"
    r"\u2262-\u2263\u2266-\u22c4\u22c6-\u22ff]|(?<=\w)[-+]+(?!\w)|(?<=[\w)] )(?:\+(?= [\w(])|-(?= \d))"
    r"|(?<=\w)\+(?=\w)|(?:(?<=\d)|(?<=\d ))[×÷·](?= ?\d)"
    r"|\[(?=[^\[\]()]*\))|\((?=[^\[\]()]*\])"  # half-open intervals
)
# What gives the order of items a meaning, as in "Rome → Milan".
_SEQUENCE = re.compile(r"[<>≤≥→←⇒⇐]|\b(?:then|dann|danach)\b", re.IGNORECASE)
# A thousand in German, one in English.
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}\.\d{3}(?![\d.,])")
# "no problem" and "not only" deny nothing
_SOFT_NO = re.compile(
    r"no problem|no doubt|(?:\bnot|n't) (?:only|just|false|wrong|incorrect)|kein problem|kein zweifel"
    r"|nicht (?:nur|falsch)",
    re.IGNORECASE,
)


Stance = bool | Literal["unsure"]
"""Yes, no, or neither in so many words."""


class _Word(NamedTuple):
    text: str
    is_capital: bool
    is_content: bool
    is_new: bool
    """Whether the word is content that the question lacks."""
    after_mark: bool
    """Whether punctuation precedes the word."""


@dataclass(frozen=True, eq=False)
class _Reading:
    words: tuple[_Word, ...]
    """Words except those of quantities."""
    quantities: tuple[Quantity, ...]
    is_negated: bool
    lead: Stance | None
    """Leading yes, no or abstention of the answer."""
    has_choice: bool
    """Whether the answer offers alternatives or makes an exception."""

    @cached_property
    def new(self) -> tuple[str, ...]:
        """Content words beyond the question's, or all content words if there are none."""
        new = tuple(word.text for word in self.words if word.is_new)
        # an answer made of the question's words is compared by these
        return new or tuple(word.text for word in self.words if word.is_content)

    @cached_property
    def new_words(self) -> frozenset[str]:
        """Content words that do not occur in the question."""
        return frozenset(word.text for word in self.words if word.is_new)

    @cached_property
    def content(self) -> frozenset[str]:
        return frozenset(word.text for word in self.words if word.is_content)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(word.text for word in self.words if word.is_new and word.is_capital)

    @cached_property
    def is_nothing(self) -> bool:
        """Whether the answer is 0, or a bare "none"."""
        if self.lead == "unsure":
            return False
        values = [quantity.value for quantity in self.quantities]
        return not self.new_words and (values == [0.0] or (not values and self.is_negated))

    @cached_property
    def items(self) -> list[tuple[str, ...]]:
        """Sorted items of a list such as "Ann, Bob and Cem"; empty if the answer is none."""
        items: list[list[str]] = [[]]
        for word in self.words:
            if word.after_mark or word.text in _AND:
                # "Ann, Bob and Cem" and "Cem, Ann and Bob" are one answer
                items.append([])
            if word.is_content:
                items[-1].append(word.text)
        items = [item for item in items if item]
        return sorted(map(tuple, items)) if len(items) > 1 and not self.is_negated else []


def same_answer(question: str, first_answer: str, second_answer: str) -> bool | None:
    """Compare two answers: True if the same, False if contradictory, else None.

    None is for a model to decide.
    """
    # the cheapest test, and the only one for long answers
    if _form(first_answer) == _form(second_answer):
        return True
    # a rule for single words would be wrong too often
    if _is_long(first_answer) or _is_long(second_answer):
        return None
    # signs and small words are beyond these rules, and a wrong verdict is worse than none
    if _may_differ(first_answer, second_answer):
        return None
    short, long = _without_asides(first_answer, second_answer)
    first, second = _read(short, question), _read(long, question)
    agree = _agree(first.quantities, second.quantities)
    # "none" is 0 where the question asks for a number; elsewhere it may deny something
    if first.is_nothing and second.is_nothing and first.quantities != second.quantities:
        return True if _MEASURED.search(question) else None
    # "3 cats, 5 dogs" and "5 cats, 3 dogs" have the same numbers
    if agree and _is_reordered(first, second):
        agree = None
    # a yes and a no settle closed questions, whatever else the answers say
    stances = [_stance(reading, question) for reading in (first, second)]
    has_leads = None not in (first.lead, second.lead)
    # an open question is settled by a bare yes, but "not Ann" is not "not Bob"
    is_bare = has_leads and not all(reading.new_words for reading in (first, second))
    if None not in stances and (_is_closed(question) or is_bare or (has_leads and stances[0] != stances[1])):
        return stances[0] == stances[1] and agree is not False
    if agree is False:
        return False
    # "prices rise" and "prices fall"
    if are_opposite(short, long):
        return False
    # words count only where both texts deny or neither does
    is_level = first.is_negated == second.is_negated
    is_equal = first.new == second.new
    # items may change places, unless their order says something, as in "Rome, then Milan"
    if not is_equal and first.items == second.items != []:
        is_equal = not (_SEQUENCE.search(short) or _SEQUENCE.search(long))
    # _says: "It is." and "I think so." have nothing that could be equal
    if (
        agree
        and is_level
        and is_equal
        and first.has_choice == second.has_choice
        and (first.new or first.quantities)
    ):
        return True
    for part, whole in ((first, second), (second, first)):
        if _contains(part, whole, question, agree=bool(agree)):
            return True
    if is_level:
        return None
    # "Ankara, not Istanbul" does not deny Ankara, but "open, not always" does not say "open" either
    affirmed = [_CONTRAST.sub("", text) for text in (short, long)]
    is_affirmed = affirmed != [short, long] and same_answer(question, *affirmed)
    return None if is_affirmed else False


def _is_long(text: str) -> bool:
    return len(text.split()) + len(_UNSPACED.findall(text)) // 2 > MOST_WORDS


def are_opposite(first_text: str, second_text: str) -> bool:
    """Check whether two texts are equal except for a word and its opposite or negation."""
    first, second = word_list(first_text), word_list(second_text)
    if second in opposites_of(first_text):
        return True
    if len(first) != len(second):
        return False
    differing = [pair for pair in zip(first, second, strict=True) if pair[0] != pair[1]]
    if len(differing) != 1:
        return False
    # the longer word is the one with the prefix
    plain, negated = sorted(differing[0], key=len)
    return len(plain) > _SHARED and negated.removesuffix(plain) in _NEGATING_PREFIXES


@lru_cache(maxsize=2**14)
def opposites_of(text: str) -> frozenset[tuple[str, ...]]:
    """Collect the word lists made from a text by replacing one word with its opposite."""
    words = word_list(text)
    return frozenset(
        (*words[:place], opposite, *words[place + 1 :])
        for place, word in enumerate(words)
        for opposite in OPPOSITES.get(word, ())
    )


@lru_cache(maxsize=2**14)
def word_list(text: str) -> tuple[str, ...]:
    """List the words of a text in lower case, numbers as digits."""
    return tuple(word.casefold() for word in _WORD.findall(_plain(text)))


class _Signs(NamedTuple):
    """Signs and small words that change an answer."""

    signs: list[str]
    limits: set[str]
    sides: tuple[set[str], ...]
    has_digit: bool
    cased: frozenset[str]
    """Words whose meaning depends on case."""
    words: set[str]


@lru_cache(maxsize=2**14)
def _signs(text: str) -> _Signs:
    text = spelled(text)
    # without digits, so that 5mg and 5 mg have the same word
    words = {match.casefold().lstrip("0123456789") for match in _WORD.findall(text)}
    return _Signs(
        signs=sorted(_SIGNS.findall(text)) + sorted(_THOUSANDS.findall(text)),
        limits=words & _LIMITS,
        sides=tuple(words & side for side in _SIDES),
        has_digit=has_digit(text),
        # "IT IS OPEN" is not an answer IT: capitals tell something only beside small letters
        cased=frozenset(
            ()
            if text.isupper() and " " in text
            else _CASED.findall(_DOTTED.sub(lambda initials: initials[0].replace(".", ""), text))
        ),
        words=words,
    )


def _may_differ(first_text: str, second_text: str) -> bool:
    """Check whether two texts differ in signs or small words that change an answer."""
    first, second = _signs(first_text), _signs(second_text)
    if first.signs != second.signs:
        return True
    # one text has US and the other us
    cased = first.cased ^ second.cased
    if cased and any(word.casefold() in first.words & second.words for word in cased):
        return True
    # "before 1990" and 1990; without a number a limit may be said in other words
    if first.limits != second.limits and (first.has_digit or second.has_digit):
        return True
    if first.sides == second.sides:
        return False
    # each text has a word of the set that the other lacks: "by Ann" and "for Ann"
    return any(here - there and there - here for here, there in zip(first.sides, second.sides, strict=True))


def contains_answer(question: str, answer: str, gold: str) -> bool:
    """Check whether an answer is correct or contains a correct answer in full.

    Not if it is longer than ``MOST_WORDS``, negates the right answer in its clause, or offers it as one of
    several candidates. Of several numbers only the last one counts.
    """
    # nothing would be contained in every answer
    if not normal_form(gold):
        return False
    if normal_form(answer) == normal_form(gold):
        return True
    # a long answer mentions much, also what it denies
    if len(answer.split()) > MOST_WORDS:
        return False
    # the right answer B is not in "B+"
    if _SIGNS.findall(readable(gold)) and sorted(_SIGNS.findall(readable(answer))) != sorted(
        _SIGNS.findall(readable(gold))
    ):
        return False
    # "They told us." does not say US
    if not _signs(gold).cased <= _signs(answer).cased:
        return False
    gold_reading = _read(gold, question)
    is_same = same_answer(question, answer, gold) is True
    # "No, not yes" contains yes: a yes or no must be the verdict
    if is_same or gold_reading.lead is not None:
        return is_same
    # of numbers the last one is the result, as in "3 + 4 = 7"
    if gold_reading.quantities and not any(word.is_content for word in gold_reading.words):
        texts = _plain(answer), _plain(gold)
        number, target = map(last_quantity, texts)
        # "in June 1990" does not say May 1990, though the year is equal
        if number and target and (month := with_month(texts[1], target)) != target:
            number, target = with_month(texts[0], number), month
        # Python 3.10 is no decimal, and not 3.1
        if number and target and any(map(_VERSION.search, (question, *texts))):
            number, target = _as_version(texts[0], number), _as_version(texts[1], target)
        is_equal = number is not None and target is not None and _agree([number], [target])
        # "Room 7a" does not say 7
        is_changed = number is not None and _CHANGED.match(texts[0], number.end) is not None
        return bool(is_equal) and not is_changed and not _read(answer, question).has_choice
    clauses = _clauses(answer)
    # whole words: "comparison" does not say Paris
    words = [(word, index) for index, clause in enumerate(clauses) for word in clause.words]
    target_words = [word for clause in _clauses(gold) for word in clause.words]
    if len(target_words) == 1 and _UNSPACED.fullmatch(letter := target_words[0]):
        # 京 is not in 東京, but in 京です
        other = r"\w" if _HIRAGANA.match(letter) else rf"[^\W{_HIRAGANA.pattern[1:-1]}]"
        if not re.search(f"(?<!{other}){letter}(?!{other})", _plain(answer)):
            return False
    for start in range(len(words) - len(target_words) + 1):
        window = words[start : start + len(target_words)]
        if not window or [word for word, _ in window] != target_words:
            continue
        first_clause, last_clause = window[0][1], window[-1][1]
        nearby = {
            word
            for clause in clauses[first_clause : last_clause + 1]
            for word in (*clause.words, clause.joint)
        }
        # words of the right answer itself deny nothing
        denials = {word for word in nearby if is_negation(word) or word in _DENIALS} - set(target_words)
        # "not Paris" and "Paris or Rome" do not say Paris
        if not denials and _is_alone(clauses, first_clause, last_clause + 1):
            return True
    return False


class _Clause(NamedTuple):
    words: tuple[str, ...]
    """Words without articles."""
    is_bare: bool
    """Whether the clause is only content, like a list item."""
    joint: str
    """Word before the clause, such as "and"; empty after a mark."""
    starts_sentence: bool


@lru_cache(maxsize=2**12)
def _clauses(text: str) -> tuple[_Clause, ...]:
    """Split a text into clauses at punctuation, "and", "or" and "but"."""
    plain = _plain(text)
    clauses: list[_Clause] = []
    words: list[str] = []
    joint, end, starts = "", 0, True

    def close() -> None:
        nonlocal words
        if words:
            # a clause with a verb, or a long one, is no item of a list
            is_bare = len(words) <= 4 and all(word not in _FUNCTION for word in words)
            clauses.append(_Clause(tuple(words), is_bare, joint, starts))
        words = []

    for match in _WORD.finditer(plain):
        between = plain[end : match.start()]
        end = match.end()
        lower = match[0].casefold()  # "Ann's brother" is not Ann
        if mark := re.search(r"[^\w\s'\"]", between):
            close()
            joint, starts = "or" if mark[0] == "/" else "", mark[0] in ".;!?" or "\n" in between
        if lower in _AND | _OR | _BUT:
            close()
            joint, starts = lower, False
        # "A and B": a capital letter before a mark or "and" is no article
        elif lower not in _ARTICLES or _LETTER.match(plain, match.start()):
            words.append(lower)
    close()
    return tuple(clauses)


def _is_alone(clauses: Sequence[_Clause], start: int, after: int) -> bool:
    """Check whether clauses stand outside any list of candidates or alternatives."""
    # "Istanbul, Izmir and Ankara" are candidates, "Ankara, a city of 5 million" is an answer
    end = after
    while end < len(clauses) and clauses[end].is_bare and not clauses[end].starts_sentence:
        end += 1
    first = start
    while first > 0 and clauses[first].is_bare and not clauses[first].starts_sentence:
        first -= 1
    neighbours = (*clauses[first:start], *clauses[after:end])
    joints = {clause.joint for clause in (*clauses[first + 1 : start + 1], *clauses[after:end])}
    choices = {clauses[start].joint, *(clause.joint for clause in clauses[after : after + 1])} & _OR
    # a single neighbour explains ("Ankara, Turkey"), two are a list
    return len(neighbours) < 2 and joints.isdisjoint(_AND) and not choices


def are_apart(question: str, first_answer: str, second_answer: str) -> bool:
    """Check whether answers contradict or name different things, whatever their similarity."""
    verdict = same_answer(question, first_answer, second_answer)
    if verdict is not None:
        return not verdict
    # no similarity of words outweighs another sign or limit
    return _may_differ(first_answer, second_answer) or name_apart(question, first_answer, second_answer)


def name_apart(question: str, first_answer: str, second_answer: str) -> bool:
    """Check whether each answer has a capitalised name that the other and the question lack.

    Or the same names in other places, as in "Ann beat Bob" and "Bob beat Ann".
    """
    first, second = _read(first_answer, question), _read(second_answer, question)
    # only equal words in another order can have changed places
    if first.names == second.names and sorted(first.new) == sorted(second.new):
        return exchange(first_answer, second_answer) in ("opposite", "unlike")
    return bool(first.names - second.names and second.names - first.names)


def same_classes(question: str, answers: Sequence[str]) -> list[int]:
    """Number the class of each answer, in the order of first occurrence.

    Classes that have a pair of the same answers become one, unless another pair contradicts. With more than
    ``MOST_COMPARED`` different answers, each is compared with that many of the most frequent ones alone.
    """
    # the form and what case tells in it, so that US and us are two texts
    forms: dict[tuple[str, frozenset[str]], int] = {}
    form_of = [forms.setdefault(_form(answer), len(forms)) for answer in answers]
    if len(forms) < 2:
        return form_of
    texts = [answers[form_of.index(form)] for form in range(len(forms))]
    # the number of pairs grows with the square of the texts
    frequent = {form for form, _ in Counter(form_of).most_common(MOST_COMPARED)}

    @cache
    def verdict(column: int, row: int) -> bool | None:
        if row in frequent or column in frequent:
            return same_answer(question, texts[column], texts[row])
        return None

    # a long text, whose form is no other's, is the same as none
    places = [place for place, text in enumerate(texts) if not _is_long(text)]
    sides = [(place, _read(texts[place], question), "(" in texts[place]) for place in places]
    members = {form: [form] for form in range(len(texts))}
    class_of = list(members)
    for end, (row, second, has_aside) in enumerate(sides):
        for column, first, had_aside in sides[:end]:
            if row not in frequent and column not in frequent:
                continue
            # most pairs have different words, and nobody asks whether they contradict
            if not (has_aside or had_aside) and _are_unlike(first, second):
                continue
            # the earlier class stays, since classes are numbered by their first answers
            target, source = sorted((class_of[column], class_of[row]))
            if target == source or not verdict(column, row):
                continue
            pairs = ((left, right) for left in members[target] for right in members[source])
            # one contradicting pair keeps two classes apart
            if all(verdict(min(pair), max(pair)) is not False for pair in pairs):
                for form in members[source]:
                    class_of[form] = target
                members[target] += members.pop(source)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(class_of[form], len(numbers)) for form in form_of]


def _are_unlike(first: _Reading, second: _Reading) -> bool:
    """Check cheaply that :func:`same_answer` cannot be True: each answer has words that the other lacks."""
    # a yes and a yes may be the same whatever else they say
    if None not in (first.lead, second.lead):
        return False
    return not (first.new_words <= second.content or second.new_words <= first.content)


def same_groups(answers: Sequence[str], question: str = "") -> list[list[int]]:
    """Group equal answers, as indices, the largest group first."""
    groups: dict[int, list[int]] = {}
    for index, label in enumerate(same_classes(question, answers)):
        groups.setdefault(label, []).append(index)
    return ordered_groups(answers, groups.values())


@lru_cache(maxsize=2**16)
def _form(text: str) -> tuple[str, frozenset[str]]:
    return normal_form(text), _signs(text).cased


@lru_cache(maxsize=2**10)
def _quantity_keys(question: str) -> frozenset[Any]:
    plain = _plain(question)
    found = quantities(plain)
    # also read as versions, as the numbers of an answer may be
    return frozenset(quantity.key for number in found for quantity in (number, _as_version(plain, number)))


def _as_version(text: str, number: Quantity) -> Quantity:
    """Turn a decimal such as 3.10 into a version number."""
    digits = text[number.start : number.end]
    if number.unit or not re.fullmatch(r"\d+(?:\.\d+)*", digits):
        return number
    # version 3.0 is version 3
    return number._replace(value=None, text=re.sub(r"(?:\.0)+\Z", "", digits))


@lru_cache(maxsize=2**14)
def _read(text: str, question: str) -> _Reading:
    """Read an answer, marking the words and quantities that its question lacks."""
    reading = _read_alone(text)
    if _VERSION.search(question) or _VERSION.search(text):
        plain = _plain(text)
        versions = tuple(_as_version(plain, quantity) for quantity in reading.quantities)
        reading = replace(reading, quantities=versions)
    # "in 2020" tells nothing new where the question asks about 2020
    question_keys = _quantity_keys(question) if reading.quantities else ()
    new_quantities = tuple(quantity for quantity in reading.quantities if quantity.key not in question_keys)
    words = [
        word._replace(is_new=False) if word.is_new and _is_asked(word.text, question) else word
        for word in reading.words
    ]
    # "light" of "light red" changes the colour, though the question speaks of a light
    for index in range(len(words) - 2, -1, -1):
        following = words[index + 1]
        is_before = following.is_new and not following.after_mark and following.text not in _PLACES
        if words[index].is_content and is_before:
            words[index] = words[index]._replace(is_new=True)
    # an answer whose numbers all stand in the question keeps them
    return replace(reading, words=tuple(words), quantities=new_quantities or reading.quantities)


@lru_cache(maxsize=2**14)
def _read_alone(text: str) -> _Reading:
    """Read an answer without its question, treating all content as new."""
    plain = _plain(text)
    # May of "May 1990" and the km of "5 km" are parts of the quantity, no words of the answer
    all_quantities = tuple(with_month(plain, quantity) for quantity in quantities(plain))
    covered = [False] * len(plain)
    for quantity in all_quantities:
        covered[quantity.start : quantity.end] = [True] * (quantity.end - quantity.start)
    words, end = [], 0
    for match in _WORD.finditer(plain):
        if covered[match.end() - 1]:
            continue
        lower = match[0].casefold()
        # "Ann's" is Ann, "l'Italie" Italie
        if "'" in lower:
            lower = _POSSESSIVE.sub("", _ELISION.sub("", lower, count=1))
        if covered[match.start()]:
            # what sticks to a number, as in 100W or 7a, makes it another one
            lower = lower[covered.index(False, match.start()) - match.start() :].lstrip("'&.-")
            is_letter = len(lower) == 1 and match[0][-1].islower()
            lower = f"-{lower}" if lower in FUNCTION_WORDS or is_letter else lower
        if not lower:
            continue
        # US and mW are other words than us and MW
        lower = match[0] if _CASED.fullmatch(match[0]) else lower
        is_content = (lower not in _FUNCTION or _LETTER.match(plain, match.start()) is not None) and (
            lower not in _AND
        )
        is_content = is_content and not is_negation(lower) and lower not in _CHOICES
        is_stuck = covered[match.start()]
        mark = not is_stuck and _MARK.search(plain, end, match.start()) is not None
        words.append(_Word(lower, match[0][0].isupper(), is_content, is_content, mark))
        end = match.end()
    texts = [word.text for word in words]
    lead = next((text for text in texts if text in _YES or text in _NO or text not in _FUNCTION), "")
    leads: dict[Stance, set[str]] = {True: _YES, False: _NO | {"not", "nicht"}}
    # a text with both a yes and a no begins with neither
    is_soft = bool(_SOFT_NO.search(plain)) or not (_YES.isdisjoint(texts) or _NO.isdisjoint(texts))
    is_yes = next((value for value, table in leads.items() if lead in table), None)
    return _Reading(
        words=tuple(words),
        quantities=all_quantities,
        is_negated=any(map(is_negation, texts)),
        lead="unsure" if abstains(text) else None if is_soft else is_yes,
        # "Ankara/Istanbul" leaves a choice, 1/2 does not
        has_choice=not _CHOICES.isdisjoint(texts)
        or any(sign in "?/" and not covered[place] for place, sign in enumerate(plain)),
    )


def _as_fraction(match: re.Match[str]) -> str:
    """Write "1 in 5" as 1/5, except "5 in 1" and "3 in 1990"."""
    part = match["part"] if match["part"].isdigit() else "1"
    whole = match["whole"].replace(",", "")
    # "2 to 1" is a score
    if match["joint"].lower() in ("to", "zu", "bis"):
        return f"{part} {match['joint']} {whole}"
    # "3 in 1990" is a number and a year
    is_year = match["joint"].lower() == "in" and part != "1" and len(match["whole"]) == 4
    return match[0] if is_year or int(part) >= int(whole) else f"{part}/{whole}"


@lru_cache(maxsize=2**14)
def spelled(text: str) -> str:
    """Normalise numbers, ranges and certain names in a text, and remove emphasis."""
    # emphasis is no sign: **5** is 5
    plain = in_digits(readable(text).replace("*", ""))
    for name, spellings in _ABBREVIATIONS.items():
        plain = spellings.sub(name, plain)
    for name, spellings in () if plain.isascii() else _SCRIPTS.items():
        plain = spellings.sub(f" {name} ", plain)
    if not has_digit(plain):
        return plain
    plain = _RATIO.sub(_as_fraction, plain)
    return _BETWEEN.sub(r"\1-\2", _SPOKEN_RANGE.sub("-", MINUS.sub("-", plain)))


@lru_cache(maxsize=2**14)
def _plain(text: str) -> str:
    # "not Ann, but Bob" is read as Bob
    return _CORRECTION.sub("", spelled(text))


def count_negations(text: str) -> int:
    """Count negations, except in phrases such as "not only"."""
    return sum(is_negation(word.casefold()) for word in _WORD.findall(_SOFT_NO.sub("", text)))


def abstains(text: str) -> bool:
    """Check whether a text begins with "not sure", "no idea" or another abstention."""
    plain = readable(text)
    match = _ABSTENTION.search(plain)
    before = _WORD.findall(plain[: match.start()]) if match else ()
    return match is not None and all(word.casefold() in _FUNCTION - _YES for word in before)


def is_negation(word: str) -> bool:
    """Check whether a lower-case word is a negation."""
    return word in _NEGATIONS or word.endswith("n't")


@lru_cache(maxsize=2**10)
def _asked_words(question: str) -> dict[str, list[str]]:
    """Index a question's words by their first letters, leaving out the alternatives that it offers."""
    words = [_POSSESSIVE.sub("", word.casefold()) for word in _WORD.findall(_plain(question))]
    choices = [index for index, word in enumerate(words) if word in ("or", "oder")]
    # words beside "or" are what the question asks for, so they are news in an answer
    alternatives = {near for choice in choices for near in range(choice - _NEAR, choice + _NEAR + 1)}
    asked: dict[str, list[str]] = {}
    for word in dict.fromkeys(word for index, word in enumerate(words) if index not in alternatives):
        # a single Latin letter may be a choice, a single Chinese character is a word
        if len(word) > 1 or not word.isascii():
            asked.setdefault(word[:_SHARED], []).append(word)
    return asked


@lru_cache(maxsize=2**16)
def _is_asked(word: str, question: str) -> bool:
    """Check whether a word, or another form of it, occurs in the question."""
    for question_word in _asked_words(question).get(word[:_SHARED], ()):
        if word == question_word:
            return True
        shorter, longer = sorted((word, question_word), key=len)
        pairs = enumerate(zip(shorter, longer, strict=False))
        common = next((n for n, (a, b) in pairs if a != b), len(shorter))
        # other forms of a word, such as "opened" of "open", share most of its letters
        if common >= max(_SHARED, 0.6 * len(longer)):
            return True
    return False


@lru_cache(maxsize=2**10)
def _is_closed(question: str) -> bool:
    words = question.casefold().split()
    if not words or not _OR.isdisjoint(words):
        return False
    # "Est-il ouvert ?" is closed, "Où est-il ?" is not
    is_inverted = bool(_INVERTED.search(question)) and not _FRENCH_QUESTION_WORD.search(question)
    return words[0] in _CLOSED or is_inverted


def _stance(reading: _Reading, question: str) -> Stance | None:
    """Read yes, no or an abstention from the first word, a negation or a repetition of the question."""
    if reading.lead is not None:
        return reading.lead
    # an open question has no yes or no, and an answer without content gives none
    if not _is_closed(question) or not any(word.is_content for word in reading.words):
        return None
    if any(word.text in _MAYBE for word in reading.words):
        return None
    # "It was not Ann" says more than no
    if reading.is_negated:
        return None if any(word.is_new for word in reading.words) else False
    return None if any(word.is_new for word in reading.words) or reading.quantities else True


def _agree(first: Sequence[Quantity], second: Sequence[Quantity]) -> bool | None:
    """Compare quantities, with or without units; None if one text has none or a date is unclear."""
    # 2020 may be what "May 5, 2020" means, or not
    if not first or not second or _is_within(first, second) or _is_within(second, first):
        return None if first or second else True
    if len(first) != len(second):
        # the same number may be repeated
        return {quantity.key for quantity in first} == {quantity.key for quantity in second}
    pairs = zip(sorted(first, key=_order), sorted(second, key=_order), strict=True)
    different = [
        (a, b)
        for a, b in pairs
        # a number without a unit agrees with the same number of any unit
        if a.key != b.key and ((a.value, a.text) != (b.value, b.text) or "" not in (a.unit, b.unit))
    ]
    if different and all(_may_be_equal(a.text, b.text) for a, b in different):
        return None
    return not different


def _may_be_equal(first_date: str, second_date: str) -> bool:
    """Check whether dates such as 1/2/2020 and 2020-2-1 can be equal."""
    # only slashes leave the order of day and month open
    if "/" not in first_date + second_date:
        return False
    first, second = (sorted(re.split("[-/]", text)) for text in (first_date, second_date))
    return [part.lstrip("0") for part in first] == [part.lstrip("0") for part in second]


def _is_within(date: Sequence[Quantity], period: Sequence[Quantity]) -> bool:
    """Check whether a date lies in a year or month, or a year in a decade."""
    if not len(date) == len(period) == 1:
        return False
    text = period[0].key[0]
    if text.endswith("s"):
        # 1994 lies in the 1990s
        return date[0].key[0].startswith(text[:3]) and date[0].key[0] != text
    return date[0].text.startswith(f"{text}-") and (not period[0].text or _YEAR_MONTH.match(text) is not None)


def _is_reordered(first: _Reading, second: _Reading) -> bool:
    """Check whether equal quantities count different things, as "3 cats, 5 dogs" and "5 cats, 3 dogs"."""
    pairs = list(zip(first.quantities, second.quantities, strict=False))
    if not pairs:
        return False
    # coordinates: "(1, 2)" is not "(2, 1)"
    is_place = all(quantity.is_aside for pair in pairs for quantity in pair)
    has_words = min(len(first.new), len(second.new)) > 1
    return (has_words or is_place) and any(_agree([here], [there]) is False for here, there in pairs)


def _order(quantity: Quantity) -> tuple[float, str]:
    return quantity.value or 0.0, quantity.text


def _contains(part: _Reading, whole: _Reading, question: str, *, agree: bool) -> bool:
    """Check whether a longer answer contains a shorter one and adds nothing that competes."""
    # a choice and a denial contain what they do not say
    if part.has_choice or whole.has_choice or part.is_negated:
        return False
    here, there = part.new_words, whole.new_words
    # "version 2" and "it is version 2" say no more than the question and a number
    is_bare = not part.new or (not here | there and set(part.new) <= set(whole.new))
    if agree and not whole.is_negated and part.quantities and (_MEASURED.search(question) or is_bare):
        has_unit = [any(quantity.unit for quantity in reading.quantities) for reading in (part, whole)]
        # the words of a number without a unit may be its unit, and a letter makes another number of it
        if (has_unit[0] > has_unit[1] and there) or (has_unit[1] > has_unit[0] and here):
            return False
        # "squared" and "half" make another number of the one beside them
        changes = any(word.startswith("-") or word in _PARTS for word in here ^ there)
        return (here <= there or there <= here) and not changes
    new = part.new
    if not new or (part.quantities and not agree) or not whole.content.issuperset(new):
        return False
    positions = [
        position for position, word in enumerate(whole.words) if word.text in new and word.is_content
    ]
    size = len(new)
    if tuple(whole.words[position].text for position in positions[:size]) != new:
        return False
    # "light red" is not red, nor New York York
    if any(word.is_new for word in whole.words[: positions[size - 1]] if word.text not in new):
        return False
    added = whole.words[positions[size - 1] + 1 :]
    # added words follow a mark or a joint, as in "Ankara, which became the capital"
    if not added or not (added[0].after_mark or added[0].text in _JOINTS):
        return False
    if any(is_negation(word.text) for word in whole.words[: positions[size - 1]]):
        return False
    # a remark about the answer may name others
    if added[0].text in _RELATIVE or (added[0].after_mark and added[0].text in _PRONOUNS):
        return True
    # another name competes: "Paris, Texas"
    return not whole.is_negated and not any(word.is_capital and word.is_new for word in added)


def _without_asides(first_text: str, second_text: str) -> tuple[str, str]:
    """Remove bracketed remarks if only one of two texts has any."""
    if "(" not in first_text and "(" not in second_text:
        return first_text, second_text
    cut = [_ASIDE.sub("", text) for text in (first_text, second_text)]
    has_aside = [text != short for text, short in zip((first_text, second_text), cut, strict=True)]
    # brackets in both may be what tells the answers apart
    if has_aside[0] != has_aside[1] and all(map(str.strip, cut)):
        return cut[0], cut[1]
    return first_text, second_text


Exchange = Literal["same", "opposite", "unlike"]
"""Relation of two texts in which two terms swap places."""


def exchange(first_text: str, second_text: str) -> Exchange | None:
    """Compare two texts in which two terms swap places around equal words; None if no terms do.

    "Ann beat Bob" and "Bob beat Ann" are unlike. "A is north of B" is the opposite of "B is north of A", and
    the same as "B is south of A". What "and", "is" or "met" joins, and items of a list, may change places.
    """
    (first, first_places), (second, second_places) = _ordered(first_text), _ordered(second_text)
    places = [(here, second_places[term]) for term, here in first_places.items() if term in second_places]
    # terms in the same order: nothing changed places
    if all(before[1] < after[1] for before, after in pairwise(places)):
        return None
    names = {word.casefold() for text in (first_text, second_text) for word in _CAPITAL.findall(text)}
    names -= FUNCTION_WORDS
    for left, right in combinations(_common_blocks(first, second, places), 2):
        if right.there < left.there:
            here = _without_names(first[left.here + left.size : right.here], names)
            there = _without_names(second[right.there + right.size : left.there], names)
            # "Ann met Bob" and "Bob met Ann" are the same
            kind = None if _is_symmetric(here, first[: left.here]) else _relation(here, there)
            are_numbers = first[left.here][0].isdigit() and first[right.here][0].isdigit()
            if kind is not None:
                return "opposite" if kind == "unlike" and are_numbers else kind
    return None


@lru_cache(maxsize=2**14)
def _ordered(text: str) -> tuple[tuple[str, ...], dict[str, int]]:
    """List the words and punctuation of a text without English articles, and the positions of unique
    terms."""
    # A may be a choice, "a" is an article
    words = [word if word == "A" else word.casefold() for word in _TOKEN.findall(_plain(text))]
    tokens = tuple(word for word in words if word not in ("a", "an", "the"))
    counts = Counter(tokens)
    return tokens, {
        token: place for place, token in enumerate(tokens) if counts[token] == 1 and _is_term(token)
    }


class _Block(NamedTuple):
    """A run of words common to two texts."""

    here: int
    there: int
    size: int


def _common_blocks(
    first: Sequence[str], second: Sequence[str], places: Sequence[tuple[int, int]]
) -> list[_Block]:
    """Extend common terms to runs of equal words that end with a term."""
    blocks: list[_Block] = []
    end = 0
    for here, there in places:
        if here >= end:
            pairs = zip(first[here:], second[there:], strict=False)
            size = next((size for size, (a, b) in enumerate(pairs) if a != b), 0)
            # equal up to the end of a text
            size = size or min(len(first) - here, len(second) - there)
            while not _is_term(first[here + size - 1]):
                size -= 1
            blocks.append(_Block(here, there, size))
            end = here + size
    return blocks


def _is_term(token: str) -> bool:
    return token[0].isalnum() and token not in FUNCTION_WORDS and not is_negation(token)


def _without_names(between: tuple[str, ...], names: set[str]) -> tuple[str, ...]:
    """Cut swapped names from both ends of the words between them."""
    start, end = 0, len(between)
    while start < end and between[start] in names:
        start += 1
    while start < end and between[end - 1] in names:
        end -= 1
    return between[start:end]


def _is_symmetric(between: tuple[str, ...], before: tuple[str, ...]) -> bool:
    """Check whether the terms around the words ``between`` may swap places without a change of meaning."""
    # "as tall as" holds both ways
    if not _SYMMETRIC.isdisjoint(between) or between.count("as") > 1:
        return True
    if all(not token[0].isalnum() or token in _COPULAS | _AND | _OR for token in between):
        return True
    joints = [place for place, token in enumerate(between) if token in _LIST_MARKS | _AND | _OR]
    if joints and joints[0] > 0:
        return False
    # items of a list may all stand behind the same preposition, as do "in Rome in May"
    last = between[joints[-1] + 1 if joints else 0 :]
    return not last or before[-len(last) :] == last


def _relation(here: Sequence[str], there: Sequence[str]) -> Exchange | None:
    pairs = [pair for pair in zip(here, there, strict=False) if pair[0] != pair[1]]
    if len(here) != len(there) or len(pairs) > 1:
        return None
    sides = OPPOSITES | BOUNDS
    if pairs:
        # "north of" and "south of", with the places exchanged, say the same
        return "same" if pairs[0][1] in sides.get(pairs[0][0], ()) else None
    has_opposite = any(word in sides for word in here)
    # what is taller, or north of it, cannot be so after an exchange
    return "opposite" if has_opposite or not _COMPARING.isdisjoint(here) else "unlike"
