"""Conversion of number words, ordinals, fractions, times and Roman numerals to digits, in English and German.

Plain number words are read in French and Spanish, too.
"""

from __future__ import annotations

import re
import tomllib
from importlib import resources

_TABLES = tomllib.loads(
    (resources.files("selfreflect") / "data" / "number_words.toml").read_text(encoding="utf-8")
)
_SMALL_NUMBERS = {
    word: number for number, words in enumerate(_TABLES["numbers"], 2) for word in words.split()
} | dict.fromkeys(_TABLES["zeros"].split(), 0)
_TENS = {word: 10 * ten for ten, words in enumerate(_TABLES["tens"], 2) for word in words.split()}
_ONES = {
    **dict.fromkeys(("one", "ein", "un", "uno"), 1),
    **{word: number for word, number in _SMALL_NUMBERS.items() if 0 < number < 10},
}


def _ordinals(language: str, start: int) -> dict[str, int]:
    """Map the ordinals of a language, or their stems, to numbers."""
    small, tens = _TABLES[f"{language}_ordinals"].split(), _TABLES[f"{language}_tens"].split()
    numbers = dict(zip(small, range(start, 20), strict=True))
    return numbers | {word: number for number, word in zip(range(20, 100, 10), tens, strict=True)}


# "first" and "second" are mostly no numbers
_ENGLISH_ORDINALS, _STEMS = _ordinals("english", 3), _ordinals("german", 2)
_ORDINALS = _ENGLISH_ORDINALS | {
    f"{stem}{ending}": number for stem, number in _STEMS.items() for ending in ("e", "en", "er", "es")
}
_AFTER_TENS = {"first": 1, "second": 2} | _ENGLISH_ORDINALS
_FRACTIONS = (
    {"half": 2, "hälfte": 2, "quarter": 4, "quarters": 4}
    | _ENGLISH_ORDINALS
    | {f"{word}s": number for word, number in _ENGLISH_ORDINALS.items()}
    | {f"{stem}el": number for stem, number in _STEMS.items() if number > 2}
)


_HINTS = ("first", "second", "half", "halb", "hälfte", "quarter", *_ENGLISH_ORDINALS, *_STEMS)


