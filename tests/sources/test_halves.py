"""How a list of answers comes into two halves, and what says that they differ more than chance."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import measured_run

from selfreflect.metric.inputs import two_halves
from selfreflect.records import AnswerSet, from_plain
from selfreflect.report.document import result_lines
from selfreflect.run.reflect import make_cases
from selfreflect.sources.items import read_item_file, to_plain
from selfreflect.stats import discoveries, halves_p_value

QUESTION = "Who wrote it?"
SORTED = ["Peter Watts."] * 4 + ["Robin Cook."] * 4
ORDERS = (SORTED, SORTED[::-1], ["Peter Watts.", "Robin Cook."] * 4)


def halved(path: Path, seed: int = 0) -> AnswerSet:
    [item] = read_item_file(path, seed=seed).items
    return item.answer_set


def written(path: Path, answers: list[str]) -> list[Path]:
    """The same answers as a list and as one row each."""
    path.with_suffix(".json").write_text(json.dumps([{"question": QUESTION, "answers": answers}]))
    path.with_suffix(".csv").write_text("question,answer\n" + "".join(f"{QUESTION},{a}\n" for a in answers))
    return [path.with_suffix(".json"), path.with_suffix(".csv")]


def test_the_order_of_a_list_decides_nothing_from_a_file_or_in_python(tmp_path):
    sets = []
    for answers in ORDERS:
        sets += map(halved, written(tmp_path / "items", answers))
        sets.append(two_halves(sets[0].question_id, answers, None, None))
        [case] = make_cases(QUESTION, answers, None, "", 0)
        [row] = make_cases([{"question": QUESTION, "samples": answers}], None, None, "", 0)
        sets += [case.answers, row.answers]
    assert len(set(sets)) == 1
    assert sets[0].halved == "shuffled"
    assert sorted(sets[0].answers) == SORTED
    assert set(sets[0].masked_out) == set(sets[0].conditioning) == set(SORTED)


def test_seed_and_question_decide_the_halves(tmp_path):
    path, _ = written(tmp_path / "items", [f"answer {number}" for number in range(12)])
    assert len({halved(path, seed) for seed in range(5)}) == 5
    assert two_halves("q-1", SORTED, None, None) != two_halves("q-2", SORTED, None, None)
    assert halved(path, 3) == halved(path, 3)


def test_halves_that_were_given_keep_their_order(tmp_path):
    path = tmp_path / "items.json"
    row = {"question": QUESTION, "masked_out_task_answers": SORTED[4:], "conditioning_answers": SORTED[:4]}
    path.write_text(json.dumps([row]))
    for answers in (halved(path, 7), two_halves("q", None, SORTED[4:], SORTED[:4], 7)):
        assert (answers.masked_out, answers.conditioning) == (tuple(SORTED[4:]), tuple(SORTED[:4]))
        assert answers.halved == "given"
    # records of earlier versions lack the field
    old = {"question_id": "q", "masked_out": ["a"], "conditioning": ["b"]}
    assert from_plain(AnswerSet, old).halved == ""
    assert "halved" not in AnswerSet(**old).to_dict()


@pytest.mark.parametrize("seed", [0, 1])
def test_a_written_item_has_the_same_halves_when_it_is_read_again(tmp_path, seed):
    path, _ = written(tmp_path / "items", [f"answer {number}" for number in range(9)])
    [item] = read_item_file(path, seed=seed).items
    path.write_text(json.dumps([to_plain(item)]))
    assert ("answers" in to_plain(item)) == (seed == 0)
    assert halved(path).answers == item.answer_set.answers


def test_log_probabilities_stay_with_their_answers(tmp_path):
    answers = ["b", "a", "c", "b"]
    row = {
        "question": QUESTION,
        "answers": answers,
        "tokens": [[text] for text in answers],
        "logprobs": [[-1.0], [-2.0], [-3.0], [-4.0]],
    }
    path = tmp_path / "items.json"
    path.write_text(json.dumps([row]))
    found = halved(path)
    assert found.answers != tuple(answers)
    assert sorted(zip(found.answers, (one.logprobs for one in found.logprobs), strict=True)) == [
        ("a", (-2.0,)),
        ("b", (-4.0,)),
        ("b", (-1.0,)),
        ("c", (-3.0,)),
    ]


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=8), st.data())
def test_the_p_value_is_the_share_of_splits_that_overlap_no_more(answers, data):
    size = data.draw(st.integers(0, len(answers)))

    def overlap(first: tuple[int, ...]) -> int:
        inside = [answers[index] for index in first]
        return sum(min(inside.count(kind), answers.count(kind) - inside.count(kind)) for kind in "abc")

    splits = [overlap(first) for first in combinations(range(len(answers)), size)]
    counts = [(answers[:size].count(kind), answers[size:].count(kind)) for kind in "abc"]
    observed = sum(map(min, counts))
    expected = sum(one <= observed for one in splits) / len(splits)
    assert halves_p_value(counts) == pytest.approx(expected)


def test_false_discoveries_are_limited():
    assert discoveries({"a": 0.029}) == ["a"]
    assert discoveries(dict.fromkeys("abcdefgh", 0.029)) == list("abcdefgh")
    assert discoveries({"a": 0.029, **dict.fromkeys("bcdefgh", 0.9)}) == []
    assert discoveries({"a": 1e-6, **dict.fromkeys("bcdefgh", 0.9)}) == ["a"]
    assert discoveries({}) == []


@pytest.mark.parametrize(
    ("first", "second", "differ"),
    [
        (SORTED[:4], SORTED[4:], 1),
        (["Peter Watts.", "peter watts", "Robin Cook."], ["Robin Cook.", "Peter Watts"], 0),
        (list("abcd"), list("efgh"), 0),
    ],
)
def test_halves_that_differ_more_than_chance_are_counted(first, second, differ):
    run = measured_run({"greedy": [5.0]})
    answers = AnswerSet(question_id="q0", masked_out=tuple(first), conditioning=tuple(second))
    run = replace(run, answers={"q0": answers})
    assert [line["halves_differ"] for line in result_lines(run)] == [differ]
