"""Training data: variants, and parts that never share a question."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.train.sayself.clusters import Cluster, ClusteredQuestion, Rationale
from selfreflect.train.sayself.examples import VARIANTS, make_examples, overlap, part_of

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