def _any(words: dict[str, int]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_ONE = "|".join(_ONES)
_NUMBER_WORD = re.compile(
    rf"\b(?:(?P<small>{'|'.join(_SMALL_NUMBERS)})"
    # ones stand before tens in "einundzwanzig", behind them in "twenty-one" and "treinta y cinco"
    rf"|(?:(?P<before>{_ONE})und)?(?P<tens>{'|'.join(_TENS)})(?:(?:[- ]| (?:y|et) )(?P<after>{_ONE}))?)\b",
    re.IGNORECASE,
)
_TENS_ORDINAL = re.compile(
    rf"\b(?P<tens>{'|'.join(_TENS)})[- ](?P<ones>{_any(_AFTER_TENS)})(?!\w)", re.IGNORECASE
)
# but "every third day" is every 3 days
_EVERY = re.compile(
    rf"\b(?:every|jede[nrs]?) (?P<ordinal>{_any(_ORDINALS)})(?!\w)"
    r"(?! (?:minute|hour|day|week|month|year|stunde|tag|woche|monat|jahr)\b)",
    re.IGNORECASE,
)
# not that of "the second half"
_WHOLE_HALF = (
    r"(?<!first )(?<!second )(?<!other )(?<!erste )(?<!zweite )(?<!andere )"
    r"(?=half of\b|half\W*\Z|hälfte\b)"
)
# "a third" alone or before "of", since "a third person" is another one
_FRACTION = re.compile(
    rf"(?<![\w/.,])(?:(?P<top>\d+|one|an?|eine?) |(?:the |die )?{_WHOLE_HALF})"
    rf"(?P<bottom>{_any(_FRACTIONS)})(?!\w)(?: of(?: the)?\b| der\b| von\b|(?! \w))",
    re.IGNORECASE,
)
_ORDINAL = re.compile(rf"\b(?P<ordinal>{_any(_ORDINALS)})(?!\w)", re.IGNORECASE)
_CENTURY = "|".join(word for word, number in _SMALL_NUMBERS.items() if number > 12)
_ANY_NUMBER = "|".join([_ONE, *_SMALL_NUMBERS, *_TENS])
# "nineteen eighty-four", but not "thirteen fourteen fifteen"
_YEAR = re.compile(
    rf"(?<![\w-])(?P<century>{_CENTURY}|twenty) (?P<rest>(?:{'|'.join(_TENS)})(?:[- ](?:{_ONE}))?|{_CENTURY}|"
    rf"ten|eleven|twelve)(?!\w|,? (?:{_ANY_NUMBER}|hundred|thousand)\b|-\w)",
    re.IGNORECASE,
)
_LISTED = re.compile(rf"(?:{_ANY_NUMBER}),? \Z", re.IGNORECASE)
# "2 hundred and 5", but not that of "between 2 hundred and 5 hundred"
_HUNDREDS, _THOUSANDS = (
    re.compile(
        rf"(?<![\w.,/^-])(?P<count>\d{{1,3}}|an?|one|eine?) {scale}\b"
        rf"(?: (?P<joint>(?:and|und) )?(?P<rest>\d{{1,{digits}}}|one)"
        rf"(?![\w%/:]|[.,]\d| (?:{scale}|\d)))?",
        re.IGNORECASE,
    )
    for scale, digits in (("(?:hundred|hundert)", 2), ("(?:thousand|tausend)", 3))
)
_HALF_A = re.compile(r"\bhalf an? (?=(?:hundred|thousand|[mb]illion|dozen)\b)", re.IGNORECASE)
_AND_HALF = re.compile(r"(?<![\w.,/^-])(?P<count>\d{1,3}|one) and a half\b", re.IGNORECASE)
_EVEN = re.compile(r"\b(?:half and half|fifty[- ]fifty|50 ?[-/:] ?50|halbe-halbe)(?!\w)", re.IGNORECASE)
_A_DOZEN = re.compile(r"\b(?:an?|one|eine?) (?=(?:dozen|dutzend|[mb]illion|milliarde)\b)", re.IGNORECASE)
_HOUR = re.compile(
    r"\b(?P<share>half|quarter|halb|viertel) (?:(?P<side>past|after|to|before|nach|vor) )?(?P<hour>\d{1,2})"
    r"(?![\w%€$£]|[.,:/]\d)",
    re.IGNORECASE,
)
_ROMAN = re.compile(
    r"\b(?P<name>[^\W\d_a-zäöüß]\w+ )(?P<roman>(?=[IVX]{2})X{0,3}(?:IX|IV|V?I{0,3}))(?![\w'-])"
)
_ROMAN_DIGITS = {"I": 1, "V": 5, "X": 10}


def in_digits(text: str) -> str:
    """Write the numbers of a text in digits: "two thirds" as 2/3, "half past six" as 6:30."""
    lower = text.casefold()
    has_parts = any(hint in lower for hint in _HINTS)  # far quicker than the patterns
    if has_parts:
        text = _TENS_ORDINAL.sub(_tens_ordinal, text)
    if "half" in lower:
        text = _HALF_A.sub("0.5 ", text)
    # "fifty-fifty" goes first, or it would become the range 50-50
    text = _A_DOZEN.sub("1 ", _EVEN.sub("half-half", text))
    # years go first, or 1984 would become 19 84
    text = _NUMBER_WORD.sub(_number, _YEAR.sub(_year, text))
    if "half" in lower:
        text = _AND_HALF.sub(lambda match: f"{match['count'].lower().replace('one', '1')}.5", text)
    # hundreds before thousands: "two hundred and fifty thousand"
    if any(scale in lower for scale in ("hund", "thousand", "tausend")):
        text = _HUNDREDS.sub(lambda match: _scaled(match, 100), text)
        text = _THOUSANDS.sub(lambda match: _scaled(match, 1000), text)
    if has_parts:
        # hours and "every third" before fractions, which have the same words
        text = _EVERY.sub(lambda match: f"1/{_ORDINALS[match['ordinal'].lower()]}", _HOUR.sub(_time, text))
        text = _FRACTION.sub(_fraction, text)
        text = _ORDINAL.sub(lambda match: f"{_ORDINALS[match['ordinal'].lower()]}th", text)
    return _ROMAN.sub(lambda match: f"{match['name']}{_roman(match['roman'])}", text)


def _tens_ordinal(match: re.Match[str]) -> str:
    return f"{_TENS[match['tens'].lower()] + _AFTER_TENS[match['ones'].lower()]}th"


def _number(match: re.Match[str]) -> str:
    if match["small"]:
        return str(_SMALL_NUMBERS[match["small"].lower()])
    ones = match["before"] or match["after"] or ""
    return str(_TENS[match["tens"].lower()] + _ONES.get(ones.lower(), 0))


def _year(match: re.Match[str]) -> str:
    # "thirteen, fourteen fifteen" is a list
    if _LISTED.search(match.string, max(0, match.start() - 20), match.start()):
        return match[0]
    return "".join(_NUMBER_WORD.sub(_number, match[part]) for part in ("century", "rest"))


def _scaled(match: re.Match[str], scale: int) -> str:
    count, rest = (int(text) if text.isdigit() else 1 for text in (match["count"], match["rest"] or "0"))
    # in "between 2 hundred and 5 hundred" the "and" joins two numbers
    is_range = match.string[: match.start()].lower().endswith(("between ", "zwischen "))
    if match["joint"] and is_range:
        return f"{count * scale} {match['joint']}{rest}"
    return str(count * scale + rest)


def _fraction(match: re.Match[str]) -> str:
    top = match["top"] or "1"
    return f"{top if top.isdigit() else 1}/{_FRACTIONS[match['bottom'].lower()]}"


def _time(match: re.Match[str]) -> str:
    """Write "half past 6" and "halb 7" as 6:30, but keep "half 6", which is ambiguous."""
    share, side = match["share"].lower(), (match["side"] or "").lower()
    hour = int(match["hour"])
    is_before = side in ("to", "before", "vor") or share == "halb"
    is_known = {"half": side in ("past", "after"), "halb": not side}.get(share, side != "")
    if not is_known or not 1 <= hour <= 24:
        return match[0]
    minutes = 30 if share in ("half", "halb") else 45 if is_before else 15
    # the hour before 1 is 12
    return f"{(hour - is_before) or 12}:{minutes}"


def _roman(numeral: str) -> int:
    digits = [_ROMAN_DIGITS[letter] for letter in numeral]
    return sum(
        -digit if digit < following else digit
        for digit, following in zip(digits, [*digits[1:], 0], strict=True)
    )
