"""Numbers in texts: one grammar for the classes, the correctness and the rewards that read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.quantities import last_quantity

INTEGERS = st.integers(0, 10**9)


def last_number(text: str) -> float | None:
    quantity = last_quantity(text)
    return None if quantity is None else quantity.value


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("1,234,567.5 of them", 1234567.5),
        ("from 3 to -4", -4),
        ("-5 to .5", 0.5),
        ("+.5", 0.5),
        ("7.", 7),
        ("6.02e23 atoms", 6.02e23),
        ("6.02 × 10²³", 6.02e23),
        ("2E-3", 0.002),
        ("10^6", 1e6),
        ("3 then 1e999", 3),
        ("1e999 apples", None),
        ("-", None),
        ("", None),
        # signs and currencies
        ("−5", -5),
        ("-$5", -5),
        ("$-5", -5),
        ("x = -3", -3),
        ("10 - 3 = 7", 7),
        # fractions
        ("1/2", 0.5),
        ("½", 0.5),
        ("1½ cups", 1.5),
        (r"$\frac{1}{2}$", 0.5),
        ("-1/4", -0.25),
        ("1/0", None),
        # separators
        ("1.234,5", 1234.5),
        ("1.234.567", 1234567),
        ("3,5", 3.5),
        ("0,001", 0.001),
        ("1,234", 1234),
        ("1.234", 1.234),
        ("1,00,000", 100000),
        ("1\u202f000", 1000),
        ("1’000", 1000),
        ("1_000", 1000),
        ("5 ± 1", 5),
        ("5 +/- 0.5", 5),
        ("5,000,000,", 5e6),
        # LaTeX
        (r"6.02 \times 10^{23}", 6.02e23),
        (r"10^{6}", 1e6),
        (r"2\frac{1}{2}", 2.5),
        (r"\frac12", 0.5),
        (r"5{,}000", 5000),
        (r"5\,000", 5000),
        (r"5\%", 0.05),
        # other scripts
        ("3万5千", 35000),
        ("1億2000万", 1.2e8),
        ("3만 5천", 35000),
        ("٣٫٥", 3.5),
        ("١٬٢٣٤", 1234),
        # signs before fractions and in words
        ("−½", -0.5),
        ("3-1/2", 3.5),
        ("negative 5", -5),
        ("x = - 3", -3),
        # prices, magnitudes and heights
        ("5.000,-", 5000),
        ("R$ 1.234,50", 1234.5),
        ("$3.5T", 3.5e12),
        ("5 ft 11 in", 71),
        # what stands beside the number
        ("7 [1]", 7),
        # dates and proportions have none
        ("2020/05/12", None),
        ("12-May-2020", None),
        ("2020/05", None),
        ("4 of 5", None),
        ("5 out of 10", None),
        ("3 of them", 3),
        # magnitudes and per cent
        ("5 %", 0.05),
        ("5 percent", 0.05),
        ("1.5 million", 1.5e6),
        ("1,5 Millionen Euro", 1.5e6),
        ("1.5 billion", 1.5e9),
        ("人口は5万人", 5e4),
        ("5 млн", 5e6),
        ("5 crore", 5e7),
        ("5 per mille", 0.005),
        ("3 Milliarden", 3e9),
        ("5K", 5000),
        ("$5M", 5e6),
        ("5 m", 5),
        ("5M people", 5e6),
        ("2B", 2e9),
        # what stands in brackets is an aside
        ("5 (in 2020)", 5),
        ("(5)", 5),
        ("72 clips, altogether.", 72),
        ("the 21st century", 21),
        # ranges, dates, times, versions, lists and names have no number
        ("3-5", None),
        ("2019–2020", None),
        ("60 - 100", None),
        ("1,000-2,000", None),
        ("$3-$5", None),
        ("2020-03-05", None),
        ("5 May 2020", None),
        ("05.03.2020", None),
        ("12:30", None),
        ("1.2.3", None),
        ("the 1990s", None),
        ("10s", 10),
        ("1,2,3", None),
        ("COVID-19", None),
        ("B52", None),
        ("in March 1971", 1971),
    ],
)
def test_the_last_number_of_a_text(text: str, number: float | None) -> None:
    assert last_number(text) == (None if number is None else pytest.approx(number, rel=1e-12))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("5 km", "5000 metres"),
        ("1 hour", "60 min"),
        ("$5", "5 dollars"),
        ("May 5, 2020", "2020-05-05"),
        ("5. Mai 2020", "05.05.2020"),
        ("300 000", "300,000 people"),
        ("3–5", "about 3-5"),
        ("1990s", "the '90s"),
        ("in den 1990er Jahren", "1990's"),
        ("5M", "5 million"),
    ],
)
def test_quantities_that_are_equal(one: str, other: str) -> None:
    first, second = last_quantity(one), last_quantity(other)
    assert first is not None
    assert second is not None
    assert first.key == second.key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("5 km", "5 miles"),
        ("1990s", "1990"),
        ("1980s", "1990s"),
        ("10 am", "10 pm"),
        ("5%", "5"),
        ("3-5", "5"),
        ("12:30", "30"),
        ("$5", "5 €"),
    ],
)
def test_quantities_that_differ(one: str, other: str) -> None:
    first, second = last_quantity(one), last_quantity(other)
    assert first is not None
    assert second is not None
    assert first.key != second.key


@given(INTEGERS, st.sampled_from(["{:,}", "{}", "{:_}"]), st.sampled_from(["", "-", "−"]))
def test_every_separator_of_thousands_reads_back(number: int, form: str, sign: str) -> None:
    text = form.format(number)
    for mark in " '’\u00a0":
        assert last_number(f"about {sign}{text.replace('_', mark)}.") == (-number if sign else number)


@given(INTEGERS, st.integers(0, 99))
def test_decimals_of_both_kinds_read_back(number: int, cents: int) -> None:
    english = f"{number:,}.{cents:02}"
    european = english.translate(str.maketrans(",.", ".,"))
    assert last_number(english) == last_number(european) == pytest.approx(number + cents / 100)


@given(st.text(st.sampled_from("0123456789.,-/:%()$€ ekm'^x×½²\ud800")))
def test_any_text_has_a_finite_number_or_none(text: str) -> None:
    number = last_number(text)
    assert number is None or abs(number) < float("inf")
