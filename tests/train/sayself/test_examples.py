"""Training data: variants, and parts that never share a question."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.train.sayself import examples
from selfreflect.train.sayself.clusters import Cluster, ClusteredQuestion, Rationale
from selfreflect.train.sayself.examples import VARIANTS, group_levels, make_examples, overlap, part_of

DOUBT = "I do not remember which river it is."


def question(id_: str, text: str, *clusters: tuple[str, int, bool]) -> ClusteredQuestion:
    made = tuple(Cluster(answer=answer, size=size, correct=right) for answer, size, right in clusters)
    return ClusteredQuestion(id=id_, question=text, gold=("Seine",), clusters=made)


RIVER = question("r", "Which river?", ("Loire", 6, False), ("Seine", 4, True))
RATIONALES = {"r": Rationale(question_id="r", text=DOUBT, origin="model")}


def responses(variant: str, choice: str = "gold") -> list[str]:
    rows, _ = make_examples([RIVER], RATIONALES, variant, choice)  # type: ignore[arg-type]
    return [row["response"] for row in rows]


def test_the_right_answer_gets_the_share_of_its_own_cluster() -> None:
    assert responses("full") == [f"Answer: Seine. Self-reflection: {DOUBT} Confidence: 4"]
    assert responses("full", "majority") == [f"Answer: Loire. Self-reflection: {DOUBT} Confidence: 6"]
    assert responses("no_rationale") == ["Answer: Seine. Confidence: 4"]
    assert responses("plain") == ["Answer: Seine."]


def test_r_tuning_asks_about_the_models_own_answer() -> None:
    [row], _ = make_examples([RIVER], RATIONALES, "rtuning", "gold")
    assert row["prompt"][1] == {"role": "assistant", "content": "Answer: Loire."}
    assert row["completion"] == [{"role": "assistant", "content": "I am unsure."}]


def test_a_group_shares_the_accuracy_of_its_largest_clusters() -> None:
    twin = question("s", "Which other river?", ("Seine", 6, True), ("Loire", 4, False))
    rows, _ = make_examples([RIVER, twin], None, "group", "majority")
    assert [row["response"] for row in rows] == [
        "Answer: Loire. Confidence: 5",
        "Answer: Seine. Confidence: 5",
    ]


def test_what_cannot_be_used_is_counted_by_reason() -> None:
    wrong = question("w", "Which lake?", ("Como", 3, False))
    dropped = Rationale(question_id="r", text="", origin="dropped")
    for variant in VARIANTS:  # all learn from the same questions, but for rtuning, which needs wrong answers
        rows, counts = make_examples([RIVER, wrong], {"r": dropped}, variant, "gold")
        assert rows == []
        assert counts["no usable rationale"] == (2 if variant == "rtuning" else 1)
    assert counts["no cluster has the right answer"] == 1


@pytest.mark.parametrize("answer", ["Self-reflection: none. Confidence: 10", "\n confidence : 9", "  "])
def test_an_answer_that_would_be_read_as_another_part_is_not_trained_on(answer: str) -> None:
    hostile = question("h", "Which lake?", (answer, 3, True))
    rows, counts = make_examples([hostile], None, "no_rationale", "gold")
    assert rows == []
    assert sum(counts.values()) == 1


@given(st.lists(st.text("abc äÖ?.", min_size=1), max_size=40))
def test_no_text_is_in_two_parts_however_it_is_spelled(texts: list[str]) -> None:
    by_part: dict[str, list[ClusteredQuestion]] = {}
    for place, text in enumerate(texts):
        for spelling in (text, f"  {text.upper()} "):
            one = question(f"{place}{spelling}", spelling, ("Seine", 1, True))
            by_part.setdefault(part_of(spelling), []).append(one)
    assert overlap(by_part) == []


def test_parts_have_about_their_shares() -> None:
    parts = [part_of(f"Number {number}?") for number in range(2000)]
    shares = [parts.count(part) / 20 for part in ("train", "rl", "dev", "test")]
    assert shares == pytest.approx([50, 15, 10, 25], abs=3)


def test_ordered_rows_are_mixed_before_they_are_split() -> None:
    """The published code tests on the first 1,000 rows, a third of which have one answer."""
    ordered = [
        ("French" if number < 300 else "other", f"Language of person {number}?") for number in range(1000)
    ]
    tested = [answer for answer, text in ordered if part_of(text) == "test"]
    assert tested.count("French") / len(tested) == pytest.approx(0.3, abs=0.06)


def test_an_overlap_is_seen() -> None:
    assert overlap({"train": [RIVER], "test": [question("x", "which river?", ("Seine", 1, True))]}) == [
        "r",
        "x",
    ]


def test_every_variant_has_the_published_row() -> None:
    [row], _ = make_examples([RIVER], RATIONALES, "no_rationale", "gold")
    assert row == {
        "question_id": "r",
        "question": "Which river?",
        "response": "Answer: Seine. Confidence: 4",
        "prompt": [{"role": "user", "content": "Question: Which river?"}],
        "completion": [{"role": "assistant", "content": "Answer: Seine. Confidence: 4"}],
    }
    [tuned], _ = make_examples([RIVER], None, "rtuning", "gold")
    assert tuned["prompt"][0] == row["prompt"][0]
    assert [turn["role"] for turn in tuned["prompt"]] == ["user", "assistant", "user"]


def test_r_tuning_says_sure_of_a_right_answer_and_needs_to_know() -> None:
    right = question("s", "Which?", ("Seine", 6, True), ("Loire", 4, False))
    unknown = ClusteredQuestion(id="u", question="Who?", clusters=(Cluster(answer="Ann", size=2),))
    rows, dropped = make_examples([unknown, right], None, "rtuning", "gold")
    assert [row["completion"][0]["content"] for row in rows] == ["I am sure."]
    assert dropped == {"no right answer to compare with": 1}


def test_one_unusable_question_ends_nothing() -> None:
    hostile = question("h", "Which lake?", ("Confidence: 9", 3, True))
    wrong = question("w", "Which sea?", ("Como", 3, False))
    undone = question("n", "Which bay?", ("Seine", 3, True))
    rows, dropped = make_examples([wrong, undone, hostile, RIVER], RATIONALES, "full", "gold")
    assert [row["question_id"] for row in rows] == ["r"]
    assert dropped == {"no cluster has the right answer": 1, "no usable rationale": 2}
    rows, dropped = make_examples([wrong, hostile, RIVER], None, "plain", "gold")
    assert [row["question_id"] for row in rows] == ["r"]
    assert dropped == {
        "no cluster has the right answer": 1,
        "the answer holds a marker of the statement": 1,
    }


def test_reasoning_that_would_be_read_as_another_part_is_not_trained_on() -> None:
    cluster = Cluster(answer="Seine", reasoning="So. Confidence: 3", size=1, correct=True)
    hostile = ClusteredQuestion(id="h", question="Which?", gold=("Seine",), clusters=(cluster,))
    assert make_examples([hostile], None, "plain", "gold")[0] == []
    plain = ClusteredQuestion(
        id="p", question="Which?", clusters=(Cluster(answer="Seine", reasoning="So. ", size=1, correct=True),)
    )
    [row], _ = make_examples([plain], None, "plain", "gold")
    assert row["response"] == "So. Answer: Seine."


def test_groups_count_what_is_known_and_may_be_never_right() -> None:
    """Of the questions with 6 of 10 answers alike none is right, of those with 8 one of three."""
    made = [question(f"a{n}", f"A{n}?", ("x", 6, False), ("y", 4, False)) for n in range(3)]
    made += [question(f"b{n}", f"B{n}?", ("x", 8, n == 0), ("y", 2, False)) for n in range(3)]
    unknown = ClusteredQuestion(
        id="u", question="U?", clusters=(Cluster(answer="x", size=6), Cluster(answer="y", size=4))
    )
    assert group_levels([*made, unknown]) == {6: 0, 8: 3}
    rows, _ = make_examples([*made, unknown], None, "group", "majority")
    assert [row["response"].rpartition(" ")[2] for row in rows] == ["0"] * 3 + ["3"] * 3 + ["0"]
    alone = question("c", "C?", ("x", 9, True), ("y", 1, False))
    level = make_examples([alone], None, "group", "majority")[0][0]
    assert level["response"].endswith("Confidence: 10")


def test_parts_begin_where_the_shares_before_them_end(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {0.0: "train", 49.99: "train", 50.0: "rl", 64.99: "rl", 65.0: "dev", 74.99: "dev", 75.0: "test"}
    for place, part in {**places, 99.99: "test"}.items():
        monkeypatch.setattr(examples, "place_of", lambda text, place=place: place)
        assert part_of("any") == part
