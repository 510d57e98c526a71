"""Numbers in a text: values, units and other shapes such as dates."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from selfreflect.grouping import unified
from selfreflect.text import UNSPACED


class Quantity(NamedTuple):
    """A number with its unit, or a range, date, time or list without a value."""

    value: float | None
    """Number including magnitude and per cent: "1.5 million" is 1500000, "5 %" is 0.05."""
    unit: str
    """Unit as a word of :data:`UNITS` in its first spelling; empty for others."""
    text: str
    is_aside: bool
    """Whether the quantity is in brackets or a tolerance."""
    start: int
    end: int
    """End in the :func:`readable` text."""

    is_percent: bool = False

    @property
    def in_base(self) -> tuple[float, str]:
        """Value in the base unit, and that unit; 0 without a value."""
        # in the base, 5 km and 5000 metres are equal
        base, factor = UNITS.get(self.unit, (self.unit, 1))
        return (self.value or 0.0) * factor, base

    @property
    def key(self) -> tuple[str, str]:
        """Comparison key, equal for equal quantities in any notation."""
        value, base = self.in_base
        # 9:30 am, 9.30 Uhr and 9:30 are one time, so a word of the clock is no unit
        if self.unit in _CLOCK:
            hour, _, minutes = (self.text or f"{value:g}").partition(":")
            # 12 am is midnight, 12 pm is noon
            if hour.isdigit() and self.unit != "uhr":
                hour = str(int(hour) % 12 + 12 * (self.unit == "pm"))
            return f"{hour}:{minutes or '00'}", ""
        # 10 digits, so that rounding of a factor makes no other key
        return (self.text, base) if self.value is None else (f"{value:.10g}", base)


_SPELLINGS = {
    "m": ("m metre metres meter meters", "m", 1),
    "km": ("km kilometre kilometres kilometer kilometers", "m", 1000),
    "cm": ("cm centimetre centimetres centimeter centimeters zentimeter", "m", 0.01),
    "mm": ("mm millimetre millimetres millimeter millimeters", "m", 0.001),
    "mile": ("mile miles mi meile meilen", "m", 1609.344),
    "foot": ("foot feet ft fuss", "m", 0.3048),
    "inch": ("inch inches zoll", "m", 0.0254),
    "kg": ("kg kilo kilos kilogram kilograms kilogramm", "g", 1000),
    "g": ("g gram grams gramm", "g", 1),
    "mg": ("mg milligram milligrams milligramm", "g", 0.001),
    "µg": ("µg μg mcg microgram micrograms mikrogramm", "g", 1e-6),
    "t": ("tonne tonnes tonnen", "g", 1e6),
    "lb": ("lb lbs pound pounds pfund", "lb", 1),
    "l": ("l litre litres liter liters", "l", 1),
    "dl": ("dl decilitre decilitres deciliter deciliters deziliter", "l", 0.1),
    "cl": ("cl centilitre centilitres centiliter centiliters zentiliter", "l", 0.01),
    "ml": ("ml millilitre millilitres milliliter milliliters", "l", 0.001),
    "s": ("s sec secs second seconds sekunde sekunden seconde secondes segundos", "s", 1),
    "min": ("min mins minute minutes minuten minuto minutos", "s", 60),
    "h": ("h hr hrs hour hours stunde stunden heure heures hora horas", "s", 3600),
    "day": ("day days tag tage tagen jour jours día días", "s", 86400),
    "week": ("week weeks woche wochen semaine semaines semana semanas", "s", 604800),
    "month": ("month months monat monate monaten mois mes meses", "month", 1),
    "year": ("year years jahr jahre jahren ans année années año años", "month", 12),
    "usd": ("usd $ us$ dollar dollars", "usd", 1),
    "brl": ("brl r$ reais", "brl", 1),
    "aud": ("aud a$ au$", "aud", 1),
    "cad": ("cad c$ ca$", "cad", 1),
    "eur": ("eur € euro euros", "eur", 1),
    "gbp": ("gbp £", "gbp", 1),
    "chf": ("chf sfr franken", "chf", 1),
    "jpy": ("jpy ¥ yen", "jpy", 1),
    "inr": ("inr ₹ rupee rupees", "inr", 1),
    "cny": ("cny rmb yuan", "cny", 1),
    "ct": ("ct cent cents", "ct", 1),
    "°c": ("°c °celsius celsius", "°c", 1),
    "°f": ("°f °fahrenheit fahrenheit", "°f", 1),
    "am": ("am a.m", "am", 1),
    "pm": ("pm p.m", "pm", 1),
    "uhr": ("uhr o'clock", "uhr", 1),
}
UNITS = {name: (base, factor) for name, (_, base, factor) in _SPELLINGS.items()}
_CLOCK = ("am", "pm", "uhr")
_UNIT_OF = {word: name for name, (words, _, _) in _SPELLINGS.items() for word in words.split()}
_MAGNITUDES = {
    **dict.fromkeys(("%", "percent", "prozent", "per cent"), 0.01),
    **dict.fromkeys(("‰", "promille", "permille"), 0.001),
    **dict.fromkeys(("dozen", "dutzend"), 12),
    **dict.fromkeys(("hundred", "hundert", "百", "백"), 1e2),
    **dict.fromkeys("thousand tausend tsd k mille тысяча тысячи тысяч тыс 千 천".split(), 1e3),
    **dict.fromkeys("万萬만", 1e4),
    **dict.fromkeys(("lakh", "lakhs"), 1e5),
    **dict.fromkeys("million millions millionen mio mn millones milhões milioni млн миллионов".split(), 1e6),
    **dict.fromkeys(("crore", "crores"), 1e7),
    **dict.fromkeys("億亿억", 1e8),
    # a German Billion is 10^12, an English billion 10^9
    **dict.fromkeys("billion billions bn milliarde milliarden milliard milliards mrd млрд".split(), 1e9),
    **dict.fromkeys(("trillion", "trillions", "tn", "billionen", "兆", "조"), 1e12),
}
_LETTERS = {"m": 1e6, "b": 1e9, "t": 1e12}
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTH_OF = {name: number for number, name in enumerate(_MONTHS, start=1)}
_MONTH_OF |= {"mär": 3, "mai": 5, "okt": 10, "dez": 12}

_MONTH = (
    r"(?:jan(?:uary|uar)?|feb(?:ruary|ruar)?|mar(?:ch)?|märz|apr(?:il)?|may|mai|june?|juni|july?|juli|aug(?:ust)?"
    r"|sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)\b\.?"
)
_PLAIN = (
    r"(?:10\^\(?-?\d+\)?"
    r"|0[.,]\d+"  # 0,001 is a decimal
    r"|\d{1,3}(?:,\d{2,3})*,\d{3}(?:\.\d+)?(?!,?\d)"  # 1,000 and 1,00,000.5
    r"|\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}"  # 1.234,5 and 1.234.567
    r"|\d{1,3}(?:[ '_]\d{3})+(?:[.,]\d+)?(?!\d)"  # 1 000, 1'000 and 1_000
    r"|\d+,\d{1,2}(?!,?\d)|\d+,\d{4,}(?!,?\d)"  # 3,5
    r"|\d+(?:\.\d+)?|\.\d+)"
)
_POWER = r"(?:e[-+]?\d+(?!\w)| ?[x×*·] ?10 ?\^ ?\(?-?\d+\)?)?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_SCALES = "百백千천万萬만億亿억兆조"
_DOLLARS = r"(?:(?<!\w)(?:us|r|au?|ca?|nz|hk|s)(?=\$))?"
_CURRENCY = rf"(?:{_DOLLARS}[$€£¥₹]|(?<!\w)(?:usd|eur|gbp|chf|sfr|jpy|inr|cny|rmb)(?= ))"
# The first that matches wins. All but numbers have no value.
_GRAMMAR = {
    "date": (
        r"(?<![\w.])(?:\d{4}(?P<mark>[-/])\d{1,2}(?P=mark)\d{1,2}"
        r"|\d{1,2}\. ?\d{1,2}\. ?\d{4}|\d{1,2}/\d{1,2}/\d{2,4}"
        r"|(?:19|20)\d\d/\d\d(?! ?=)"  # 2020/05, and the season 2019/20
        rf"|{_DAY}\.?[ -](?:of )?{_MONTH},?[ -]\d{{4}}|{_MONTH}[ -]{_DAY},?[ -]\d{{4}})(?!\w)"
        r"|(?<!\d)\d{4}[年년] ?\d{1,2}[月월](?: ?\d{1,2}[日일])?"
    ),
    "decade": r"(?<![\w.,])(?:[12]\d{2}0'?s|(?:the |')[3-9]0'?s|[12]\d{2}0er)(?!\w)",
    # times and ratios, versions, lists such as 1,2,3, powers
    "other": (
        r"(?<![\w.,:])(?:\d{1,2}[.:]\d\d ?uhr\b|\d+(?::\d+)+(?: ?(?P<half>[ap])\.?m\b| o'clock)?"
        r"|(?!\d{1,3}(?:\.\d{3})+(?!\d))\d+(?:\.\d+){3,}|\d+(?:,\d+){2,}(?<!,\d{3})"
        r"|\d+ (?:(?:out )?of|von|aus|sur) (?:the |den )?\d+"  # 4 of 5 has no number of its own
        r"|\d+(?:\.\d+){2}(?<!\.\d{3})|(?!10\^)\d[\d.,]*\^\(?-?\d+\)?|0[xbo][\da-f]+)(?![\w:])"
    ),
    "fraction": (
        r"(?<![\w.,])[-+]?[$€£]?-?(?:(?P<whole>\d+)(?: |-(?=[12]/3\b|\d{1,2}/(?:2|4|8|16)\b)))?"
        r"(?P<top>\d+) ?/ ?(?P<bottom>\d+)(?![\w/]|\.\d)"
    ),
    "height": (
        r"(?<![\w.,])(?P<feet>\d+) ?(?:ft|feet|foot|')\.? ?"
        r"(?P<inches>\d+) ?(?:in(?! \w)|inch(?:es)?|\")(?!\w)"
    ),
    "range": rf"(?<![\w.]){_DOLLARS}[$€£]?\d[\d.,]*(?: ?[%€£$])?(?: ?- ?[$€£]?\d[\d.,]*(?<![.,]))+(?! ?=)",
    "number": (
        rf"(?P<sign>(?<![\w)\]])[-+])?(?:(?P<before>{_CURRENCY}) ?)?(?P<late>(?<=[$€£])-)?"
        rf"(?<![^\W{UNSPACED}])(?<!\^)(?P<digits>{_PLAIN}{_POWER})"
    ),
}
_TOKEN = re.compile("|".join(f"(?P<{name}>{shape})" for name, shape in _GRAMMAR.items()), re.IGNORECASE)
_AFTER = re.compile(
    r"(?P<ordinal>(?:st|nd|rd|th)\b)|(?P<gap> ?-?)"
    rf"(?P<word>o'clock\b|%|‰|per (?:cent|mille)\b|[ap]\.m\b|[$€£¥₹{_SCALES}]|°\s?\w+"
    r"|[^\W\d_]++(?!\d))",
    re.I,
)
_NAME = re.compile(rf"[^\W\d_{UNSPACED}]-?\Z")
# "minus 5" is -5, but "7 minus 5" and "x minus 5" are subtractions
MINUS = re.compile(r"(?<!\d )(?<!\b\w )\b(?:minus|negative) (?=[\d.])|(?<=[=≈] )- (?=[\d.])", re.IGNORECASE)
# Notations of LaTeX, and plain ones.
_NOTATIONS = [
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"(?<=\d)(?=\\[dt]?frac)", " "),
        (r"\\[dt]?frac ?(?:\{(\d+)\}|(\d)) ?(?:\{(\d+)\}|(\d))", r"\1\2/\3\4"),
        (r"\\(?:times|cdot)(?![a-z])", "×"),
        (r"\^\{(-?\d+)\}", r"^\1"),
        (r"(?<=\d)(?:\{,\}|\\[,;!])(?=\d{3})", ","),
        (r"\\(?=%)", ""),
    )
]
_WHOLE_PRICE = re.compile(r"(?<=\d),-(?!\d)")  # 5.000,-
_SCALED = rf"(\d[\d,]*(?:\.\d+)?)([{_SCALES}]+)"
# 3万5千, 1億2000万 and 1万2345
_MYRIADS = re.compile(rf"{_SCALED}(?: ?{_SCALED})+(?:\d{{4}}(?![\d年년]))?|{_SCALED}\d{{4}}(?![\d年년])")
_NO_POWER = re.compile(r"[x×*·] ?10 ?\^ ?\(?(-?\d+)\)?")
_MONTH_BEFORE = re.compile(rf"\b({_MONTH})(?:,| of)? \Z", re.IGNORECASE)
_LONGEST_MONTH = 20
"""Number of characters before a year in which to search for its month."""
# Texts beside a number: brackets and tolerances.
_ASIDES = re.compile(
    r"\([^()]*\)|(?:±|\+/-) ?\d[\d.,]*"
    r"|(?<=\d)[.,%]?(?: ?[^\W\d]+\.?)? ?(?:\[\d{1,4}(?:[,-] ?\d{1,4})*\])+"  # a citation
)
_DIGIT = re.compile(r"\d")


def readable(text: str) -> str:
    """Normalise characters, and spell out fractions, exponents and negative numbers."""
    text = unified(text)
    if not has_digit(text):
        return text
    if "\\" in text or "{" in text:
        for pattern, plain in _NOTATIONS:
            text = pattern.sub(plain, text)
    if ",-" in text:
        text = _WHOLE_PRICE.sub(",00", text)
    return MINUS.sub("-", text if text.isascii() else _MYRIADS.sub(_as_digits, text))


def _as_digits(match: re.Match[str]) -> str:
    """Add up the parts of a number such as 3万5千."""
    parts = [(number.replace(",", ""), scales) for number, scales in re.findall(_SCALED, match[0])]
    values = [float(number) * math.prod(_MAGNITUDES[scale] for scale in scales) for number, scales in parts]
    values += [float(rest[0]) for rest in re.finditer(r"\d+\Z", match[0])]
    # 3만 5만 are two numbers
    is_one = all(after < before for before, after in pairwise(values))
    return f"{math.fsum(values):.15g}" if is_one else match[0]


def quantities(text: str) -> list[Quantity]:
    """List the quantities of a :func:`readable` text, in order."""
    if not has_digit(text):
        return []
    asides = [match.span() for match in _ASIDES.finditer(text)]
    return list(_read(text, asides))


def has_digit(text: str) -> bool:
    """Check whether a text contains a digit of any script."""
    return _DIGIT.search(text) is not None


def with_month(text: str, year: Quantity) -> Quantity:
    """Extend a year by the month before it, as year-month; return other quantities unchanged."""
    month = _MONTH_BEFORE.search(text, max(0, year.start - _LONGEST_MONTH), year.start)
    is_year = re.fullmatch(r"\d{4}", text[year.start : year.end])
    # "may 1990" in small letters has the verb
    if month is None or is_year is None or not month[1][0].isupper():
        return year
    number = _MONTH_OF[month[1][:3].casefold()]
    return year._replace(value=None, text=f"{year.value:.0f}-{number}", start=month.start())


def last_quantity(text: str) -> Quantity | None:
    """Return the last quantity that is no aside, or else the last one.

    Numbers beyond the range of floats do not count.
    """
    # "5 (in 2020)" answers 5
    all_quantities = quantities(readable(text))
    outside = [quantity for quantity in all_quantities if not quantity.is_aside]
    return next(reversed(outside or all_quantities), None)


def _read(text: str, asides: list[tuple[int, int]]) -> Iterator[Quantity]:
    position = 0
    while match := _TOKEN.search(text, position):
        position = match.end()
        if _NAME.search(text, max(0, match.start() - 2), match.start()):
            continue  # F-16, B52
        before = bisect_left(asides, (match.start(),))
        # asides are sorted: the last one that begins before the number is the only candidate
        is_aside = before > 0 and match.start() < asides[before - 1][1]
        if match["date"]:
            yield Quantity(None, "", _date(match[0]), is_aside, *match.span())
        elif match["decade"]:
            year = re.sub(r"\D", "", match[0])
            # the '90s are those of the twentieth century
            yield Quantity(None, "", f"{'19' * (len(year) == 2)}{year}s", is_aside, *match.span())
        elif match["other"] or match["range"]:
            shape = re.sub(
                r"[ $€£%]|[a-z]+(?=\$)|(?:out|the|den) |(?:[ap]\.?m|o'clock)\Z|\A0(?=\d:)",
                "",
                match[0].casefold(),
            )
            if shape.endswith("uhr"):
                # German writes 9.30 Uhr with a point
                shape = shape.removesuffix("uhr").replace(".", ":")
            half = f"{match['half'].lower()}m" if match["half"] else ""  # of the day
            yield Quantity(None, half, shape, is_aside, *match.span())
        elif match["fraction"]:
            bottom = float(match["bottom"])
            if bottom:
                size = float(match["whole"] or 0) + float(match["top"]) / bottom
                yield _with_unit(text, match, -size if re.match(r"\D*-", match[0]) else size, is_aside)
        elif match["height"]:
            inches = 12.0 * float(match["feet"]) + float(match["inches"])
            yield Quantity(inches, "inch", "", is_aside, *match.span())
        else:
            size = _value(match["digits"])
            # 1e999 is beyond floats
            if math.isfinite(size):
                is_negative = "-" in (match["sign"], match["late"])
                yield _with_unit(text, match, -size if is_negative else size, is_aside)


def _value(digits: str) -> float:
    """Read a number with separators and exponent."""
    power = 0.0
    digits = digits.lower().replace("10^", "1×10^", 1) if digits.startswith("10^") else digits.lower()
    if match := _NO_POWER.search(digits):
        power = float(match[1])
        digits = digits[: match.start()].strip()
    mantissa, _, exponent = digits.partition("e")
    mantissa = re.sub("[ '_]", "", mantissa)
    # a comma is decimal after groups with points, after 0, or where no three digits follow it
    if re.fullmatch(r"\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}|0,\d+|\d+,(?:\d{1,2}|\d{4,})", mantissa):
        mantissa = mantissa.replace(".", "").replace(",", ".")
    power += float(exponent or 0)
    try:
        return float(f"{mantissa.replace(',', '')}e{power:.0f}")
    except (ValueError, OverflowError):
        return math.inf


def _with_unit(text: str, match: re.Match[str], value: float, is_aside: bool) -> Quantity:
    """Read the magnitude and unit after a number."""
    end = match.end()
    unit, is_percent = _UNIT_OF.get((match["before"] or "").casefold(), ""), False
    # at most a magnitude and a unit: "5 million dollars"
    for _ in range(2):
        after = _AFTER.match(text, end)
        if after is None:
            break
        if after["ordinal"]:
            end = after.end()
            continue
        word = after["word"].casefold()
        # "per cent" keeps its blank, "° C" loses it
        word = word if "cent" in word else re.sub(r"\s", "", word)
        # 5k is 5000; behind a blank k is a word
        if word in _MAGNITUDES and (word != "k" or not after["gap"]):
            value *= _MAGNITUDES[word]
            if word in ("%", "percent", "prozent", "per cent"):
                is_percent, end = True, after.end()
                break
        elif word in _LETTERS and not after["gap"] and (after["word"].isupper() or match["before"]):
            value *= _LETTERS[word]  # 5M and $5m, but 5 m
        elif word in _UNIT_OF:
            unit, end = _UNIT_OF[word], after.end()
            break
        else:
            break
        end = after.end()
    return Quantity(value, unit, "", is_aside, match.start(), end, is_percent)


def _date(text: str) -> str:
    """Write a date as year-month-day if the order of its parts is known."""
    words = re.findall(r"[^\W\d_]{3,}", text)
    numbers = list(map(int, re.findall(r"\d+", text)))
    months = [_MONTH_OF[word[:3].casefold()] for word in words if word[:3].casefold() in _MONTH_OF]
    if months:
        day, year = numbers
        return f"{year}-{months[0]}-{day}"
    if "/" in text and not re.match(r"\d{4}", text):
        first, second, year = numbers
        # only one of them is a day where no month has that number; a year of two digits is no year
        if year < 100 or (first > 12) == (second > 12):
            return text
        return f"{year}-{min(first, second)}-{max(first, second)}"
    return "-".join(map(str, numbers if re.match(r"\d{4}", text) else numbers[::-1]))
