"""What two strings or token sequences have in common, and names that are cut. Other helpers of the module are
tested with their users."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from selfreflect.text import common_prefix, cut_apart

TOKENS = st.lists(st.integers(0, 2), max_size=8).map(tuple)


@given(TOKENS, TOKENS)
def test_it_is_the_longest_prefix_of_both(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    length = common_prefix(a, b)
    assert a[:length] == b[:length]
    assert length == min(len(a), len(b)) or a[length] != b[length]


@given(st.lists(st.text("ab", max_size=6), min_size=1))
def test_of_many_it_is_that_of_the_smallest_and_the_greatest(texts: list[str]) -> None:
    length = common_prefix(min(texts), max(texts))
    assert len({text[:length] for text in texts}) == 1
    assert len({text[: length + 1] for text in texts}) > 1 or len(min(texts)) == length


def test_a_list_and_a_tuple_can_be_compared() -> None:
    assert common_prefix([1, 2], (1, 2, 3)) == 2
    assert common_prefix([1, 2], (1, 3)) == 1


NAMES = st.lists(
    st.text("ab", max_size=9) | st.sampled_from(["", "system ", "a" * 20, "(b_" + "c" * 30]), max_size=4
)


@given(st.lists(NAMES.map("".join).map(str.strip), max_size=4, unique=True))
@example(["system (version_1.csv)", "system (version_2.csv)"])
@example(["a" * 30 + "1" + "b" * 30, "a" * 30 + "2" + "b" * 30])
def test_names_that_are_cut_stay_different(names: list[str]) -> None:
    cuts = cut_apart(names, 16)
    assert len(set(cuts)) == len(names)
    assert all(len(cut) <= 16 for cut in cuts)
    assert all(cut == name for cut, name in zip(cuts, names, strict=True) if len(name) <= 16)
