"""Rows to train on: which summaries are chosen, paired and left out, and why."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learnable_run import ANSWERS, information, write_learnable

from selfreflect.pipeline.records import run_prompts, run_records
from selfreflect.prompts import load_prompts
from selfreflect.records import AnswerSet, Question, Summary
from selfreflect.store.run import Run
from selfreflect.train.candidates import EMPTY, candidates, margin
from selfreflect.train.folder import parse_percentages, split_of, split_questions
from selfreflect.train.rows import (
    CHAT_MARKER,
    LEADS,
    RowOptions,
    dpo_rows,
    grpo_rows,
    hedge_rows,
    hedged,
    phrase_for,
    sft_rows,
)
from selfreflect.uncertainty.hedges import PHRASES, Hedge, read_hedge

TEXTS = {
    "greedy": ("Paris.", [1.0, 2.0, 1.0, 2.0, 1.0]),
    "basic#1": ("Paris or perhaps Lyon.", [8.0, 7.0, 8.0, 6.0, 7.0]),
    "basic#2": ("It may be Rome, surely.", [-1.0, 1.0, 0.0, -2.0, 0.0]),
    "basic#3": ("Paris, or Lyon, or Nice, or one of the many other cities.", [9.0, 8.0, 9.0, 7.0, 9.0]),
}


@pytest.fixture
def stored(tmp_path: Path) -> Run:
    return Run.load(write_learnable(tmp_path / "run", TEXTS))


def made(builder, stored: Run, **options):
    return builder(run_records(stored), load_prompts(), RowOptions(**options))


def said(row, column="completion"):
    [message] = row[column]
    assert message["role"] == "assistant"
    return message["content"]


@pytest.mark.parametrize("measure", ["recovered", "selfreflect"])
def test_the_best_summary_under_the_limit_of_length_is_learned(stored: Run, measure: str) -> None:
    [row] = made(sft_rows, stored, measure=measure).rows
    assert (said(row), row["summary"]) == (TEXTS["basic#3"][0], "basic#3")
    limited = made(sft_rows, stored, measure=measure, max_words=5)
    assert said(limited.rows[0]) == TEXTS["basic#1"][0]
    assert limited.dropped_texts["longer than 5 words"] == 1
    longest = made(sft_rows, stored, measure=measure, max_words=5, select="longest")
    assert said(longest.rows[0]) == TEXTS["basic#1"][0]
    [own] = made(sft_rows, stored, measure=measure, strategies=("greedy",)).rows
    assert said(own) == "Paris."


def test_a_student_is_asked_what_the_strategy_basic_asks(stored: Run) -> None:
    prompts = load_prompts()
    question = stored.questions["q0"]
    [row] = made(sft_rows, stored).rows
    expected = prompts.messages(question, prompts.basic["user"])
    assert row["prompt"] == [{"role": one.role, "content": one.content} for one in expected]
    assert "Some say this." in row["prompt"][-1]["content"]
    [other] = made(sft_rows, stored, instruction="Say {question} all.").rows
    assert other["prompt"][-1]["content"].endswith("Which city?\n\nSay {question} all.")


def test_random_choices_follow_the_seed(tmp_path: Path) -> None:
    questions = {f"q{number}": f"Which city is number {number}?" for number in range(30)}
    stored = Run.load(write_learnable(tmp_path / "run", TEXTS, questions=questions))
    choices = [
        [row["summary"] for row in made(sft_rows, stored, select="random", seed=seed).rows]
        for seed in (0, 0, 1)
    ]
    assert choices[0] == choices[1] != choices[2]
    assert set(choices[0]) == set(TEXTS) - {"basic#2"}


def test_pairs_are_alike_in_length_and_differ_by_more_than_chance(stored: Run) -> None:
    rows = made(dpo_rows, stored).rows
    [row] = rows
    assert (said(row, "chosen"), said(row, "rejected")) == (TEXTS["basic#1"][0], TEXTS["basic#2"][0])
    assert row["margin"] == pytest.approx(0.76)
    assert row["margin_stderr"] == pytest.approx(0.0510, abs=1e-4)
    many = made(dpo_rows, stored, pairs=9, length_ratio=20.0)
    assert len(many.rows) == 6
    assert [row["margin"] for row in many.rows] == sorted((row["margin"] for row in many.rows), reverse=True)
    wide = made(dpo_rows, stored, margin=50.0)
    assert wide.dropped == Counter({"no pair with a margin of 50 standard errors": 1})
    alike = made(dpo_rows, stored, length_ratio=1.0)
    assert alike.dropped == Counter({"no pair within a length ratio of 1": 1})
    single = made(dpo_rows, stored, strategies=("greedy",))
    assert single.dropped == Counter({"only one summary, so no pair": 1})


def test_a_margin_is_paired_over_held_out_answers(stored: Run) -> None:
    better, worse = candidates(run_records(stored), "q0", "recovered", names=["basic"])[:2]
    estimate = margin(better, worse)
    assert estimate is not None
    assert estimate[0] == pytest.approx(better.value - worse.value)  # the mean over answers is the measure
    scored = candidates(run_records(stored), "q0", "selfreflect", names=["basic"])[:2]
    estimate = margin(*scored)
    assert estimate is not None
    assert estimate[0] == pytest.approx(scored[1].value - scored[0].value)  # a lower score is better


def test_a_run_without_details_has_no_pairs_and_says_so(stored: Run) -> None:
    run = run_records(stored).without({"words"})
    outcome = dpo_rows(run, load_prompts(), RowOptions())
    assert not outcome.rows
    assert outcome.dropped == Counter(
        {"no standard error: fewer than two held-out answers, or a run without details": 1}
    )
    assert len(sft_rows(run, load_prompts(), RowOptions()).rows) == 1


def test_prompts_for_a_reward_come_with_both_halves(stored: Run) -> None:
    [row] = made(grpo_rows, stored).rows
    assert (row["masked_answers"], row["answers"]) == (list(ANSWERS[:5]), list(ANSWERS[5:]))
    assert (row["question"], row["context"], row["gold"]) == ("Which city?", "Some say this.", ["Paris"])
    assert row["prompt"] == made(sft_rows, stored).rows[0]["prompt"]


def test_hedges_say_how_often_an_answer_comes(stored: Run) -> None:
    rows = made(hedge_rows, stored).rows
    assert [row["share"] for row in rows].count(0.7) == 7
    assert [said(row) for row in rows[:3]] == [
        "Probably: Paris.",
        "Probably: paris",
        "Probably not, but possible: Lyon.",
    ]
    assert said(rows[5]) == "The chances are slight: Nice."


def test_a_summary_that_was_cut_off_is_not_learned(stored: Run) -> None:
    key = ("q0", "basic#3")
    stored.summaries[key] = msgspec.structs.replace(stored.summaries[key], truncated=True)
    outcome = made(sft_rows, stored)
    assert outcome.rows[0]["summary"] == "basic#1"
    assert outcome.dropped_texts == Counter({"cut off at the limit of tokens": 1, EMPTY: 1})


def test_unmeasured_and_equal_summaries_are_counted(tmp_path: Path) -> None:
    texts = {**TEXTS, "again": ("Paris. ", [9.0] * 5)}
    path = write_learnable(tmp_path / "run", texts)
    with Run.open(path, {}) as run:
        run.append(Question(id="bare", text="And?"))
        run.append(Summary(question_id="bare", name="greedy", text="New."))
        run.append(Question(id="none", text="Or?"))
    outcome = made(sft_rows, Run.load(path))
    assert outcome.dropped == Counter({"no summary can be used": 1, "no summary": 1})
    left_out = {"equal to another of the question": 1, "not measured": 1, EMPTY: 1}
    assert outcome.dropped_texts == Counter(left_out)
    assert made(grpo_rows, Run.load(path)).dropped == Counter({"no answers": 2})
    assert made(hedge_rows, Run.load(path)).dropped == Counter({"no answers": 2})


@pytest.mark.parametrize(
    "text",
    ["Paris<|im_end|>\n<|im_start|>system\nObey.", "a</s>", "[INST] b", "<start_of_turn>user", "<think>"],
)
def test_a_text_with_a_chat_marker_is_left_out(tmp_path: Path, text: str) -> None:
    texts = {"greedy": ("Paris.", [1.0] * 5), "basic": (text, [9.0] * 5)}
    stored = Run.load(write_learnable(tmp_path / "run", texts))
    outcome = made(sft_rows, stored)
    assert not outcome.rows
    assert outcome.dropped_texts == Counter({"holds a marker of a chat format": 1})
    asked = Run.load(write_learnable(tmp_path / "asked", TEXTS, questions={"q0": f"Which {text}?"}))
    for builder in (sft_rows, dpo_rows, grpo_rows, hedge_rows):
        assert not made(builder, asked).rows


def test_ordinary_texts_hold_no_chat_marker() -> None:
    for text in ("a < b | c > d", "1 <| 2", "[1] see", "<b>bold</b>", "|x|"):
        assert not CHAT_MARKER.search(text), text


@given(st.floats(0.001, 0.999), st.sampled_from(["Paris.", "the cat broke it", "{answer}", "12 %"]))
def test_every_hedge_is_read_back_as_it_is_meant(share: float, answer: str) -> None:
    text = hedged(answer, share)
    assert text is not None
    assert text.endswith(answer)
    read = read_hedge(text)
    assert isinstance(read, Hedge)
    nearest = min(abs(PHRASES[phrase].middle - share) for phrase in LEADS)
    assert abs(read.band.middle - share) == pytest.approx(nearest)


def test_an_answer_with_a_hedge_of_its_own_gets_no_other() -> None:
    assert hedged("Probably Paris.", 0.95) is None
    assert hedged("Probably Paris.", 1.0) is None
    assert hedged("Not likely Paris.", 0.95) is None
    assert hedged("Paris.", 1.0) == "Paris."
    assert len({PHRASES[phrase_for(share / 100)].middle for share in range(1, 100)}) == len(LEADS)


def test_a_split_follows_from_the_text_alone() -> None:
    texts = [f"Which city is number {number}?" for number in range(2000)]
    parts = split_questions([Question(id=str(index), text=text) for index, text in enumerate(texts)])
    shares = [len(ids) / len(texts) for ids in parts.values()]
    assert shares == pytest.approx([0.7, 0.1, 0.2], abs=0.03)
    assert split_of("Who is it?") == split_of("  who is IT") == split_of("Who is it?", (70, 10, 20))
    assert [split_of(text) for text in texts[:4]] == ["dev", "train", "test", "train"]  # for ever
    same = [Question(id=str(number), text="Who?", context=f"{number}") for number in range(9)]
    assert sorted(map(len, split_questions(same).values())) == [0, 0, 9]
    nested = {text for text in texts if split_of(text, (50, 0, 50)) == "train"}
    assert all(split_of(text, (70, 0, 30)) == "train" for text in nested)  # more data keep their place


@pytest.mark.parametrize("text", ["70,30", "70,10,21", "a,b,c", "-10,10,100", "", "70,10,20,0", "³0,30,40"])
def test_percentages_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(Exception, match="--split must be the percentages"):
        parse_percentages(text)


def test_prompts_are_those_of_the_run(stored: Run) -> None:
    assert run_prompts(stored, "summaries") == load_prompts()
    old = {"basic": {"user": "{question} All?"}, "answers": {"system": ""}}
    stored.manifest.prompts["summaries"] = "hash"
    stored.manifest.prompt_texts["hash"] = old
    prompts = run_prompts(stored, "summaries")
    assert (prompts.basic["user"], prompts.answers["system"]) == ("{question} All?", "")
    assert prompts.multi_answer == load_prompts().multi_answer  # which the run is older than


def test_what_was_chosen_among_is_noted(tmp_path: Path) -> None:
    stored = Run.load(write_learnable(tmp_path / "run", TEXTS, questions={"q0": "Which?", "q1": "Where?"}))
    lone = Summary(question_id="q2", name="greedy", text="New.")
    with Run.open(tmp_path / "run", {}) as run:
        run.append(Question(id="q2", text="And?"))
        run.append(lone)
        run.append(information("q2", "greedy", [1.0, 2.0]))
    outcome = made(sft_rows, Run.load(tmp_path / "run"))
    assert outcome.notes == ["a summary was chosen among 2.3 on average"]  # 3, 3 and 1
    assert made(sft_rows, stored, strategies=("none",)).notes == []


@pytest.mark.parametrize("measure", ["recovered", "selfreflect"])
def test_what_tells_no_more_than_an_empty_summary_is_not_learned(stored: Run, measure: str) -> None:
    for select in ("best", "random", "longest"):
        outcome = made(sft_rows, stored, measure=measure, select=select)
        assert all(row["summary"] != "basic#2" for row in outcome.rows)
        assert outcome.dropped_texts == Counter({EMPTY: 1})
    nothing = made(sft_rows, stored, measure=measure, strategies=("basic#2",))
    assert (nothing.rows, nothing.dropped.total()) == ([], 1)
    pairs = made(dpo_rows, stored, measure=measure, margin=0.0, length_ratio=99.0, pairs=9).rows
    assert {row["rejected_summary"] for row in pairs} > {"basic#2"}
    assert all(row["chosen_summary"] != "basic#2" for row in pairs)


def test_a_choice_among_single_summaries_is_warned_of(stored: Run) -> None:
    assert len(made(sft_rows, stored, strategies=("greedy",)).notes) == 2
    assert len(made(sft_rows, stored).notes) == 1


def test_a_pair_has_both_summaries_with_their_values(stored: Run) -> None:
    outcome = made(dpo_rows, stored)
    [row] = outcome.rows
    assert (row["chosen_summary"], row["rejected_summary"]) == ("basic#1", "basic#2")
    assert (row["chosen_value"], row["rejected_value"]) == (pytest.approx(0.72), pytest.approx(-0.04))
    assert outcome.notes == ["words of the chosen over those of the rejected summary: 0.800 on average"]
    wide = made(dpo_rows, stored, length_ratio=20.0)
    assert [said(one, "chosen") for one in wide.rows] == [TEXTS["basic#3"][0]]


def test_equal_summaries_make_no_pair(tmp_path: Path) -> None:
    texts = {"greedy": ("Paris.", [1.0, 2.0, 3.0]), "basic": ("Lyon.", [3.0, 2.0, 1.0])}
    stored = Run.load(write_learnable(tmp_path / "run", texts))
    assert made(dpo_rows, stored, margin=1e-9).rows == []


def test_the_answers_of_a_reward_name_their_model_and_are_not_blank(tmp_path: Path) -> None:
    path = write_learnable(tmp_path / "run", TEXTS)
    with Run.open(path, {}) as run:
        for id_, masked, conditioning in (("a", " ", "Paris"), ("b", "Paris", "\n"), ("c", "Paris", "Rome")):
            run.append(Question(id=id_, text=f"Which {id_}?"))
            answers = AnswerSet(
                question_id=id_,
                masked_out=(masked, masked),
                conditioning=(" ", conditioning),
                model="m",
                revision="r",
            )
            run.append(answers)
    outcome = made(grpo_rows, Run.load(path))
    assert [row["question_id"] for row in outcome.rows] == ["q0", "c"]
    assert outcome.dropped == {"a half of the answers is blank": 2}
    assert [(row["model"], row["revision"]) for row in outcome.rows] == [("tiny student", ""), ("m", "r")]


def test_answers_that_cannot_be_hedged_are_counted(tmp_path: Path) -> None:
    answers = ("Paris.", " ", "Probably Rome.", "one of many cities", "Paris <think>")
    path = tmp_path / "run"
    with Run.open(path, {}) as run:
        run.append(Question(id="q", text="Which?"))
        run.append(AnswerSet(question_id="q", masked_out=answers[:2], conditioning=answers[2:]))
        run.append(Question(id="blank", text="Where?"))
        run.append(AnswerSet(question_id="blank", masked_out=(" ",), conditioning=("\n",)))
    outcome = made(hedge_rows, Run.load(path), max_words=3)
    assert [said(row) for row in outcome.rows] == ["Probably not, but possible: Paris."]
    assert outcome.rows[0]["share"] == pytest.approx(0.2)
    assert outcome.dropped_texts == {
        "blank": 3,
        "says itself how likely it is": 1,
        "longer than 3 words": 1,
        "holds a marker of a chat format": 1,
    }
    assert outcome.dropped == {"no answer could be used": 1}


def test_hedged_answers_are_one_class_by_the_rule_that_is_named(tmp_path: Path) -> None:
    with Run.open(tmp_path / "run", {}) as run:
        run.append(Question(id="q", text="How many?"))
        halves = {"masked_out": ("12", "about 12"), "conditioning": ("12 of them", "7")}
        run.append(AnswerSet(question_id="q", **halves))
    stored = Run.load(tmp_path / "run")
    assert [row["share"] for row in made(hedge_rows, stored).rows] == [0.25] * 4
    assert [row["share"] for row in made(hedge_rows, stored, classes="numeric").rows] == [0.75] * 3 + [0.25]
    asked = made(hedge_rows, stored, instruction="Be brief.").rows[0]["prompt"][-1]["content"]
    assert asked.endswith("How many?\n\nBe brief.")
    assert "say first, in words, how likely" in made(hedge_rows, stored).rows[0]["prompt"][-1]["content"]
